"""DistilFACE: its loss against loops, two views, gradient, what is refused; a run from a raw decoder, stopped by patience."""

from __future__ import annotations

import json
import re
from pathlib import Path

import commands
import jax
import numpy as np
import pytest
from conftest import make_decoder, save_encoder, sentences, write_senseless_pairs
from distilface_setting import setting
from naive import naive_info_nce
from onnx_setting import ask_cosine
from parity import rounding
from simtde_setting import random_tokens
from steps import gradient_of, loss_of

import jdistill
from configs import distilface as config_file
from jdistill.core.errors import UserError
from jdistill.export import command as exporter
from jdistill.export.onnx import runtime
from jdistill.retrieval.index import unit_rows
from jdistill.students.transformer import make_student

OF_COSINES = rounding(32, 2) / 0.05  # what rounding of cosines 32 wide moves a loss by, behind the temperature


def test_the_loss_against_loops() -> None:
    method, batch = setting(**{"loss.distil": 0.3})
    total, metrics, reps = loss_of(method)(method.params, batch, jax.random.key(0))
    first, second = np.asarray(reps["views"])[:, 0], np.asarray(reps["views"])[:, 1]
    nce = naive_info_nce(first, second, 0.05)
    mine = first.astype(np.float64) @ method.params["W"]
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(mine, batch["teacher"], strict=True)]
    assert float(metrics["info_nce"]) == pytest.approx(nce, abs=OF_COSINES)
    assert float(total) == pytest.approx(nce + 0.3 * (1 - np.mean(cosines)), abs=OF_COSINES)


def test_a_text_that_stands_twice_in_a_batch_is_no_negative_of_itself() -> None:
    method, batch = setting()
    rows = np.array([4, 7, 4, 1, 7, 4], np.int32)
    total, _, reps = loss_of(method)(method.params, batch | {"row": rows}, jax.random.key(0))
    first, second = np.asarray(reps["views"])[:, 0], np.asarray(reps["views"])[:, 1]
    nce = naive_info_nce(first, second, 0.05, no_negative=lambda i, j: rows[i] == rows[j])
    assert float(total) == pytest.approx(nce, abs=OF_COSINES) and nce < naive_info_nce(first, second, 0.05) - 0.1


@pytest.mark.parametrize("distil", [0.0, 0.3])
def test_an_aligned_student_exports_W_and_is_contrasted_behind_it(distil: float) -> None:
    method, batch = setting(**{"loss.align": 0.5, "loss.distil": distil})
    assert set(method.params) == {"student"} and method.student.dim == batch["teacher"].shape[1]
    W_DxT = np.random.default_rng(0).standard_normal(method.student.dense[0]["kernel"].shape).astype(np.float32)
    params = {"student": method.params["student"] | {"dense": {"0": {"kernel": W_DxT}}}}
    total, metrics, reps = loss_of(method)(params, batch, jax.random.key(0))
    first, second = (np.asarray(reps["views"], np.float64)[:, view] for view in (0, 1))
    naive, cosine = 0.0, 0.0
    for mine, theirs in zip(first, batch["teacher"].astype(np.float64), strict=True):
        of_mine, of_theirs = mine / np.linalg.norm(mine), theirs / np.linalg.norm(theirs)
        naive, cosine = (
            naive + np.square(of_mine - of_theirs).sum() / len(first),
            cosine + of_mine @ of_theirs / len(first),
        )
    np.testing.assert_allclose(metrics["align"], naive, rtol=1e-5)
    expected = naive_info_nce(first, second, 0.05) + 0.5 * naive + distil * (1 - cosine)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    # What is exported gives these very vectors, where nothing is dropped.
    _, _, whole = loss_of(method)(params, batch, None)
    ids = [row[mask].tolist() for row, mask in zip(batch["ids"], batch["mask"], strict=True)]
    exported = method.trained(params).encode_ids(ids)
    np.testing.assert_allclose(unit_rows(exported), unit_rows(np.asarray(whole["views"])[:, 0]), atol=1e-5)


def test_the_two_views_of_every_text_differ_by_their_dropout_alone() -> None:
    method, batch = setting()
    views, without = (
        np.asarray(loss_of(method)(method.params, batch, key)[2]["views"]) for key in (jax.random.key(0), None)
    )
    assert views.shape == (6, 2, 32) and np.abs(views[:, 0] - views[:, 1]).max(1).min() > 1e-4
    np.testing.assert_array_equal(without[:, 0], without[:, 1])


