"""Decoders as their publishers lay them on the Hub: read, encoded and exported as sentence-transformers does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from decoder_setting import (
    GEMMA_PROMPTS,
    PUBLISHED,
    QWEN_PROMPTS,
    TEXTS,
    check_against_sentence_transformers,
    write_published,
)

import jdistill
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.export.folder import export
from jdistill.export.onnx import runtime

pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_published(name, tmp_path_factory.mktemp(name)) for name in PUBLISHED}


@pytest.mark.parametrize("name", PUBLISHED)
def test_queries_and_documents_are_encoded_as_sentence_transformers_does(name: str, folders: dict[str, Path]) -> None:
    model = jdistill.load(str(folders[name]))
    check_against_sentence_transformers(model, folders[name], TEXTS)
    assert model.config.model_type == {"e5-mistral": "mistral", "qwen3-embedding": "qwen3"}.get(name, "gemma3_text")
    assert (model.normalize, model.pooling) == (True, "mean" if name == "embeddinggemma" else "lasttoken")
    given = [model.tokenize(["river"], prompt=model.prompt_for(role))[0] for role in ("query", "document")]
    assert (given[0] == given[1]) == (name == "e5-mistral")
    longest = max(map(len, model.tokenize(TEXTS)))
    assert longest > 2 * (model.config.sliding_window or 1), "no text is longer than the window"


def test_prompts_and_projections_are_those_of_the_files(folders: dict[str, Path]) -> None:
    qwen, gemma = (jdistill.load(str(folders[name])) for name in ("qwen3-embedding", "embeddinggemma"))
    assert qwen.prompts == {"query": QWEN_PROMPTS["query"]} and gemma.prompts == GEMMA_PROMPTS
    assert qwen.default_prompt is None and gemma.default_prompt is None
    assert [x["kernel"].shape for x in gemma.dense] == [(32, 48), (48, 32)] and gemma.dim == 32
    assert gemma.dense_activations == ("Identity", "Identity") and not any("bias" in x for x in gemma.dense)


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_export_comes_back_as_it_was(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """export() itself holds ONNX Runtime and sentence-transformers against Flax."""
    model = jdistill.load(str(folders[name]))
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 2e-6
    again = jdistill.load(str(tmp_path / "out"))
    assert again.config == model.config and again.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    before, after = read_tensors(folders[name]), read_tensors(tmp_path / "out")
    assert before.keys() == after.keys()
    for tensor in before:
        np.testing.assert_array_equal(before[tensor], after[tensor])
    check_against_sentence_transformers(model, tmp_path / "out", TEXTS)
    graph = runtime.load_onnx_encoder(str(tmp_path / "out"))
    np.testing.assert_allclose(graph.encode(TEXTS), model.encode(TEXTS), atol=2e-6)


def test_a_token_of_images_is_plain_text(folders: dict[str, Path]) -> None:
    model = jdistill.load(str(folders["embeddinggemma"]))
    ids = model.tokenize(["a <image_soft_token> b"])[0]
    assert max(ids) < model.config.vocab_size == 400 and len(ids) > 6
    assert np.isfinite(model.encode(["<image_soft_token>"])).all()


def test_a_token_of_images_stays_plain_text_in_an_export(folders: dict[str, Path], tmp_path: Path) -> None:
    """Whose settings name it no longer: transformers would put it back, behind the table's last row."""
    model = jdistill.load(str(folders["embeddinggemma"]))
    export(model, tmp_path / "out")
    assert "image_soft_token" not in (tmp_path / "out" / "tokenizer_config.json").read_text()
    check_against_sentence_transformers(model, tmp_path / "out", ["a <image_soft_token> b", *TEXTS])
