"""What a model's files leave unsaid, or say in vain, is told when they are read."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, random_params, save_encoder, sentences
from t5_setting import tiny_t5_config

import jdistill
from jdistill.export.gguf_forms import write_as
from jdistill.models.registry import architecture_of


def test_without_modules_no_settings_of_sentence_transformers_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = pytest.importorskip("sentence_transformers")
    model = replace(make_encoder(num_layers=2), prompts={"query": "q: "}, default_prompt="query")
    folder = save_encoder(model, tmp_path / "m")
    (folder / "modules.json").unlink()
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9, "do_lower_case": True}))
    with caplog.at_level(logging.INFO, "jdistill"):
        read = jdistill.load(str(folder))
    assert "has no modules.json: its vectors are the mean" in caplog.text
    assert read.max_length == 64 and not read.prompts
    texts = [" ".join(sentences(9)), "Short"]
    theirs = library.SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False)
    np.testing.assert_allclose(read.encode(texts), theirs, atol=1e-5)


def test_code_of_the_publishers_own_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save_encoder(make_encoder(num_layers=1), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    for auto_map, told in (({"AutoModelForMaskedLM": "m.A"}, False), ({"AutoModel": "m.A"}, True)):
        (folder / "config.json").write_text(json.dumps(config | {"auto_map": auto_map}))
        with caplog.at_level(logging.INFO, "jdistill"):
            jdistill.load(str(folder))
        assert ("computed here is bert as transformers has it" in caplog.text) == told


HEADS = (
    "cls.predictions.decoder.weight", "pooler.dense.weight", "classifier.out_proj.weight", "lm_head.dense.weight", "score.weight",
    "pre_classifier.weight", "vocab_transform.weight", "discriminator_predictions.dense.weight", "generator_lm_head.weight",
    "classification_head.dense.weight", "sequence_summary.summary.weight", "qa_outputs.weight", "embeddings.position_ids",
    "encoder.layer.9.output.dense.weight",
)  # fmt: skip


def test_a_matrix_without_a_place_is_told_and_a_head_is_not(caplog: pytest.LogCaptureFixture) -> None:
    model = make_encoder(num_layers=1)
    architecture = architecture_of(model.config)
    tensors = architecture.to_tensors(model.config, model.params)
    matrix = np.zeros((4, 8), np.float32)
    for prefix in ("", "bert."):
        whole = {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
        heads = {name if name.startswith("c") else f"{prefix}{name}": matrix for name in HEADS}
        architecture.from_tensors(model.config, whole | heads, "here")
        assert not caplog.records
    for name in ("linear.weight", "encoder.layer.0.output.adapters.x.down.weight"):
        caplog.clear()
        architecture.from_tensors(model.config, tensors | {name: matrix}, "here")
        assert f"here: what the tensors {name} are for is not computed here" in caplog.text


def test_a_t5s_token_table_may_stand_there_by_both_names(caplog: pytest.LogCaptureFixture) -> None:
    config = tiny_t5_config(vocab_size=90, num_layers=1)
    architecture = architecture_of(config)
    tensors = architecture.to_tensors(config, random_params(config))
    table = tensors["shared.weight"]
    architecture.from_tensors(config, tensors | {"encoder.embed_tokens.weight": table, "lm_head.weight": table}, "here")
    assert not caplog.records


def test_an_end_token_that_is_asked_for_in_vain_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save_encoder(make_decoder(), tmp_path / "m")
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    # MiniLM's tokenizer ends a text with [SEP].
    for end, asked, told in (("[MASK]", False, False), ("[SEP]", True, False), ("[MASK]", True, True)):
        path.write_text(json.dumps(settings | {"eos_token": end, "add_eos_token": asked}))
        caplog.clear()
        with caplog.at_level(logging.WARNING, "jdistill"):
            jdistill.load(str(folder))
        assert ("asks for add_eos_token, which tokenizer.json does not do" in caplog.text) == told


def test_a_gguf_that_does_not_say_how_it_pools_does_so_as_its_folder_would(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("gguf")
    for model, pooling in ((make_decoder(), "lasttoken"), (make_encoder(num_layers=1), "mean")):
        kind = "llama" if pooling == "lasttoken" else "bert"
        file = write_as("F32")(model, save_encoder(model, tmp_path / kind), ())
        content = file.read_bytes()
        assert content.count(f"{kind}.pooling_type".encode()) == 1
        file.write_bytes(content.replace(f"{kind}.pooling_type".encode(), f"{kind}.pooling_typo".encode()))
        with caplog.at_level(logging.INFO, "jdistill"):
            assert jdistill.load(str(file)).pooling == pooling
        assert f"does not say how its vectors are pooled: {pooling}" in caplog.text
