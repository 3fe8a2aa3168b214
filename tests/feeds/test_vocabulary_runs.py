"""Runs whose student has the pieces of its text alone: to an export that others load, resumed, and of every kind of data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import command, run_inside
from conftest import save_encoder
from ml_collections import ConfigDict
from vocabulary_setting import encoder_of, made_up_texts

import jdistill
from configs import ibkd, simtde
from jdistill.core.errors import UserError
from jdistill.data.batching.batches import TokenTable
from jdistill.feeds.feed import Feed
from jdistill.run.stages import prepare

TEXTS = made_up_texts(300)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An XLM-RoBERTa whose pieces were learnt from more than the text that a run has."""
    return save_encoder(encoder_of("unigram", TEXTS), tmp_path_factory.mktemp("vocabulary") / "teacher")


def keys_of(folder: Path, teacher: Path, texts: list[str]) -> dict[str, object]:
    (folder / "text.txt").write_text("\n".join(texts) + "\n")
    return {
        "teacher": str(teacher), "text": str(folder / "text.txt"), "text_column": "", "cache_dir": str(folder / "cache"),
        "held_out": 4, "batch_size": 8, "latency_texts": 0, "index_texts": 0, "student.vocabulary": "text",
    }  # fmt: skip


def test_from_a_run_to_an_export_and_again_after_a_kill(tmp_path: Path, teacher: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    few = TEXTS[:60]
    keys = keys_of(tmp_path, teacher, few) | {
        "student.layers": 1, "student.embedding_size": 12, "max_steps": 4, "checkpoint_every": 2,
    }  # fmt: skip
    run = tmp_path / "run"
    done = run_inside(command("configs/simtde.py", run, keys))
    assert done.returncode == 0, done.stderr[-3000:]
    whole, student = jdistill.load(str(teacher)), jdistill.load(str(run / "export"))
    results = json.loads((run / "results.json").read_text())
    pieces, of = student.config.vocab_size, whole.config.vocab_size
    about = results["student"]["vocabulary"]
    assert (about["pieces"], about["of"]) == (pieces, of) and pieces < 0.8 * of
    assert about["saved_percent"] == pytest.approx(100 * 12 * (of - pieces) / (student.num_params + 12 * (of - pieces)))
    line = f"vocabulary of {pieces} of {of} pieces, {about['saved_percent']:.0f} % fewer parameters"
    assert f"student: {line}" in done.stderr
    assert f"Its vocabulary is {pieces} of the {of} pieces" in (run / "export" / "README.md").read_text()
    checks = results["export_max_abs_difference"]
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    theirs = sentence_transformers.SentenceTransformer(str(run / "export"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS[:80]), student.encode(TEXTS[:80]), atol=1e-5)
    assert student.config.pad_token_id == 1 == student.tokenizer.pad_token_id
    config = json.loads((run / "export" / "config.json").read_text())
    assert (config["vocab_size"], config["pad_token_id"]) == (pieces, 1)
    weights = (run / "export" / "model.safetensors").read_bytes()
    tokenizer = (run / "export" / "tokenizer.json").read_bytes()
    (run / "results.json").unlink()
    shutil.rmtree(run / "export")
    shutil.rmtree(run / "distil" / "checkpoints" / "4")
    done = run_inside(command("configs/simtde.py", run, keys))
    assert done.returncode == 0, done.stderr[-3000:]
    assert (run / "export" / "model.safetensors").read_bytes() == weights
    assert (run / "export" / "tokenizer.json").read_bytes() == tokenizer
    refused = run_inside(command("configs/simtde.py", run, keys | {"student.vocabulary": ""}))
    assert refused.returncode and "student.vocabulary: 'text' there, '' now" in refused.stderr


def prepared(config: ConfigDict, keys: dict[str, object]):
    config.update_from_flattened_dict(keys | {"dtype": "float32", "teacher_dtype": "float32"})
    return prepare(config)


def test_texts_of_all_stages_count(tmp_path: Path, teacher: Path) -> None:
    """Triplets beside the text: their pieces are kept too, by the prompts that they are read with."""
    rows = [{"anchor": TEXTS[100 + i], "positive": TEXTS[150 + i], "negative": TEXTS[200 + i]} for i in range(40)]
    (tmp_path / "triplets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = keys_of(tmp_path, teacher, TEXTS[:40]) | {
        "start": "", "triplets": str(tmp_path / "triplets.jsonl"), "finetune.batch_size": 8, "max_steps": 2, "loss.beta": 0.0,
        "finetune.loss.beta": 0.0, "query_prompt": "teach: ",
    }  # fmt: skip
    run = prepared(ibkd.get_config("mse"), keys | {"method": "mse"})
    whole, start = jdistill.load(str(teacher)), run.shared.start
    assert (
        all(feed.shared.start is start for feed in run.feeds) and run.shared.whole_vocabulary == whole.config.vocab_size
    )
    assert run.shared.teacher.encoder is not None and run.shared.teacher.encoder.config == whole.config
    anchors = [f"teach: {row['anchor']}" for row in rows]
    seen = [*run.shared.corpus.train, *anchors, *(text for row in rows for text in (row["positive"], row["negative"]))]
    assert [start.tokenizer.convert_ids_to_tokens(ids) for ids in start.tokenize(seen)] == [
        whole.tokenizer.convert_ids_to_tokens(ids) for ids in whole.tokenize(seen)
    ]
    alone = prepared(ibkd.get_config("mse"), keys | {"method": "mse", "triplets": ""}).shared.start.config.vocab_size
    assert alone < start.config.vocab_size < whole.config.vocab_size
    few = prepared(ibkd.get_config("mse"), keys | {"method": "mse", "student.vocabulary": "120"}).shared.start
    assert few.config.vocab_size == 120 == len(few.tokenizer)


def test_pieces_are_counted_behind_the_prompt_of_a_text_s_role(tmp_path: Path) -> None:
    """Byte pairs hold the space before a word: behind a prompt a text's first word is another piece than without."""
    texts = list(dict.fromkeys(text.capitalize() for text in made_up_texts(200)))
    model = encoder_of("byte pairs", [*texts, *(f"query: {text}" for text in texts)])
    model = replace(model, prompts={"query": "query: ", "document": "passage: "})
    keys = keys_of(tmp_path, save_encoder(model, tmp_path / "start"), texts) | {
        "start": "",
        "triplets": "",
        "max_length": 60,
    }
    keys["text"] = f"{keys['text']}@document"
    shared = prepared(ibkd.get_config("mse"), keys | {"method": "mse"}).shared
    whole, cut = (each.in_role("document") for each in (replace(model, max_length=60), shared.start))
    assert cut.config.vocab_size < whole.config.vocab_size
    assert [cut.tokenizer.convert_ids_to_tokens(ids) for ids in cut.tokenize(shared.corpus.train)] == [
        whole.tokenizer.convert_ids_to_tokens(ids) for ids in whole.tokenize(shared.corpus.train)
    ]


def test_what_a_run_cannot_cut_is_named(tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = keys_of(tmp_path, teacher, TEXTS[:40]) | {"max_steps": 1, "student.layers": 1, "student.embedding_size": 0}
    with pytest.raises(UserError, match="--config.student.vocabulary=7: .* pieces are always kept"):
        prepared(simtde.get_config(), keys | {"student.vocabulary": "7", "text": "/not/read"})
    monkeypatch.setattr("jdistill.feeds.texts.TextFeed.own_texts", Feed.own_texts)
    with pytest.raises(UserError, match="vocabulary=text: TextFeed does not tell which texts it reads"):
        prepared(simtde.get_config(), keys)
    monkeypatch.undo()
    monkeypatch.setattr("jdistill.feeds.vocabulary.run_texts", lambda shared, feeds, cfgs: [(shared.start, [])])
    with pytest.raises(UserError, match="vocabulary=text: the run reads no text whose pieces could be kept"):
        prepared(simtde.get_config(), keys)


def test_pieces_are_counted_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jdistill.data.batching.batches.WINDOW", 3)
    table = TokenTable(np.array([1, 4, 4, 2, 4, 1, 0], np.uint16), np.array([0, 3, 7]))
    assert table.counts(6).tolist() == [1, 2, 1, 0, 3, 0]
