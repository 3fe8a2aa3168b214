"""The Flax encoders against transformers (torch), weights both ways, and the sizes the SimTDE paper states."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

import flax.linen as nn
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params, real_teacher_folder, tiny_config
from flax.traverse_util import flatten_dict, unflatten_dict
from hypothesis import given, settings
from parity import assert_close, excess
from torch_parity import assert_states_equal

import jdistill
from jdistill.encoder.formats import body
from jdistill.models.bert import ACTIVATIONS, Bert, BertConfig
from jdistill.models.bert.module import Layer
from jdistill.models.matmul import Dense, matmul
from jdistill.models.registry import architecture_of, count_parameters, parameter_shapes

small = st.integers(1, 6)


def torch_model(kind: str, folder: Path):
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = dict(vocab_size=120, max_position_embeddings=40)
    wide = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
    model = {
        "bert": lambda: transformers.BertModel(transformers.BertConfig(**small, **wide)),
        "roberta": lambda: transformers.RobertaModel(
            transformers.RobertaConfig(**small, **wide, pad_token_id=1, type_vocab_size=1)
        ),
        "xlm-roberta": lambda: transformers.XLMRobertaModel(
            transformers.XLMRobertaConfig(**small, **wide, pad_token_id=1, type_vocab_size=1)
        ),
        "electra": lambda: transformers.ElectraModel(transformers.ElectraConfig(**small, **wide, embedding_size=16)),
        "distilbert": lambda: transformers.DistilBertModel(
            transformers.DistilBertConfig(**small, dim=48, n_layers=3, n_heads=4, hidden_dim=96)
        ),
    }[kind]().eval()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "distilbert", "electra"])
def test_every_hidden_state_equals_transformers(kind: str, tmp_path: Path) -> None:
    assert_states_equal(torch_model(kind, tmp_path).double(), tmp_path, 96, (17, 9, 1, 16, 4))


def test_every_hidden_state_of_the_real_teacher() -> None:
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    from transformers import AutoModel

    folder = real_teacher_folder()
    model = jdistill.load(str(folder))
    texts = [
        "A man is playing a guitar.",
        "Short",
        "The quick brown fox jumps over the lazy dog near the river bank, again and again.",
    ]
    tokens = model.tokenizer(texts, padding=True, return_tensors="np")
    with torch.no_grad():
        theirs = (
            AutoModel.from_pretrained(folder)
            .double()(**{k: torch.tensor(v) for k, v in tokens.items()}, output_hidden_states=True)
            .hidden_states
        )
    ours = Bert(model.config).apply({"params": model.params}, tokens["input_ids"], tokens["attention_mask"])
    real = tokens["attention_mask"] == 1
    for layer, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        one, other = np.asarray(a)[real], b.numpy()[real]
        assert_close(one, other, model.config.intermediate_size, max(layer, 1), what=f"state {layer}")


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "distilbert", "electra"])
def test_weights_go_to_hugging_face_and_back_exactly(kind: str) -> None:
    config = tiny_config(
        model_type=kind,
        embedding_size=16 if kind == "electra" else 32,
        type_vocab_size=0 if kind == "distilbert" else 2,
    )
    params = random_params(config)
    bert = architecture_of(config)
    again = bert.from_tensors(config, bert.to_tensors(config, params), "memory")
    flat = {"/".join(map(str, k)): v for k, v in flatten_dict(params).items()}
    assert flat.keys() == parameter_shapes(config).keys()
    for key, value in flatten_dict(again, sep="/").items():
        np.testing.assert_array_equal(value, flat[key])


@st.composite
def bert_configs(draw: st.DrawFn) -> BertConfig:
    """Any small architecture of the five kinds that config.json can describe."""
    kind = draw(st.sampled_from(["bert", "roberta", "xlm-roberta", "distilbert", "electra"]))
    distil, heads, vocabulary, pad = (
        kind == "distilbert",
        draw(small),
        draw(st.integers(5, 40)),
        draw(st.integers(0, 4)),
    )
    hidden = heads * draw(small)
    return BertConfig(
        model_type=kind,
        vocab_size=vocabulary,
        embedding_size=draw(small) if kind == "electra" else hidden,
        hidden_size=hidden,
        num_layers=draw(st.integers(1, 12)),
        num_heads=heads,
        intermediate_size=draw(small),
        max_positions=pad + 1 + draw(small),
        type_vocab_size=0 if distil else draw(st.integers(0, 3)),
        layer_norm_eps=1e-12 if distil else draw(st.floats(1e-12, 0.1)),
        activation=draw(st.sampled_from(sorted(ACTIVATIONS))),
        pad_token_id=pad,
        hidden_dropout=draw(st.floats(0.0, 1.0)),
        attention_dropout=draw(st.floats(0.0, 1.0)),
    )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(bert_configs(), st.booleans())
def test_any_encoder_goes_to_hugging_face_and_back(config: BertConfig, prefixed: bool) -> None:
    params = random_params(config)
    tensors = architecture_of(config).to_tensors(config, params)
    if prefixed:  # as a model with a head on it names them
        tensors = {f"{config.model_type}.{name}": tensor for name, tensor in tensors.items()}
    jax.tree.map(np.testing.assert_array_equal, architecture_of(config).from_tensors(config, tensors, "memory"), params)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(architecture_of(config).config_keys(config)))
        assert body.read_model_config(Path(folder)) == config


def test_padding_and_batch_mates_change_nothing() -> None:
    config = tiny_config(model_type="electra", embedding_size=16)
    params = {"params": random_params(config)}
    ids = np.random.default_rng(0).integers(5, 1000, (1, 6))
    alone = Bert(config).apply(params, ids, np.ones((1, 6), bool))[-1]
    padded = np.pad(np.repeat(ids, 3, 0), ((0, 0), (0, 5)), constant_values=777)
    mask = np.arange(11)[None] < np.array([[6], [11], [2]])
    together = Bert(config).apply(params, padded, mask)[-1]
    assert_close(together[0, :6], alone[0], config.intermediate_size, 2 * config.num_layers)


def test_a_width_beyond_the_position_table_holds_padding_alone() -> None:
    config = tiny_config(max_positions=6)
    params = {"params": random_params(config)}
    ids = np.random.default_rng(0).integers(5, 1000, (2, 6))
    expected = Bert(config).apply(params, ids, np.ones((2, 6), bool))[-1]
    wider, mask = np.pad(ids, ((0, 0), (0, 2))), np.arange(8) < np.array([[6], [6]])
    states = Bert(config).apply(params, wider, mask)[-1]
    assert np.isfinite(states).all()
    assert_close(states[:, :6], expected, config.intermediate_size, 2 * config.num_layers)


@pytest.mark.parametrize(
    ("kind", "silenced"),
    [("distilbert", "down"), ("albert", "attention/out"), ("bert", "down"), ("bert", "attention/out")],
)
def test_dropout_stands_where_transformers_has_it(kind: str, silenced: str) -> None:
    """One of the two updates is zero, so that the other alone could be dropped: DistilBERT's attention and ALBERT's feed-forward are not."""
    config = tiny_config(model_type=kind, hidden_dropout=0.5, attention_dropout=0.0)
    states = np.random.default_rng(0).normal(size=(1, 5, config.hidden_size)).astype(np.float32)
    params = Layer(config).init(jax.random.key(0), states, (jnp.zeros((1, 1, 1, 5)),))
    flat = flatten_dict(params["params"], sep="/")
    flat = {name: x * (not name.startswith(silenced)) for name, x in flat.items()}
    layer = partial(Layer(config).apply, {"params": unflatten_dict(flat, sep="/")}, states, (jnp.zeros((1, 1, 1, 5)),))
    dropped = layer(deterministic=False, rngs={"dropout": jax.random.key(1)})
    assert np.array_equal(dropped, layer(deterministic=True)) == (kind != "bert")


def test_bfloat16_computes_near_float32_and_keeps_float32_parameters() -> None:
    config = tiny_config()
    params = random_params(config)
    ids, mask = np.arange(10, 26).reshape(2, 8), np.ones((2, 8), bool)
    exact = np.asarray(Bert(config).apply({"params": params}, ids, mask)[-1])
    rough = Bert(config, jnp.bfloat16).apply({"params": params}, ids, mask)[-1]
    assert rough.dtype == jnp.bfloat16
    found = np.asarray(rough, np.float32)
    assert excess(found, exact, config.intermediate_size, config.num_layers) > 10  # it was computed so indeed
    assert_close(found, exact, config.intermediate_size, config.num_layers, dtype="bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("width", "out"), [(6, 10), (7, 9), (10, 6)])
def test_a_products_gradient_is_jaxs_own(width: int, out: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, kernel, dy = (rng.normal(size=shape) for shape in ((2, 5, width), (width, out), (2, 5, out)))
    found = jax.vjp(matmul, jnp.asarray(x, dtype), jnp.asarray(kernel, dtype))[1](jnp.asarray(dy, dtype))
    for got, expected in zip(found, (dy @ kernel.T, np.einsum("bld,blf->df", x, dy)), strict=True):
        assert got.dtype == dtype
        assert_close(got, expected, 10, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_dense_layer_and_its_gradients_are_flaxs_own(dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 40, 6)).astype(np.float32)
    params = nn.Dense(8).init(jax.random.key(0), x)["params"]
    params = params | {"bias": np.arange(8, dtype=np.float32) / 8}

    def loss(layer: nn.Module, params: dict) -> jax.Array:
        return jnp.sin(layer.apply({"params": params}, x).astype(jnp.float32)).sum()

    exact = jax.value_and_grad(lambda params: loss(nn.Dense(8), params))(params)
    found = jax.value_and_grad(lambda params: loss(Dense(8, dtype=jnp.dtype(dtype)), params))(params)
    for got, expected in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert got.dtype == np.float32
        assert_close(got, expected, 120, dtype=dtype)  # the gradients are sums over 3 x 40 tokens
    fresh = Dense(8).init(jax.random.key(1), x)["params"]
    jax.tree.map(np.testing.assert_array_equal, fresh, nn.Dense(8).init(jax.random.key(1), x)["params"])


# (embedding, layers, width of layers, feed-forward) -> parameters with a pooler, SimTDE tables 2 and 3.
@pytest.mark.parametrize(
    ("embedding", "layers", "hidden", "stated"),
    [(384, 3, 768, 34.1e6), (128, 3, 384, 9_493_632), (64, 2, 128, 2.4e6), (32, 2, 128, 1.4e6)],
)
def test_sizes_of_the_paper(embedding: int, layers: int, hidden: int, stated: float) -> None:
    config = tiny_config(
        model_type="electra",
        embedding_size=embedding,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_heads=hidden // 32,
        max_positions=512,
    )
    count = count_parameters(config, pooler=True)
    assert count == stated if stated == 9_493_632 else round(count / 1e6, 1) == stated / 1e6
