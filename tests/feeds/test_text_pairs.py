"""Parallel text: a translation is answered as its source, in a run that learns a language made up by turning words round."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_inside
from conftest import make_encoder, save_encoder, sentences
from pairs_setting import prepared, run, turned, write_inputs
from train_setting import final_weights

import jdistill
from jdistill.evals.translations import PairVectors, translation_figures
from jdistill.feeds.parallel import held_out_pair_vectors
from jdistill.train.dataset import Data

CHANCE = 100 / 60  # percent, of 60 held-out pairs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a teacher, text.txt, and pairs.tsv."""
    return write_inputs(tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize("keys", [{}, {"packed": False}, {"text": ""}])
def test_a_translation_is_answered_as_its_source(folder: Path, keys: dict[str, Any]) -> None:
    cfg, ready = prepared(folder, **keys)
    corpus, teacher = ready.shared.corpus, ready.shared.teacher
    train, asked = list(corpus.train), list(corpus.asked_texts)
    translated = [text for text, question in zip(train, asked, strict=True) if text != question]
    assert len(translated) > 500 and all(turned(t) == q for t, q in zip(train, asked, strict=True) if t != q)
    own = [text for text, question in zip(train, asked, strict=True) if text == question]
    assert len(own) == len(set(own)) and {turned(text) for text in translated} <= set(own)
    rows = np.arange(len(train))
    vectors = ready.shared.embeddings.train(rows)
    first_row = {text: row for row, text in reversed(list(enumerate(train)))}
    for row, question in enumerate(asked):
        np.testing.assert_array_equal(vectors[row], vectors[first_row[question]])
    some = [row for row in range(len(train)) if train[row] != asked[row]][:40]
    np.testing.assert_allclose(vectors[some], teacher.answer([asked[row] for row in some]), atol=1e-5)
    tokens, data = ready.feeds[0].batches(cfg, ready.shared.start)
    batch = data.batch(3)["teacher"]
    np.testing.assert_array_equal(batch.reshape(-1, batch.shape[-1]), vectors[np.ravel(data.batches.at(3)[1])])
    assert tokens.lists(np.array(some)) == ready.shared.start.tokenize([train[row] for row in some])


def test_what_is_held_out_is_trained_on_nowhere(folder: Path) -> None:
    _, ready = prepared(folder)
    corpus = ready.shared.corpus
    pairs = [pair for pair, _ in corpus.held_out_pairs]
    assert len(pairs) == 60 and corpus.held_out and all(pair.translation == turned(pair.source) for pair in pairs)
    apart = {text for pair in pairs for text in (pair.source, pair.translation)} | set(corpus.held_out)
    assert not apart & {*corpus.train, *corpus.asked_texts}
    assert not set(corpus.held_out) & {pair.source for pair in pairs}


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Any]:
    """results.json of a run with pairs."""
    done = run(folder, "run")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "run" / "results.json").read_text())


def test_a_student_learns_the_language_of_the_translations(folder: Path, whole: dict[str, Any]) -> None:
    """Far above chance, and far above the same run on the sources alone."""
    (of,) = whole["translations"].values()
    assert of["pairs"] == 60 and whole["training"]["texts"] > 1000
    assert min(of["source_to_translation"], of["translation_to_source"]) > 30 * CHANCE and of["spearman"] > 60
    _, ready = prepared(folder)
    sources = [
        text
        for text, asked in zip(ready.shared.corpus.train, ready.shared.corpus.asked_texts, strict=True)
        if text == asked
    ]
    (folder / "sources.txt").write_text("\n".join(sources) + "\n")
    done = run(folder, "without", text=folder / "sources.txt", text_pairs="")
    assert done.returncode == 0, done.stderr[-3000:]
    student, pairs = jdistill.load(str(folder / "without" / "export")), ready.shared.corpus.held_out_pairs
    texts = [(pair.source, pair.translation) for pair, _ in pairs]
    vectors = [student.encode(side) for side in zip(*texts, strict=True)]
    of_teacher = ready.shared.embeddings.held_out_pairs()
    (alone,) = translation_figures(PairVectors(texts, [""] * 60, *vectors, of_teacher)).values()
    assert max(alone["source_to_translation"], alone["translation_to_source"]) < of["source_to_translation"] / 3
    assert alone["spearman"] < of["spearman"] - 30 and alone["mean_cosine"] < of["mean_cosine"]


