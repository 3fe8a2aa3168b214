"""What config.json says of a decoder's layers and rotations, by old keys and new; what is not computed is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import save_encoder, tiny_decoder_config
from decoder_setting import torch_model, write_published

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.formats import body
from jdistill.models.decoder import DecoderConfig
from jdistill.models.decoder.config import write_config


def test_gemmas_old_keys_say_what_the_new_ones_do(tmp_path: Path) -> None:
    torch_model("gemma3", tmp_path)
    path = tmp_path / "config.json"
    new, config = json.loads(path.read_text()), body.read_model_config(tmp_path)
    old = {key: value for key, value in new.items() if key not in ("rope_parameters", "layer_types")}
    old |= {"sliding_window_pattern": 2, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": None}
    path.write_text(json.dumps(old))
    assert body.read_model_config(tmp_path) == config and config.sliding == (True, False, True)
    for missing in ("rope_theta", "rope_local_base_freq", "tie_word_embeddings", "hidden_activation"):
        del old[missing]
    path.write_text(json.dumps(old))
    assert body.read_model_config(tmp_path) == config


MISTRAL = tiny_decoder_config(model_type="mistral", sliding=(True, True), sliding_window=3)
QWEN = tiny_decoder_config(model_type="qwen3", qk_norm=True, sliding=(False, True), sliding_window=3)
GEMMA = tiny_decoder_config(model_type="gemma3_text", qk_norm=True, local_rope_theta=1e4, query_scalar=8, causal=False)
BOTH = ["full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (MISTRAL, {"sliding_window": 0}, "sliding_window is 0; a whole number from 1"),
        (MISTRAL, {"sliding_window": "wide"}, "sliding_window is a string"),
        (MISTRAL, {"layer_types": BOTH}, "layer_types differ from sliding_window"),
        (MISTRAL, {"is_causal": False}, "is_causal is false, and some layers slide"),
        (MISTRAL, {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "RoPE of type 'yarn'"),
        (
            MISTRAL,
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
            "RoPE of type 'yarn'",
        ),  # beside rope_parameters
        (QWEN, {"layer_types": ["full_attention"]}, "layer_types are 1, but num_hidden_layers is 2"),
        (
            QWEN,
            {"layer_types": ["full_attention", "chunked"]},
            "layer_types is a list .*; a list of full_attention and",
        ),
        (QWEN, {"layer_types": "all"}, "layer_types is a string"),
        (QWEN, {"use_sliding_window": False}, "layer_types or use_sliding_window ask for sliding-window attention"),
        (QWEN, {"use_sliding_window": "no"}, "use_sliding_window is a string"),
        (QWEN, {"sliding_window": None}, "sliding_window is null, and some layers slide"),
        (QWEN, {"layer_types": None, "max_window_layers": -1}, "max_window_layers is -1"),
        (GEMMA, {"layer_types": None, "sliding_window": None}, "sliding_window is null, and some layers slide"),
        (GEMMA, {"layer_types": None, "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        (GEMMA, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0; capped scores"),
        (GEMMA, {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0; capped scores"),
        (GEMMA, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        (GEMMA, {"use_bidirectional_attention": "yes"}, "use_bidirectional_attention is a string"),
        (GEMMA, {"use_bidirectional_attention": False, "is_causal": False}, "is_causal is false, but not use_bidir"),
        (
            GEMMA,
            {"is_causal": False, "layer_types": BOTH, "sliding_window": 4},
            "is_causal is false, and some layers slide",
        ),
        (QWEN, {"use_bidirectional_attention": True}, "use_bidirectional_attention is true, which is for code of its"),
        (GEMMA, {"hidden_activation": "xielu"}, "hidden_activation is 'xielu'"),
        (GEMMA, {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}, "has neither full_attention nor"),
        (GEMMA, {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "RoPE of type 'linear'"),
        (GEMMA, {"rope_parameters": None, "rope_local_base_freq": "low"}, "rope_local_base_freq is a string"),
        (GEMMA, {"head_dim": 7}, "heads of width 7; RoPE turns pairs"),
        (GEMMA, {"hidden_size": None}, "hidden_size is null"),
    ],
)
def test_every_key_that_is_not_computed_is_named(
    config: DecoderConfig, change: dict, message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(write_config(config)))
    assert body.read_model_config(tmp_path) == config
    (tmp_path / "config.json").write_text(json.dumps(write_config(config) | change))
    with pytest.raises(UserError, match=message):
        body.read_model_config(tmp_path)


def test_a_missing_window_of_a_mistral_is_transformers_default(tmp_path: Path) -> None:
    keys = write_config(MISTRAL)
    for content, window in ((keys | {"sliding_window": None}, None), (keys, 3)):
        (tmp_path / "config.json").write_text(json.dumps(content))
        assert body.read_model_config(tmp_path).window(0) == window
    del keys["sliding_window"]
    (tmp_path / "config.json").write_text(json.dumps(keys))
    assert body.read_model_config(tmp_path).window(0) == 4095


def test_a_published_folder_with_other_tensors_is_refused(tmp_path: Path) -> None:
    model = jdistill.load(str(write_published("embeddinggemma", tmp_path / "whole")))
    folder = save_encoder(model, tmp_path / "copy")
    path = folder / "3_Dense" / "config.json"
    path.write_text(path.read_text().replace("linear.Identity", "activation.GELU"))
    with pytest.raises(UserError, match="3_Dense/config.json: activation GELU is not supported"):
        jdistill.load(str(folder))
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"model_type": "gemma3_text"', '"model_type": "llama"'))
    with pytest.raises(UserError, match="use_bidirectional_attention is true"):
        jdistill.load(str(folder))


def test_llama_3s_scaling_is_written_for_readers_of_the_old_keys_too(tmp_path: Path) -> None:
    config = tiny_decoder_config(rope_scaling=(8.0, 1.0, 4.0, 16))
    written = write_config(config)
    assert written["rope_scaling"]["rope_type"] == "llama3" and "rope_scaling" not in write_config(MISTRAL)
    for left_out in ([], ["rope_parameters"], ["rope_scaling", "rope_theta"]):
        kept = {key: value for key, value in written.items() if key not in left_out}
        (tmp_path / "config.json").write_text(json.dumps(kept))
        assert body.read_model_config(tmp_path) == config, left_out


def test_the_length_that_llama_3s_scaling_starts_from_may_stand_beside_its_keys(tmp_path: Path) -> None:
    """transformers asks the whole config first."""
    config = tiny_decoder_config(rope_scaling=(8.0, 1.0, 4.0, 16))
    written = write_config(config)
    inside = {"original_max_position_embeddings": 16}
    moved = {name: dict(written[name].items() - inside.items()) for name in ("rope_parameters", "rope_scaling")}
    (tmp_path / "config.json").write_text(json.dumps(written | moved | inside))
    assert body.read_model_config(tmp_path) == config
    (tmp_path / "config.json").write_text(json.dumps(written | {"original_max_position_embeddings": 32}))
    with pytest.raises(UserError, match="is 32 beside the rotation's keys and 16 among them"):
        body.read_model_config(tmp_path)


def test_sizes_that_a_file_lacks_are_transformers_own(tmp_path: Path) -> None:
    for config, head_size, kv_heads in ((QWEN, 128, 32), (GEMMA, 256, 4)):
        keys = write_config(replace(config, num_heads=32, num_kv_heads=kv_heads, head_size=head_size))
        del keys["head_dim"], keys["num_key_value_heads"]
        (tmp_path / "config.json").write_text(json.dumps(keys))
        read = body.read_model_config(tmp_path)
        assert (read.head_size, read.num_kv_heads) == (head_size, kv_heads)
