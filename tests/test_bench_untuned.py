"""bench/untuned.py: whitened vectors are whitened, fewer layers are the start's own, and each model has its rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT
from conftest import make_decoder, make_encoder, save_encoder, sentences, write_senseless_pairs

sys.path += [str(ROOT / "bench"), str(ROOT)]
import record
import untuned

from jdistill.core.errors import UserError


def test_whitened_vectors_of_the_text_spread_alike_along_its_widest_axes() -> None:
    encoder, texts = make_encoder(), sentences(300)
    x_NxD = encoder.encode(texts).astype(np.float64)
    whitened = untuned.Whitened(encoder, texts, 5)
    found = whitened.encode(texts).astype(np.float64)
    assert whitened.dim == 5 and found.shape == (300, 5)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(found.T @ found / 300, np.eye(5), atol=1e-3)
    # The axes by another way: of the covariance the largest eigenvectors span what W does.
    covariance = np.cov(x_NxD.T, bias=True)
    axes = np.linalg.eigh(covariance)[1][:, -5:]
    spanned = np.linalg.qr(whitened.W_DxE)[0]
    np.testing.assert_allclose(np.linalg.svd(axes.T @ spanned, compute_uv=False), 1, atol=1e-6)


def test_more_axes_than_the_texts_have_are_refused() -> None:
    with pytest.raises(UserError, match="--width 9: 6 texts' vectors spread along 5 directions alone"):
        untuned.Whitened(make_encoder(), sentences(6), 9)


def test_each_depth_and_each_model_has_a_row_a_pooler_and_more_where_it_is_whitened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = make_decoder(num_layers=4)
    start = save_encoder(decoder, tmp_path / "decoder")
    (tmp_path / "text.txt").write_text("\n".join(sentences(200)))
    write_senseless_pairs(tmp_path / "dev.csv", 12)
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    arguments = ["--start", start, "--text", tmp_path / "text.txt", "--dev_pairs", tmp_path / "dev.csv", "--layers", 2]
    arguments += ["--attention", "causal", "--models", start, "--width", 16, "--texts", 150]
    monkeypatch.setattr(sys, "argv", ["untuned.py", *map(str, arguments)])
    untuned.main()
    runs = json.loads((tmp_path / "results" / "untuned.json").read_text())["runs"]
    rows = [row for run in runs for row in run["rows"]]
    (words,) = (row for row in rows if row["model"] == "none")
    assert np.isfinite(words["dev"])
    by_depth = {layers: [row for row in rows if row["layers"] == layers] for layers in (2, 4)}
    # Of 11 and 14 poolers one, cls, gives all texts the vector of the token that they begin with.
    assert {layers: len(of) for layers, of in by_depth.items()} == {2: 11 + 10, 4: 14 + 13}
    assert {row["pooler"] for row in rows if not row["whitened"] and row is not words} - {
        row["pooler"] for row in rows if row["whitened"]
    } == {"cls"}
    assert all(np.isfinite(row["dev"]) and "average" not in row for row in rows)
    two = untuned.first_layers(decoder, 2, "causal")
    np.testing.assert_array_equal(two.params["layer_1"]["up"]["kernel"], decoder.params["layer_1"]["up"]["kernel"])
    assert two.config.num_layers == 2 and two.config.causal