@pytest.mark.parametrize("chunk", [0, 2])
def test_gradient_against_finite_differences(chunk: int) -> None:
    method, batch = setting()
    (gradient, _), of_params = gradient_of(method, batch, chunk), loss_of(method)

    def loss(at: float) -> float:
        params = jax.tree.map(np.array, method.params)
        params["student"]["model"]["layer_0"]["up"]["kernel"][3, 5] += at
        return float(of_params(params, batch)[0])

    step = 2e-2
    numeric = (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step)
    found = float(gradient["student"]["model"]["layer_0"]["up"]["kernel"][3, 5])
    assert found == pytest.approx(numeric, rel=2e-2, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss.temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"loss.temperature": -0.05}, "temperature=-0.05 must be above 0"),
        ({"loss.distil": -1.0}, "distil=-1.0 must be 0 or above"),
        ({"loss.distil": 1.0, "teacher": ""}, "distil=1.0 weighs the teacher's vectors: name one"),
        ({"loss.align": -1.0}, "align=-1.0 must be 0 or above"),
        ({"loss.align": 1.0, "teacher": ""}, "align=1.0 weighs the teacher's vectors: name one"),
        ({"student.dropout": 0.0}, "dropout=0.0: the two views"),
        ({"batch_size": 1}, "at least 2 texts"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        setting(**changes)


@pytest.mark.parametrize(("which", "taken"), [("first", (0, 1)), ("last", (2, 3))])
def test_a_decoders_first_or_last_layers_keep_its_final_norm(which: str, taken: tuple[int, int]) -> None:
    cfg = config_file.get_config()
    cfg.student.layers, cfg.student.copy_layers = 2, which
    decoder = make_decoder(num_layers=4)
    student = make_student(cfg, decoder, random_tokens(20))
    expected = {f"layer_{i}": decoder.params[f"layer_{k}"] for i, k in enumerate(taken)}
    expected |= {name: decoder.params[name] for name in ("word", "final_norm")}
    jax.tree.map(np.testing.assert_array_equal, student.params, expected)
    assert student.config.num_layers == 2


def test_a_run_from_a_raw_decoder_ends_by_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = save_encoder(make_decoder(num_layers=4), tmp_path / "decoder")
    (tmp_path / "text.txt").write_text("\n".join(sentences(300)))
    write_senseless_pairs(tmp_path / "dev.csv", 6)
    settings: dict[str, object] = {
        "start": decoder,
        "text": tmp_path / "text.txt",
        "text_column": "",
        "dev_pairs": tmp_path / "dev.csv",
        "batch_size": 16,
        "max_steps": 200,  # 50 checkpoints: senseless scores make no record in three of them long before
        "checkpoint_every": 4,
        "patience": 3,
        "learning_rate": 0.01,
        "student.layers": 2,
        "student.attention": "bidirectional",
        "pooling": "max_first_last",
        "index_texts": 0,
        "latency_texts": 0,
        "onnx": False,
        "cache_dir": tmp_path / "cache",
    }
    done = commands.run_inside(commands.command("configs/distilface.py", tmp_path / "run", settings))
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.search(r"stopped at step (\d+): no better dev score since step (\d+)", done.stderr)
    assert found and int(found[1]) == int(found[2]) + 12, done.stderr[-2000:]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["training"]["steps"] == int(found[1]) and "teacher_scored_pairs" in results
    assert f"dev pairs, Spearman {results['scored_pairs']:.2f} of the start's " in done.stderr
    model = jdistill.load(str(tmp_path / "run" / "export"))
    assert model.pooling == "max_first_last" and not model.config.causal and model.config.num_layers == 2
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert f"trained, without a teacher, by distilface from `{decoder}`" in card
    assert "--plain" not in card  # another pooler would not spare a decoder that reads both ways its code
    assert "Agreement with its start" in card
    assert "AutoModel` alone reads it both ways from transformers 5 on" in card
    out = ["--workdir", str(tmp_path / "run"), "--out", str(tmp_path / "plain")]
    ask_cosine(
        monkeypatch, 0.9
    )  # which step is exported, senseless scores decide: how near int8 comes is not the question here
    assert exporter.main([*out, "--plain", "--quantize=int8"]) == 0
    plain = jdistill.load(str(tmp_path / "plain"))
    assert plain.pooling == "avg_first_last" and not (tmp_path / "plain" / "layer_pooling.py").exists()
    jax.tree.map(np.testing.assert_array_equal, plain.params, model.params)
    card = (tmp_path / "plain" / "README.md").read_text()
    assert "the run measured pooler max_first_last, which this is not" in card and "Agreement" not in card
    int8 = runtime.load_onnx_encoder(str(tmp_path / "plain"), "onnx/model_quint8_avx2.onnx").encode(sentences(20))
    assert (unit_rows(int8) * unit_rows(plain.encode(sentences(20)))).sum(1).mean() > 0.9