def test_what_was_measured_is_told(folder: Path, whole: dict[str, Any]) -> None:
    (of,) = whole["translations"].values()
    page, card = (folder / "run" / "report.html").read_text(), (folder / "run" / "export" / "README.md").read_text()
    assert "Held-out translations" in page and f"{of['source_to_translation']:.1f} %" in page
    assert f"| {of['spearman']:.2f} | {of['source_to_translation']:.1f} | {of['translation_to_source']:.1f} |" in card
    rows = [json.loads(line) for line in (folder / "run" / "distil" / "metrics.jsonl").read_text().splitlines()]
    dev = [row for row in rows if "dev/translations" in row]
    assert len(dev) == 3 and dev[-1]["dev/matched"] > dev[0]["dev/matched"] / 2
    means = [(row["dev/translations"] + row["dev/spearman"]) / 2 for row in dev]
    np.testing.assert_allclose([row["dev/score"] for row in dev], means, atol=1e-3)


def test_a_run_that_stops_goes_on_to_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"max_steps": 70, "checkpoint_every": 20, "text_pairs": f"{folder / 'pairs.tsv'}*1.5"}
    assert run(folder, "steady", **keys).returncode == 0
    batch = Data.batch

    def stops(self: Data, step: int) -> dict[str, np.ndarray]:
        if step == 65:  # of the second epoch
            raise KeyError("stopped")
        return batch(self, step)

    with monkeypatch.context() as stopping:
        stopping.setattr(Data, "batch", stops)
        with pytest.raises(KeyError, match="stopped"):
            run(folder, "stopped", **keys)
    done = run(folder, "stopped", **keys)
    assert done.returncode == 0 and "resum" in done.stderr.lower(), done.stderr[-3000:]
    steady, again = final_weights(folder / "steady"), final_weights(folder / "stopped")
    assert steady.keys() == again.keys() and all((steady[name] == again[name]).all() for name in steady)
    refused = run(folder, "stopped", **keys | {"text_pairs": ""})
    assert refused.returncode == 2 and "text_pairs" in refused.stderr


