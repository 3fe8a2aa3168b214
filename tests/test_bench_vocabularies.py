"""bench/vocabularies.py: what a search loses by pieces that are gone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT
from vocabulary_setting import encoder_of, made_up_texts

import jdistill
from configs import base
from jdistill.data.sets.collection import Collection
from jdistill.encoder.encoder import Encoder
from jdistill.export.folder import export
from jdistill.feeds.tokens import tokens_of
from jdistill.students.vocabulary import cut_vocabulary

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import vocabularies
from search_runs import Searches

TEXTS = made_up_texts(60)


@pytest.fixture
def teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Encoder:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    export(encoder_of("word pieces", TEXTS), tmp_path / "teacher")
    return jdistill.load(str(tmp_path / "teacher"))


def test_pieces_that_queries_have_cost_and_others_do_not(teacher: Encoder) -> None:
    queries = {str(i): text for i, text in enumerate(TEXTS[:10])}
    documents = {f"d{i}": text for i, text in enumerate(TEXTS)}
    searches = Searches(teacher, [Collection("own", documents, queries, {i: {f"d{i}": 1} for i in queries})])
    best = searches.ndcg(teacher, teacher)
    of_queries = tokens_of(base.get_config(), teacher, list(queries.values())).counts(teacher.config.vocab_size)
    whole, _ = cut_vocabulary(teacher, of_queries)  # all that the queries use
    assert vocabularies.cost(whole, searches, best) == {
        "queries with a word cut, %": 0.0,
        "keeps, teacher's index": 100.0,
        "cosine": 1.0,
    }
    fewest, _ = cut_vocabulary(teacher, np.zeros_like(of_queries))  # characters alone
    row = vocabularies.cost(fewest, searches, best)
    assert row["queries with a word cut, %"] == 100.0 and row["keeps, teacher's index"] < 95 and row["cosine"] < 0.95
