"""The compact block's start: its weights by what a text's vector feels of it, against finite differences and a naive fit."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from albert_setting import make_albert
from conftest import random_params, tiny_config
from simtde_setting import config, random_tokens, small_teacher

from jdistill.core.errors import UserError
from jdistill.losses.embedding import unit
from jdistill.models.bert.compact import block_output, compact_start
from jdistill.models.bert.module import Bert
from jdistill.models.bert.sensitivity import SHRINKAGE, sensitivity
from jdistill.models.pooling import pool
from jdistill.models.registry import architecture_of
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student

TOKENS = random_tokens(300)


def texts(count: int) -> list[list[int]]:
    return TOKENS.lists(np.arange(count))


def vector(bert, params, text: list[int]) -> np.ndarray:
    states = Bert(bert).apply({"params": params}, jnp.asarray(text)[None], jnp.ones((1, len(text)), bool))
    return np.asarray(unit(pool("mean", states, jnp.ones((1, len(text)), bool)))[0])


def test_sensitivity_is_what_finite_differences_of_the_vector_give() -> None:
    """Of one text, whose tokens' block outputs are moved by the bias of the block's LayerNorm, all at once."""
    bert = tiny_config(vocab_size=90)
    params, text = jax.tree.map(np.array, random_params(bert)), texts(1)[0][:1]
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)

        def moved(shift: np.ndarray) -> np.ndarray:
            norm = wide["embeddings"]["norm"]
            block = wide["embeddings"] | {"norm": norm | {"bias": norm["bias"] + shift}}
            return vector(bert, wide | {"embeddings": block}, text)

        step, E = 1e-4, bert.embedding_size
        columns = [(moved(step * axis) - moved(-step * axis)) / (2 * step) for axis in np.eye(E)]
    jacobian_DxE = np.stack(columns, 1)
    exact = jacobian_DxE.T @ jacobian_DxE
    exact = (1 - SHRINKAGE) * exact * (E / np.trace(exact)) + SHRINKAGE * np.eye(E)
    drawn = sensitivity(bert, params, "mean", [text] * 20_000, np.random.default_rng(0))
    # A mean of 20,000 products of normal numbers: its error is their spread, about the trace's share, over 141.
    assert np.linalg.norm(drawn - exact) < 0.05 * np.linalg.norm(exact)


def test_padding_and_the_number_of_texts_in_a_batch_do_not_count() -> None:
    bert = tiny_config(vocab_size=90)
    alone = sensitivity(bert, random_params(bert), "mean", [texts(1)[0][:4]] * 4000, np.random.default_rng(0))
    padded = [list(range(5, 45)), *[texts(1)[0][:4]] * 4000]
    beside = sensitivity(bert, random_params(bert), "mean", padded, np.random.default_rng(0))
    assert np.linalg.norm(alone - beside) < 0.15 * np.linalg.norm(alone)


def test_a_weighted_block_loses_less_of_what_counts_and_more_of_the_rest() -> None:
    bert = tiny_config(vocab_size=90)
    block = random_params(bert)["embeddings"]
    rng, positions = np.random.default_rng(0), np.zeros(4000, int)
    ids = rng.integers(5, 90, 4000)
    axes, _ = np.linalg.qr(rng.normal(size=(bert.embedding_size, bert.embedding_size)))
    metric = axes @ np.diag(np.where(np.arange(bert.embedding_size) < 8, 10.0, 0.1)) @ axes.T
    target = block_output(block, ids, positions, bert.layer_norm_eps)

    def lost(by: np.ndarray | None) -> tuple[float, float]:
        start, project, _ = compact_start(block, 8, ids, positions, bert.layer_norm_eps, metric=by)
        codes = block_output(start, ids, positions, bert.layer_norm_eps)
        rest = (target - codes @ project["kernel"] - project["bias"]) @ axes
        return float(np.square(rest[:, :8]).sum()), float(np.square(rest[:, 8:]).sum())

    plain, weighted = lost(None), lost(metric)
    assert weighted[0] < 0.5 * plain[0] and weighted[1] > plain[1]
    identity = compact_start(block, 8, ids, positions, bert.layer_norm_eps, metric=np.eye(bert.embedding_size))
    usual = compact_start(block, 8, ids, positions, bert.layer_norm_eps)
    # The same axes, but for their signs and what float64 rounds: the same share explained.
    assert identity[2] == pytest.approx(usual[2], abs=1e-5)


def test_by_power_nought_each_token_counts_once_however_often_it_stands() -> None:
    bert = tiny_config(vocab_size=90)
    block, once = random_params(bert)["embeddings"], np.arange(5, 90)
    often = np.concatenate([once, *[once[:4]] * 200])

    def refitted(ids: np.ndarray, power: float) -> np.ndarray:
        """What the block and its projection make of each token, [85, E]."""
        at = (ids, np.zeros(len(ids), int), bert.layer_norm_eps)
        start, project, _ = compact_start(block, 8, *at, power=power)
        return block_output(start, once, np.zeros(len(once), int), at[2]) @ project["kernel"] + project["bias"]

    # Two sums of float32 numbers in other orders: the distance is of their last digits, the other of the fit itself.
    assert np.abs(refitted(often, 0.0) - refitted(once, 1.0)).max() < 1e-3
    assert np.abs(refitted(often, 1.0) - refitted(once, 1.0)).max() > 0.1


def test_a_power_below_one_loses_less_of_rare_tokens() -> None:
    bert = tiny_config(vocab_size=90)
    block, rare = random_params(bert)["embeddings"], np.arange(15, 90)
    ids = np.concatenate([rare, *[np.arange(5, 15)] * 100])
    positions = np.zeros(len(ids), int)

    def lost(power: float) -> float:
        start, project, _ = compact_start(block, 8, ids, positions, bert.layer_norm_eps, power=power)
        target, codes = (block_output(of, rare, np.zeros(len(rare), int), bert.layer_norm_eps) for of in (block, start))
        return float(np.square(target - codes @ project["kernel"] - project["bias"]).sum())

    assert lost(0.5) < 0.95 * lost(1.0)


@pytest.mark.parametrize("how", ["svd", "weighted", "tempered"])
def test_a_start_whose_tokens_are_narrower_than_its_layers_is_fitted_too(how: str) -> None:
    """An ELECTRA, or a student that becomes a teacher: one axis of 12 and its norm are lost; at random it is more than all."""
    electra = tiny_config(vocab_size=90, model_type="electra", embedding_size=12)
    start = dataclasses.replace(small_teacher(), config=electra, params=random_params(electra))
    student = make_student(config(**{"student.start": how, "student.embedding_size": 11}), start, TOKENS)
    assert student.params["embeddings"]["word"]["embedding"].shape == (90, 11)
    ids = np.concatenate(texts(50))[None]
    places = np.concatenate([np.arange(len(text)) for text in texts(50)])[None]
    embed = architecture_of(electra).embed
    own, fitted = (np.asarray(embed(m.config, m.params, ids, np.float32, places)) for m in (start, student))
    assert np.square(own - fitted).mean() < 0.2 * own.var(1).mean()
    for width in (13, 0):  # an ELECTRA's table that is to be wider
        with pytest.raises(UserError, match=r"which are 12 wide; set .*embedding_size=6, .* or -1 for the start's own"):
            check_student(config(**{"student.start": how, "student.embedding_size": width}), start)
    whole = make_student(config(**{"student.start": how, "student.embedding_size": -1}), start, TOKENS)
    np.testing.assert_array_equal(
        whole.params["embeddings"]["word"]["embedding"], start.params["embeddings"]["word"]["embedding"]
    )


def test_students_begin_with_it_and_an_albert_does_not() -> None:
    keys = config(**{"student.start": "weighted"})
    student = make_student(keys, small_teacher(), TOKENS)
    assert student.params["project"]["kernel"].shape == (12, 32)
    usual = make_student(config(), small_teacher(), TOKENS)
    tempered = make_student(config(**{"student.start": "tempered"}), small_teacher(), TOKENS)
    for one, other in itertools.combinations((student, usual, tempered), 2):
        assert not np.allclose(one.params["project"]["kernel"], other.params["project"]["kernel"])
    with pytest.raises(UserError, match="start=weighted is not computed for an ALBERT"):
        check_student(keys, make_albert())
