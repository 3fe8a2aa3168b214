"""The attention that all transformers share: against a loop, by blocks of queries, by JAX's own, and what it holds in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_decoder, make_encoder
from ml_collections import ConfigDict
from modernbert_setting import make_modernbert
from mpnet_setting import make_mpnet
from parity import assert_close
from t5_setting import make_t5

from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.models import attention, registry, segments
from jdistill.models.attention import attend, attend_by_library, attend_in_blocks, attend_plainly, fits_cudnn
from jdistill.models.matmul import batched, batched_transposed
from jdistill.models.segments import BiasByQuery, Segments
from jdistill.run import preflight
from jdistill.run.preflight import check_attention

B, H, L, K = 2, 3, 21, 8
LOWEST = float(np.finfo(np.float32).min)


def arrays(seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    query, key, value = (jnp.asarray(rng.standard_normal((B, H, L, K)), jnp.float32) for _ in range(3))
    return query, key, value


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("queries", "width"), [(4, 6), (5, 7), (6, 3)]
)  # both axes that a copy is made of, even and odd
def test_products_of_each_head_and_their_gradients(queries: int, width: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b, dc = (rng.normal(size=(B, H, *shape)) for shape in ((queries, width), (9, width), (queries, 9)))
    a, b, dc = (np.asarray(jnp.asarray(x, dtype), np.float64) for x in (a, b, dc))  # what the product reads
    for product, second, of_second in (
        (batched_transposed, b, np.einsum("bhqn,bhqk->bhnk", dc, a)),
        (batched, b.swapaxes(2, 3), np.einsum("bhqk,bhqn->bhkn", a, dc)),
    ):
        found, pull = jax.vjp(product, jnp.asarray(a, dtype), jnp.asarray(second, dtype))
        expected = a @ b.swapaxes(2, 3), dc @ b, of_second
        of_result = jnp.float32 if product is batched_transposed else jnp.dtype(dtype)  # logits are not rounded
        assert found.dtype == of_result
        for got, exact in zip((found, *pull(jnp.asarray(dc, of_result))), expected, strict=True):
            assert got.dtype == (of_result if got is found else dtype)
            assert_close(got, exact, 9, dtype=dtype)


def by_query(causal: bool = False, window: int | None = None) -> BiasByQuery:
    """Two texts a row behind a token that both share, and padding at the end."""
    of = jnp.asarray([[0] + [1] * 9 + [2] * 11, [0] + [1] * 4 + [2] * 13 + [0] * 3], jnp.int32)
    mask = jnp.asarray([[True] * L, [True] * (L - 3) + [False] * 3])
    return BiasByQuery(mask, of, jnp.broadcast_to(jnp.arange(L), (B, L)), causal, window)


BIASES: dict[str, Callable[[], Any]] = {
    "padding": lambda: segments.as_bias(by_query().mask_RxW)[:, None, None, :],
    "texts": by_query,
    "causal": lambda: by_query(causal=True),
    "window": lambda: by_query(window=3),
    "learnt": lambda: jnp.asarray(np.random.default_rng(1).standard_normal((1, H, L, L)), jnp.float32),
}


def loop(query: Any, key: Any, value: Any, bias: Any, scale: float) -> np.ndarray:
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    bias = np.broadcast_to(np.asarray(segments.whole_bias(bias), np.float64), (B, H, L, L))
    out = np.zeros_like(query)
    for b in range(B):
        for h in range(H):
            for i in range(L):
                scores = np.array([query[b, h, i] @ key[b, h, j] * scale for j in range(L)]) + bias[b, h, i]
                weights = np.exp(scores - scores.max())
                out[b, h, i] = sum(w * value[b, h, j] for j, w in enumerate(weights / weights.sum()))
    return out


@pytest.mark.parametrize("name", BIASES)
def test_plain_and_by_blocks_are_the_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = loop(*arrays(), BIASES[name](), 0.3)
    bound = 16 * np.finfo(np.float32).eps * np.abs(np.asarray(arrays()[2])).max()
    bias = BIASES[name]()
    np.testing.assert_allclose(attend_plainly(*arrays(), segments.whole_bias(bias), 0.3), expected, atol=bound, rtol=0)
    for at_once in (4, 7, L, 64):  # 21 tokens: with queries left over, without, one block
        monkeypatch.setattr(attention, "QUERIES_AT_ONCE", at_once)
        np.testing.assert_allclose(attend_in_blocks(*arrays(), bias, 0.3), expected, atol=bound, rtol=0)


@pytest.mark.parametrize("name", BIASES)
def test_gradients_by_blocks_are_those_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "QUERIES_AT_ONCE", 8)
    weights = jnp.asarray(np.random.default_rng(2).standard_normal((B, H, L, K)), jnp.float32)
    learnt = name == "learnt"

    def gradients(program: Callable[..., Any]) -> Any:
        def loss(inputs: Any, bias: Any) -> Any:
            return jnp.sum(weights * program(*inputs, bias if learnt else BIASES[name](), 0.3))

        bias = BIASES[name]() if learnt else jnp.zeros(())
        return jax.jit(jax.grad(loss, argnums=(0, 1)))(arrays(), bias)

    whole = gradients(lambda q, k, v, bias, scale: attend_plainly(q, k, v, segments.whole_bias(bias), scale))
    for of_blocks, of_whole in zip(jax.tree.leaves(gradients(attend_in_blocks)), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(of_blocks, of_whole, atol=64 * 1.2e-7 * (np.abs(of_whole).max() + 1e-30), rtol=0)


@pytest.mark.parametrize("name", sorted(BIASES.keys() - {"learnt"}))
def test_jaxs_own_attention_is_ours(name: str) -> None:
    """What cuDNN's stands behind, run by XLA here; of rows that see a key."""
    bias = BIASES[name]()
    ours, jaxs = (
        attend_plainly(*arrays(), segments.whole_bias(bias), 0.3),
        attend_by_library(*arrays(), bias, 0.3, "xla"),
    )
    sees = np.asarray(jnp.broadcast_to((segments.whole_bias(bias) >= 0).any(-1), (B, H, L)))[..., None]
    np.testing.assert_allclose(np.where(sees, ours, 0), np.where(sees, jaxs, 0), atol=4e-6, rtol=0)


