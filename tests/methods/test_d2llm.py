"""D2LLM: its loss put together by hand, what has a gradient, which keys are refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_decoder
from d2llm_setting import COUNTS, config, setting
from d2llm_setting import HEAD_SUMS as SUMS
from parity import assert_close
from steps import gradient_of, hidden_states, loss_of

from jdistill.core.errors import UserError
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.losses import imitation
from jdistill.losses.imitation import judge_logits
from jdistill.losses.listed import listwise_kl
from jdistill.methods import METHODS
from jdistill.methods.d2llm import POOLINGS
from jdistill.models import lora
from jdistill.models.interaction import iem, interaction_of
from jdistill.models.pma import pma, random_pma
from jdistill.models.pooling import pool, pool_each

P, K, I = COUNTS
pair_of = jax.jit(iem, static_argnames="branch")


@pytest.mark.parametrize(
    ("symmetric", "block", "changes"),
    [
        (True, 0, {}),
        (False, 0, {}),
        (True, 2, {}),
        (False, 2, {"student.attention": "bidirectional"}),
        (True, 0, {"loss.delta": 3.0, "loss.random_negatives": "asymmetric"}),
        (False, 2, {"loss.delta": 3.0, "loss.random_negatives": "asymmetric"}),
        (True, 0, {"loss.random_negatives": "symmetric"}),
        (False, 0, {"loss.random_negatives": "symmetric", "loss.delta": 0.5, "loss.temperature": 0.7}),
        (False, 0, {"loss.random_negatives": "none"}),
        (True, 0, {"iem_cosine": 5.0, "loss.vectors": 0.7, "loss.listed": 0.4, "loss.temperature": 0.7}),
        (False, 2, {"loss.vectors": 0.7, "loss.random_negatives": "symmetric"}),
        (False, 0, {"interaction": "cosine", "loss.temperature": 0.05, "loss.listed": 1.0}),
    ],
)
def test_the_loss_by_hand(symmetric: bool, block: int, changes: dict[str, Any]) -> None:
    method, batch = setting(block_size=block, **changes)
    attention, tau = changes.get("student.attention", "causal"), changes.get("loss.temperature", 1.0)
    assert method.student.config.causal == (attention == "causal")
    batch["symmetric"][:] = symmetric
    params = method.params
    total, metrics, reps = loss_of(method)(params, batch)
    n, T = batch["real"].shape
    base = lora.merge(method.frozen["base"], params["adapters"], 16.0)
    y = np.zeros((n, T, reps["vectors"].shape[-1]))
    for i in range(n):
        ids, mask = np.zeros((T, 20), np.int32), np.zeros((T, 20), bool)  # each text in a row of its own
        for t in range(T):
            text = batch["ids"][i][batch["segments"][i] == t + 1]
            ids[t, : len(text)], mask[t, : len(text)] = text, True
        assert (mask.any(1) == batch["real"][i]).all()
        states = hidden_states(method.student.config, base, ids, mask)[-1]
        y[i] = pma(params["pooler"], states, mask, 32)
    assert_close(reps["vectors"], y, *SUMS)
    branch = "symmetric" if symmetric else "asymmetric"

    def cosine(i: int, k: int, j: int) -> tuple[float, np.ndarray]:
        a, b = (x / np.linalg.norm(x) for x in (y[i, 0], y[k, j]))
        return float(a @ b), a * b

    def pair(i: int, k: int, j: int) -> tuple[float, np.ndarray]:
        """Query i with passage j of row k."""
        if changes.get("interaction") == "cosine":
            return cosine(i, k, j)
        z, f = pair_of(params["iem"], *(x[None].astype(np.float32) for x in (y[i, 0], y[k, j])), branch=branch)
        return float(z[0]), np.asarray(f[0])

    z = np.array([[pair(i, i, j)[0] for j in range(1, T)] for i in range(n)])
    features = np.array([[pair(i, i, j)[1] for j in range(1, 1 + P + K)] for i in range(n)])
    cosines = np.array([[cosine(i, i, j)[0] for j in range(1, T)] for i in range(n)])
    others, other_cosines = np.zeros((2, n, n * (T - 1)))
    allowed = np.zeros(others.shape, bool)
    for i in range(n):
        own = set(batch["texts"][i][batch["real"][i]].tolist())
        for k in range(n):
            for j in range(1, T):
                others[i, k * (T - 1) + j - 1] = pair(i, k, j)[0]
                other_cosines[i, k * (T - 1) + j - 1] = cosine(i, k, j)[0]
                allowed[i, k * (T - 1) + j - 1] = batch["real"][k, j] and int(batch["texts"][k, j]) not in own
    kind, real = np.repeat([0, 1, 2], COUNTS), batch["real"][:, 1:]
    positive, hard, easy = (real & (kind == which) for which in range(3))
    random = changes.get("loss.random_negatives", "both") in ("both", "symmetric" if symmetric else "asymmetric")
    allowed &= random  # negatives that nobody chose
    s = 1 / (1 + np.exp(-batch["z"]))
    near = (positive | hard)[:, : P + K]
    expected = {
        "ci": imitation.contrastive_imitation(
            *map(jnp.asarray, (z, s, positive, hard, easy & random, others, allowed)), tau
        ),
        "ri_ph": imitation.rank_imitation(jnp.asarray(z[:, : P + K]), batch["z"][:, : P + K], near),
        "ri_hi": imitation.hard_over_easy(*map(jnp.asarray, (z / tau, batch["z"], hard, easy))),
        "fi": imitation.feature_imitation(jnp.asarray(features), jnp.asarray(batch["r"]), near),
    }
    if delta := changes.get("loss.delta"):
        expected["si"] = imitation.score_imitation(jnp.asarray(z[:, : P + K]) / tau, s[:, : P + K], near)
    if vectors := changes.get("loss.vectors"):
        of_labels = positive.astype(np.float32), positive, hard, easy & random, other_cosines, allowed
        expected["vectors"] = imitation.contrastive_imitation(*map(jnp.asarray, (cosines, *of_labels)), 0.05)
    if listed := changes.get("loss.listed"):
        expected["listed"] = listwise_kl(jnp.asarray(z[:, : P + K]) / tau, batch["z"][:, : P + K], near)
    assert set(metrics) == {*expected, "loss"}
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(float(value), rel=2e-4), name
    weight = {"ci": 1.0, "ri_ph": 1.0, "ri_hi": 0.3, "fi": 0.1, "si": delta, "vectors": vectors, "listed": listed}
    assert float(total) == pytest.approx(sum(weight[name] * float(of) for name, of in expected.items()), rel=2e-4)


def assert_same_gradient(found: Any, expected: Any) -> None:
    """Every number, beside the largest: some tensors have a gradient of zero and hold rounding alone; and all as one vector."""
    one, other = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (expected, found))
    assert_close(other, one, *SUMS, largest=np.abs(one).max())
    assert np.linalg.norm(one - other) < 1e-5 * np.linalg.norm(one)


def test_only_adapters_pooler_and_head_have_a_gradient_and_chunks_change_nothing() -> None:
    method, batch = setting()
    assert set(method.params) == {"adapters", "pooler", "iem"}
    whole, _ = gradient_of(method, batch)
    chunked, _ = gradient_of(method, batch, 2)
    assert_same_gradient(chunked, whole)
    unused = whole["iem"].pop("symmetric")  # the branch of the other task
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(unused))
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(whole))
    again, _ = gradient_of(setting(remat=True)[0], batch)
    again["iem"].pop("symmetric")
    assert_same_gradient(again, whole)


def test_gradient_against_finite_differences() -> None:
    method, batch = setting("calibrated", rows=4)
    gradient, _ = gradient_of(method, batch)
    path = next(iter(method.params["adapters"]))

    rng, of_params = np.random.default_rng(2), loss_of(method)

    def loss(at: float, where: tuple[str, ...], direction: np.ndarray) -> float:
        params = jax.tree.map(np.array, method.params)
        leaf = params
        for name in where:
            leaf = leaf[name]
        leaf += (at * direction).astype(np.float32)
        return float(of_params(params, batch)[0])

    for where in (("adapters", path, "B"), ("pooler", "value", "kernel"), ("iem", "first", "kernel")):
        h, found = 2e-3, gradient
        for name in where:
            found = found[name]
        # Along the gradient, where the kinks of ReLU are a small part of the slope.
        direction = np.asarray(found) / np.linalg.norm(found) + 0.02 * rng.normal(0, 1, found.shape)
        numeric = (
            8 * (loss(h, where, direction) - loss(-h, where, direction))
            - (loss(2 * h, where, direction) - loss(-2 * h, where, direction))
        ) / (12 * h)
        assert float((found * direction).sum()) == pytest.approx(numeric, rel=1e-2), where


@pytest.mark.parametrize("name", POOLINGS)
def test_texts_that_share_a_row_are_pooled_as_alone(name: str) -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(3, 12, 8)).astype(np.float32)
    segments = np.array([[1] * 5 + [3] * 4 + [0] * 3, [2] * 12, [4] + [1] * 3 + [2] * 6 + [0, 0]])  # 0: padding
    params = random_pma(8, rng)
    found = np.asarray(pool_each(name, [states], segments[:, None] == np.arange(1, 5)[:, None], params))
    for row in range(3):
        for text in range(4):
            own = states[row][segments[row] == text + 1][None]
            padded = np.concatenate([own, np.full((1, 2, 8), 9.0, np.float32)], axis=1)
            alone = pool(name, (padded, padded), np.arange(padded.shape[1])[None] < own.shape[1], params)
            assert_close(found[row, text], alone[0], 12, 2, largest=4.0)


@pytest.mark.parametrize(
    "variant",
    ["contrastive", "labels", "beside_cosine", "mean", "lasttoken", "cosine", "bi_encoder", "no_fi"],
)
def test_every_variant_has_a_finite_loss(variant: str) -> None:
    method, batch = setting(variant)
    gradient, metrics = gradient_of(method, batch)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves((gradient, metrics)))
    assert ("iem" in method.params) == (variant not in ("cosine", "bi_encoder"))


def test_the_control_learns_from_labels_whatever_the_judge_says() -> None:
    method, batch = setting("labels")
    _, metrics = gradient_of(method, batch)
    assert set(metrics) == {"ci", "si", "loss"}
    z, _ = loss_of(method)(method.params, batch)[:2]
    judged = batch | {"z": -5 * batch["z"] + 1, "r": -batch["r"]}
    assert float(loss_of(method)(method.params, judged)[0]) == float(z)
    other = {**batch, "real": batch["real"].copy()}
    other["real"][:, 1 : 1 + P] = (
        False  # without a positive there is nothing to put above the rest, and all labels are 0
    )
    assert float(loss_of(method)(method.params, other)[1]["ci"]) == 0.0 < float(metrics["ci"])
    assert float(loss_of(method)(method.params, other)[1]["si"]) != float(metrics["si"])


def test_with_one_kind_of_pairs_both_questions_have_the_branch_that_was_trained() -> None:
    method, batch = setting(symmetric="")
    gradient, _ = gradient_of(method, batch)
    trained = [name for name in ("symmetric", "asymmetric") if np.asarray(gradient["iem"][name]["kernel"]).any()]
    kind = interaction_of(config(symmetric=""))
    vectors = np.random.default_rng(1).normal(0, 1, (4, 32)).astype(np.float32)
    scorer = PairScorer(make_decoder(), method.params["iem"], kind)
    assert trained == ["symmetric"] and kind == "single"
    np.testing.assert_array_equal(scorer.every(vectors, vectors, True), scorer.every(vectors, vectors, False))
    assert interaction_of(config()) == "dual" and interaction_of(config(interaction="cosine", symmetric="")) == "cosine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symmetric": "", "asymmetric": ""}, "symmetric or --config.asymmetric is needed"),
        ({"loss.form": "printed"}, "loss.form='printed' is not one of joint, paper, code"),
        (
            {"loss.random_negatives": "all"},
            "loss.random_negatives='all' is not one of both, symmetric, asymmetric, none",
        ),
        ({"interaction": "triple"}, "interaction='triple' is not one of"),
        ({"pooling": "cls"}, "pooling='cls' is not one of pma"),
        ({"heads_start": "zero"}, "heads_start='zero' is not one of similarity, random"),
        ({"augment": "spans:2"}, "augment=spans:2: pairs that a judge reads have no variants"),
        ({"iem_size": 0}, "iem_size=0: the interaction module needs a width of 1 or more"),
        ({"iem_size": 3, "heads_start": "similarity"}, "iem_size=3: .* needs a width of 4 or more"),
        ({"loss.temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"lora.rank": 0, "interaction": "cosine", "pooling": "mean", "iem_cosine": 0.0}, "leaves nothing to train"),
        ({"judge.adapter": "runs/a/tune/adapter"}, "is a tuned judge: --config.tune.epochs=0 takes it as it is"),
    ],
)
def test_keys_that_do_not_fit_are_named(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        METHODS["d2llm"](config(**changes))


def test_a_judge_is_tuned_by_products_of_true_float32() -> None:
    assert "HIGHEST" in str(jax.make_jaxpr(judge_logits)(np.ones((3, 8)), np.ones((2, 8))))
