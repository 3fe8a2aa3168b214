"""SimTDE against its paper: the start, the two terms, the ablations of Table 2, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import steps
from conftest import tiny_config
from simtde_setting import VARIANTS, config, random_tokens, setting, small_teacher, start

from jdistill.core.errors import UserError
from jdistill.methods import simtde
from jdistill.models.bert.compact import block_output, compact_start
from jdistill.train.method import Method
from jdistill.train.step import make_gradient


def loss_of(method: Method, batch: dict, params=None) -> tuple[float, dict]:
    params = method.params if params is None else params
    total, metrics, _ = steps.loss_of(method)(params, batch)
    return float(total), {k: float(v) for k, v in metrics.items()}


@pytest.mark.parametrize(("variant", "copied"), [("", (1, 3)), ("last", (2, 3))])
def test_the_student_copies_layers_and_is_a_compact_electra(variant: str, copied: tuple[int, int]) -> None:
    teacher = small_teacher()
    method, _ = setting(variant)
    student = method.student
    assert (student.config.model_type, student.config.num_layers, student.config.embedding_size) == ("electra", 2, 12)
    for mine, theirs in zip(("layer_0", "layer_1"), (f"layer_{number}" for number in copied), strict=True):
        jax.tree.map(np.testing.assert_array_equal, method.params["student"]["model"][mine], teacher.params[theirs])
    assert method.params["student"]["model"]["project"]["kernel"].shape == (12, 32)


def test_equation_5_against_loops() -> None:
    method, batch = setting(**{"loss.alpha": 0.3})
    teacher, student = small_teacher(), method.params["student"]["model"]
    token, count = 0.0, 0
    for ids, mask in zip(batch["ids"], batch["mask"], strict=True):
        for position, (i, on) in enumerate(zip(ids, mask, strict=True)):
            if on:
                at = np.array([position])
                target = block_output(teacher.params["embeddings"], np.array([i]), at, 1e-12)
                mine = (
                    block_output(student["embeddings"], np.array([i]), at, 1e-12) @ student["project"]["kernel"]
                    + student["project"]["bias"]
                )
                token += float(np.square(mine - target).sum())
                count += target.size
    rows = [ids[mask] for ids, mask in zip(batch["ids"], batch["mask"], strict=True)]
    vectors = method.student.encode_ids(rows, normalize=False)
    sentence = float(np.square(vectors - batch["teacher"]).mean())
    total, metrics = loss_of(method, batch)
    assert metrics["token_loss"] == pytest.approx(token / count, rel=1e-5)
    assert metrics["sentence_loss"] == pytest.approx(sentence, rel=1e-5)
    assert total == pytest.approx(0.3 * token / count + 0.7 * sentence, rel=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_never_counts(variant: str) -> None:
    method, batch = setting(variant)
    more = {
        "ids": np.pad(batch["ids"], ((0, 0), (0, 6)), constant_values=21),
        "mask": np.pad(batch["mask"], ((0, 0), (0, 6))),
        "teacher": batch["teacher"],
    }
    more["ids"] = np.where(more["mask"], more["ids"], 77).astype(np.int32)
    assert loss_of(method, more)[0] == pytest.approx(loss_of(method, batch)[0], rel=2e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_equals_finite_differences(variant: str) -> None:
    with jax.enable_x64(True):
        method, batch = setting(variant)
        wide = jax.tree.map(
            lambda x: jnp.asarray(x, jnp.float64) if x.dtype == np.float32 else jnp.asarray(x),
            (method.params, method.frozen, batch),
        )
        params, frozen, batch = wide
        grads, metrics = jax.jit(make_gradient(method, 0, False))(params, frozen, batch, jnp.int32(0))
        rng = np.random.default_rng(0)
        # As large as the parameters themselves, leaf by leaf, so that one step size suits them all.
        direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)) * jnp.maximum(x.std(), 0.01), params)
        of_params = steps.loss_of(method)

        def along(t: float) -> float:
            return float(
                of_params(jax.tree.map(lambda x, d: np.asarray(x) + t * np.asarray(d), params, direction), batch)[0]
            )

        slope = sum(
            float((g * d).sum()) for g, d in zip(jax.tree.leaves(grads), jax.tree.leaves(direction), strict=True)
        )
        # Losses are computed in float32, so a difference of 2e-3 of a value carries about 1e-4 of it as noise.
        # An absolute difference has a kink at 0: a shorter step crosses fewer, at four times the noise.
        step = 5e-4 if variant == "pair_mae" else 2e-3
        numeric = (8 * (along(step) - along(-step)) - (along(2 * step) - along(-2 * step))) / (12 * step)
        assert slope == pytest.approx(numeric, rel=5e-3, abs=5e-4 * float(metrics["loss"]))
        assert float(metrics["loss"]) > 0


def test_dropout_draws_anew_each_step_and_not_without() -> None:
    method, batch = setting(dropout=0.1)
    gradient = jax.jit(make_gradient(method, 0, dropout=True))
    a, b, again = (gradient(method.params, method.frozen, batch, jnp.int32(s))[1]["loss"] for s in (1, 2, 1))
    assert a != b and a == again


def test_the_compact_start_explains_what_the_best_linear_map_can() -> None:
    teacher = small_teacher()
    tokens = random_tokens(400)
    ids = tokens.ids.astype(int)
    positions = np.concatenate([np.arange(n) for n in tokens.lengths])
    block = teacher.params["embeddings"]
    target = block_output(block, ids, positions, 1e-12)
    spectrum = np.linalg.svd(target - target.mean(0), compute_uv=False) ** 2
    found = {}
    for width in (4, 12, 28):
        _, _, found[width] = compact_start(block, width, ids, positions, 1e-12)
        # The principal axes bound it from above; LayerNorm and a code per token instead of per place cost the rest.
        assert found[width] <= spectrum[:width].sum() / spectrum.sum() + 1e-6
    assert found[4] < found[12] < found[28] and found[28] > 0.6
    assert found[12] > 0.6 * spectrum[:12].sum() / spectrum.sum()


def test_the_real_teachers_start_explains_two_thirds(real_teacher: str) -> None:
    import jdistill

    teacher = jdistill.load(real_teacher)
    ids = np.random.default_rng(0).integers(1000, 30000, 20_000)
    positions = np.random.default_rng(1).integers(1, 24, 20_000)
    block, project, explained = compact_start(teacher.params["embeddings"], 128, ids, positions, 1e-12)
    assert (
        explained > 0.6 and block["word"]["embedding"].shape == (30522, 128) and project["kernel"].shape == (128, 384)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"student.layers": 5}, "student.layers=5 must lie in 1..4"),
        ({"loss.sentence": "mea"}, "loss.sentence='mea' is not one of"),
        ({"loss.token": "all"}, "loss.token='all' is not one of"),
        ({"loss.alpha": 1.5}, "loss.alpha=1.5 must lie in 0..1"),
        ({"student.start": "zeros"}, "student.start='zeros' is not one of"),
        ({"student.copy_layers": "middle"}, "copy_layers='middle' is not one of"),
        ({"student.hidden_size": 18}, "hidden_size=18 does not divide into the start's 4 heads"),
        ({"student.hidden_size": 16}, "the token term needs the teacher's 32; set --config.loss.token=none"),
    ],
)
def test_switches_that_do_not_fit_are_named(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        setting(**changes)


def test_pairs_of_a_batch_of_one_are_refused() -> None:
    cfg = config(**{"loss.sentence": "pair_mae", "batch_size": 1})
    with pytest.raises(UserError, match="batch_size=1: --config.loss.sentence=pair_mae needs at least 2 texts"):
        simtde.build(cfg, start(small_teacher(), random_tokens(8)))


def test_a_teacher_of_another_width_is_refused() -> None:
    teacher = small_teacher()
    with pytest.raises(UserError, match="vectors are 48 wide, but the student's layers.* are 32"):
        simtde.build(config(**{"loss.token": "none"}), start(teacher, random_tokens(50), width=48, is_teacher=False))
    with pytest.raises(UserError, match="beside another --config.start, has no token embeddings"):
        simtde.build(config(), start(teacher, random_tokens(50), is_teacher=False))


@pytest.mark.parametrize(
    ("which", "states"), [("spread", [2, 4, 6]), ("last", [4, 5, 6]), ("first", [1, 2, 3]), ("none", [4, 5, 6])]
)
def test_a_layer_is_matched_to_that_which_it_starts_as(which: str, states: list[int]) -> None:
    cfg, teacher = config(**{"student.copy_layers": which}), tiny_config(num_layers=6)
    student = replace(teacher, num_layers=3)
    assert not simtde.matched_layers(cfg, student, teacher)
    cfg.loss.hidden = 1.0
    assert simtde.matched_layers(cfg, student, teacher) == states
