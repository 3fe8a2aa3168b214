"""GGUF: what is written is the model, is read back as it, and llama.cpp gives its vectors."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import commands
import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences
from gguf_setting import MODELS, TEXTS, bert, byte_pairs_alone, decoder
from modernbert_setting import make_modernbert, modernbert_tokenizer

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.formats.gguf_vocabulary import tokenizer_fields
from jdistill.encoder.formats.gguf_writer import KEPT, write_gguf
from jdistill.export.command import main
from jdistill.export.folder import export
from jdistill.export.targets import TARGETS, add_form, tolerance_of
from jdistill.models.modernbert.config import GLOBAL, LOCAL
from jdistill.models.registry import architecture_of
from jdistill.retrieval.index import unit_rows

gguf = pytest.importorskip("gguf", reason="writing GGUF needs the extra [gguf]")


@pytest.mark.parametrize("name", MODELS)
def test_a_file_is_read_back_as_the_model(name: str, tmp_path: Path) -> None:
    model = replace(MODELS[name](), prompts={"query": "find: "})
    again = jdistill.load(str(write_gguf(model, tmp_path / "m.gguf")))
    assert again.tokenize(TEXTS) == model.tokenize(TEXTS)
    expected = model.encode(TEXTS)
    assert np.abs(again.encode(TEXTS) - expected).max() <= 0.01 * tolerance_of(model, expected)
    for field in ("normalize", "prompts", "default_prompt", "max_length"):
        assert getattr(again, field) == getattr(model, field)
    np.testing.assert_array_equal(  # the table of tokens, bit for bit
        architecture_of(again.config).token_table(again.params), architecture_of(model.config).token_table(model.params)
    )


def test_a_file_without_token_types_is_a_model_that_others_load(tmp_path: Path) -> None:
    """As llama.cpp has DistilBERT: in the other formats there is no BERT without a token type."""
    model = MODELS["distilbert"]()
    again = jdistill.load(str(write_gguf(model, tmp_path / "m.gguf")))
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-3)
    export(again, tmp_path / "out")
    np.testing.assert_array_equal(jdistill.load(str(tmp_path / "out")).encode(TEXTS), again.encode(TEXTS))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["type_vocab_size"] == 1


@pytest.mark.parametrize(("types", "written"), [("glgl", 2), ("glll", 4), ("llgl", [True, True, False, True])])
def test_a_modernberts_layers_are_told_by_number_where_they_come_by_turns(
    types: str, written: int | list[bool], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """llama.cpp read the number alone for long, and says nothing of a list that it passes over."""
    model = make_modernbert(layer_types=tuple(GLOBAL if kind == "g" else LOCAL for kind in types))
    with caplog.at_level("WARNING", logger="jdistill"):
        path = write_gguf(model, tmp_path / "m.gguf")
    assert gguf.GGUFReader(path).get_field("modern-bert.attention.sliding_window_pattern").contents() == written
    assert ("do not come by turns" in caplog.text) == isinstance(written, list)
    assert jdistill.load(str(path)).config.layer_types == model.config.layer_types  # type: ignore[union-attr]


def tensors_of(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    """Name -> type and values of a file's tensors."""
    listed = gguf.GGUFReader(path).tensors
    return {t.name: (t.tensor_type.name, np.array(gguf.dequantize(t.data, t.tensor_type))) for t in listed}


