"""Decoders in Flax against transformers (torch): every hidden state and the logits, whichever side padding stands on."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from conftest import random_params, tiny_decoder_config
from decoder_setting import KINDS, torch_model
from hypothesis import given, settings
from parity import assert_close
from steps import hidden_states

from jdistill.core.errors import UserError
from jdistill.encoder.formats import body
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.models import decoder
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.decoder import DecoderConfig
from jdistill.models.decoder.config import write_config
from jdistill.models.registry import architecture_of, count_parameters


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_and_logits_equal_transformers(kind: str, side: str, tmp_path: Path) -> None:
    model = torch_model(kind, tmp_path)
    import torch

    config = body.read_model_config(tmp_path)
    assert isinstance(config, DecoderConfig)
    tensors = read_tensors(tmp_path)
    params = architecture_of(config).from_tensors(config, tensors, kind)
    if not config.tied:
        params["head"] = {"kernel": tensors["lm_head.weight"].T}
    rng = np.random.default_rng(1)
    ids, mask = rng.integers(3, 120, (5, 17)), np.zeros((5, 17), int)
    for row, length in enumerate((17, 9, 1, 16, 4)):
        where = slice(0, length) if side == "right" else slice(17 - length, 17)
        mask[row, where] = 1
    ids[mask == 0] = config.pad_token_id
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    with torch.no_grad():
        theirs = model.double()(
            torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            position_ids=torch.tensor(positions),
            output_hidden_states=True,
        )
    ours = hidden_states(config, params, ids, mask)
    assert len(ours) == len(theirs.hidden_states) == 4
    real, longest = mask == 1, config.intermediate_size
    for layer, (a, b) in enumerate(zip(ours, theirs.hidden_states, strict=True)):
        assert_close(np.asarray(a)[real], b.numpy()[real], longest, max(layer, 1), what=f"state {layer}")
    ours_logits = decoder.next_token_logits(config, params, ours[-1])
    assert_close(np.asarray(ours_logits)[real], theirs.logits.numpy()[real], longest, len(ours), what="logits")


@pytest.mark.parametrize("kind", KINDS)
def test_config_and_weights_go_both_ways(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = torch_model(kind, tmp_path)
    config = body.read_model_config(tmp_path)
    architecture = architecture_of(config)
    tensors = architecture.to_tensors(config, architecture.from_tensors(config, read_tensors(tmp_path), kind))
    for name, tensor in model.model.state_dict().items():
        np.testing.assert_array_equal(tensors[name], tensor.numpy())
    again = transformers.AutoConfig.for_model(**write_config(config))
    again.save_pretrained(tmp_path / "again")
    assert body.read_model_config(tmp_path / "again") == config
    assert sum(t.size for t in tensors.values()) == count_parameters(config)


def test_a_bidirectional_decoder_sees_what_follows_and_never_padding() -> None:
    config = tiny_decoder_config(causal=False)
    params = random_params(config)
    ids, mask = np.arange(3, 13).reshape(1, 10), np.ones((1, 10), int)
    mask[0, 7:] = 0
    changed, padded = ids.copy(), ids.copy()
    changed[0, 5], padded[0, 8] = 50, 50
    first = [np.asarray(hidden_states(config, params, x, mask)[-1])[0, 0] for x in (ids, changed, padded)]
    assert np.abs(first[0] - first[1]).max() > 1e-3 and np.abs(first[0] - first[2]).max() == 0
    causal = dataclasses.replace(config, causal=True)
    first = [np.asarray(hidden_states(causal, params, x, mask)[-1])[0, 0] for x in (ids, changed)]
    assert np.abs(first[0] - first[1]).max() == 0


def test_dropout_makes_two_views() -> None:
    config = tiny_decoder_config(hidden_dropout=0.1, attention_dropout=0.1)
    params, ids, mask = random_params(config), np.arange(3, 13).reshape(1, 10), np.ones((1, 10), int)

    def view(seed: int | None) -> np.ndarray:
        rng = None if seed is None else jax.random.key(seed)
        return np.asarray(hidden_states(config, params, ids, mask, dropout_rng=rng)[-1])

    assert np.abs(view(0) - view(1)).max() > 1e-2
    np.testing.assert_array_equal(view(0), view(0))
    np.testing.assert_array_equal(view(None), view(None))
    for part in ("hidden_dropout", "attention_dropout"):
        only = dataclasses.replace(config, **{"hidden_dropout": 0.0, "attention_dropout": 0.0, part: 0.1})
        one, other = (hidden_states(only, params, ids, mask, dropout_rng=jax.random.key(seed))[-1] for seed in (0, 1))
        assert np.abs(np.asarray(one) - np.asarray(other)).max() > 1e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "RoPE of type 'yarn'"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"hidden_act": "xielu"}, "hidden_act is 'xielu'"),
    ],
)
def test_what_is_not_computed_is_refused(change: dict, message: str, tmp_path: Path) -> None:
    import json

    hf = write_config(tiny_decoder_config()) | change
    (tmp_path / "config.json").write_text(json.dumps(hf))
    with pytest.raises(UserError, match=message):
        body.read_model_config(tmp_path)


@st.composite
def decoder_configs(draw: st.DrawFn) -> DecoderConfig:
    """Any small architecture of the kinds that config.json can describe."""
    kind, small = draw(st.sampled_from(["llama", "mistral", "qwen2", "qwen3", "gemma3_text"])), st.integers(1, 6)
    groups, layers, gemma = draw(small), draw(st.integers(1, 12)), kind == "gemma3_text"
    bias = kind == "qwen2" or kind != "mistral" and draw(st.booleans())
    low = draw(st.floats(0.1, 4.0))
    scaling = (draw(st.floats(1.0, 32.0)), low, low + draw(st.floats(0.1, 8.0)), draw(st.integers(1, 8192)))
    slides = st.just((True,)) if kind == "mistral" else st.lists(st.booleans(), min_size=layers, max_size=layers)
    sliding = () if kind == "llama" else draw(st.just(()) | slides.map(tuple))
    sliding = (sliding * layers)[:layers] if any(sliding) else ()
    return DecoderConfig(
        model_type=kind,
        vocab_size=draw(st.integers(5, 40)),
        hidden_size=draw(small),
        num_layers=layers,
        num_heads=groups * draw(st.integers(1, 3)),
        num_kv_heads=groups,
        head_size=2 * draw(small),
        intermediate_size=draw(small),
        max_positions=draw(small),
        rms_norm_eps=draw(st.floats(1e-12, 0.1)),
        rope_theta=draw(st.floats(1.0, 1e7)),
        rope_scaling=draw(st.none() | st.just(scaling)),
        activation=draw(st.sampled_from(sorted(ACTIVATIONS))),
        qkv_bias=bias,
        out_bias=bias and kind != "qwen2",
        mlp_bias=kind == "llama" and draw(st.booleans()),
        qk_norm=kind in ("qwen3", "gemma3_text"),
        tied=draw(st.booleans()),
        pad_token_id=draw(st.integers(0, 4)),
        causal=not gemma or draw(st.booleans()),
        sliding=sliding,
        sliding_window=draw(st.integers(0, 9)) if sliding else 0,
        local_rope_theta=draw(st.floats(1.0, 1e7)) if gemma else 0.0,
        query_scalar=draw(small) if gemma else 0,
    )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(decoder_configs(), st.booleans())
def test_any_decoder_goes_to_hugging_face_and_back(config: DecoderConfig, prefixed: bool) -> None:
    params = random_params(config)
    tensors = architecture_of(config).to_tensors(config, params)
    if prefixed:  # as a model with an output layer names them
        tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
    jax.tree.map(np.testing.assert_array_equal, architecture_of(config).from_tensors(config, tensors, "memory"), params)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(architecture_of(config).config_keys(config)))
        assert body.read_model_config(Path(folder)) == config
