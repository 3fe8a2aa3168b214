"""The recurrent layers: torch's nn.LSTM, cuDNN's packing, padding, dropout, the gradient."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn
from steps import hidden_states

from jdistill.models.bilstm import DIRECTIONS, Bilstm, BilstmConfig
from jdistill.models.bilstm.module import _by_scan, flat_weights
from jdistill.models.pooling import pool

E, H, L = 10, 7, 9
CONFIG = BilstmConfig(50, E, H)
LENGTHS = np.array([9, 1, 4, 7, 3])


def params(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    found: dict = {"word": {"embedding": normal(50, E)}}
    return found | {
        name: {"input": normal(E, 4 * H), "recurrent": normal(H, 4 * H), "bias": normal(4 * H)} for name in DIRECTIONS
    }


def batch() -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(1).integers(1, 50, (len(LENGTHS), L)).astype(np.int32)
    return ids, np.arange(L) < LENGTHS[:, None]


def test_it_equals_torch_with_and_without_padding() -> None:
    torch = pytest.importorskip("torch")
    tree, (ids, mask) = params(), batch()
    lstm = torch.nn.LSTM(E, H, batch_first=True, bidirectional=True)
    state = {}
    for name, suffix in zip(DIRECTIONS, ("", "_reverse"), strict=True):
        bias = torch.tensor(tree[name]["bias"])
        state |= {
            f"weight_ih_l0{suffix}": torch.tensor(tree[name]["input"].T),
            f"weight_hh_l0{suffix}": torch.tensor(tree[name]["recurrent"].T),
            f"bias_ih_l0{suffix}": 0.25 * bias,
            f"bias_hh_l0{suffix}": 0.75 * bias,
        }
    lstm.load_state_dict(state)
    for used in (mask, np.ones_like(mask)):
        states = hidden_states(CONFIG, tree, ids, used)
        x = torch.tensor(tree["word"]["embedding"][ids])
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor(used.sum(1)), batch_first=True, enforce_sorted=False
        )
        theirs = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=L)[0]
        np.testing.assert_allclose(states[1], theirs.detach().numpy(), atol=1e-5)
        np.testing.assert_array_equal(states[0], tree["word"]["embedding"][ids])
        # Every gradient too: that by the recurrent kernels is a product of ours over all tokens.
        weight = np.random.default_rng(2).standard_normal(theirs.shape).astype(np.float32)
        lstm.zero_grad()
        (theirs * torch.tensor(weight)).sum().backward()
        ours = jax.grad(lambda t, used=used, w=weight: (hidden_states(CONFIG, t, ids, used)[1] * w).sum())(tree)
        for name, suffix in (("forward", ""), ("backward", "_reverse")):
            for part, parameter in (("input", "weight_ih_l0"), ("recurrent", "weight_hh_l0"), ("bias", "bias_ih_l0")):
                expected = getattr(lstm, parameter + suffix).grad.numpy().T
                np.testing.assert_allclose(ours[name][part], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("over_time", ["max", "final"])
def test_a_dropped_channel_is_dropped_from_the_sentence_vector(over_time: str) -> None:
    """A channel that is below zero at every token must not become zero at some and win the maximum."""
    tree, (ids, mask) = params(), batch()
    module = Bilstm(replace(CONFIG, dropout=0.4))
    for seed in range(5):
        drop = {"dropout": jax.random.key(seed)}
        both = module.apply({"params": tree}, ids, mask, deterministic=False, rngs=drop)
        states = both[1]
        kept = (np.asarray(states) != 0).any(1)
        np.testing.assert_array_equal(np.asarray(states)[mask] != 0, np.repeat(kept, mask.sum(1), axis=0))
        assert 0.3 < kept.mean() < 0.9
        vectors = np.asarray(pool(over_time, list(both), jnp.asarray(mask)))
        assert (vectors[~kept] == 0).all() and (vectors[kept] != 0).all() and (vectors[kept] < 0).any()


def test_what_stands_in_padding_changes_nothing_and_has_no_gradient() -> None:
    tree, (ids, mask) = params(), batch()
    other = np.where(mask, ids, 3)
    np.testing.assert_array_equal(
        hidden_states(CONFIG, tree, ids, mask)[1], hidden_states(CONFIG, tree, other, mask)[1]
    )
    only_in_padding = np.where(mask, 1 + ids % 40, 45)
    gradient = jax.grad(lambda t: hidden_states(CONFIG, t, only_in_padding, mask)[1].sum())(tree)
    assert not gradient["word"]["embedding"][45].any() and gradient["word"]["embedding"][:45].any()


def test_gradient_against_finite_differences() -> None:
    tree, (ids, mask) = params(), batch()
    weight = np.random.default_rng(2).standard_normal((len(LENGTHS), L, 2 * H))
    places = [
        (name, part, at)
        for name in DIRECTIONS
        for part, at in (("input", (3, 5)), ("recurrent", (2, 20)), ("bias", (9,)))
    ]

    def loss(t: dict) -> jax.Array:
        return (hidden_states(CONFIG, t, ids, mask)[1] * weight).sum()

    gradient = jax.grad(loss)(tree)
    for name, part, at in places:

        def moved(by: float, name: str = name, part: str = part, at: tuple = at) -> float:
            changed = jax.tree.map(np.array, tree)
            changed[name][part][at] += by
            return float(loss(changed))

        numeric = (8 * (moved(1e-2) - moved(-1e-2)) - (moved(2e-2) - moved(-2e-2))) / 0.12
        assert float(gradient[name][part][at]) == pytest.approx(numeric, rel=1e-2, abs=2e-3)


def test_weights_lie_as_cudnn_reads_them() -> None:
    """By JAX's own reference of its cuDNN call, which takes the same flat vector apart."""
    tree, (ids, mask) = params(), batch()
    x = jnp.asarray(tree["word"]["embedding"][ids])
    parts = rnn.unpack_lstm_weights(flat_weights({name: tree[name] for name in DIRECTIONS}), E, H, 1, True)
    start = jnp.zeros((2, len(LENGTHS), H))
    reference, _, _ = rnn.lstm_ref(x, start, start, *parts, jnp.asarray(LENGTHS, jnp.int32), E, H, 1, 0.0, True)
    ours = _by_scan(CONFIG, x, jnp.asarray(mask), {name: tree[name] for name in DIRECTIONS}, jnp.dtype("float32"))
    np.testing.assert_allclose(np.where(mask[..., None], ours, 0), np.where(mask[..., None], reference, 0), atol=1e-5)
