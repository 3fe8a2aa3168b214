"""IBKD and the fine-tuning stage against the paper's equations, in loops and float64; gradients, chunks, switches."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from ibkd_setting import NEGATIVES, SETTINGS, config, evaluate, setting
from ml_collections import ConfigDict
from naive import naive_hsic, naive_info_nce
from parity import assert_close, rounding
from simtde_setting import random_tokens, start
from steps import gradient_of, loss_of

from configs import ibkd as config_file
from configs import ibkd_retrieval
from jdistill.core.errors import UserError
from jdistill.feeds.texts import Texts
from jdistill.methods import METHODS
from jdistill.train.step import make_gradient


def of_default(x: np.ndarray, s: np.ndarray) -> float:
    """HSIC as the config has it: the RBF kernel of rows of unit length, without bias."""
    x, s = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, s))
    return naive_hsic(x, s, "rbf", "unbiased")


def test_stage_1_against_loops() -> None:
    method, batch = setting("ibkd", **{"loss.beta": 0.7})
    method.params["W"][:] = np.random.default_rng(0).normal(0, 0.2, method.params["W"].shape)
    total, metrics, reps = evaluate(method, batch)
    rows = [ids[mask] for ids, mask in zip(batch["ids"], batch["mask"], strict=True)]
    assert_close(reps["sentence"], method.student.encode_ids(rows, normalize=False), 64, 2 * 2)
    nce = naive_info_nce(reps["sentence"].astype(np.float64) @ method.params["W"], batch["teacher"], 0.1)
    information = of_default(reps["input"], reps["sentence"])
    assert metrics["info_nce"] == pytest.approx(nce, rel=1e-5)
    assert metrics["hsic"] == pytest.approx(information, abs=1e-6)
    assert total == pytest.approx(nce + 0.7 * information, rel=1e-5)


def test_the_median_heuristic_of_a_large_batch_does_not_depend_on_its_order() -> None:
    """Packed texts stand in an order that devices and chunks decide."""
    keys = {"hsic.gamma": 0.0, "batch_size": 300}
    (stage, *_), (plain, *_) = (METHODS["ibkd"](config("", **keys | change)) for change in ({}, {"hsic.gamma": 0.5}))
    assert isinstance(stage.data, Texts) and stage.data.numbered
    assert isinstance(plain.data, Texts) and not plain.data.numbered
    method, batch = setting("ibkd", 300, **keys)
    order = np.random.default_rng(0).permutation(300)
    numbered = batch | {"row": np.arange(300, dtype=np.int32)}
    value, again, first, others = (
        evaluate(method, {name: x[o] for name, x in of.items()})[1]
        for of, o in ((numbered, np.arange(300)), (numbered, order), (batch, np.arange(300)), (batch, order))
    )
    # HSIC is a sixtieth of the terms that it is the difference of, so float32 carries it to some 1e-5 alone; these are sums of positive numbers.
    for name in ("gram_input_mean", "gram_input_rank", "gram_sentence_mean", "gram_sentence_rank"):
        assert value[name] == pytest.approx(again[name], rel=1e-5), name
        assert first[name] != pytest.approx(others[name], rel=1e-4), name


def test_a_text_that_stands_twice_in_a_batch_is_no_negative_of_itself() -> None:
    method, batch = setting("ckd", **{"loss.similarity": "cosine"})
    rows = np.array([0, 1, 2, 3, 0, 1, 6, 0], np.int32)
    _, metrics, reps = evaluate(method, batch | {"row": rows})
    nce = naive_info_nce(
        reps["sentence"].astype(np.float64) @ method.params["W"],
        batch["teacher"],
        0.1,
        no_negative=lambda i, j: rows[i] == rows[j],
    )
    assert metrics["info_nce"] == pytest.approx(nce, rel=1e-5)


def test_the_bilinear_form_that_the_paper_prints() -> None:
    method, batch = setting("ckd")
    total, metrics, reps = evaluate(method, batch)
    nce = naive_info_nce(reps["sentence"] @ method.params["W"], batch["teacher"], 0.1, cosine=False)
    assert total == metrics["info_nce"] == pytest.approx(nce, rel=1e-4)


def test_the_input_is_the_masked_mean_of_the_embedding_layer_and_its_gradient_can_be_stopped() -> None:
    method, batch = setting("ibkd")
    _, _, reps = evaluate(method, batch)
    short = {name: value[:, : batch["mask"].sum(1).max()] for name, value in batch.items() if name in ("ids", "mask")}
    assert_close(reps["input"], method.represent(method.params, {}, short, None)["input"], 32, 2)

    def gradient_of_input(stop: bool) -> float:
        method, batch = setting("ibkd", **{"hsic.stop_input": stop, "hsic.gamma": 0.0})
        reps = method.represent(method.params, {}, batch, None)
        grads = jax.jit(jax.grad(lambda reps: method.objective(method.params, method.frozen, reps, batch)[0]))(reps)
        return float(np.abs(grads["input"]).max())

    assert gradient_of_input(True) == 0.0 < gradient_of_input(False)


def test_stage_2_against_loops() -> None:
    method, batch = setting("finetune")
    assert (~batch["real"]).sum() > 0 and method.student.dim == 8
    total, metrics, reps = evaluate(method, batch)
    out, real = reps["output"], batch["real"]
    candidates, there = [*out[:, 1], *out[:, 2:].reshape(-1, 8)], [*real[:, 1], *real[:, 2:].ravel()]
    assert len(candidates) == 8 * (NEGATIVES + 1)
    row, passage = [*range(8), *np.repeat(range(8), NEGATIVES)], [*batch["texts"][:, 1], *batch["texts"][:, 2:].ravel()]

    def right_for(i: int, j: int) -> bool:
        own = batch["texts"][i, 0]
        return passage[j] in (passage[i], own) or (j < 8 and batch["texts"][row[j], 0] == own)

    assert sum(right_for(i, j) for i in range(8) for j in range(len(candidates)) if j != i) == 6
    nce = naive_info_nce(out[:, 0], candidates, 0.05, mask=there, no_negative=right_for)
    kept = real.ravel()
    x, s = (reps[name].reshape(len(kept), -1)[kept] for name in ("input", "sentence"))
    assert s.shape[1] == 32  # S before W_proj
    information = of_default(x, s)
    assert metrics["info_nce"] == pytest.approx(nce, rel=1e-4)
    assert metrics["hsic"] == pytest.approx(information, abs=1e-6)
    assert total == pytest.approx(nce + 0.5 * information, rel=1e-4)


def test_stage_2_as_printed_has_only_the_anchors_own_negatives() -> None:
    method, batch = setting("finetune_own")
    total, metrics, reps = evaluate(method, batch)
    out = reps["output"]
    nce = naive_info_nce(
        out[:, 0],
        out[:, 1],
        0.05,
        own=out[:, 2:],
        own_mask=batch["real"][:, 2:],
        cosine=False,
        no_negative=lambda i, j: {i, j} in ({4, 5}, {2, 6}) or (i, j) == (0, 7),
    )
    assert metrics["info_nce"] == pytest.approx(nce, rel=1e-4)


def test_a_missing_negative_changes_nothing_wherever_its_tokens_point() -> None:
    method, batch = setting("finetune")
    total, _, _ = evaluate(method, batch)
    spoilt = dict(batch, ids=batch["ids"].copy(), mask=batch["mask"].copy())
    spoilt["ids"][~batch["real"]] = 7
    spoilt["mask"][~batch["real"]] = True
    assert evaluate(method, spoilt)[0] == pytest.approx(total, rel=rounding(64, 2 * 2))
    counted = dict(spoilt, real=np.ones_like(batch["real"]))
    assert abs(evaluate(method, counted)[0] - total) > 1e-3


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "crd"])  # crd holds its normaliser constant
def test_gradient_against_finite_differences(name: str) -> None:
    method, batch = setting(name)
    grads, _ = gradient_of(method, batch)
    norm = np.sqrt(sum(float(np.square(g).sum()) for g in jax.tree.leaves(grads)))
    assert norm > 1e-6
    size = 3e-3 / norm  # along the gradient itself, where the change is largest
    loss = loss_of(method)

    def at(sign: int) -> float:
        return float(loss(jax.tree.map(lambda p, g: p + sign * size * np.asarray(g), method.params, grads), batch)[0])

    # Without the error of the second order, which is 5 % in the bilinear form. What is left is 0.5 % where the kernel's width
    # is the median distance, held constant in the gradient, and below 0.1 % elsewhere.
    numeric = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * size)
    assert numeric == pytest.approx(norm**2, rel=0.02)


@pytest.mark.parametrize("name", ["ibkd", "ibkd_blocks", "crd", "finetune"])
def test_chunks_of_a_batch_have_the_gradient_of_the_whole(name: str) -> None:
    method, batch = setting(name, 16)
    (whole, metrics), (chunked, same) = gradient_of(method, batch), gradient_of(method, batch, 4)
    assert float(same["loss"]) == pytest.approx(float(metrics["loss"]), rel=rounding(64, 2 * 2))
    one, other = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (whole, chunked))
    assert np.linalg.norm(one - other) < 1e-5 * np.linalg.norm(one)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("ibkd", {"kernel": "cubic"}, "config.kernel='cubic' is not one of rbf, imq, linear"),
        ("ibkd", {"hsic.estimator": "naive"}, "hsic.estimator='naive' is not one of"),
        ("ibkd", {"batch_size": 3}, "batch_size=3: HSIC by the unbiased estimator needs at least 4"),
        ("ibkd", {"batch_size": 1, "hsic.estimator": "biased"}, "the biased estimator needs at least 2"),
        ("ibkd", {"batch_size": 1, "loss.beta": 0.0}, "batch_size=1: a contrastive loss needs at least 2"),
        (
            "ibkd",
            {"method": "ckd", "loss.beta": 0.0},
            "finetune.loss.beta=0.5 would weigh; --config configs/ibkd.py:ckd",
        ),
        (
            "ibkd",
            {"method": "ckd", "triplets": ""},
            "ckd is IBKD without HSIC, which --config.loss.beta=1.0 would weigh",
        ),
        ("ibkd", {"loss.similarity": "dot"}, "loss.similarity='dot' is not one of cosine, bilinear"),
        ("finetune", {"output_dim": 33}, "output_dim=33 must lie in 1..32"),
        ("finetune", {"projection_start": "zeros"}, "projection_start='zeros' is not one of"),
        ("finetune", {"finetune.batch_size": 1}, "finetune.batch_size=1: InfoNCE needs at least 2"),
        ("supervised", {"loss.align": 1.0}, "loss.align: supervised training has no teacher"),
        ("hpd", {"output_dim": 0}, "output_dim=0 must lie in 1..32"),
        ("crd", {"batch_size": 1}, "batch_size=1: CRD contrasts"),
        ("crd", {"loss.buffer_per_text": 0}, "buffer_per_text must be positive"),
    ],
)
def test_switches_that_do_not_fit_are_named(name: str, changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        setting(name, **changes)


def test_every_variant_of_the_config_names_its_method_and_stages() -> None:
    for variant in ("", "ckd", "mse", "crd", "hpd", "supervised"):
        cfg = config_file.get_config(variant)
        names = [stage.name for stage in METHODS[cfg.method](cfg)]
        assert names == (["finetune"] if variant == "supervised" else ["distil", "finetune"])
        cfg.triplets = ""
        if variant == "supervised":
            assert not cfg.teacher
            with pytest.raises(UserError, match="triplets is empty"):
                METHODS[cfg.method](cfg)
        else:
            assert [stage.name for stage in METHODS[cfg.method](cfg)] == ["distil"]
    cfg = config_file.get_config("mse")
    cfg.triplets, cfg.output_dim = "", 8
    with pytest.raises(
        UserError, match="output_dim=8: the projection is learnt in stage 2, and --config.triplets is empty"
    ):
        METHODS[cfg.method](cfg)
    with pytest.raises(UserError, match="no variant 'ibk'"):
        config_file.get_config("ibk")
    assert ibkd_retrieval.get_config("").teacher and not ibkd_retrieval.get_config("supervised").teacher
    stage = METHODS["ibkd"](config("", **{"finetune.loss.beta": 0.25}))[1]
    assert (stage.cfg.loss.beta, stage.cfg.loss.temperature, stage.cfg.learning_rate) == (0.25, 0.05, 3e-5)


def test_the_second_stage_has_a_dropout_of_its_own() -> None:
    first, cfg = setting("ibkd")[0].student, config("")
    cfg.finetune.student = ConfigDict({"dropout": 0.2})  # as a config file of one's own may have it
    stage = METHODS["ibkd"](cfg)[1]
    second = stage.build(stage.cfg, start(first, random_tokens(300))).student
    assert first.config.hidden_dropout == 0 and second.config.hidden_dropout == 0.2


def test_a_large_batch_in_chunks_and_blocks_takes_the_memory_of_a_small_one() -> None:
    def scratch_bytes(rows: int, chunk_size: int, block_size: int) -> int:
        method, batch = setting("ibkd", rows, block_size=block_size)
        gradient = jax.jit(make_gradient(method, 0, dropout=False, chunk_size=chunk_size))
        compiled = gradient.lower(method.params, method.frozen, batch, np.int32(0)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    small, large, in_chunks = scratch_bytes(32, 0, 0), scratch_bytes(512, 0, 0), scratch_bytes(512, 32, 32)
    vectors = 512 * (3 * 32) * 4  # sentence, output and input of each text
    assert large > 8 * small
    assert in_chunks < small + 12 * vectors  # the vectors, their gradients, unit rows of both, their halves of a block
