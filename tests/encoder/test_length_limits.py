"""How many tokens of a text are read, where the folder names more than the model's positions, and by which end a longer one is cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, save_encoder, sentences, tiny_decoder_config
from modernbert_setting import make_modernbert
from nomicbert_setting import make_nomicbert
from sentence_transformers import SentenceTransformer

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.body import read_model_config
from jdistill.encoder.formats.gguf_writer import write_gguf
from jdistill.export.onnx.runtime import load_onnx_encoder
from jdistill.models.decoder.config import write_config

MADE = {
    "llama": lambda: make_decoder(max_positions=32),
    "modernbert": lambda: make_modernbert(max_positions=32),
    "nomic_bert": lambda: make_nomicbert(max_positions=32),
    "bert": lambda: make_encoder(max_positions=32),
}
LONG = [" ".join(sentences(12)), "a short one"]


def saved(model: Encoder, folder: Path, limit: int) -> Path:
    save_encoder(model, folder)
    path = folder / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_seq_length": limit}))
    return folder


@pytest.mark.parametrize("name", ["llama", "modernbert", "nomic_bert"])
def test_a_model_without_a_table_of_positions_reads_as_far_as_its_folder_says(name: str, tmp_path: Path) -> None:
    folder = saved(MADE[name](), tmp_path / "m", 48)
    model, theirs = jdistill.load(str(folder)), SentenceTransformer(str(folder), device="cpu")
    assert model.max_length == theirs.max_seq_length == 48
    assert len(model.tokenize(LONG)[0]) == 48
    expected = theirs.encode(LONG, show_progress_bar=False)
    np.testing.assert_allclose(model.encode(LONG), expected, atol=1e-4)
    assert np.abs(replace(model, max_length=32).encode(LONG)[0] - expected[0]).max() > 1e-3  # it matters
    again = jdistill.load(str(save_encoder(model, tmp_path / "again")))
    assert again.max_length == 48


def test_a_table_of_positions_is_the_most(tmp_path: Path) -> None:
    assert jdistill.load(str(saved(MADE["bert"](), tmp_path / "m", 48))).max_length == 32


@pytest.mark.parametrize(
    ("kind", "positions"),
    [("llama", 2048), ("mistral", 131072), ("qwen2", 32768), ("qwen3", 32768)],
)
def test_positions_that_a_decoder_does_not_name_are_transformers(kind: str, positions: int, tmp_path: Path) -> None:
    from transformers import AutoConfig

    config = write_config(tiny_decoder_config()) | {"model_type": kind}
    del config["max_position_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert AutoConfig.from_pretrained(tmp_path).max_position_embeddings == positions
    assert read_model_config(tmp_path).usable_positions == positions


@pytest.mark.parametrize("name", MADE)
def test_a_gguf_file_keeps_limit_and_end_that_is_cut(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="writing GGUF needs the extra [gguf]")
    model = replace(MADE[name](), max_length=24)
    model.tokenizer.truncation_side = "left"
    again = jdistill.load(str(write_gguf(model, tmp_path / "m.gguf")))
    assert again.tokenizer.truncation_side == "left" and again.tokenize(LONG) == model.tokenize(LONG)
    as_folder = jdistill.load(str(save_encoder(again, tmp_path / "again")))
    assert as_folder.tokenizer.truncation_side == "left" and as_folder.tokenize(LONG) == model.tokenize(LONG)


def test_a_nomic_bert_without_a_limit_reads_as_far_as_transformers_does(tmp_path: Path) -> None:
    """Not as far as n_positions, its publisher's own key, says: sentence-transformers knows the other."""
    folder = save_encoder(make_nomicbert(max_positions=48), tmp_path / "m")
    for name, changes, gone in (
        ("config.json", {"max_position_embeddings": 48, "n_positions": 96}, ()),
        ("sentence_bert_config.json", {}, ("max_seq_length",)),
        ("tokenizer_config.json", {"model_max_length": 96}, ()),
    ):
        settings = json.loads((folder / name).read_text()) | changes
        (folder / name).write_text(json.dumps({key: value for key, value in settings.items() if key not in gone}))
    model, theirs = jdistill.load(str(folder)), SentenceTransformer(str(folder), device="cpu")
    assert model.max_length == theirs.max_seq_length == 48
    np.testing.assert_allclose(model.encode(LONG), theirs.encode(LONG, show_progress_bar=False), atol=1e-4)


def test_a_graph_that_pools_reads_no_prompt_that_is_left_out(tmp_path: Path) -> None:
    model = replace(make_encoder(), prompts={"query": "find: "}, include_prompt=False)
    with pytest.raises(UserError, match="leaves the prompt's tokens out, which a graph that pools cannot"):
        load_onnx_encoder(str(save_encoder(model, tmp_path / "m")))
