"""D2LLM's losses against naive float64 loops, gradients by finite differences, and every edge: ties, masks, empty sides."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jdistill.losses import imitation
from jdistill.losses.imitation import FORMS, cosines

# One program a case, as in a step: op by op, every shape of every operation is one.
contrastive_imitation = jax.jit(imitation.contrastive_imitation, static_argnums=8)
hard_over_easy = jax.jit(imitation.hard_over_easy, static_argnums=4)
rank_imitation, score_imitation = jax.jit(imitation.rank_imitation), jax.jit(imitation.score_imitation)
feature_imitation = jax.jit(imitation.feature_imitation)
n, C, M, TAU = 5, 9, 6, 0.7
KINDS = np.array(["P", "P", "H", "H", "H", "I", "I", "I", "-"])


def setting(seed: int = 0) -> dict[str, np.ndarray]:
    """Queries with one or two positives, gaps, ties in the teacher's logits, and one without hard, one without easy negatives."""
    rng = np.random.default_rng(seed)
    kind = np.array([rng.permutation(KINDS) for _ in range(n)])
    kind[1][kind[1] == "H"] = "-"
    kind[2][kind[2] == "I"] = "-"
    kind[3][np.flatnonzero(kind[3] == "P")[0]] = "-"
    teacher = np.round(rng.normal(0, 2, (n, C)), 1)
    teacher[4, np.flatnonzero(kind[4] != "P")] = np.round(teacher[4, np.flatnonzero(kind[4] != "P")])
    return {
        "student": rng.normal(0, 1, (n, C)),
        "teacher": teacher,
        "positive": kind == "P",
        "hard": kind == "H",
        "easy": kind == "I",
        "others": rng.normal(0, 1, (n, M)),
        "other_mask": rng.random((n, M)) < 0.7,
    }


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def naive_ci(d: dict[str, np.ndarray], form: str) -> float:
    total = []
    for i in range(n):
        z, s = d["student"][i] / TAU, [sigmoid(x) for x in d["teacher"][i]]
        others = [math.exp(x / TAU) for x, real in zip(d["others"][i], d["other_mask"][i], strict=True) if real]
        hard = [math.exp((1 - s[k]) * z[k]) for k in np.flatnonzero(d["hard"][i])]
        easy = [math.exp((1 - s[k]) * z[k]) for k in np.flatnonzero(d["easy"][i])]
        plain = [math.exp(z[k]) for k in np.flatnonzero(d["easy"][i])]
        each = []
        for j in np.flatnonzero(d["positive"][i]):
            up = math.exp(s[j] * z[j])
            if form == "joint":
                each.append(-math.log(up / (up + sum(hard) + sum(easy) + sum(others))))
            elif form == "paper":
                each.append(-math.log(up / (sum(hard) + sum(easy) + sum(others))))
            else:
                top = math.exp(z[j])
                each.append(-math.log(up / (up + sum(hard))) - math.log(top / (top + sum(plain) + sum(others))))
        if each:
            total.append(sum(each) / len(each))
    return sum(total) / len(total)


def ci(d: dict[str, np.ndarray], form: str, student: jax.Array | None = None) -> jax.Array:
    scores = jax.nn.sigmoid(jnp.asarray(d["teacher"], jnp.float32))
    given = jnp.asarray(d["student"], jnp.float32) if student is None else student
    masks = d["positive"], d["hard"], d["easy"]
    return contrastive_imitation(
        given, scores, *masks, jnp.asarray(d["others"], jnp.float32), d["other_mask"], TAU, form
    )


def naive_rank(d: dict[str, np.ndarray]) -> float:
    found = []
    for i in range(n):
        at = np.flatnonzero(d["positive"][i] | d["hard"][i])
        if len(at):
            a, b = d["student"][i, at], d["teacher"][i, at]
            constant = a.std() == 0 or b.std() == 0
            found.append(0.0 if constant else 1 - np.corrcoef(a, b)[0, 1])
    return float(np.mean(found))


def naive_scores(d: dict[str, np.ndarray]) -> float:
    found = []
    for i in range(n):
        at = np.flatnonzero(d["positive"][i] | d["hard"][i])
        each = []
        for j in at:
            s, z = sigmoid(d["teacher"][i, j]), d["student"][i, j]
            each.append(-s * math.log(sigmoid(z)) - (1 - s) * math.log(sigmoid(-z)))
        if each:
            found.append(sum(each) / len(each))
    return float(np.mean(found))


