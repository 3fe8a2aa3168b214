"""Layers that slide see as far as in transformers: float32, bfloat16, gradients, rows of several texts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params, tiny_decoder_config
from decoder_setting import KINDS, torch_model
from flax.traverse_util import flatten_dict
from parity import assert_close, excess
from steps import hidden_states

from jdistill.encoder.formats import body
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.models.decoder import DecoderConfig
from jdistill.models.registry import architecture_of
from jdistill.models.registry import hidden_states as states_of
from jdistill.models.segments import Segments

WINDOWED = ["mistral_window", "qwen2_window", "qwen3_window", "gemma3", "gemma3_causal"]
ROWS, LENGTH = 3, 17


def with_theirs(kind: str, folder: Path, **changes: Any) -> tuple[Any, DecoderConfig, dict, np.ndarray]:
    """transformers' model in double precision, our sizes and parameters of its files, and ids [ROWS, LENGTH]."""
    model = torch_model(kind, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    config = body.read_model_config(folder)
    assert isinstance(config, DecoderConfig)
    params = architecture_of(config).from_tensors(config, read_tensors(folder), kind)
    return model.model.double(), config, params, np.random.default_rng(1).integers(3, 120, (ROWS, LENGTH))


def last_of(model: Any, ids: np.ndarray) -> Any:
    import torch

    return model(torch.tensor(ids), attention_mask=torch.ones(ids.shape, dtype=int)).last_hidden_state


@pytest.mark.parametrize("kind", WINDOWED)
def test_a_window_one_off_is_far_more_than_rounding(kind: str, tmp_path: Path) -> None:
    model, config, params, ids = with_theirs(kind, tmp_path)
    theirs = last_of(model, ids).detach().numpy()
    size = config.sliding_window
    assert size == (KINDS[kind][1]["sliding_window"] // 2 if kind == "gemma3" else KINDS[kind][1]["sliding_window"] - 1)
    for window in (size - 1, size, size + 1):
        other = dataclasses.replace(config, sliding_window=window)
        share = excess(hidden_states(other, params, ids, np.ones(ids.shape, bool))[-1], theirs, 96, 3)
        assert share <= 1 if window == size else share > 100, (window, share)


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_as_near_as_its_eight_bits_allow(kind: str, tmp_path: Path) -> None:
    """parity.py's bound, of bfloat16's epsilon 2^-7: all but the parameters is rounded to it."""
    model, config, params, ids = with_theirs(kind, tmp_path)
    ours = hidden_states(config, params, ids, np.ones(ids.shape, bool), dtype=jnp.bfloat16)
    assert ours[-1].dtype == jnp.bfloat16
    theirs = last_of(model, ids).detach().numpy()
    assert_close(ours[-1].astype(jnp.float32), theirs, 96, 3, dtype="bfloat16", what=f"bfloat16 {kind}")


@pytest.mark.parametrize("kind", ["mistral_window", "qwen3_window", "gemma3"])
def test_every_gradient_is_torchs(kind: str, tmp_path: Path) -> None:
    model, config, params, ids = with_theirs(kind, tmp_path)
    import torch

    towards = np.random.default_rng(2).normal(size=(ROWS, LENGTH, 48))
    (last_of(model, ids) * torch.tensor(towards)).sum().backward()
    mask = np.ones(ids.shape, bool)
    gradient = jax.jit(
        jax.grad(lambda params: (states_of(config, params, ids, mask)[-1] * towards.astype(np.float32)).sum())
    )(params)
    theirs = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    names = architecture_of(config).names(config)
    assert {name for name, _ in names.values()} == theirs.keys()
    references = {path: theirs[name].T if transpose else theirs[name] for path, (name, transpose) in names.items()}
    for path, leaf in flatten_dict(gradient, sep="/").items():
        # A gradient passes each layer there and back, and sums over all tokens. That of scores is the difference of what a key's value is
        # worth and what all of them are, so what cancels on the way to queries and keys is as large as what reaches the values.
        of_layer, _, name = path.partition("/attention/")
        with_values = f"{of_layer}/attention/value/kernel" if name.startswith(("query", "key")) else path
        largest = max(np.abs(references[each]).max() for each in (path, with_values))
        assert_close(leaf, references[path], 96 * LENGTH, 2 * 3, largest=largest, what=f"{kind} {path}")


def test_a_config_that_says_both_ways_is_read_so(tmp_path: Path) -> None:
    """transformers 5 reads is_causal of any decoder."""
    model, config, params, ids = with_theirs("qwen2", tmp_path, is_causal=False)
    model.config.is_causal = False
    assert not config.causal
    ours = hidden_states(config, params, ids, np.ones(ids.shape, bool))[-1]
    assert_close(ours, last_of(model, ids).detach().numpy(), 96, 3)


def test_texts_that_share_a_beginning_see_as_far_as_each_alone() -> None:
    """A judge's row: a query and its passages end to end, each with positions as if alone behind the query."""
    config = tiny_decoder_config(vocab_size=90, sliding=(True, False), sliding_window=2)
    params, ids = random_params(config), np.random.default_rng(0).integers(3, 90, 10)
    of, positions = np.array([[0] * 4 + [1] * 3 + [2] * 3]), np.array([[0, 1, 2, 3, 4, 5, 6, 4, 5, 6]])
    row = states_of(
        config, params, ids[None], np.ones((1, 10), bool), segments=Segments(jnp.array(of), jnp.array(positions))
    )[-1][0]
    for passage in (slice(4, 7), slice(7, 10)):
        alone = np.concatenate([ids[:4], ids[passage]])[None]
        found = states_of(config, params, alone, np.ones((1, 7), bool))[-1][0]
        assert_close(row[passage], found[4:], 64, 4)
