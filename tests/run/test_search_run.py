"""One command from passages and pairs to a folder that answers: the student reads the question, and the index is the teacher's."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import command, run_inside
from conftest import make_encoder, save_encoder, sentences

import jdistill
from configs import search as search_config
from jdistill import search
from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.encoder import loading
from jdistill.export.site.folder import index_vectors
from jdistill.retrieval.index import load_index, unit_rows
from jdistill.run.stages import prepare

PROMPTS = {"query": "find: ", "document": "the text is: "}
SHORT = 20  # tokens that a run reads of a text; the teacher reads all
QUESTION = sentences(3, seed=9)[0]


def search_command(place: Path, workdir: str, config: str = "search", **keys: Any) -> list[str]:
    settings: dict[str, Any] = {
        "teacher": place / "teacher", "text": place / "passages.txt", "cache_dir": place / "cache", "text_column": "", "held_out": 20,
        "teacher_dtype": "float32", "batch_size": 8, "max_steps": 4, "checkpoint_every": 2, "onnx": False, "latency_texts": 0,
        "length_buckets": 1,
    }  # fmt: skip
    if config == "search":
        settings |= {"student.layers": 2, "student.embedding_size": 12, "pairs": place / "pairs.jsonl"}
    return command(f"configs/{config}.py", place / workdir, settings | keys)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher with prompts, passages, pairs whose positives are half of them passages, and a finished run."""
    place = tmp_path_factory.mktemp("search-run")
    save_encoder(replace(make_encoder(num_layers=2), prompts=PROMPTS), place / "teacher")
    texts = sentences(150)
    (place / "passages.txt").write_text("\n".join(texts[:100]) + "\n")
    rows = [{"query": texts[120 + i], "positive": texts[i if i % 2 else 100 + i // 2]} for i in range(30)]
    (place / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run_inside(search_command(place, "run"))
    assert done.returncode == 0, done.stderr[-3000:]
    (place / "log").write_text(done.stderr)
    return place


def test_a_finished_student_reads_the_passages_as_it_is(place: Path) -> None:
    in_16_bits = {"max_steps": 2, "dtype": "bfloat16"}  # by XLA's own products, of which a turned matrix has none
    small = search_command(place, "small", **{"student.layers": 1, "student.vocabulary": "text"}, **in_16_bits)
    done = run_inside(small)
    assert done.returncode == 0, done.stderr[-3000:]
    paths = {"teacher": "teacher", "text": "passages.txt", "cache_dir": "cache", "start": "small/export"}
    settings: dict[str, Any] = {key: place / path for key, path in paths.items()}
    settings |= {"teacher_dtype": "float32", "batch_size": 8, "onnx": False, "epochs": 3.0, "latency_texts": 0}
    done = run_inside(command("configs/search.py:read", place / "read", settings))
    assert done.returncode == 0, done.stderr[-3000:]
    before, after = (jdistill.load(str(place / run / "export")) for run in ("small", "read"))
    assert after.config == before.config and after.tokenizer.get_vocab() == before.tokenizer.get_vocab()
    texts = load_index(place / "read" / "index").texts
    assert sorted(texts) == sorted({text.strip() for text in (place / "passages.txt").read_text().splitlines()})
    by_teacher = unit_rows(jdistill.load(str(place / "teacher")).encode(texts, prompt="document"))
    cosine = [
        (unit_rows(model.encode(texts, prompt="document")) * by_teacher).sum(1).mean() for model in (before, after)
    ]
    assert 1 - cosine[1] < 0.8 * (1 - cosine[0]), cosine
    assert len(search.answer(place / "read", QUESTION, 3)) == 3
    done = run_inside(command("configs/search.py:read", place / "read-2", {**settings, "start": place / "nothing"}))
    assert done.returncode == 2 and "--config.start" in done.stderr, done.stderr[-1000:]


def test_answers_are_cosines_of_the_students_question_and_the_teachers_passages(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = place / "run"
    student, teacher = jdistill.load(str(run / "export")), jdistill.load(str(place / "teacher"))
    texts = load_index(run / "index").texts
    passages = {text.strip() for text in (place / "passages.txt").read_text().splitlines()}
    rows = [json.loads(line) for line in (place / "pairs.jsonl").read_text().splitlines()]
    assert set(texts) == passages | {row["positive"] for row in rows} and len(texts) == len(set(texts)) == 115
    asked = unit_rows(student.encode([PROMPTS["query"] + QUESTION]))[0]
    by_teacher = unit_rows(teacher.encode([PROMPTS["document"] + text for text in texts]))
    cosines = by_teacher @ asked
    with monkeypatch.context() as gone, caplog.at_level(logging.INFO, "jdistill"):
        gone.setattr(loading, "load", only(loading.load, run / "export"))
        shutil.move(place / "teacher", place / "away")
        try:
            answers = search.answer(run, QUESTION, 10)
        finally:
            shutil.move(place / "away", place / "teacher")
    best = np.argsort(-cosines)[:10]
    np.testing.assert_allclose([score for score, _ in answers], cosines[best], atol=1e-5)
    assert [text for _, text in answers] == [texts[i] for i in best]
    assert f"the index holds vectors of {place / 'teacher'}; the question is read by" in caplog.text
    own = unit_rows(student.encode([PROMPTS["document"] + text for text in texts])) @ asked
    assert np.abs(own - cosines).max() > 1e-3  # or the test would not tell whose index it is


def only(load: Any, export: Path) -> Any:
    """loading.load that loads nothing but the student."""

    def guarded(source: str, *arguments: Any, **more: Any) -> Any:
        assert source == str(export), source
        return load(source, *arguments, **more)

    return guarded


def test_results_page_card_and_log_say_whose_index_it_is(place: Path) -> None:
    run, owner = place / "run", str(place / "teacher")
    assert json.loads((run / "results.json").read_text())["index"] == {"by": "teacher", "model": owner}
    assert f"The run&#39;s index holds the vectors of the teacher, {owner}" in (run / "report.html").read_text()
    card = (run / "export" / "README.md").read_text()
    assert "## Search index" in card and f"index holds vectors of the teacher, `{owner}`" in card
    assert f"the index holds vectors of the teacher, {owner}; the student reads" in (place / "log").read_text()


def test_a_finished_run_asks_nobody_and_a_lost_index_is_made_from_the_answers(place: Path) -> None:
    shutil.copytree(place / "run", place / "again")
    answers = {
        path: (place / "cache" / "teacher" / path).stat() for path in files.files_in(place / "cache" / "teacher")
    }
    done = run_inside(search_command(place, "again"))
    assert done.returncode == 0 and "again is complete" in done.stderr, done.stderr[-2000:]
    before = (place / "again" / "index" / "vectors.faiss").read_bytes()
    shutil.rmtree(place / "again" / "index")
    done = run_inside(search_command(place, "again"))
    assert done.returncode == 0 and "index/ is missing" in done.stderr, done.stderr[-2000:]
    assert (place / "again" / "index" / "vectors.faiss").read_bytes() == before
    now = {path: (place / "cache" / "teacher" / path).stat() for path in files.files_in(place / "cache" / "teacher")}
    assert {path: (of.st_size, of.st_mtime_ns) for path, of in answers.items()} == {
        path: (of.st_size, of.st_mtime_ns) for path, of in now.items()
    }
    done = run_inside(search_command(place, "again", index_by="student"))
    assert done.returncode == 0 and "index_by was 'teacher' and is 'student'" in done.stderr, done.stderr[-2000:]
    saved = load_index(place / "again" / "index")
    assert saved.fingerprint == jdistill.load(str(place / "again" / "export")).fingerprint() and not saved.owner
    assert json.loads((place / "again" / "results.json").read_text())["index"]["by"] == "student"
    assert "## Search index" not in (place / "again" / "export" / "README.md").read_text()


def test_without_pairs_and_with_short_texts_the_teacher_reads_them_whole(place: Path) -> None:
    done = run_inside(search_command(place, "no-pairs", pairs="", max_length=SHORT))
    assert done.returncode == 0, done.stderr[-3000:]
    saved = load_index(place / "no-pairs" / "index")
    teacher = jdistill.load(str(place / "teacher"))
    by_teacher = unit_rows(teacher.encode(saved.texts, prompt="document"))
    np.testing.assert_allclose(saved.index.stored_vectors(), by_teacher, atol=1e-5)
    cut = unit_rows(replace(teacher, max_length=SHORT).encode(saved.texts, prompt="document"))
    assert np.abs(cut - by_teacher).max() > 1e-2  # or the test would not tell
    assert len(saved.texts) == 100 and jdistill.load(str(place / "no-pairs" / "export")).max_length == SHORT
    assert len(search.answer(place / "no-pairs", QUESTION, 3)) == 3


def test_positives_that_are_all_passages_are_read_once(place: Path) -> None:
    texts = sentences(150)
    rows = [{"query": texts[120 + i], "positive": texts[i]} for i in range(30)]
    (place / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cfg = search_config.get_config()
    keys = {"teacher": "teacher", "text": "passages.txt", "pairs": "all.jsonl", "cache_dir": "cache"}
    cfg.update({name: str(place / path) for name, path in keys.items()})
    cfg.update({"batch_size": 8, "held_out": 20, "augment": ""})
    cfg.student.update({"layers": 2, "embedding_size": 12})
    corpus = prepare(cfg).shared.corpus
    assert [(of.source.role, of.train + of.held_out) for of in corpus.sources] == [
        ("document", 100), ("query", 30), ("document", 0),
    ]  # fmt: skip
    assert sorted([*corpus.train, *corpus.held_out]) == sorted(set(texts[:100] + texts[120:150]))
    assert len(corpus.indexed()) == 100


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ("ibkd", {"triplets": "", "loss.align": 0.0}),
        ("search", {"loss.sentence": "pair_mse"}),
        ("bilstm_sra", {"loss.target": "pairs"}),
        ("bilstm_sra", {"loss.target": "own_pairs", "pairs": "p.jsonl", "text": ""}),
        ("distilface", {"loss.distil": 1.0}),
    ],
)
def test_a_student_outside_its_teachers_space_is_refused_before_the_first_step(
    place: Path, config: str, keys: dict[str, Any]
) -> None:
    done = run_inside(search_command(place, "refused", config, index_by="teacher", **keys))
    assert done.returncode == 2 and "does not stand in its teacher's space" in done.stderr, done.stderr[-2000:]
    assert "--config configs/search.py" in done.stderr and "--config.loss.align=1" in done.stderr
    assert not (place / "refused").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "pairs-x.jsonl holds no row"),
        ('{"query": "a", "answer": "b"}\n', "--config.pairs needs the columns query and positive; there are ['answer'"),
        (
            '{"query": "a", "positive": "b"}\n{"query": "c"}\n',
            "line 2: there is no column 'positive', which the rows before have",
        ),
        ('{"query": "a", "positive": ["b", "c"]}\n', "'positive' holds list, not text"),
    ],
)
def test_bad_pairs_are_named(place: Path, content: str, message: str) -> None:
    (place / "pairs-x.jsonl").write_text(content)
    done = run_inside(search_command(place, "bad-pairs", pairs=place / "pairs-x.jsonl"))
    assert done.returncode == 2 and message in done.stderr, done.stderr[-1000:]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [("pairs.jsonl@query", "leave @query out"), ("gone.jsonl", "--config.pairs="), ("passages.txt", "passages.txt")],
)
def test_sources_that_are_no_pairs_are_named(place: Path, pairs: str, message: str) -> None:
    done = run_inside(search_command(place, "bad-pairs", pairs=f"{place}/{pairs}"))
    assert done.returncode == 2 and message in done.stderr, done.stderr[-1000:]


def test_another_students_queries_are_refused(place: Path) -> None:
    shutil.copytree(place / "run", place / "swapped")
    shutil.rmtree(place / "swapped" / "export")
    shutil.copytree(place / "teacher", place / "swapped" / "export")
    with pytest.raises(UserError, match="was made for another model"):
        search.answer(place / "swapped", QUESTION, 1)


def test_a_page_needs_the_vectors_of_the_teacher(place: Path) -> None:
    done = run_inside(search_command(place, "again", index="IVF2,Flat"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert load_index(place / "again" / "index").owner
    saved, student = load_index(place / "again" / "index"), jdistill.load(str(place / "again" / "export"))
    with pytest.raises(UserError, match="--format=site: a page needs the vectors themselves"):
        index_vectors(saved, student)