def naive_hard_over_easy(d: dict[str, np.ndarray], weight: str) -> float:
    found = []
    for i in range(n):
        hard, easy = np.flatnonzero(d["hard"][i]), np.flatnonzero(d["easy"][i])
        if not len(hard) or not len(easy):
            continue
        t = d["teacher"][i]
        both = sorted([*hard, *easy], key=lambda k: (-t[k], k))
        rank = {k: r for r, k in enumerate(both, 1)}
        ideal = sum((2 ** sigmoid(t[k]) - 1) / math.log2(1 + rank[k]) for k in both)
        total = 0.0
        for j in hard:
            for k in easy:
                if t[j] > t[k]:
                    lam = sigmoid(t[j]) - sigmoid(t[k])
                    if weight == "ndcg":
                        places = abs(1 / math.log2(1 + rank[j]) - 1 / math.log2(1 + rank[k]))
                        lam = abs(2 ** sigmoid(t[j]) - 2 ** sigmoid(t[k])) * places / ideal
                    total -= lam * math.log(sigmoid(d["student"][i, j] - d["student"][i, k]))
        found.append(total / len(hard) / len(easy))
    return float(np.mean(found))


def features(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, (n, C, 7)), rng.normal(0, 1, (n, C, 12))


def naive_features(d: dict[str, np.ndarray], y_s: np.ndarray, y_t: np.ndarray) -> float:
    found = []
    for i in range(n):
        at = np.flatnonzero(d["positive"][i] | d["hard"][i])
        total = 0.0
        for j in at:
            for k in at:
                sides = [y[i, j] @ y[i, k] / np.linalg.norm(y[i, j]) / np.linalg.norm(y[i, k]) for y in (y_t, y_s)]
                total += (sides[0] - sides[1]) ** 2
        if len(at):
            found.append(total)
    return float(np.mean(found))


@pytest.mark.parametrize("seed", range(3))
def test_each_loss_equals_loops(seed: int) -> None:
    d = setting(seed)
    for form in FORMS:
        assert float(ci(d, form)) == pytest.approx(naive_ci(d, form), rel=1e-5, abs=1e-6)
    near = d["positive"] | d["hard"]
    student, teacher = (jnp.asarray(d[name], jnp.float32) for name in ("student", "teacher"))
    assert float(rank_imitation(student, teacher, near)) == pytest.approx(naive_rank(d), rel=1e-5)
    assert float(score_imitation(student, jax.nn.sigmoid(teacher), near)) == pytest.approx(naive_scores(d), rel=1e-5)
    for weight in ("ndcg", "difference"):
        found = float(hard_over_easy(student, teacher, d["hard"], d["easy"], weight))
        assert found == pytest.approx(naive_hard_over_easy(d, weight), rel=1e-5, abs=1e-7)
    y_s, y_t = features(seed)
    found = float(feature_imitation(jnp.asarray(y_s), cosines(jnp.asarray(y_t)), near))
    assert found == pytest.approx(naive_features(d, y_s, y_t), rel=1e-5)


@pytest.mark.parametrize("which", [*FORMS, "rank", "scores", "ndcg", "difference", "features"])
def test_gradients_against_finite_differences(which: str) -> None:
    d = setting()
    near, teacher = d["positive"] | d["hard"], jnp.asarray(d["teacher"], jnp.float32)
    y_s, y_t = features()

    def loss(x: jax.Array) -> jax.Array:
        if which in FORMS:
            return ci(d, which, x)
        if which == "rank":
            return rank_imitation(x, teacher, near)
        if which == "scores":
            return score_imitation(x, jax.nn.sigmoid(teacher), near)
        if which == "features":
            return feature_imitation(x, cosines(jnp.asarray(y_t)), near)
        return hard_over_easy(x, teacher, d["hard"], d["easy"], which)

    x = np.asarray(y_s if which == "features" else d["student"], np.float32)
    gradient, rng, h = np.asarray(jax.jit(jax.grad(loss))(x)), np.random.default_rng(0), 1e-2
    for _ in range(12):
        direction = rng.normal(0, 1, x.shape).astype(np.float32)
        moved = [float(loss(jnp.asarray(x + by * direction))) for by in (h, -h, 2 * h, -2 * h)]
        numeric = (8 * (moved[0] - moved[1]) - (moved[2] - moved[3])) / (12 * h)
        assert float((gradient * direction).sum()) == pytest.approx(numeric, rel=2e-2, abs=1e-4)
    if which != "features":
        padding = ~(d["positive"] | d["hard"] | d["easy"])
        assert not gradient[padding].any()


