"""By which prompts the two texts of a labelled pair are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, sentences

from jdistill.core.errors import UserError
from jdistill.encoder.pair_scorer import PairScorer, pair_vectors
from jdistill.evals.labelled_source import evaluate_labelled, read_labelled
from jdistill.evals.pair_labels import average_precision
from jdistill.models.interaction import random_iem
from jdistill.retrieval.index import row_cosines

PROMPTS = {"query": "winter garden: ", "document": "old stone bridge over the river: ", "plain": "say: "}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Of every text two pairs: with itself, which is right, and with the next, which is not."""
    texts = sentences(20)
    rows = [(text, other, int(text == other)) for i, text in enumerate(texts[:-1]) for other in (text, texts[i + 1])]
    cells = [json.dumps({"sentence1": a, "sentence2": b, "label": label}) for a, b, label in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(cells))
    return tmp_path / "pairs.jsonl"


def test_both_sides_of_a_symmetric_pair_are_read_by_the_default_prompt(pairs: Path) -> None:
    """So that no pair is nearer than a text with itself; a question and its answer have a prompt each."""
    model = replace(make_encoder(num_layers=1), prompts=PROMPTS, default_prompt="plain")
    found = evaluate_labelled(model, read_labelled(str(pairs), "symmetric"))
    assert found["cosine"]["ap"] == 100.0
    asked = read_labelled(str(pairs), "asymmetric").test
    u, v = (
        model.encode(texts, prompt=role) for texts, role in ((asked.queries, "query"), (asked.passages, "document"))
    )
    expected = average_precision(row_cosines(u, v), asked.labels)
    assert evaluate_labelled(model, read_labelled(str(pairs), "asymmetric"))["cosine"]["ap"] == pytest.approx(expected)
    assert expected < 99.0


def test_a_module_reads_the_vectors_that_it_learnt_from(pairs: Path) -> None:
    model = replace(make_decoder(), prompts=PROMPTS)
    scorer = PairScorer(model, random_iem(32, np.random.default_rng(0), 8))
    source = read_labelled(str(pairs), "symmetric")
    found = evaluate_labelled(model, source, scorer)
    logits = scorer.of_vectors(*pair_vectors(model, source.test.queries, source.test.passages), True)
    assert found["module"]["ap"] == pytest.approx(average_precision(logits, source.test.labels))


def test_a_threshold_needs_pairs_of_both_labels(pairs: Path) -> None:
    """Else every pair would be called alike, and accuracy, F1 and recall say nothing."""
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    split = [row | {"split": "test" if i < 20 else "dev"} for i, row in enumerate(rows)]
    split = [row for row in split if row["split"] == "test" or row["label"]]
    pairs.write_text("\n".join(map(json.dumps, split)))
    with pytest.raises(UserError, match="--threshold_split=dev: all 9 pairs have the same label"):
        read_labelled(str(pairs), "symmetric", "test", "dev")