@pytest.mark.parametrize("name", ["bert, cls", "llama"])
def test_weights_are_kept_to_the_bit_or_within_their_own_rounding(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    exact = architecture_of(model.config).gguf_model(model.config, model.params, model.max_length).tensors
    whole, half, bytes_ = (tensors_of(write_gguf(model, tmp_path / kind, kind)) for kind in ("F32", "F16", "Q8_0"))
    assert whole.keys() == half.keys() == bytes_.keys() == exact.keys()
    assert sum(tensor.size for tensor in exact.values()) == model.num_params
    for tensor, values in exact.items():
        kept = values.ndim == 1 or tensor in KEPT
        assert (whole[tensor][0], half[tensor][0], bytes_[tensor][0]) == (
            "F32",
            *(("F32",) * 2 if kept else ("F16", "Q8_0")),
        )
        np.testing.assert_array_equal(whole[tensor][1], values)
        np.testing.assert_array_equal(half[tensor][1], values if kept else values.astype(np.float16).astype(np.float32))
        if kept:
            np.testing.assert_array_equal(bytes_[tensor][1], values)
            continue
        largest = np.abs(values.reshape(-1, 32)).max(1, keepdims=True)  # of a block; its scale is rounded to 11 bits
        error = np.abs(bytes_[tensor][1] - values).reshape(-1, 32)
        assert (error <= largest * (0.5 / 127 + 2.0**-11)).all() and error.max() > 0.3 * largest.max() / 127


def test_rows_that_are_no_whole_blocks_are_float16(tmp_path: Path) -> None:
    model = bert(num_layers=1, hidden_size=24, embedding_size=24)
    types = {name: kind for name, (kind, _) in tensors_of(write_gguf(model, tmp_path / "m.gguf", "Q8_0")).items()}
    assert types["blk.0.ffn_up.weight"] == "F16" and types["blk.0.ffn_down.weight"] == "Q8_0"


def test_fields_are_those_of_llama_cpp(tmp_path: Path) -> None:
    file = write_gguf(replace(make_encoder(num_layers=1), pooling="cls"), tmp_path / "m.gguf", "Q8_0")
    fields = {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}
    expected = {
        "general.architecture": "bert", "general.file_type": 7, "general.quantization_version": 2, "bert.block_count": 1,
        "bert.context_length": 64, "bert.embedding_length": 32, "bert.feed_forward_length": 64, "bert.attention.head_count": 4,
        "bert.attention.causal": False, "bert.pooling_type": 2, "tokenizer.ggml.model": "bert", "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.bos_token_id": 101, "tokenizer.ggml.eos_token_id": 102, "tokenizer.ggml.unknown_token_id": 100,
        "tokenizer.ggml.seperator_token_id": 102, "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.mask_token_id": 103,
    }  # fmt: skip
    assert {name: fields[name] for name in expected} == expected
    tokens = fields["tokenizer.ggml.tokens"]  # phantom spaces
    assert (tokens[101], tokens[1037], tokens[2015]) == ("[CLS]", "\u2581a", "s")


def test_forms_are_held_against_flax(tmp_path: Path) -> None:
    model = bert(num_layers=1)
    files = [add_form(model, tmp_path, name) for name in ("gguf", "gguf-float16", "gguf-q8_0")]
    assert [file.name for file in files] == ["model.gguf", "model-f16.gguf", "model-q8_0.gguf"]
    sizes = [file.stat().st_size for file in files]
    assert sizes[0] > sizes[1] > sizes[2]
    overflowing = replace(model, params={**model.params, "embeddings": {**model.params["embeddings"]}})
    table = model.params["embeddings"]["word"]["embedding"] * np.float32(1e6)
    overflowing.params["embeddings"]["word"] = {"embedding": table}
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="holds NaN or infinity"):
        add_form(overflowing, tmp_path / "other", "gguf-float16")
    assert not list((tmp_path / "other").rglob("*.gguf"))
    assert TARGETS["gguf-q8_0"].least_cosine == 0.99
    (tmp_path / "decoder").mkdir()  # of whose empty text no token is left, and so a vector of zeros
    unended = replace(decoder(), tokenizer=byte_pairs_alone(), pooling="lasttoken")
    assert not unended.encode([""]).any()
    add_form(unended, tmp_path / "decoder", "gguf-float16")


def test_the_command_writes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_encoder(bert(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(60)) + "\n")
    keys = {
        "student.layers": 1, "student.embedding_size": 0, "loss.token": "none", "teacher": tmp_path / "teacher",
        "text": tmp_path / "text.txt", "text_column": "", "cache_dir": tmp_path / "cache", "max_steps": 2, "batch_size": 8,
        "checkpoint_every": 2, "held_out": 8, "length_buckets": 1, "latency_texts": 0, "index_texts": 0,
        "onnx": False, "evaluate_teacher": False, "student.copy_layers": "last",
    }  # fmt: skip
    done = commands.run_inside(commands.command("configs/simtde.py", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    command = ["--workdir", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    assert main([*command, "--format=gguf-q8_0", "--target", "gguf"]) == 0
    assert {path.name for path in (tmp_path / "out" / "gguf").iterdir()} == {"model.gguf", "model-q8_0.gguf"}
    student = jdistill.load(str(tmp_path / "run" / "export"))
    read = jdistill.load(str(tmp_path / "out" / "gguf" / "model.gguf"))
    np.testing.assert_allclose(read.encode(TEXTS), student.encode(TEXTS), atol=1e-6)


def test_a_disk_that_fills_up_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(make_encoder(num_layers=1), tmp_path / "model.gguf")
    before, quantize, tensors = path.read_bytes(), gguf.quantize, []

    def full(tensor: np.ndarray, kind: object) -> np.ndarray:
        tensors.append(tensor)
        if len(tensors) == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        return quantize(tensor, kind)

    monkeypatch.setattr(gguf, "quantize", full)
    with pytest.raises(OSError, match="No space left on device.*model.gguf"):
        write_gguf(make_encoder(num_layers=2), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_table_with_more_rows_than_tokens_has_them_marked() -> None:
    tokenizer = modernbert_tokenizer(sentences(40))
    fields = tokenizer_fields(tokenizer, len(tokenizer) + 2)
    assert fields["tokenizer.ggml.tokens"][-2:] == [f"[PAD{len(tokenizer) + i}]" for i in (0, 1)]
    assert fields["tokenizer.ggml.token_type"][-2:] == [5, 5]
    assert json.dumps(fields)  # plain values alone


@pytest.mark.parametrize("name", MODELS)
def test_llama_cpp_gives_the_vectors(name: str, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip(
        "llama_cpp", reason="llama-cpp-python is not installed, which bench/servers.py compiles"
    )
    model = MODELS[name]()
    texts = [text for text in TEXTS if len(model.tokenize([text])[0]) < model.max_length]  # llama.cpp cuts none
    assert len(texts) > 12
    file = write_gguf(model, tmp_path / "m.gguf", "F16")
    server = llama_cpp.Llama(str(file), embedding=True, n_ctx=512, n_batch=512, n_ubatch=512, verbose=False)
    assert [server.tokenize(text.encode()) for text in texts] == model.tokenize(texts)
    theirs, ours = np.array(server.embed(texts), np.float32), model.encode(texts, normalize=False)
    assert (unit_rows(theirs) * unit_rows(ours)).sum(1).min() > 0.999