def test_several_languages_and_files_in_their_roles(folder: Path) -> None:
    """Each language is measured by itself; a pair that two files have is the first's."""
    texts = [text for text in sentences(900, seed=5) if len(text.split()) > 6][:300]
    rows = [{"source": t, "translation_back": turned(t), "translation_loud": t.upper()[::-1]} for t in texts[:280]]
    (folder / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(
        pa.table({"english": texts[250:], "translation_back": [turned(t) for t in texts[250:]]}), folder / "b.parquet"
    )
    named = f"{folder / 'two.jsonl'}@query*2,{folder / 'b.parquet'}@query"
    keys = {"text_pairs": named, "text": "", "held_out": 40, "batch_size": 8}
    model = replace(make_encoder(num_layers=1), prompts={"query": "look for: "})
    keys["teacher"] = save_encoder(model, folder / "prompted")
    _, ready = prepared(folder, **keys)
    corpus, start = ready.shared.corpus, ready.shared.start
    assert {pair.language for pair, _ in corpus.held_out_pairs} == {"back", "loud"}
    of_source: dict[str, set[str]] = {}
    for pair, role in corpus.held_out_pairs:
        assert role == "query"
        of_source.setdefault(pair.source, set()).add(pair.language)
    of_both = {text for text, languages in of_source.items() if {"back", "loud"} == languages}
    assert of_source.keys() - of_both <= set(texts[280:]) and of_both
    assert sorted(corpus.held_out) == sorted(of_source)  # each once, though two files may hold it
    train, asked = list(corpus.train), list(corpus.asked_texts)
    once = [(text, question) for text, question in zip(train, asked, strict=True)]
    assert len(once) == len(set(once))
    vectors = ready.shared.embeddings.train(np.arange(len(train)))
    expected = ready.shared.teacher.in_role("query").answer(asked)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    figures = translation_figures(held_out_pair_vectors(start, corpus, ready.shared.embeddings.held_out_pairs()))
    assert set(figures) == {"back", "loud"} and figures["back"]["pairs"] == len(of_source)


def test_a_cut_vocabulary_keeps_the_pieces_of_translations(folder: Path) -> None:
    keys = {"student.vocabulary": "text"}
    _, ready = prepared(folder, **keys)
    _, alone = prepared(folder, **keys, text_pairs="")
    whole, cut = ready.shared.teacher.encoder, ready.shared.start
    assert whole is not None and alone.shared.start.config.vocab_size < cut.config.vocab_size
    texts = ready.shared.corpus.translations(1000)
    assert len(texts) > 500 and not {*texts} & {*ready.shared.corpus.asked_texts}
    pieces = [[model.tokenizer.convert_ids_to_tokens(ids) for ids in model.tokenize(texts)] for model in (whole, cut)]
    assert pieces[0] == pieces[1]


def test_translations_that_the_student_cannot_read_are_told(folder: Path) -> None:
    texts = (folder / "text.txt").read_text().split("\n")[:100]
    unread = [
        " ".join(chr(0x13000 + ord(word[0])) + chr(0x13100 + len(word)) for word in text.split()) for text in texts
    ]
    rows = "".join(f"{text}\t{other}\n" for text, other in zip(texts, unread, strict=True))
    (folder / "unread.tsv").write_text("source\ttranslation\n" + rows)
    done = run(folder, "unread", text_pairs=folder / "unread.tsv", max_steps=2, batch_size=8)
    assert done.returncode == 2 and "error: the student, of the translations: its vocabulary lacks 100 %" in done.stderr


@pytest.mark.parametrize(
    ("file", "keys", "told"),
    [
        ("simtde.py", {"loss.hidden": 1.0}, "--config.loss.hidden=1.0 matches the teacher's hidden states"),
        ("distilface.py", {"loss.distil": 0.0}, "method=distilface does not learn from a teacher's vectors here"),
    ],
)
def test_methods_that_cannot_learn_of_them_refuse(folder: Path, file: str, keys: dict[str, Any], told: str) -> None:
    settings = {
        "teacher": folder / "teacher",
        "text_pairs": folder / "pairs.tsv",
        "text": "",
        "cache_dir": folder / "cache",
    }
    settings |= {"student.layers": 1, "batch_size": 8, "held_out": 10}
    if file == "distilface.py":
        settings |= {"teacher": "", "start": folder / "teacher", "pooling": "mean"}
    done = run_inside(commands.command(f"configs/{file}", folder / "refused", settings | keys), folder)
    assert done.returncode == 2 and told in done.stderr, done.stderr[-500:]


@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("simtde.py", {"student.embedding_size": 12}),
        ("ibkd.py", {"triplets": "", "output_dim": 0, "start": ""}),
        ("ibkd.py:crd", {"triplets": "", "loss.buffer_per_text": 4, "start": ""}),
        ("bilstm_sra.py", {"student.lstm_size": 8, "student.embedding_size": 8}),
    ],
)
def test_every_method_that_learns_from_vectors_takes_them(folder: Path, file: str, keys: dict[str, Any]) -> None:
    settings = {
        "teacher": folder / "teacher",
        "text_pairs": folder / "pairs.tsv",
        "text": "",
        "cache_dir": folder / "cache",
    }
    settings |= {"student.layers": 1, "batch_size": 8, "held_out": 10, "max_steps": 2, "onnx": False, "index_texts": 0}
    if file == "bilstm_sra.py":
        settings.pop("student.layers")
    where = folder / f"of-{file.replace(':', '-')}"
    done = run_inside(commands.command(f"configs/{file}", where, settings | {"latency_texts": 0} | keys), folder)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads((where / "results.json").read_text())["translations"]["translation"]["pairs"] == 10
