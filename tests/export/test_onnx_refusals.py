"""Folders that have no ONNX graph: unsupported or damaged ones say what to do, a module that is not supported is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from onnx_setting import tiny
from safetensors.numpy import load_file, save_file

from jdistill.core.errors import UserError
from jdistill.export.onnx import graph


def test_unsupported_and_damaged_folders_say_what_to_do(tmp_path: Path) -> None:
    tiny(tmp_path, "bert")
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    good, tensors = json.loads(config.read_text()), load_file(weights)

    def refused(words: str, **changes: Any) -> None:
        config.write_text(json.dumps({**good, **changes}))
        with pytest.raises(UserError, match=words):
            graph.save_graph(tmp_path)
        assert not (tmp_path / "onnx").exists()

    refused("'gpt2'; jdistill reads albert, bert, distilbert, electra", model_type="gpt2")
    refused("'quick_gelu'.*gelu, gelu_new, gelu_pytorch_tanh, relu, silu", hidden_act="quick_gelu")
    refused("position_embedding_type 'relative_key'.*absolute", position_embedding_type="relative_key")
    refused("encoder.layer.2.attention.self.query.weight is missing", num_hidden_layers=3)
    refused(r"word_embeddings.weight has shape \(60, 32\).*\(61, 32\)", vocab_size=61)
    save_file({name: value for name, value in tensors.items() if "LayerNorm" not in name}, weights)
    refused("embeddings.LayerNorm.weight is missing")
    weights.write_bytes(b"\x10")
    refused("cannot be read")
    weights.unlink()
    refused("model.safetensors is missing")
    config.write_text("{")
    with pytest.raises(UserError, match="config.json: not valid JSON"):
        graph.build_graph(tmp_path)


@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        ("Pooling", '{"pooling_mode": "weightedmean"}', "weightedmean.*mean, cls, max"),
        ("Pooling", '{"pooling_mode_mean_sqrt_len_tokens": true}', "mean_sqrt_len.*mean, cls, max"),
        ("Pooling", '{"pooling_mode": ["mean", "max"]}', "'mean', 'max'.*one of"),
        ("Pooling", '{"pooling_mode_cls_token": true, "include_prompt": false}', "include_prompt"),
        (
            "Dense",
            '{"out_features": 8, "activation_function": "torch.nn.modules.activation.ReLU"}',
            "ReLU.*Identity, Tanh",
        ),
        ("Dense", '{"out_features": 8, "use_residual": true}', "residual"),
        (
            "WordWeights",
            "{}",
            "WordWeights.*supported is Transformer or BidirectionalTransformer or WordEmbeddings and LSTM",
        ),
    ],
)
def test_unsupported_modules_are_named(tmp_path: Path, module: str, text: str, words: str) -> None:
    tiny(tmp_path, "bert")
    kinds = ["Transformer", "Pooling", *([] if module == "Pooling" else [module])]
    (tmp_path / "modules.json").write_text(
        json.dumps([{"type": f"a.b.{kind}", "path": kind if i else ""} for i, kind in enumerate(kinds)])
    )
    for kind in kinds[1:]:
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text(text if kind == module else '{"pooling_mode": "mean"}')
    with pytest.raises(UserError, match=words):
        graph.build_graph(tmp_path)
