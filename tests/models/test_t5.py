"""T5's encoder against transformers (torch), its files, its students, and a run from a teacher of its kind."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params, save_encoder, sentences
from hostile_setting import change, refused
from parity import assert_close
from safetensors.numpy import load_file, save_file
from steps import hidden_states
from t5_setting import make_sentence_t5, make_t5, t5_tokenizer, tiny_t5_config, torch_t5
from torch_parity import assert_gradient_equal, assert_states_equal, read_back
from unigram_setting import FOREIGN

import jdistill
from jdistill.encoder.formats import body
from jdistill.export import torch_int8
from jdistill.export.folder import export
from jdistill.export.onnx import runtime
from jdistill.export.targets import add_form
from jdistill.models.registry import architecture_of
from jdistill.models.relative import bucket_of

TEXTS = [*sentences(6), *FOREIGN, "", " ".join(sentences(30))]
SHAPES = {
    "relu": {},
    "gated gelu": {"feed_forward_proj": "gated-gelu"},
    "gated silu, other buckets": {
        "feed_forward_proj": "gated-silu",
        "relative_attention_num_buckets": 18,
        "relative_attention_max_distance": 50,
        "layer_norm_epsilon": 1e-3,
    },
}
LONG = (140, 9, 1, 100)  # longer than the farthest bucket begins


@pytest.mark.parametrize("name", SHAPES)
def test_every_hidden_state_equals_transformers(tmp_path: Path, name: str) -> None:
    assert_states_equal(torch_t5(tmp_path, **SHAPES[name]), tmp_path, 96, LONG)


def test_the_gradient_is_torchs(tmp_path: Path) -> None:
    assert_gradient_equal(torch_t5(tmp_path, **SHAPES["gated gelu"]), tmp_path)


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (18, 128), (38, 16), (4, 8), (64, 1000)])
def test_buckets_are_those_of_transformers(buckets: int, farthest: int) -> None:
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(-1500, 1501)
    theirs = T5Attention._relative_position_bucket(torch.tensor(distances), True, buckets, farthest).numpy()
    np.testing.assert_array_equal(bucket_of(distances, buckets, farthest), theirs)


def test_a_decoder_and_its_head_are_left_out(tmp_path: Path) -> None:
    model = torch_t5(tmp_path, decoder=True)
    tensors = body.read_tensors(tmp_path)
    assert any(name.startswith("decoder.") for name in tensors)
    config, params = read_back(tmp_path)
    np.testing.assert_array_equal(params["word"]["embedding"], model.shared.weight.detach().numpy())
    renamed = {name.replace("shared.", "encoder.embed_tokens."): tensor for name, tensor in tensors.items()}
    again = architecture_of(config).from_tensors(config, renamed, "memory")
    np.testing.assert_array_equal(again["word"]["embedding"], params["word"]["embedding"])


def test_padding_on_either_side_and_batch_mates_change_nothing() -> None:
    config = tiny_t5_config()
    params, ids = random_params(config), np.random.default_rng(0).integers(5, 400, (1, 6))
    alone = hidden_states(config, params, ids, np.ones((1, 6), bool))[-1]
    padded = np.pad(np.repeat(ids, 3, 0), ((0, 0), (5, 5)), constant_values=77)
    columns = np.arange(16)[None]
    together = hidden_states(config, params, padded, (columns >= 5) & (columns < np.array([[11], [16], [7]])))[-1]
    assert_close(together[0, 5:11], alone[0], config.intermediate_size, 2 * config.num_layers)


def test_half_precision_holds_where_states_leave_float16s_range() -> None:
    """A trained T5's states pass 65,504. They are float32 here, and so is the product that makes them so large, in float16."""
    config = tiny_t5_config(gated=True, activation="gelu_new")
    params = random_params(config)
    for layer in range(config.num_layers):
        params[f"layer_{layer}"]["down"]["kernel"] = params[f"layer_{layer}"]["down"]["kernel"] * 1e5
    ids, mask = np.random.default_rng(0).integers(5, 400, (3, 12)), np.ones((3, 12), bool)
    exact = hidden_states(config, params, ids, mask)
    assert np.abs(exact[-2]).max() > 4 * 65_504
    for dtype in ("float16", "bfloat16"):
        half = hidden_states(config, params, ids, mask, dtype=jnp.dtype(dtype))
        assert_close(half[-1].astype(np.float32), exact[-1], config.intermediate_size, config.num_layers, dtype=dtype)


