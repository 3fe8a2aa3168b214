"""Students with fewer inner neurons than their start: which are kept, the fit of the rest, the run, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import command, run_inside
from conftest import make_encoder, random_params, save_encoder, sentences, tiny_config
from decoder_setting import check_against_sentence_transformers
from mpnet_setting import make_mpnet
from simtde_setting import config, random_tokens, small_teacher

import jdistill
from jdistill.core.errors import UserError
from jdistill.models.bert.module import Bert
from jdistill.models.bert.narrowed import Moments, chosen_neurons, narrowed, narrowed_layers
from jdistill.models.pma import random_pma
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student

TOKENS = random_tokens(300)


def texts() -> list[list[int]]:
    return TOKENS.lists(np.arange(len(TOKENS)))


def final_states(bert, params) -> np.ndarray:
    ids, mask = TOKENS.padded(np.arange(100), 20, 0)
    return np.asarray(Bert(bert).apply({"params": params}, ids, mask)[-1])[mask]


def moments_of(values: np.ndarray) -> Moments:
    return Moments(values.mean(0), np.cov(values.T, bias=True))


def test_the_second_matrix_is_that_of_least_squares_on_the_tokens_themselves() -> None:
    rng = np.random.default_rng(0)
    values_NxF, kernel_FxD = rng.normal(size=(500, 12)) @ rng.normal(size=(12, 12)) + 1.0, rng.normal(size=(12, 5))
    layer = {
        "up": {"kernel": rng.normal(size=(5, 12)), "bias": rng.normal(size=12)},
        "down": {"kernel": kernel_FxD, "bias": rng.normal(size=5)},
    }
    narrow, explained = narrowed(layer, moments_of(values_NxF), 4)
    kept = [
        int(np.flatnonzero((layer["up"]["kernel"] == column[:, None]).all(0))[0]) for column in narrow["up"]["kernel"].T
    ]
    np.testing.assert_array_equal(narrow["up"]["bias"], layer["up"]["bias"][kept])
    added_NxD = values_NxF @ kernel_FxD + layer["down"]["bias"]
    with_one = np.concatenate([values_NxF[:, kept], np.ones((500, 1))], 1)
    fitted, *_ = np.linalg.lstsq(with_one, added_NxD, rcond=None)
    # The ridge is 1e-4 of the mean variance, and moves the fit by as much of it.
    np.testing.assert_allclose(narrow["down"]["kernel"], fitted[:-1], rtol=0, atol=1e-2 * np.abs(fitted).max())
    mine = values_NxF[:, kept] @ narrow["down"]["kernel"] + narrow["down"]["bias"]
    share = 1 - np.square(added_NxD - mine).sum() / np.square(added_NxD - added_NxD.mean(0)).sum()
    assert explained == pytest.approx(share, abs=1e-6)


def test_one_neuron_is_the_best_one_and_more_are_better_than_most_choices() -> None:
    rng = np.random.default_rng(1)
    values_NxF, kernel_FxD = rng.normal(size=(400, 10)) @ rng.normal(size=(10, 10)), rng.normal(size=(10, 6))
    covariance = np.cov(values_NxF.T, bias=True)

    def explained(kept: tuple[int, ...]) -> float:
        centred, added = values_NxF - values_NxF.mean(0), (values_NxF - values_NxF.mean(0)) @ kernel_FxD
        fitted, *_ = np.linalg.lstsq(centred[:, kept], added, rcond=None)
        return float(1 - np.square(added - centred[:, kept] @ fitted).sum() / np.square(added).sum())

    best, *_ = chosen_neurons(covariance, covariance @ kernel_FxD, 1)
    assert best == max(range(10), key=lambda neuron: explained((neuron,)))
    kept = tuple(chosen_neurons(covariance, covariance @ kernel_FxD, 4))
    every = sorted(explained(choice) for choice in itertools.combinations(range(10), 4))
    assert explained(kept) >= every[int(0.9 * len(every))]


def test_neurons_that_others_can_stand_in_for_cost_nothing() -> None:
    """Of a start whose neurons come in pairs that only differ in what they add, one of each suffices."""
    whole = tiny_config(vocab_size=90)
    params = jax.tree.map(np.array, random_params(whole))
    for layer in range(whole.num_layers):
        up, half = params[f"layer_{layer}"]["up"], whole.intermediate_size // 2
        up["kernel"][:, half:], up["bias"][half:] = up["kernel"][:, :half], up["bias"][:half]
    narrow = dataclasses.replace(whole, intermediate_size=whole.intermediate_size // 2)
    fitted = narrowed_layers(narrow, whole, params, range(whole.num_layers), texts())
    # What the ridge, 1e-4 of the variance, leaves of a layer's update, through four layers.
    np.testing.assert_allclose(final_states(narrow, fitted), final_states(whole, params), rtol=0, atol=5e-3)


def test_it_starts_nearer_to_its_teacher_than_with_the_first_neurons() -> None:
    teacher = small_teacher()
    keys = config(
        **{"student.layers": 0, "student.embedding_size": -1, "student.intermediate_size": 16, "loss.token": "none"}
    )
    student = make_student(keys, teacher, TOKENS)
    assert student.config == dataclasses.replace(
        teacher.config, intermediate_size=16, hidden_dropout=0.0, attention_dropout=0.0
    )
    assert student.params["layer_0"]["up"]["kernel"].shape == (teacher.config.hidden_size, 16)
    first = jax.tree.map(np.array, teacher.params)
    for layer in range(teacher.config.num_layers):
        block = first[f"layer_{layer}"]
        block["up"] = {"kernel": block["up"]["kernel"][:, :16], "bias": block["up"]["bias"][:16]}
        block["down"]["kernel"] = block["down"]["kernel"][:16]
    target = final_states(teacher.config, teacher.params)

    def distance(params) -> float:
        return float(np.square(final_states(student.config, params) - target).mean())

    assert distance(student.params) < 0.7 * distance(first)


def test_as_many_as_the_layers_are_wide() -> None:
    teacher = small_teacher()
    wide = check_student(config(**{"student.intermediate_size": -1}), teacher)
    assert wide.intermediate_size == wide.hidden_size == teacher.config.hidden_size < teacher.config.intermediate_size
    half_again = check_student(config(**{"student.intermediate_size": -2}), teacher)
    assert 2 * half_again.intermediate_size == 3 * wide.hidden_size


def test_random_layers_are_made_as_narrow() -> None:
    keys = config(**{"student.copy_layers": "none", "student.intermediate_size": 16})
    student = make_student(keys, small_teacher(), TOKENS)
    assert student.params["layer_1"]["down"]["kernel"].shape == (16, 32)


def test_a_run_leaves_a_folder_that_others_load(tmp_path: Path) -> None:
    teacher = save_encoder(make_encoder(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(80)))
    keys: dict[str, object] = {
        "teacher": teacher, "text": tmp_path / "text.txt", "text_column": "", "student.embedding_size": 12, "student.layers": 0,
        "student.intermediate_size": 24, "batch_size": 16, "max_steps": 4, "checkpoint_every": 4, "held_out": 8, "length_buckets": 1,
        "index_texts": 0, "latency_texts": 0, "cache_dir": tmp_path / "cache",
    }  # fmt: skip
    done = run_inside(command("configs/simtde.py", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "narrow layers: 24 of 64 inner neurons explain" in done.stderr
    export = tmp_path / "run/export"
    assert json.loads((export / "config.json").read_text())["intermediate_size"] == 24
    pytest.importorskip("sentence_transformers")
    check_against_sentence_transformers(jdistill.load(str(export)), export, sentences(8))


def test_more_neurons_than_the_start_has_are_refused() -> None:
    with pytest.raises(UserError, match="intermediate_size=65: a layer of the start has 64 inner neurons"):
        check_student(config(**{"student.intermediate_size": 65}), small_teacher())


def test_an_architecture_whose_layers_stay_whole_is_refused() -> None:
    keys = config(**{"student.embedding_size": -1, "student.intermediate_size": 16})
    with pytest.raises(UserError, match="intermediate_size=16: .* is a mpnet, whose layers"):
        check_student(keys, make_mpnet())


def test_a_start_that_is_weighed_by_a_pooler_with_parameters_is_refused() -> None:
    pooler = random_pma(32, np.random.default_rng(0))
    start = dataclasses.replace(small_teacher(), pooling="pma", pooler=pooler)
    keys = {"student.embedding_size": 8, "student.start": "weighted"}
    with pytest.raises(UserError, match="start=weighted .* the start's 'pma' has some; take svd"):
        check_student(config(**keys), start)
    assert check_student(config(**keys | {"student.start": "svd"}), start).embedding_size == 8
