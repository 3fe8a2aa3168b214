"""Stage 2 with a reranker's scores: the loss that a config asks for, what a run learns of them, and where they are refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import commands
import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences
from ibkd_setting import evaluate, setting
from naive import naive_info_nce, naive_listwise_kl, naive_margin_mse
from parity import rounding

from jdistill.core.errors import UserError
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.retrieval.index import unit_rows


def similarities(out: np.ndarray, temperature: float = 0.05, cosine: bool = True) -> np.ndarray:
    """[n, K+1], in loops."""
    out = out.astype(np.float64)
    rows = [[a @ p / (np.linalg.norm(a) * np.linalg.norm(p) if cosine else 1) for p in row] for a, *row in out]
    return np.array(rows) / temperature


def test_margins_alone_are_the_whole_loss() -> None:
    method, batch = setting("finetune_margins")
    assert (~batch["real"]).any()
    total, metrics, reps = evaluate(method, batch)
    naive = naive_margin_mse(similarities(reps["output"]), batch["scores"], batch["real"][:, 1:])
    assert total == metrics["margin_mse"] == pytest.approx(naive, rel=1e-4)
    assert metrics.keys() == {"margin_mse", "loss"}


def test_kl_by_its_temperature_and_weight_stands_beside_in_batch_negatives() -> None:
    method, batch = setting("finetune_kl", **{"loss.in_batch": 0.5})
    plain, _ = setting("finetune")
    total, metrics, reps = evaluate(method, batch)
    naive = naive_listwise_kl(similarities(reps["output"]), batch["scores"] / 2.0, batch["real"][:, 1:])
    assert metrics["kl"] == pytest.approx(naive, rel=1e-4)
    assert total == pytest.approx(0.5 * metrics["info_nce"] + 3 * metrics["kl"] + 0.5 * metrics["hsic"], rel=1e-5)
    unscored, same, _ = evaluate(setting("finetune", output_dim=0)[0], batch)
    # Two programs: what they round of a cosine of 32 products is divided by the temperature.
    assert same["info_nce"] == pytest.approx(metrics["info_nce"], abs=rounding(32, 2) / 0.05)
    assert unscored == pytest.approx(same["info_nce"] + 0.5 * same["hsic"], rel=1e-6)
    assert {
        "in_batch",
        "scores_weight",
        "scores_temperature",
    } <= method.frozen.keys() and "in_batch" not in plain.frozen


def test_dot_products_where_infonce_has_them() -> None:
    method, batch = setting("finetune_margins", **{"loss.own_negatives": True, "loss.in_batch": 1.0})
    _, metrics, reps = evaluate(method, batch)
    out = reps["output"]
    naive = naive_margin_mse(similarities(out, cosine=False), batch["scores"], batch["real"][:, 1:])
    assert metrics["margin_mse"] == pytest.approx(naive, rel=1e-4)
    naive = naive_info_nce(
        out[:, 0], out[:, 1], 0.05, own=out[:, 2:], own_mask=batch["real"][:, 2:], cosine=False,
        no_negative=lambda i, j: {i, j} in ({4, 5}, {2, 6}),
    )  # fmt: skip
    assert metrics["info_nce"] == pytest.approx(naive, rel=1e-4)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(UserError, match="config.loss.scores='mse' is not one of margin_mse, kl, or empty"):
        setting("finetune", **{"loss.scores": "mse"})
    with pytest.raises(
        UserError, match="config.loss.in_batch=0.0 weighs InfoNCE beside the loss of scores, and .* is empty"
    ):
        setting("supervised", **{"loss.in_batch": 0.0})


def rank_agreement(model: Encoder, rows: list[dict]) -> float:
    """The mean over rows of the correlation of the model's cosines with the scores of the row's passages."""
    texts = [text for row in rows for text in (row["query"], row["positive"], *row["negatives"])]
    vectors = unit_rows(model.encode(texts)).reshape(len(rows), 6, -1)
    each = [np.corrcoef(of_row[1:] @ of_row[0], row["scores"])[0, 1] for of_row, row in zip(vectors, rows, strict=True)]
    return float(np.mean(each))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A start, and triplets whose scores mean nothing that a text says: up.jsonl, and, turned round, down.jsonl."""
    folder = tmp_path_factory.mktemp("scores")
    save_encoder(make_encoder(), folder / "start")
    texts, rng = iter(sentences(200)), np.random.default_rng(0)
    rows = [
        {"query": next(texts), "positive": next(texts), "negatives": [next(texts) for _ in range(4)]}
        | {"scores": rng.normal(0, 4, 5).round(3).tolist()}
        for _ in range(32)
    ]
    for name, sign in (("up", 1), ("down", -1)):
        signed = [row | {"scores": [sign * score for score in row["scores"]]} for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in signed))
    return folder


def run(place: Path, name: str, triplets: str, **keys: object) -> subprocess.CompletedProcess:
    settings: dict[str, object] = {
        "teacher": "", "start": place / "start", "text": "", "triplets": place / f"{triplets}.jsonl", "cache_dir": place / "cache",
        "held_out": 0, "length_buckets": 1, "latency_texts": 0, "index_texts": 0, "onnx": False, "dtype": "float32", "student.layers": 1,
        "finetune.batch_size": 16, "finetune.max_steps": 60, "finetune.checkpoint_every": 60, "finetune.learning_rate": 3e-3,
    }  # fmt: skip
    return commands.run_inside(commands.command("configs/ibkd.py:supervised", place / name, settings | keys))


@pytest.mark.parametrize("loss", ["margin_mse", "kl"])
def test_a_run_moves_the_student_to_where_the_scores_are(place: Path, loss: str) -> None:
    rows = [json.loads(line) for line in (place / "up.jsonl").read_text().splitlines()]
    assert abs(rank_agreement(loading.load(str(place / "start")), rows)) < 0.3
    for triplets, sign in (("up", 1), ("down", -1)):
        name = f"{loss}-{triplets}"
        done = run(place, name, triplets, **{"loss.scores": loss, "loss.in_batch": 0.0, "loss.temperature": 0.1})
        assert done.returncode == 0, done.stderr[-3000:]
        assert sign * rank_agreement(loading.load(str(place / name / "export")), rows) > 0.6
        lines = [json.loads(line) for line in (place / name / "finetune" / "metrics.jsonl").read_text().splitlines()]
        losses = [line for line in lines if loss in line]
        assert "info_nce" not in losses[0] and losses[-1][loss] < 0.5 * losses[0][loss]


def test_a_run_without_scores_or_with_equal_ones_is_refused_before_a_step(place: Path) -> None:
    rows = [json.loads(line) for line in (place / "up.jsonl").read_text().splitlines()]
    for name, changed, message in (
        (
            "bare",
            {"scores": None},
            "bare.jsonl has no column scores: python -m jdistill.mine --score_by MODEL writes it",
        ),
        ("equal", {"scores": [1.0] * 5}, "equal.jsonl: no row has two passages with different scores"),
    ):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row | changed) + "\n" for row in rows))
        done = run(place, name, name, **{"loss.scores": "kl"})
        assert done.returncode == 2 and message in done.stderr, done.stderr[-2000:]
        assert not (place / name / "finetune").exists()