def test_empty_sides_and_constant_rows_are_finite_with_no_gradient() -> None:
    d = setting()
    no = np.zeros_like(d["positive"])
    student, teacher = (jnp.asarray(d[name], jnp.float32) for name in ("student", "teacher"))
    of_student = jax.jit(jax.value_and_grad(lambda x, hard, easy: hard_over_easy(x, teacher, hard, easy)))
    for hard, easy in ((no, d["easy"]), (d["hard"], no), (no, no)):
        value, gradient = of_student(student, hard, easy)
        assert float(value) == 0.0 and not np.asarray(gradient).any()
    for form in FORMS:
        nothing = contrastive_imitation(
            student, teacher, no, d["hard"], d["easy"], student[:, :2], no[:, :2], TAU, form
        )
        assert float(nothing) == 0.0
    for form in FORMS:
        value, gradient = jax.jit(
            jax.value_and_grad(
                lambda x, form=form: contrastive_imitation(
                    x, jax.nn.sigmoid(teacher), d["positive"], no, no, student[:, :2], no[:, :2], TAU, form
                )
            )
        )(student)
        assert float(value) == pytest.approx(0.0, abs=1e-6)
        np.testing.assert_allclose(gradient, 0, atol=1e-6)
    near, ranks = d["positive"] | d["hard"], jax.jit(jax.value_and_grad(imitation.rank_imitation))
    for a, b in ((jnp.ones_like(student), teacher), (student, jnp.ones_like(teacher))):
        value, gradient = ranks(a, b, near)
        assert float(value) == 0.0 and not np.asarray(gradient).any()
    for constant in (-13.81, 7.3, 1e-3, 2.9e4):  # whose mean is not exact in float32
        for width in (5, 7, 9, 10):
            equal, other = jnp.full((3, width), constant), jnp.asarray(np.random.default_rng(0).normal(size=(3, width)))
            every = jnp.ones((3, width), bool)
            for a, b in ((equal, other), (other, equal)):
                value, gradient = ranks(a, b, every)
                assert float(value) == 0.0 and not np.asarray(gradient).any(), (constant, width)
    one = np.zeros_like(near)
    one[:, 0] = True
    assert float(rank_imitation(student, teacher, one)) == 0.0
    assert float(feature_imitation(student[..., None], cosines(teacher[..., None]), no)) == 0.0
    scores = jax.jit(jax.value_and_grad(imitation.score_imitation))
    value, gradient = scores(student, jax.nn.sigmoid(teacher), no)
    assert float(value) == 0.0 and not np.asarray(gradient).any()
    far = jnp.asarray([[400.0, -400.0]])  # whose sigmoid is 1 and 0 in float32
    value, gradient = scores(far, jax.nn.sigmoid(-far), jnp.ones((1, 2), bool))
    assert float(value) == pytest.approx(400.0) and np.isfinite(np.asarray(gradient)).all()


def test_a_judge_that_is_sure_of_no_everywhere_still_ranks() -> None:
    hard = np.tile([[True, True, False, False]], (n, 1))
    values = []
    for base in (0.0, -18.0):  # 2^s - 1 of scores near 1e-8
        teacher = base + np.tile([[1.0, 0.5, -1.0, -2.0]], (n, 1))
        d = {"student": np.zeros((n, 4)), "teacher": teacher, "hard": hard, "easy": ~hard}
        found = float(hard_over_easy(*map(jnp.asarray, (d["student"], teacher, hard, ~hard))))
        values.append((found, naive_hard_over_easy(d, "ndcg")))
    for found, expected in values:
        assert found == pytest.approx(expected, rel=1e-4)
