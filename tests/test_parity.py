"""The bound of parity.py: float32's own rounding lies below it, and small defects of a real encoder lie far above."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import real_teacher_folder
from parity import assert_close, excess, rounding
from steps import hidden_states

import jdistill
from jdistill.encoder.encoder import Encoder

TEXTS = ["A man is playing a guitar.", "Short", "The quick brown fox jumps over the lazy dog near the river bank."]


@pytest.mark.parametrize("terms", [16, 384, 4096])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_sum_term_by_term_in_float32_lies_below_whatever_its_size(terms: int, size: float) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2000, terms)).astype(np.float32) for _ in range(2))
    a *= np.float32(size)
    found = np.zeros(2000, np.float32)
    for i in range(terms):  # the worst order that a library could take
        found += a[:, i] * b[:, i]
    exact = (a.astype(np.float64) * b).sum(1)
    assert 0.02 < excess(found, exact, terms) < 1
    assert excess(found * np.float32(1 + 50 * rounding(terms)), exact, terms) > 10


def test_not_a_number_and_another_shape_are_never_close() -> None:
    one = np.ones(3)
    for found, reference in ((one * np.nan, one), (one, one * np.nan), (one, 0 * one), (one * np.inf, one)):
        with pytest.raises(AssertionError, match="more|times what rounding explains"):
            assert_close(found, reference, 4)
    for found, reference in ((one[:1], one), (one[:0], one[:0])):
        with pytest.raises(AssertionError, match="shape|nothing to compare"):
            assert_close(found, reference, 4)
    assert_close(0 * one, 0 * one, 4)


def test_a_report_lists_what_was_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDISTILL_PARITY_REPORT", str(tmp_path / "report.tsv"))
    assert_close(np.float32(1 + 2**-23), 1.0, 4, what="one")
    with pytest.raises(AssertionError, match="two: the largest difference, 1, is"):
        assert_close(2.0, 1.0, 4, what="two")
    rows = [line.split("\t") for line in (tmp_path / "report.tsv").read_text().splitlines()]
    assert [(row[0], row[2]) for row in rows] == [("0.125", "one"), (rows[1][0], "two")] and float(rows[1][0]) > 1e6
    assert all("test_a_report_lists_what_was_compared" in row[1] for row in rows)


@pytest.fixture(scope="module")
def minilm() -> tuple[Encoder, dict[str, np.ndarray], list[np.ndarray]]:
    """The real teacher, tokens, and every hidden state by transformers in float64."""
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    from transformers import AutoModel

    folder = real_teacher_folder()
    model = jdistill.load(str(folder))
    tokens = dict(model.tokenizer(TEXTS, padding=True, return_tensors="np"))
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(folder).double()(
            **{name: torch.tensor(value) for name, value in tokens.items()}, output_hidden_states=True
        )
    return model, tokens, [states.numpy() for states in theirs.hidden_states]


def shares(minilm: tuple[Encoder, dict[str, np.ndarray], list[np.ndarray]], **changes: object) -> list[float]:
    """excess() of each hidden state, by the encoder with these changes of its config."""
    model, tokens, reference = minilm
    config = replace(model.config, **changes)
    ours = hidden_states(config, model.params, tokens["input_ids"], tokens["attention_mask"])
    real = tokens["attention_mask"] == 1
    return [
        excess(np.asarray(a)[real], b[real], config.intermediate_size, max(1, layer))
        for layer, (a, b) in enumerate(zip(ours, reference, strict=True))
    ]


def test_the_real_encoder_lies_below(minilm: tuple) -> None:
    assert max(shares(minilm)) < 1


@pytest.mark.parametrize(
    "defect", [{"layer_norm_eps": 1e-5}, {"layer_norm_eps": 1e-6}, {"activation": "gelu_pytorch_tanh"}], ids=str
)
def test_a_small_defect_of_the_real_encoder_lies_far_above(minilm: tuple, defect: dict) -> None:
    found = shares(minilm, **defect)
    assert min(found[1:]) > 4 and max(found) > 50, found


def test_a_weight_that_was_rounded_to_half_precision_is_told(minilm: tuple) -> None:
    model, tokens, reference = minilm
    params = {**model.params, "layer_0": rounded(model.params["layer_0"])}
    found = shares((replace(model, params=params), tokens, reference))
    assert max(found) > 4, found


def rounded(tree: dict) -> dict:
    """The output kernel of a layer's attention as float16 keeps it."""
    out = tree["attention"]["out"]
    half = np.asarray(out["kernel"]).astype(np.float16).astype(np.float32)
    return {**tree, "attention": {**tree["attention"], "out": {**out, "kernel": half}}}