@pytest.mark.parametrize("changes", [{}, {"gated": True, "activation": "gelu_new", "buckets": 16, "farthest": 40}])
def test_the_config_goes_both_ways(tmp_path: Path, changes: dict) -> None:
    transformers = pytest.importorskip("transformers")
    config = tiny_t5_config(**changes)
    keys = architecture_of(config).files(config, 64)["config.json"]
    theirs = transformers.AutoConfig.for_model(**keys)
    assert (theirs.dense_act_fn, theirs.is_gated_act) == (config.activation, config.gated)
    theirs.save_pretrained(tmp_path)
    assert body.read_model_config(tmp_path) == config


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"d_model": ...}, "d_model is missing"),
        ({"d_kv": ...}, "d_kv is missing"),
        ({"d_ff": None}, "d_ff is null"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"num_layers": 9}, "tells of 9 layers, but the tensors are of 4"),
        ({"num_heads": 5}, "relative_attention_bias.weight has shape"),
        ({"num_heads": 4.0}, "num_heads is 4.0"),
        ({"d_kv": 8}, "SelfAttention.q.weight has shape"),
        ({"relative_attention_num_buckets": 2}, "relative_attention_num_buckets is 2; a whole number from 4"),
        ({"relative_attention_max_distance": 8}, "relative_attention_max_distance is 8; a whole number from 9"),
        ({"relative_attention_max_distance": 10**9}, "relative_attention_max_distance is 1000000000"),
        ({"feed_forward_proj": "gated-swish9"}, "feed_forward_proj is 'gated-swish9'; supported is gelu, "),
        ({"feed_forward_proj": "gated-gelu"}, "dense_act_fn is 'relu', but feed_forward_proj is 'gated-gelu'"),
        ({"is_gated_act": True}, "is_gated_act does not fit feed_forward_proj, 'relu'"),
        ({"is_gated_act": "no"}, "is_gated_act is a string"),
        ({"dense_act_fn": ["relu"]}, "dense_act_fn is a list"),
        ({"dropout_rate": 2}, "dropout_rate is 2"),
        ({"layer_norm_epsilon": "1e-6"}, "layer_norm_epsilon is a string"),
        ({"is_decoder": True}, "is_decoder is true; jdistill reads the encoder"),
        ({"vocab_size": 50}, "shared.weight has shape"),
        ({"pad_token_id": 100_000}, "pad_token_id is 100000"),
    ],
)
def test_a_config_that_does_not_fit_is_named(tmp_path: Path, keys: dict, message: str) -> None:
    save_encoder(make_t5(), tmp_path)
    change(tmp_path / "config.json", **keys)
    refused(tmp_path, message)


def test_tensors_and_a_tokenizer_that_do_not_fit_are_named(tmp_path: Path) -> None:
    save_encoder(make_t5(), tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    whole = load_file(path)
    for name in ("shared.weight", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"):
        save_file({key: tensor for key, tensor in whole.items() if key != name}, path)
        refused(tmp_path / "m", f"tensor {name} is missing")
    for rows, message in (
        (40, "ids up to 99, but the embedding only 40 rows"),
        (500, "100 tokens, but the embedding 500"),
    ):
        save_encoder(dataclasses.replace(make_t5(), **with_rows(rows)), tmp_path / str(rows))
        refused(tmp_path / str(rows), message)


def with_rows(rows: int) -> dict[str, Any]:
    config = tiny_t5_config(vocab_size=rows)
    return {"config": config, "params": random_params(config)}


@pytest.mark.parametrize("changes", [{}, {"gated": True, "activation": "gelu_new"}])
def test_other_frameworks_encode_an_export_as_flax_does(tmp_path: Path, changes: dict) -> None:
    """export() itself compares ONNX Runtime and sentence-transformers, texts as long as the model takes among them."""
    transformers = pytest.importorskip("transformers")
    model = dataclasses.replace(make_sentence_t5(**changes), max_length=300)  # past the farthest bucket
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    again = jdistill.load(str(tmp_path / "out"))
    assert again.config == model.config and again.max_length == 300  # the model's own, whatever its tokenizer had
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(tokenizer).__name__ == "T5Tokenizer" and tokenizer("")["input_ids"] == [1]
    if changes:
        return
    add_form(model, tmp_path / "out", "onnx-int8")
    torch_int8.save_int8_folder(model, tmp_path / "out", tmp_path / "out" / "torch_int8")
    for small in (
        runtime.load_onnx_encoder(str(tmp_path / "out"), "onnx/model_quint8_avx2.onnx"),
        pytest.importorskip("sentence_transformers").SentenceTransformer(
            str(tmp_path / "out" / "torch_int8"), device="cpu", trust_remote_code=True
        ),
    ):
        assert (small.encode(TEXTS) * again.encode(TEXTS)).sum(1).mean() > 0.95


def test_a_text_ends_with_its_end_and_begins_with_itself() -> None:
    tokenizer = t5_tokenizer()
    ids = tokenizer("river stone")["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id == 1 and ids[0] not in tokenizer.all_special_ids