def test_memory_grows_with_a_long_row_and_not_with_its_square() -> None:
    def scratch(tokens: int) -> int:
        x = jax.ShapeDtypeStruct((1, 2, tokens, 16), jnp.float32)
        ints = jax.ShapeDtypeStruct((1, tokens), jnp.int32)

        def loss(query: Any, key: Any, value: Any, of: Any, positions: Any) -> Any:
            (bias,) = Segments(of, positions).biases(of >= 0, window=64)
            return attend(query, key, value, bias, 0.25).sum()

        compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, x, x, ints, ints).compile()
        assert f"{tokens},{tokens}" not in compiled.as_text()
        return compiled.memory_analysis().temp_size_in_bytes

    assert scratch(4 * segments.LONG) < 2.5 * scratch(2 * segments.LONG)


MODELS: dict[str, Callable[[], Encoder]] = {
    "bert": make_encoder,
    "decoder": make_decoder,
    "modernbert": make_modernbert,
    "mpnet": make_mpnet,
    "t5": make_t5,
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_models_say_the_same_of_long_rows(name: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]()
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 300, (2, 24)).astype(np.int32)
    mask = np.arange(24) < np.array([[24], [17]])
    of = np.where(mask, 1 + (np.arange(24) >= 10), 0).astype(np.int32)
    positions = np.where(np.arange(24) >= 10, np.arange(24) - 10, np.arange(24)).astype(np.int32)
    packing = Segments(jnp.asarray(np.broadcast_to(of, (2, 24))), jnp.asarray(np.broadcast_to(positions, (2, 24))))

    def states() -> Any:
        program = jax.jit(
            lambda params: registry.hidden_states(model.config, params, ids, mask, segments=packing if packed else None)
        )
        return [np.where(mask[..., None], state, 0) for state in program(model.params)]

    whole = states()
    monkeypatch.setattr(attention, "LONG", 8)
    monkeypatch.setattr(segments, "LONG", 8)
    monkeypatch.setattr(attention, "QUERIES_AT_ONCE", 7)
    called = []
    monkeypatch.setattr(attention, "attend_in_blocks", lambda *of: called.append(1) or attend_in_blocks(*of))
    for by_blocks, state in zip(states(), whole, strict=True):
        np.testing.assert_allclose(by_blocks, state, atol=2e-5 * max(1.0, np.abs(state).max()), rtol=0)
    assert called


def test_what_cudnn_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    L = 22
    shared, of_each_head = jnp.zeros((B, 1, 1, L)), jnp.zeros((1, H, L, L))
    query = jnp.zeros((B, H, L, 32), jnp.bfloat16)
    assert not fits_cudnn(query, shared)  # on a CPU
    monkeypatch.setattr(attention.sharding, "platform", lambda: "gpu")
    assert fits_cudnn(query, shared) and fits_cudnn(query, by_query())
    assert not fits_cudnn(query, of_each_head)
    assert not fits_cudnn(query.astype(jnp.float32), shared)
    assert not fits_cudnn(jnp.zeros((B, H, L, 256), jnp.bfloat16), shared)
    assert not fits_cudnn(jnp.zeros((B, H, L, 36), jnp.bfloat16), shared)
    assert not fits_cudnn(jnp.zeros((B, H, L - 1, 32), jnp.bfloat16), shared[..., :-1])  # JAX's call with a mask


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_cudnn_is_refused_where_it_cannot_run(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = ConfigDict({"attention": "cudnn", "dtype": dtype})
    with pytest.raises(UserError, match="config.attention=cudnn needs a GPU"):
        check_attention(cfg)
    monkeypatch.setattr(preflight.sharding, "platform", lambda: "gpu")
    if dtype == "float32":
        with pytest.raises(UserError, match="set --config.dtype=bfloat16"):
            check_attention(cfg)
    else:
        check_attention(cfg)
    check_attention(ConfigDict({"attention": "plain", "dtype": dtype}))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_logits_as_large_as_qwen2s_are_not_rounded_before_the_softmax(dtype: Any) -> None:
    """Its keys have a bias, by which raw scores of a query lie thousands above zero and differ by a few."""
    rng, (L, K) = np.random.default_rng(0), (24, 64)
    query, key = (rng.normal(size=(1, 1, L, K)) for _ in range(2))
    query[..., 0], key[..., 0] = 250.0, 250.0  # 62,500 before the scale, and q k beside it beyond float16
    query, key, value = (jnp.asarray(x, dtype) for x in (query, key, rng.normal(size=(1, 1, L, K))))
    exact = (np.asarray(x, np.float64) for x in (query, key, value))
    q, k, v = exact
    logits = np.einsum("bhqk,bhlk->bhql", q, k) * K**-0.5
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    expected = np.einsum("bhql,bhlk->bhqk", weights / weights.sum(-1, keepdims=True), v)
    found = np.asarray(attend_plainly(query, key, value, jnp.zeros((1, 1, L, L)), K**-0.5), np.float64)
    # Logits of 8,000 in float32 are right to 1e-3; the weights and the sum are of the type.
    assert np.abs(found - expected).max() < 4 * float(jnp.finfo(dtype).eps)
