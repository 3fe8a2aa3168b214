"""Alignment, uniformity and covariance against loops; several encoders side by side."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences

from jdistill import compare
from jdistill.core.errors import UserError
from jdistill.core.json_files import read_json
from jdistill.encoder.encoder import Encoder
from jdistill.evals import geometry


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_alignment_and_uniformity_against_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 11, 5)).astype(np.float32)
    u, v = unit(x.astype(np.float64)), unit(y.astype(np.float64))
    assert geometry.alignment(x, y) == pytest.approx(
        np.mean([((a - b) ** 2).sum() for a, b in zip(u, v, strict=True)]), rel=1e-5
    )
    pairs = [np.exp(-2 * ((a - b) ** 2).sum()) for a, b in itertools.combinations(u, 2)]
    assert geometry.uniformity(x) == pytest.approx(np.log(np.mean(pairs)), abs=1e-5)
    monkeypatch.setattr(geometry, "DISTANCE_ROWS", 4)
    assert geometry.uniformity(x) == pytest.approx(np.log(np.mean(pairs)), abs=1e-5)


def test_vectors_of_zeros_have_a_distance_to_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([[0, 0], [1, 0], [0, 0], [0, 1]], np.float32)
    distances = [2 - 2 * float(a @ b) for a, b in itertools.combinations(x, 2)]
    for rows in (2048, 3):
        monkeypatch.setattr(geometry, "DISTANCE_ROWS", rows)
        assert geometry.uniformity(x) == pytest.approx(np.log(np.mean(np.exp(-2 * np.array(distances)))), abs=1e-9)


def test_equal_vectors_are_aligned_and_not_uniform() -> None:
    x = np.ones((6, 4), np.float32)
    assert geometry.alignment(x, 3 * x) == pytest.approx(0, abs=1e-9)
    assert geometry.uniformity(x) == pytest.approx(0, abs=1e-6)
    for figure in (geometry.uniformity, geometry.covariance):
        with pytest.raises(UserError, match="needs at least 2 texts, not 1"):
            figure(x[:1])


def test_covariance_of_isotropic_and_of_copied_dimensions() -> None:
    x = np.random.default_rng(1).normal(size=(20_000, 6))
    isotropic = geometry.covariance(x)
    np.testing.assert_allclose(np.diag(isotropic), 1, atol=0.05)
    assert geometry.mean_off_diagonal(isotropic) < 0.02
    copied = geometry.covariance(np.concatenate([x, x], axis=1))
    assert np.abs(copied[:6, 6:] - copied[:6, :6]).max() < 1e-6
    assert geometry.mean_off_diagonal(np.array([[9.0, -1.0], [3.0, 9.0]])) == 2.0


@pytest.fixture
def senteval(tmp_path: Path) -> Path:
    """STS-B's test set alone, made up: pairs of equal texts score 5, others 1."""
    folder = tmp_path / "senteval" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    texts = sentences(40)
    pairs = [(a, a if i % 2 else b, 5.0 if i % 2 else 1.0) for i, (a, b) in enumerate(itertools.pairwise(texts))]
    rows = [f"main\tx\t2012\t{i}\t{gold}\t{a}\t{b}\n" for i, (a, b, gold) in enumerate(pairs)]
    (folder / "sts-test.csv").write_text("".join(rows))
    return folder.parents[1]


def test_sts_pairs_of_which_none_mean_the_same_are_refused_before_they_are_encoded(senteval: Path) -> None:
    path = senteval / "STS" / "STSBenchmark" / "sts-test.csv"
    path.write_text(path.read_text().replace("\t5.0\t", "\t3.5\t"))
    with pytest.raises(UserError, match="no pair of STS-B's test set has a score of 4 or more.* highest of 39 is 3.5"):
        geometry.evaluate_geometry(None, senteval, ["a", "b"])  # type: ignore[arg-type]  # which nothing is asked of


def test_encoders_side_by_side(
    senteval: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {f"model {i}": str(save_encoder(make_encoder(seed=i), tmp_path / f"m{i}")) for i in range(2)}
    (tmp_path / "texts.txt").write_text("\n".join(sentences(60, seed=1)))
    out = tmp_path / "out"
    found = compare.compare_models(sources, senteval, str(tmp_path / "texts.txt"), out)
    assert found["model 0"]["geometry"]["alignment"] == pytest.approx(0, abs=1e-6)  # positives are equal texts
    assert found["model 0"]["geometry"]["uniformity"] != found["model 1"]["geometry"]["uniformity"]
    assert np.shape(found["model 1"]["covariance"]) == (16, 16)
    page = (out / "compare.html").read_text()
    assert "model 0" in page and page.count("<img") == 2
    assert sorted(path.name for path in (out / "report").iterdir()) == ["alignment-uniformity.png", "covariance.png"]

    scored: list[str] = []

    def scores(model: Encoder, *_: object) -> dict[str, Any]:
        scored.append(model.source)
        return found["model 0"] | {"fingerprint": model.fingerprint()}

    monkeypatch.setattr(compare, "score_model", scores)
    save_encoder(make_encoder(seed=7), tmp_path / "m1")  # other weights in the same folder
    compare.compare_models(sources, senteval, str(tmp_path / "texts.txt"), out)
    assert scored == [sources["model 1"]]
    scored.clear()
    moved = str(shutil.copytree(sources["model 0"], tmp_path / "elsewhere"))
    renamed = compare.compare_models({"model 2": moved}, senteval, str(tmp_path / "texts.txt"), out)
    assert scored == [] and renamed["model 2"]["source"] == moved  # it is the same model
    assert read_json(out / "compare.json")["models"]["model 2"]["source"] == moved
    (out / "jdistill.json").write_text("{}")  # a kill before the folder's seal knows of the figures costs none
    compare.compare_models(sources, senteval, str(tmp_path / "texts.txt"), out)
    assert scored == []  # a comparison of others between did not drop them
    kept = (out / "compare.json").read_text()
    (out / "compare.json").write_text(kept.replace('"alignment": ', '"alignment": 1', 1))
    compare.compare_models(sources, senteval, str(tmp_path / "texts.txt"), out)
    assert scored == list(sources.values())  # of figures that are not as they were written
    scored.clear()
    path = senteval / "STS" / "STSBenchmark" / "sts-test.csv"
    path.write_text(path.read_text().replace("\t5.0\t", "\t4.5\t"))  # other scores of the same sentences
    compare.compare_models(sources, senteval, str(tmp_path / "texts.txt"), out)
    assert scored == list(sources.values())
    scored.clear()
    unended = tmp_path / "unended"
    unended.mkdir()
    (unended / "config.json").write_text(json.dumps({"method": "ibkd", "teacher": "t", "text": "a.txt"}))
    with pytest.raises(UserError, match="--models=.*unended is the folder of a run that has not ended; the command"):
        other = {"other": str(save_encoder(make_encoder(seed=8), tmp_path / "other"))}
        compare.compare_models(other | {"last": str(unended)}, senteval, str(tmp_path / "texts.txt"), out)
    assert scored == []  # the one that is no model was found before the first was scored
    flags = ["--senteval", str(senteval), "--texts", str(tmp_path / "texts.txt"), "--out", str(out)]
    assert (
        compare.main(["--models", "a=x", "a=y", *flags]) == 2 and "a=y: each is NAME=SOURCE" in capsys.readouterr().err
    )
