"""The rest of a text behind a beginning that was read once, against the whole text: states and gradient, of every kind of decoder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params, tiny_decoder_config
from decoder_setting import KINDS, torch_model
from parity import assert_close
from steps import hidden_states

from jdistill.encoder.formats import body
from jdistill.models.beginnings import Beginnings
from jdistill.models.decoder import DecoderConfig
from jdistill.models.registry import hidden_states as states_of
from jdistill.models.segments import LONG

SHARED = (6, 3)  # tokens of the two beginnings
OF = np.array([0, 1, 1, 0, 0], np.int32)
RESTS = (9, 4, 1, 8, 2)  # tokens of what follows them
Arrays = tuple[np.ndarray, np.ndarray]


def texts() -> tuple[Arrays, Arrays, Arrays]:
    """(ids, mask) of the beginnings, of the rests, padded on either side, and of the whole texts."""
    rng = np.random.default_rng(2)
    beginnings = [rng.integers(3, 120, length) for length in SHARED]
    rests = [rng.integers(3, 120, length) for length in RESTS]
    whole = [np.concatenate([beginnings[i], rest]) for i, rest in zip(OF, rests, strict=True)]
    return padded(beginnings, 8), padded(rests, 11, left=(1, 3)), padded(whole, 17)


def padded(rows: list[np.ndarray], width: int, left: tuple[int, ...] = ()) -> Arrays:
    ids, mask = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width), bool)
    for i, row in enumerate(rows):
        where = slice(width - len(row), width) if i in left else slice(0, len(row))
        ids[i, where], mask[i, where] = row, True
    return ids, mask


def states_behind(config: DecoderConfig, params: Any, of_beginnings: Arrays, of_rests: Arrays) -> tuple[Any, ...]:
    begun = Beginnings(states_of(config, params, *of_beginnings), jnp.asarray(of_beginnings[1]), jnp.asarray(OF))
    return states_of(config, params, *of_rests, before=begun)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gemma3"])  # which reads both ways
def test_a_rest_has_the_states_and_the_gradient_that_the_whole_text_has(kind: str, tmp_path: Path) -> None:
    torch_model(kind, tmp_path)
    config = body.read_model_config(tmp_path)
    assert isinstance(config, DecoderConfig) and config.causal
    params, (of_beginnings, of_rests, whole) = random_params(config), texts()
    real = of_rests[1]
    follows = whole[1] & (np.cumsum(whole[1], axis=1) > np.take(SHARED, OF)[:, None])
    weights = np.random.default_rng(3).normal(size=(int(real.sum()), config.hidden_size)).astype(np.float32)

    def loss(params: Any, whole_texts: bool) -> tuple[Any, list[Any]]:
        states, where = (
            (states_of(config, params, *whole), follows)
            if whole_texts
            else (states_behind(config, params, of_beginnings, of_rests), real)
        )
        of_tokens = [state[where] for state in states]
        return (of_tokens[-1] * weights).sum(), of_tokens

    gradient = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)
    (found, states), (expected, of_whole) = gradient(params, False), gradient(params, True)
    longest = config.intermediate_size
    for layer, (a, b) in enumerate(zip(states, of_whole, strict=True)):
        assert_close(a, b, longest, 2 * max(layer, 1), what=f"state {layer}")
    flat, reference = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (found, expected))
    assert np.linalg.norm(flat - reference) <= 1e-5 * np.linalg.norm(reference)


def test_rests_longer_than_attention_keeps_whole_go_on_too() -> None:
    config = tiny_decoder_config(num_layers=1, max_positions=2 * LONG)
    params, rng = random_params(config), np.random.default_rng(4)
    beginning, rest = rng.integers(3, 60, (1, 4)), rng.integers(3, 60, (1, LONG + 6))
    ones = [np.ones(x.shape, bool) for x in (beginning, rest)]
    begun = Beginnings(hidden_states(config, params, beginning, ones[0]), jnp.asarray(ones[0]), jnp.zeros(1, int))
    found = hidden_states(config, params, rest, ones[1], before=begun)[-1]
    whole = hidden_states(config, params, *(np.concatenate(x, axis=1) for x in ((beginning, rest), ones)))[-1]
    assert_close(found, whole[:, 4:], LONG, 2)


def test_what_cannot_go_on_from_a_beginning_is_refused() -> None:
    config = tiny_decoder_config(num_layers=1)
    of_beginnings, of_rests, _ = texts()
    both_ways = dataclasses.replace(config, causal=False)
    with pytest.raises(ValueError, match="beginnings are of a causal decoder"):
        states_behind(both_ways, random_params(both_ways), of_beginnings, of_rests)
