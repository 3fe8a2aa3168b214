"""Weights, a tokenizer or an architecture that do not fit their config.json are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import make_encoder, save_encoder
from safetensors.numpy import load_file, save_file

import jdistill
from jdistill.core.errors import UserError


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_the_whole_file_is_read_where_shards_lie_beside_it(suffix: str, tmp_path: Path) -> None:
    whole = save_encoder(make_encoder(), tmp_path / "m")
    other = save_encoder(make_encoder(seed=1), tmp_path / "other")
    for folder, part in ((whole, 0), (other, 1)):
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        name = {
            "safetensors": ("model.safetensors", "model-1.safetensors"),
            "bin": ("pytorch_model.bin", "model-1.bin"),
        }[suffix][part]
        if suffix == "safetensors":
            save_file(tensors, whole / name)
        else:
            torch = pytest.importorskip("torch", reason="writes a .bin")
            torch.save({key: torch.from_numpy(value) for key, value in tensors.items()}, whole / name)
    index = {"safetensors": "model.safetensors.index.json", "bin": "pytorch_model.bin.index.json"}[suffix]
    (whole / index).write_text(json.dumps({"weight_map": dict.fromkeys(tensors, name)}))
    assert jdistill.load(str(whole)).fingerprint() == make_encoder().fingerprint()
    next(whole.glob("*model." + suffix)).unlink()
    assert jdistill.load(str(whole)).fingerprint() == make_encoder(seed=1).fingerprint()


def test_truncated_safetensors_is_named(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(), tmp_path / "m")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UserError, match="model.safetensors cannot be read.*truncated"):
        jdistill.load(str(folder))


def test_weights_of_8_bits_are_named(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(), tmp_path / "m")
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(
        UserError, match="model.safetensors: a tensor is of a type that is not read .*float8_e4m3fn.*; save"
    ):
        jdistill.load(str(folder))


def test_missing_or_misshapen_tensor_is_named(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 65}))
    with pytest.raises(UserError, match=r"encoder.layer.0.intermediate.dense.weight has shape \(64, 32\)"):
        jdistill.load(str(folder))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 9}))
    with pytest.raises(UserError, match="config.json tells of 9 layers, but the tensors are of 4"):
        jdistill.load(str(folder))
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.3.attention.self.query.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match="encoder.layer.3.attention.self.query.weight is missing"):
        jdistill.load(str(folder))


def test_a_tokenizer_with_more_ids_than_the_embedding_is_refused(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(vocab_size=2000), tmp_path / "m")
    with pytest.raises(UserError, match="ids up to 30521, but the embedding only 2000 rows"):
        jdistill.load(str(folder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
        ({"hidden_act": "swish9"}, "hidden_act is 'swish9'"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder is true: such a bert reads left to right"),
        ({"transformers_weights": "other.safetensors"}, r"transformers_weights is a string \('other.safetensors'\)"),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            r"quantization_config tells of quantised weights \(bitsandbytes\)",
        ),
    ],
)
def test_an_unknown_architecture_is_refused(change: dict, message: str, tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(UserError, match=message):
        jdistill.load(str(folder))
