"""NomicBERT against transformers (torch): states, gradient, its config by both sets of keys, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params
from nomicbert_setting import PUBLISHED, tiny_nomicbert_config
from parity import assert_close, excess
from steps import hidden_states

from jdistill.core.errors import UserError
from jdistill.encoder.formats import body
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.models import registry
from jdistill.models.nomicbert import NomicBertConfig
from jdistill.models.registry import architecture_of

KINDS: dict[str, dict[str, Any]] = {
    "published": {},  # but for its sizes
    "geglu": {"hidden_act": "gelu", "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "another theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 20.0}, "num_attention_heads": 2},
}
LENGTHS = (40, 9, 1, 27)


def torch_model(folder: Path, kind: str, head: bool = False) -> Any:
    """A random NomicBertModel, or with the layer that predicts tokens, saved in float32."""
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    import transformers

    torch.manual_seed(0)
    sizes: dict[str, Any] = dict(vocab_size=120, hidden_size=48, num_hidden_layers=3, num_attention_heads=4)
    sizes |= dict(intermediate_size=72, max_position_embeddings=64)
    config = transformers.NomicBertConfig(**sizes | KINDS[kind])
    model = (transformers.NomicBertForMaskedLM if head else transformers.NomicBertModel)(config).eval()
    for parameter in model.parameters():  # biases and norms too, which start as 0 and 1
        torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.2)
    model.save_pretrained(folder)
    return model


def batch(padded: bool) -> tuple[np.ndarray, np.ndarray]:
    ids, mask = np.random.default_rng(1).integers(5, 120, (4, 40)), np.ones((4, 40), int)
    for row, length in enumerate(LENGTHS if padded else ()):
        ids[row, length:], mask[row, length:] = 0, 0
    return ids, mask


def read(folder: Path) -> tuple[NomicBertConfig, Any]:
    config = body.read_model_config(folder)
    assert isinstance(config, NomicBertConfig)
    return config, architecture_of(config).from_tensors(config, read_tensors(folder), "memory")


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_hidden_state_equals_transformers(kind: str, padded: bool, tmp_path: Path) -> None:
    model = torch_model(tmp_path, kind).double()
    import torch

    (config, params), (ids, mask) = read(tmp_path), batch(padded)
    with torch.no_grad():
        theirs = model(torch.tensor(ids), attention_mask=torch.tensor(mask), output_hidden_states=True).hidden_states
    ours = hidden_states(config, params, ids, mask)
    assert len(ours) == len(theirs) == 4
    real = mask == 1
    for layer, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert_close(np.asarray(a)[real], b.numpy()[real], 72, max(layer, 1), what=f"{kind}: state {layer}")
        assert np.abs(np.asarray(a) - b.numpy())[real].max() <= 1e-5 * np.abs(b.numpy()[real]).max()
    # bfloat16 keeps 8 bits of a number: the same bound by its own epsilon, 2 ** -7.
    narrow = hidden_states(config, params, ids, mask, dtype=jnp.bfloat16)[-1]
    assert narrow.dtype == jnp.bfloat16
    assert_close(np.asarray(narrow, float)[real], theirs[-1].numpy()[real], 72, 3, dtype="bfloat16", what="bfloat16")
    for wrong in ({"rope_theta": config.rope_theta * 1.1}, {"layer_norm_eps": 1e-2}, {"activation": "relu"}):
        changed = tiny_nomicbert_config(**vars(config) | wrong)
        off = np.asarray(hidden_states(changed, params, ids, mask)[-1])[real]
        assert excess(off, theirs[-1].numpy()[real], 72, 3) > 30, wrong


def test_the_gradient_equals_torchs(tmp_path: Path) -> None:
    model = torch_model(tmp_path, "published").double()
    import torch

    (config, params), (ids, mask) = read(tmp_path), batch(True)
    weight = np.random.default_rng(2).normal(size=(4, 40, 48)) * mask[..., None]
    out = model(torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state
    (out * torch.tensor(weight)).sum().backward()
    theirs = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}

    def loss(params: Any) -> Any:
        return (registry.hidden_states(config, params, ids, mask)[-1] * weight).sum()

    ours = architecture_of(config).module_tensors(config, jax.jit(jax.grad(loss))(params))
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        scale = np.abs(theirs[name]).max()
        np.testing.assert_allclose(gradient, theirs[name], rtol=0, atol=1e-4 * scale, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_config_and_weights_go_both_ways(kind: str, tmp_path: Path) -> None:
    import transformers

    model = torch_model(tmp_path, kind)
    config, params = read(tmp_path)
    architecture, tensors = architecture_of(config), read_tensors(tmp_path)
    again = architecture.to_tensors(config, params)
    assert again.keys() == tensors.keys()
    for name, tensor in again.items():
        np.testing.assert_array_equal(tensor, tensors[name])
    modules = architecture.module_tensors(config, params)
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(modules[name], parameter.detach().numpy())
    keys = architecture.files(config, 64)["config.json"]
    transformers.AutoConfig.for_model(**keys).save_pretrained(tmp_path / "theirs")
    assert body.read_model_config(tmp_path / "theirs") == config
    (tmp_path / "config.json").write_text(json.dumps(keys))
    assert body.read_model_config(tmp_path) == config


def test_the_published_keys_are_read_alone_and_beside_the_new_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    assert body.read_model_config(tmp_path) == tiny_nomicbert_config()
    new = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48}
    new |= {"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}, "head_dim": 8, "hidden_act": "silu"}
    # The published file says how long the texts of its training were, which transformers reads, and beside it how long others may be.
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED | new | {"max_position_embeddings": 32}))
    assert body.read_model_config(tmp_path) == tiny_nomicbert_config(max_positions=32)
    written = architecture_of(tiny_nomicbert_config()).config_keys(tiny_nomicbert_config())
    differing = {key for key in PUBLISHED.keys() & written.keys() if PUBLISHED[key] != written[key]}
    assert differing == {"max_trained_positions"}
    assert PUBLISHED.keys() - written.keys() == {"auto_map", "bos_token_id", "pad_vocab_size_multiple"}


def test_a_head_and_its_prefix_are_left_out(tmp_path: Path) -> None:
    model = torch_model(tmp_path, "published", head=True)
    assert "nomic_bert.encoder.layers.0.attn.Wqkv.weight" in read_tensors(tmp_path)
    word = read(tmp_path)[1]["embeddings"]["word"]["embedding"]
    np.testing.assert_array_equal(word, model.nomic_bert.embeddings.word_embeddings.weight.detach().numpy())


def test_padding_and_batch_mates_change_nothing() -> None:
    config = tiny_nomicbert_config(vocab_size=400)
    params, ids = random_params(config), np.random.default_rng(0).integers(5, 400, (1, 16))
    alone = hidden_states(config, params, ids, np.ones((1, 16), bool))[-1]
    padded = np.pad(np.repeat(ids, 3, 0), ((0, 0), (0, 20)), constant_values=77)
    together = hidden_states(config, params, padded, np.arange(36)[None] < np.array([[16], [36], [2]]))[-1]
    assert_close(together[0, :16], alone[0], 48, 2 * config.num_layers)


def test_dropout_makes_two_views_in_each_of_its_places() -> None:
    ids, mask = np.arange(5, 15).reshape(1, 10), np.ones((1, 10), int)
    for part in ("hidden_dropout", "attention_dropout"):
        config = tiny_nomicbert_config(vocab_size=90, **{part: 0.1})
        params = random_params(config)
        views = [hidden_states(config, params, ids, mask, dropout_rng=jax.random.key(seed))[-1] for seed in (0, 1)]
        assert np.abs(np.asarray(views[0]) - np.asarray(views[1])).max() > 1e-3, part


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"n_embd": None}, "hidden_size is missing, and so is n_embd"),
    ({"n_layer": None}, "num_hidden_layers is missing, and so is n_layer"),
    ({"n_inner": "48"}, "n_inner is a string"),
    ({"n_inner": -1}, "n_inner is -1"),
    ({"hidden_size": 64}, "n_embd is 32, but hidden_size is 64; they are names of one thing"),
    ({"hidden_act": "gelu"}, "activation_function is silu, but hidden_act is gelu"),
    ({"n_head": 5}, r"num_attention_heads \(n_head\) is 5, which does not divide the width 32"),
    ({"n_head": 32}, "makes heads of width 1"),
    ({"head_dim": 16}, "makes heads of width 8; they are even, for RoPE, and head_dim wide"),
    ({"rotary_emb_base": None}, "rope_theta is missing, and so is rotary_emb_base"),
    ({"rotary_emb_base": 0.5}, "rotary_emb_base is 0.5"),
    ({"rope_theta": 5000.0}, "rotary_emb_base is 1000.0, but rope_theta is 5000.0; they are names of one thing"),
    ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'; supported is default"),
    ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction is 0.5; computed is 1.0 or null alone"),
    ({"rotary_emb_fraction": True}, "rotary_emb_fraction is True"),
    ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved is True; computed is False or null alone"),
    ({"rotary_emb_scale_base": 512}, "rotary_emb_scale_base is 512; computed is null alone"),
    ({"rotary_scaling_factor": 2}, "rotary_scaling_factor is 2; computed is null alone"),
    ({"prenorm": True}, "prenorm is True"),
    ({"qkv_proj_bias": True}, "qkv_proj_bias is True"),
    ({"mlp_fc1_bias": True}, "mlp_fc1_bias is True"),
    ({"use_rms_norm": 0}, "use_rms_norm is 0"),
    ({"causal": "no"}, "causal is a string"),
    ({"moe_every_n_layers": 2}, "moe_every_n_layers is 2; computed is 0 or -1 or null alone"),
    ({"activation_function": "gelu"}, "activation_function is 'gelu'; supported is swiglu, geglu"),
    ({"activation_function": None, "hidden_act": "xielu"}, "hidden_act is 'xielu'; supported is gelu"),
    ({"type_vocab_size": 0}, "type_vocab_size is 0"),
    ({"vocab_size": None}, "vocab_size is null"),
    ({"pad_token_id": 30528}, "pad_token_id is 30528"),
    ({"layer_norm_epsilon": "small"}, "layer_norm_epsilon is a string"),
    ({"resid_pdrop": 3}, "resid_pdrop is 3"),
)


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_bad_key_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED | change))
    with pytest.raises(UserError, match=message):
        body.read_model_config(tmp_path)


def test_tensors_that_do_not_fit_are_named() -> None:
    config = tiny_nomicbert_config(vocab_size=90)
    architecture = architecture_of(config)
    tensors = architecture.to_tensors(config, random_params(config))
    without = {name: x for name, x in tensors.items() if name != "encoder.layers.1.mlp.fc12.weight"}
    with pytest.raises(UserError, match=r"tensor encoder\.layers\.1\.mlp\.fc12\.weight is missing"):
        architecture.from_tensors(config, without, "memory")
    wrong = tensors | {"emb_ln.weight": np.zeros(4, np.float32)}
    with pytest.raises(UserError, match=r"emb_ln\.weight has shape \(4,\), but config.json asks for \(32,\)"):
        architecture.from_tensors(config, wrong, "memory")
    fewer = {name: x for name, x in tensors.items() if not name.startswith("encoder.layers.3.")}
    with pytest.raises(UserError, match="tells of 4 layers, but the tensors are of 3"):
        architecture.from_tensors(config, fewer, "memory")
