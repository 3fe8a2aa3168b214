"""Agreement of a student with its teacher, and the clock that compares their speed."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from jdistill.core.errors import UserError
from jdistill.evals.agreement import agreement, nearest
from jdistill.evals.speed import compare_speed, latency_ms
from jdistill.run.headline import headline_lines

RNG = np.random.default_rng(0)
TEACHER = RNG.normal(size=(300, 16)).astype(np.float32)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_a_perfect_student_of_another_scale_and_basis() -> None:
    same = agreement(TEACHER * RNG.uniform(0.1, 9, (300, 1)), TEACHER)
    assert same["mean_cosine"] == pytest.approx(1, abs=1e-6)
    basis, _ = np.linalg.qr(RNG.normal(size=(16, 16)))
    turned = agreement(TEACHER @ basis, TEACHER)
    assert abs(turned["mean_cosine"]) < 0.9  # other directions, but the same geometry
    for found in (same, turned):
        assert found["spearman"] == pytest.approx(100, abs=0.01) and found["pearson"] == pytest.approx(100, abs=0.01)
        assert found["top10_overlap"] > 99.5


def test_the_mean_cosine_stands_beside_that_of_the_best_constant_vector() -> None:
    teacher = TEACHER + 2.0 * np.eye(16, dtype=np.float32)[3]  # vectors that lie to one side
    constant = unit(teacher).mean(0)
    found = agreement(np.tile(constant, (300, 1)), teacher)
    assert found["constant_cosine"] == pytest.approx(found["mean_cosine"], abs=1e-6) and found["mean_cosine"] > 0.3
    others = constant + RNG.normal(size=(50, 16)) * 0.1
    cosines = unit(others) @ unit(teacher).T
    assert cosines.mean(1).max() < found["constant_cosine"]


def test_widths_may_differ_and_json_can_hold_it() -> None:
    found = agreement(np.concatenate([TEACHER, np.zeros((300, 4), np.float32)], axis=1), TEACHER)
    assert not {"mean_cosine", "constant_cosine"} & found.keys() and found["spearman"] == pytest.approx(100, abs=0.01)
    assert json.loads(json.dumps(found)) == found


def test_figures_are_those_of_the_listed_pairs_when_all_are_listed() -> None:
    student = TEACHER[:100] + RNG.normal(size=(100, 16)) * 0.7
    found = agreement(student, TEACHER[:100])
    pairs = np.array(found["pairs"])  # 100 texts give fewer than 1,000 pairs; [teacher's, student's], four decimals
    assert 400 < len(pairs) < 600
    assert found["spearman"] == pytest.approx(100 * spearmanr(pairs[:, 0], pairs[:, 1]).statistic, abs=0.1)
    assert found["pearson"] == pytest.approx(100 * pearsonr(pairs[:, 0], pairs[:, 1]).statistic, abs=0.1)
    assert 50 < found["spearman"] < 95
    teachers = {round(float(value), 4) for value in (unit(TEACHER[:100]) @ unit(TEACHER[:100]).T).ravel()}
    assert all(any(abs(value - other) < 2e-4 for other in teachers) for value in pairs[:20, 0])


def test_near_pairs_are_among_those_measured() -> None:
    pairs = np.array(agreement(TEACHER, TEACHER)["pairs"])
    random = (unit(TEACHER) @ unit(TEACHER).T)[np.triu_indices(300, 1)]
    assert np.mean(pairs[:, 0] > np.quantile(random, 0.95)) > 0.3 and len(pairs) == 1000


def test_the_pairs_are_the_same_each_time() -> None:
    assert agreement(TEACHER[::-1].copy(), TEACHER) == agreement(TEACHER[::-1].copy(), TEACHER)


def test_neighbours_and_their_overlap_by_a_loop() -> None:
    student = TEACHER + RNG.normal(size=TEACHER.shape) * 0.5

    def loop(vectors: np.ndarray) -> list[list[int]]:
        cosines = unit(vectors) @ unit(vectors).T
        return [sorted((j for j in range(300) if j != i), key=lambda j: -cosines[i, j])[:10] for i in range(300)]

    assert nearest(unit(TEACHER).astype(np.float32), 10).tolist() == loop(TEACHER)
    shared = [len(set(a) & set(b)) for a, b in zip(loop(student), loop(TEACHER), strict=True)]
    assert agreement(student, TEACHER)["top10_overlap"] == pytest.approx(10 * float(np.mean(shared)), abs=0.05)


def test_a_collapsed_or_diverged_student() -> None:
    found = agreement(np.ones((300, 16), np.float32), TEACHER)
    assert found["spearman"] == 0 and found["pearson"] == 0 and found["top10_overlap"] < 20
    broken = TEACHER.copy()
    broken[7, 3] = np.nan
    with pytest.raises(UserError, match="vector of text 7 holds NaN"):
        agreement(broken, TEACHER)


@pytest.mark.parametrize("texts", [1, 2, 3, 5])
def test_few_texts(texts: int) -> None:
    found = agreement(TEACHER[:texts], TEACHER[:texts])
    ranks = {} if texts < 3 else {"spearman": pytest.approx(100), "pearson": pytest.approx(100)}
    pairs, constant = found.pop("pairs"), found.pop("constant_cosine")
    assert found == ranks | {"mean_cosine": pytest.approx(1)} and bool(pairs) == bool(ranks)
    assert constant == pytest.approx(np.linalg.norm(unit(TEACHER[:texts]).mean(0)), abs=1e-6)
    lines = headline_lines({"agreement": found | {"texts": texts}}, "teacher")
    assert len(lines) == (1 if ranks else 0)
    assert headline_lines({"agreement": {"spearman": 1.0}}, "teacher")[0].endswith(
        "on held-out text: Spearman of pair cosines 1.00"
    )
    assert all(f"on {texts} held-out texts: " in line and line.endswith("so few say little") for line in lines)


@pytest.mark.parametrize("texts", [11, 40, 99, 100])
def test_no_overlap_where_chance_alone_makes_much_of_it(texts: int) -> None:
    """Of eleven texts all others are the ten nearest, by any vectors."""
    other = np.random.default_rng(1).normal(size=(texts, 16)).astype(np.float32)
    found = agreement(other, TEACHER[:texts])
    assert found.get("top10_overlap", 0.0) < 15 and ("top10_overlap" in found) == (texts == 100)


class Clocked:
    """Takes a set time by a clock of the test's own, and far longer the first time that it meets a text, as a compiler does."""

    now = 0.0

    def __init__(self, name: str, seconds: float, calls: list[str]):
        self.name, self.seconds, self.calls = name, seconds, calls
        self.num_params = 1000
        self.met: set[str] = set()

    def encode(self, texts: Sequence[str], *, batch_size: int) -> np.ndarray:
        (text,) = texts
        self.calls.append(self.name)
        Clocked.now += self.seconds if text in self.met else 10 * self.seconds
        self.met.add(text)
        return np.zeros((1, 4), np.float32)


def test_speed_takes_turns_and_leaves_out_the_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: Clocked.now)
    calls: list[str] = []
    slow, fast = (Clocked(name, seconds, calls) for name, seconds in (("slow", 0.012), ("fast", 0.004)))
    first, second = compare_speed({"slow": slow, "fast": fast}, ["a", "b"], repeats=2)
    assert "".join(name[0] for name in calls) == "ssff" + "ssff" + "ffss"
    assert first["ratio"] == 1 and first["pass_ratio"] == 1
    assert first["latency_ms"] == pytest.approx(12) and second["latency_ms"] == pytest.approx(4)
    assert second["ratio"] == pytest.approx(3) and second["pass_s"] == pytest.approx(0.008)
    assert {name: second[name] for name in ("model", "framework", "num_params", "bytes")} == {
        "model": "fast",
        "framework": "flax",
        "num_params": 1000,
        "bytes": 4000,
    }
    assert latency_ms(Clocked("new", 0.004, calls), ["a"]) == pytest.approx(4)
