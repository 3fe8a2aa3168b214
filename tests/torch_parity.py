"""An architecture against its model in transformers (torch): every hidden state, the gradient, and tensors both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from parity import assert_close
from steps import hidden_states

from jdistill.encoder.formats import body
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.models import registry
from jdistill.models.registry import ModelConfig, architecture_of, names_of

LENGTHS = (40, 9, 1, 23)  # of the texts of a batch, in tokens


def read_back(folder: Path) -> tuple[ModelConfig, Any]:
    """(config, Flax parameters) of a saved model of transformers, whose tensors they give back exactly."""
    config, tensors = body.read_model_config(folder), read_tensors(folder)
    architecture = architecture_of(config)
    params = architecture.from_tensors(config, tensors, "memory")
    for name, tensor in architecture.to_tensors(config, params).items():
        np.testing.assert_array_equal(tensor, tensors[name])
    return config, params


def token_batch(config: ModelConfig, lengths: tuple[int, ...] = LENGTHS) -> tuple[np.ndarray, np.ndarray]:
    """(ids, mask) of random texts, int64 [B, L]."""
    rng = np.random.default_rng(1)
    ids, mask = (
        rng.integers(3, config.vocab_size, (len(lengths), max(lengths))),
        np.ones((len(lengths), max(lengths)), int),
    )
    for row, length in enumerate(lengths):
        ids[row, length:], mask[row, length:] = config.pad_token_id, 0
    return ids, mask


def assert_states_equal(model: Any, folder: Path, inner: int, lengths: tuple[int, ...] = LENGTHS) -> dict[str, float]:
    """Every state of the tokens, in float32 and in bfloat16, is that of `model` in double precision.

    Args:
      model: of transformers, in double precision; its files lie in `folder`.
      inner: width of the feed-forward block, by which rounding grows.
      lengths: of the texts, in tokens.

    Returns: by type the largest difference as a share of the largest number of its state.
    """
    import torch

    config, params = read_back(folder)
    ids, mask = token_batch(config, lengths)
    with torch.no_grad():
        theirs = model(
            input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask), output_hidden_states=True
        ).hidden_states
    largest = {}
    for dtype in ("float32", "bfloat16"):
        ours = hidden_states(config, params, ids, mask, dtype=jnp.dtype(dtype))
        assert len(ours) == len(theirs) == config.num_layers + 1
        shares = []
        for layer, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            state, reference = np.asarray(a, np.float64)[mask == 1], b.numpy()[mask == 1]
            assert_close(state, reference, inner, max(layer, 1), dtype=dtype, what=f"{dtype}, state {layer}")
            shares.append(np.abs(state - reference).max() / np.abs(reference).max())
        largest[dtype] = float(max(shares))
    assert largest["float32"] < 1e-5, largest
    return largest


def assert_gradient_equal(model: Any, folder: Path) -> float:
    """The gradient of the last state's mean square over tokens, by every parameter, is torch's in double precision.

    Returns: the largest difference of a tensor, by norm, as a share of the whole gradient's.
    """
    import torch

    config, params = read_back(folder)
    ids, mask = token_batch(config)
    seen = mask[:, :, None]

    def loss(params: Any) -> jax.Array:
        last = registry.hidden_states(config, params, jnp.asarray(ids), jnp.asarray(mask))[-1]
        return (jnp.sin(last) * seen).sum() / seen.sum()

    gradient = flatten_dict(jax.jit(jax.grad(loss))(params), sep="/")
    last = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state
    ((torch.sin(last) * torch.tensor(seen)).sum() / seen.sum()).backward()
    theirs = {
        name: parameter.grad.numpy() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    whole = np.sqrt(sum(np.square(x).sum() for x in theirs.values()))
    names = names_of(config)
    assert {name for name, _ in names.values()} == set(theirs)
    share = 0.0
    for path, (name, turned) in names.items():
        reference = theirs[name].T if turned else theirs[name]
        share = max(share, float(np.linalg.norm(np.asarray(gradient[path]) - reference) / whole))
    assert share < 1e-5, share
    return share
