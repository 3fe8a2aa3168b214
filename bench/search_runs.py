"""What the benches of search share: a run by configs/search.py with some keys changed, and what its student finds."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from runs import finished_run

from configs import base
from jdistill import Encoder
from jdistill.data.sets.collection import Collection
from jdistill.evals.retrieval import document_vectors, ndcg_in
from jdistill.feeds.teacher_index import dev_document_answers
from jdistill.retrieval.index import EXACT, Index, build_index, row_cosines

# What these benches measure themselves, or not at all.
UNMEASURED = {"evaluate_teacher": False, "index_texts": 0, "latency_texts": 0}
SEARCH_CONFIG = "configs/search.py"


def run_search(
    workdir: Path, settings: Mapping[str, Any], extra: Sequence[str] = (), config: str = SEARCH_CONFIG
) -> dict[str, Any]:
    """The results of a run by configs/search.py, which is run or resumed; one that is complete is not run again.

    Args:
      settings: values of config keys, without "config.".
      extra: further arguments of jdistill.main.
      config: the file, or a variant of it.

    Raises: SystemExit where a signal has stopped the run, which then lies where the same command goes on.
    """
    return finished_run(config, workdir, {**UNMEASURED, **settings}, extra)


class Searches:
    """What the teacher, and each student, finds in the collections. The teacher's vectors of their documents are kept with its other answers,
    so that a bench that is called again does not ask for them anew."""

    def __init__(self, teacher: Encoder, collections: Sequence[Collection]) -> None:
        self.teacher = teacher
        self.collections = collections
        cfg = base.get_config()
        cfg.teacher, cfg.teacher_dtype = teacher.source, "float32"
        self.of_teacher = [build_index(vectors, EXACT) for vectors in dev_document_answers(cfg, collections)]

    def indices(self, model: Encoder) -> list[Index]:
        """Of each collection's documents by a model."""
        return [build_index(document_vectors(model, collection), EXACT) for collection in self.collections]

    def ndcg(self, queries_by: Encoder, documents_by: Encoder) -> float:
        """nDCG@10 x 100, the mean of the collections."""
        filled = self.of_teacher if documents_by is self.teacher else self.indices(documents_by)
        found = [ndcg_in(index, queries_by, of) for index, of in zip(filled, self.collections, strict=True)]
        return 100 * statistics.mean(found)

    @cached_property
    def queries(self) -> list[str]:
        return [text for collection in self.collections for text in collection.queries.values()]

    @cached_property
    def _queries_by_teacher(self) -> np.ndarray:
        return self.teacher.encode(self.queries)

    def query_cosine(self, student: Encoder) -> float:
        """The mean cosine of the student's vectors of all queries to its teacher's."""
        return float(row_cosines(student.encode(self.queries), self._queries_by_teacher).mean())

    def kept(self, student: Encoder, best: float) -> dict[str, float]:
        """What a student keeps of the teacher's own nDCG@10 x 100, `best`, in percent, in either index."""
        return {
            "keeps, own index": round(100 * self.ndcg(student, student) / best, 2),
            "keeps, teacher's index": round(100 * self.ndcg(student, self.teacher) / best, 2),
        }
