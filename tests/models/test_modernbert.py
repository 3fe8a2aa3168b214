"""ModernBERT against transformers (torch): states, gradient, its config both ways, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params
from modernbert_setting import tiny_modernbert_config
from parity import assert_close, excess
from steps import hidden_states

from jdistill.core.errors import UserError
from jdistill.encoder.formats import body
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.models import registry
from jdistill.models.modernbert import GLOBAL, LOCAL, ModernBertConfig
from jdistill.models.registry import architecture_of

KINDS: dict[str, dict[str, Any]] = {
    "published": {},  # but for its sizes: no bias anywhere, a global layer and two local ones by turns
    "biased": {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
    "local first": {"layer_types": [LOCAL, GLOBAL, LOCAL, LOCAL]},
    "all global": {"layer_types": [GLOBAL] * 4},
    "other thetas": {
        "rope_parameters": {
            GLOBAL: {"rope_type": "default", "rope_theta": 50.0},
            LOCAL: {"rope_type": "default", "rope_theta": 7.0},
        },
        "local_attention": 5,
        "hidden_activation": "silu",
    },
}
LENGTHS = (40, 9, 1, 27)


def torch_model(folder: Path, kind: str, head: bool = False) -> Any:
    """A random ModernBertModel, or with the layer that predicts tokens, saved in float32."""
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    import transformers

    torch.manual_seed(0)
    sizes: dict[str, Any] = dict(vocab_size=120, hidden_size=48, num_hidden_layers=4, num_attention_heads=4)
    sizes |= dict(intermediate_size=72, max_position_embeddings=64, local_attention=16, pad_token_id=0)
    special = {f"{name}_token_id": number for number, name in enumerate(("bos", "eos", "cls", "sep"), 1)}
    config = transformers.ModernBertConfig(**sizes | special | KINDS[kind])
    model = (transformers.ModernBertForMaskedLM if head else transformers.ModernBertModel)(config).eval()
    for parameter in model.parameters():  # biases and norms too, which start as 0 and 1
        is_vector = parameter.ndim == 1
        torch.nn.init.normal_(parameter, 1.0 if is_vector else 0.0, 0.2 if is_vector else 0.1)
    model.save_pretrained(folder)
    return model


def batch(padded: bool) -> tuple[np.ndarray, np.ndarray]:
    ids, mask = np.random.default_rng(1).integers(5, 120, (4, 40)), np.ones((4, 40), int)
    for row, length in enumerate(LENGTHS if padded else ()):
        ids[row, length:], mask[row, length:] = 0, 0
    return ids, mask


def read(folder: Path) -> tuple[ModernBertConfig, Any]:
    config = body.read_model_config(folder)
    assert isinstance(config, ModernBertConfig)
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
    assert len(ours) == len(theirs) == 5
    real = mask == 1
    for layer, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert_close(np.asarray(a)[real], b.numpy()[real], 144, max(layer, 1), what=f"{kind}: state {layer}")
        assert np.abs(np.asarray(a) - b.numpy())[real].max() <= 1e-5 * np.abs(b.numpy()[real]).max()
    # bfloat16 keeps 8 bits of a number: the same bound by its own epsilon, 2 ** -7.
    narrow = hidden_states(config, params, ids, mask, dtype=jnp.bfloat16)[-1]
    assert narrow.dtype == jnp.bfloat16
    assert_close(np.asarray(narrow, float)[real], theirs[-1].numpy()[real], 144, 4, dtype="bfloat16", what="bfloat16")


def test_what_a_window_hides_and_which_theta_is_whose_matters(tmp_path: Path) -> None:
    """The parity above could not be had with the window, the thetas or the kinds of layers confused."""
    torch_model(tmp_path, "published")
    (config, params), (ids, mask) = read(tmp_path), batch(False)
    right = np.asarray(hidden_states(config, params, ids, mask)[-1])
    for wrong in (
        {"local_attention": config.local_attention + 2},
        {"local_attention": 10_000},
        {"global_theta": config.local_theta},
        {"local_theta": config.global_theta},
        {"layer_types": (GLOBAL, LOCAL, GLOBAL, LOCAL)},
    ):
        changed = tiny_modernbert_config(**{name: getattr(config, name) for name in vars(config)} | wrong)
        assert excess(hidden_states(changed, params, ids, mask)[-1], right, 144, 4) > 100, wrong


def test_the_gradient_equals_torchs(tmp_path: Path) -> None:
    model = torch_model(tmp_path, "biased").double()
    import torch

    (config, params), (ids, mask) = read(tmp_path), batch(True)
    weight = np.random.default_rng(2).normal(size=(4, 40, 48)) * mask[..., None]
    out = model(torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state
    (out * torch.tensor(weight)).sum().backward()
    theirs = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}

    def loss(params: Any) -> Any:
        return (registry.hidden_states(config, params, ids, mask)[-1] * weight).sum()

    ours = architecture_of(config).to_tensors(config, jax.jit(jax.grad(loss))(params))
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        scale = np.abs(theirs[name]).max()
        np.testing.assert_allclose(gradient, theirs[name], rtol=0, atol=1e-4 * scale, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_config_and_weights_go_both_ways(kind: str, tmp_path: Path) -> None:
    import transformers

    torch_model(tmp_path, kind)
    config, params = read(tmp_path)
    architecture, tensors = architecture_of(config), read_tensors(tmp_path)
    again = architecture.to_tensors(config, params)
    assert again.keys() == tensors.keys()
    for name, tensor in again.items():
        np.testing.assert_array_equal(tensor, tensors[name])
    keys = architecture.files(config, 64)["config.json"]
    transformers.AutoConfig.for_model(**keys).save_pretrained(tmp_path / "theirs")
    assert body.read_model_config(tmp_path / "theirs") == config
    (tmp_path / "config.json").write_text(json.dumps(keys))
    assert body.read_model_config(tmp_path) == config
    assert ("global_attn_every_n_layers" in keys) == (kind != "local first")


def test_the_keys_of_the_published_files_are_read(tmp_path: Path) -> None:
    """Those that ModernBERT was published with, before transformers 5 had layer_types and rope_parameters."""
    old = architecture_of(tiny_modernbert_config()).config_keys(tiny_modernbert_config())
    for key in ("layer_types", "rope_parameters"):
        del old[key]
    old |= {"position_embedding_type": "absolute", "reference_compile": None, "global_attn_every_n_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(old | {"local_rope_theta": 77.0}))
    expected = tiny_modernbert_config(layer_types=(GLOBAL, LOCAL, GLOBAL, LOCAL), local_theta=77.0)
    assert body.read_model_config(tmp_path) == expected


def test_a_head_and_its_prefix_are_left_out(tmp_path: Path) -> None:
    model = torch_model(tmp_path, "published", head=True)
    tensors = read_tensors(tmp_path)
    assert "model.layers.0.attn.Wqkv.weight" in tensors and any(name.startswith("head.") for name in tensors)
    word = read(tmp_path)[1]["embeddings"]["word"]["embedding"]
    np.testing.assert_array_equal(word, model.model.embeddings.tok_embeddings.weight.detach().numpy())


def test_padding_and_batch_mates_change_nothing() -> None:
    config = tiny_modernbert_config(
        num_layers=2
    )  # a global and a local one; each random layer more enlarges what was rounded before it
    params, ids = random_params(config), np.random.default_rng(0).integers(5, 400, (1, 16))
    alone = hidden_states(config, params, ids, np.ones((1, 16), bool))[-1]
    padded = np.pad(np.repeat(ids, 3, 0), ((0, 0), (0, 20)), constant_values=77)
    together = hidden_states(config, params, padded, np.arange(36)[None] < np.array([[16], [36], [2]]))[-1]
    assert_close(together[0, :16], alone[0], 96, 2 * config.num_layers)


def test_dropout_makes_two_views_in_each_of_its_places() -> None:
    ids, mask = np.arange(5, 15).reshape(1, 10), np.ones((1, 10), int)
    for part in ("embedding_dropout", "attention_dropout", "mlp_dropout"):
        config = tiny_modernbert_config(**{part: 0.1})
        params = random_params(config)
        views = [hidden_states(config, params, ids, mask, dropout_rng=jax.random.key(seed))[-1] for seed in (0, 1)]
        assert np.abs(np.asarray(views[0]) - np.asarray(views[1])).max() > 1e-3, part


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"num_attention_heads": 5}, "num_attention_heads is 5, which does not divide the width 32"),
    ({"num_attention_heads": 32}, "num_attention_heads makes heads of width 1; RoPE turns pairs"),
    ({"hidden_size": None}, "hidden_size is null"),
    ({"intermediate_size": "48"}, "intermediate_size is a string"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ({"local_attention": -1}, "local_attention is -1"),
    ({"local_attention": True}, "local_attention is True"),
    ({"layer_types": [GLOBAL, "chunked_attention"]}, "layer_types is a list"),
    ({"layer_types": {"0": GLOBAL}}, "layer_types is an object"),
    ({"layer_types": [GLOBAL] * 3}, "layer_types is of 3 layers, and num_hidden_layers is 4"),
    ({"layer_types": None, "global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0"),
    ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is not supported, only plain RoPE"),
    ({"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters has 'rope_theta'; it is an object of full_attention"),
    ({"rope_parameters": {GLOBAL: 5.0}}, "full_attention is 5.0; an object is needed"),
    ({"rope_parameters": {LOCAL: {"rope_type": "yarn"}}}, "rope_type is 'yarn'; supported is default"),
    ({"rope_parameters": {LOCAL: {"rope_theta": -3}}}, "rope_theta is -3"),
    ({"rope_parameters": None, "local_rope_theta": "10000"}, "local_rope_theta is a string"),
    ({"hidden_activation": "xielu"}, "hidden_activation is 'xielu'"),
    ({"norm_eps": -1.0}, "norm_eps is -1.0"),
    ({"norm_bias": 0}, "norm_bias is 0; true or false is needed"),
    ({"pad_token_id": 400}, "pad_token_id is 400"),
    ({"embedding_dropout": 2}, "embedding_dropout is 2"),
)


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_bad_key_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = tiny_modernbert_config()
    (tmp_path / "config.json").write_text(json.dumps(architecture_of(config).config_keys(config) | change))
    with pytest.raises(UserError, match=message):
        body.read_model_config(tmp_path)


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    config = tiny_modernbert_config()
    architecture = architecture_of(config)
    tensors = architecture.to_tensors(config, random_params(config))
    without = {name: x for name, x in tensors.items() if name != "layers.1.attn.Wqkv.weight"}
    with pytest.raises(UserError, match=r"tensor layers\.1\.attn\.Wqkv\.weight is missing"):
        architecture.from_tensors(config, without, "memory")
    with pytest.raises(
        UserError, match=r"layers\.2\.mlp\.Wi\.weight has shape \(4, 4\).*config.json asks for \(96, 32\)"
    ):
        wrong = tensors | {"layers.2.mlp.Wi.weight": np.zeros((4, 4), np.float32)}
        architecture.from_tensors(config, wrong, "memory")
    with pytest.raises(UserError, match="tells of 4 layers, but the tensors are of 3"):
        fewer = {name: x for name, x in tensors.items() if not name.startswith("layers.3.")}
        architecture.from_tensors(config, fewer, "memory")
