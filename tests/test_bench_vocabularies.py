"""bench/vocabularies.py: how often texts have each piece, and what a search loses by pieces that are gone."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT
from vocabulary_setting import encoder_of, made_up_texts

import jdistill
from jdistill.data.sets.collection import Collection
from jdistill.encoder.encoder import Encoder
from jdistill.export.folder import export
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


def test_counts_go_over_all_texts(teacher: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabularies, "TEXTS_AT_A_TIME", 7)
    naive = Counter(number for text in TEXTS for number in teacher.tokenize([text])[0])
    counts = vocabularies.counts_of(teacher, TEXTS)
    assert {number: int(count) for number, count in enumerate(counts) if count} == dict(naive)


def test_pieces_that_queries_have_cost_and_others_do_not(teacher: Encoder) -> None:
    queries = {str(i): text for i, text in enumerate(TEXTS[:10])}
    documents = {f"d{i}": text for i, text in enumerate(TEXTS)}
    searches = Searches(teacher, [Collection("own", documents, queries, {i: {f"d{i}": 1} for i in queries})])
    of_queries = vocabularies.counts_of(teacher, list(queries.values()))
    whole, _ = cut_vocabulary(teacher, of_queries)  # all that the queries use
    assert vocabularies.cost(teacher, whole, searches) == {
        "queries with a word cut, %": 0.0,
        "keeps, teacher's index": 100.0,
        "cosine": 1.0,
    }
    fewest, _ = cut_vocabulary(teacher, np.zeros_like(of_queries))  # characters alone
    row = vocabularies.cost(teacher, fewest, searches)
    assert row["queries with a word cut, %"] == 100.0 and row["keeps, teacher's index"] < 95 and row["cosine"] < 0.95
