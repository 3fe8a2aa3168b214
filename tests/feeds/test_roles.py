"""Roles of text: the teacher's answers are sentence-transformers', and a run of two goes from its config to an export."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run_inside
from conftest import make_encoder, save_encoder, sentences
from sentence_transformers import SentenceTransformer
from simtde_setting import config
from train_setting import command, final_weights

import jdistill
from jdistill.data.batching import kept_tokens
from jdistill.data.text.stored_texts import LongTexts, StoredTexts
from jdistill.encoder.encoder import Encoder
from jdistill.feeds import roles as feed_roles
from jdistill.feeds.corpus import read_corpus
from jdistill.feeds.roles import check_roles, corpus_tokens
from jdistill.losses.embedding import unit
from jdistill.run.stages import prepare
from jdistill.teachers.embeddings import Teacher, open_teacher
from jdistill.train.dataset import Data

PROMPTS = {"query": "find what answers this: ", "document": "the text is: "}


def prompted(**changes: Any) -> Encoder:
    return replace(make_encoder(), prompts=PROMPTS, **changes)


@pytest.mark.parametrize(
    ("pooling", "include_prompt"), [("mean", True), ("mean", False), ("cls", False), ("lasttoken", False)]
)
def test_answers_are_those_of_encode_query_and_encode_document(
    tmp_path: Path, pooling: str, include_prompt: bool
) -> None:
    folder = save_encoder(prompted(pooling=pooling, include_prompt=include_prompt), tmp_path / "m")
    theirs, texts = SentenceTransformer(str(folder)), sentences(20)
    theirs.max_seq_length = 24  # shorter than some texts with their prompts
    for teacher in (open_teacher(f"{scheme}{folder}", 24, "float32") for scheme in ("", "st:")):
        for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document), ("", theirs.encode)):
            answers = np.asarray(unit(teacher.in_role(role).answer(texts)))
            assert np.abs(answers - encode(texts)).max() < 1e-5
        assert len({teacher.in_role(role).fingerprint for role in ("", "query", "document")}) == 3
        assert teacher.in_role("").fingerprint == teacher.fingerprint
    assert jdistill.load(str(folder)).include_prompt == include_prompt


def write_sources(folder: Path) -> tuple[list[str], list[str]]:
    """queries.txt and documents.txt, which share ten texts."""
    texts = sentences(130)
    queries, documents = texts[:40], texts[30:]
    (folder / "queries.txt").write_text("\n".join(queries) + "\n")
    (folder / "documents.txt").write_text("\n".join(documents) + "\n")
    return queries, documents


def roles_command(folder: Path, workdir: str, **keys: Any) -> list[str]:
    return command(
        folder, folder / "teacher", workdir, text="documents.txt@document,queries.txt@query*2.5", max_steps=30, **keys
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of two roles."""
    folder = tmp_path_factory.mktemp("roles")
    save_encoder(prompted(include_prompt=False), folder / "teacher")
    write_sources(folder)
    done = run_inside(roles_command(folder, "run", index_texts=1000), folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_a_run_of_two_roles_exports_a_student_that_has_both(run: Path) -> None:
    export, texts = run / "run" / "export", sentences(12, seed=9)
    student, theirs = jdistill.load(str(export)), SentenceTransformer(str(export))
    assert student.prompts == PROMPTS and student.include_prompt
    vectors = {role: student.in_role(role).encode(texts) for role in PROMPTS}
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        assert np.abs(vectors[role] - encode(texts)).max() < 1e-4
        assert np.abs(vectors[role] - student.encode([PROMPTS[role] + text for text in texts])).max() < 1e-6
    assert np.abs(vectors["query"] - vectors["document"]).max() > 1e-2
    caches = [json.loads(path.read_text()) for path in (run / "cache" / "teacher").glob("*/about.json")]
    assert len(caches) == 2
    assert (run / "run" / "index").is_dir()


def test_a_run_that_stops_goes_on_to_the_same_bits(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Data.batch

    def stops(self: Data, step: int) -> dict[str, np.ndarray]:
        if step == 26:  # of the second epoch
            raise KeyError("stopped")
        return batch(self, step)

    with monkeypatch.context() as stopping:
        stopping.setattr(Data, "batch", stops)
        with pytest.raises(KeyError, match="stopped"):
            run_inside(roles_command(run, "stopped"), run)
    done = run_inside(roles_command(run, "stopped"), run)
    assert done.returncode == 0 and "resum" in done.stderr.lower(), done.stderr[-3000:]
    whole, again = final_weights(run / "run"), final_weights(run / "stopped")
    assert whole.keys() == again.keys() and all((whole[name] == again[name]).all() for name in whole)


def test_each_row_is_read_and_answered_in_its_role(run: Path) -> None:
    keys = {"teacher": str(run / "teacher"), "cache_dir": str(run / "other"), "batch_size": 8, "held_out": 20}
    keys |= {"text": f"{run}/documents.txt@document,{run}/queries.txt@query,{run}/queries.txt"}
    cfg = config(**keys, teacher_dtype="float32")
    ready = prepare(cfg)
    corpus, teacher = ready.shared.corpus, ready.shared.teacher
    tokens, data = ready.feeds[0].batches(cfg, ready.shared.start)
    assert [of.train + of.held_out for of in corpus.sources] == [100, 40, 40] and len(corpus.held_out) <= 20
    assert not set(corpus.held_out) & set(corpus.train)  # in whatever role
    vectors = ready.shared.embeddings.train(np.arange(len(corpus.train)))
    held_out = ready.shared.embeddings.held_out()
    for of_held_out, texts, expected in ((False, corpus.train, vectors), (True, corpus.held_out, held_out)):
        for role, start, stop in corpus.role_rows(of_held_out):
            assert np.abs(teacher.in_role(role).answer(list(texts[start:stop])) - expected[start:stop]).max() < 1e-5
    for role, start, stop in corpus.role_rows():
        rows = np.arange(start, stop)
        assert tokens.lists(rows) == ready.shared.start.in_role(role).tokenize(list(corpus.train[start:stop]))
    seen = np.concatenate([data.batches.at(step)[1] for step in range(data.batches.steps_per_epoch)])
    assert len(seen) == len(set(seen.tolist())) > len(corpus.train) - 8
    assert ready.feeds[0].index_texts()[:3] == corpus.train[:3]
    assert len(ready.feeds[0].index_texts()) == 100 + 40  # all but the queries


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"text": "queries.txt@quary"},
            "--config.text=queries.txt@quary: the role 'quary' of queries.txt is not one of",
        ),
        ({"text": "queries.txt*0"}, "the weight '0' of queries.txt is no positive number"),
        (
            {"text": "queries.txt@query", "max_length": 6},
            "--config.text=queries.txt@query: the query prompt of the teacher",
        ),
        ({"text": "queries.txt@query", "query_prompt": "a " * 70}, "the query prompt of the student, 'a a"),
        ({"text": "absent.txt@query,queries.txt"}, "--config.text=absent.txt: there is no such file"),
        (
            {"text": "a.txt@query", "teacher": "vectors:v.npz", "start": "teacher"},
            "--config.teacher=vectors:v.npz answers texts as they",
        ),
        (
            {"text": "", "text_role": "query", "teacher": "vectors:v.npz", "start": "teacher"},
            "--config.text_role=query: the texts are those of vectors:v.npz, which have no role",
        ),
    ],
)
def test_what_roles_cannot_be_read_is_said_with_key_and_source(run: Path, keys: dict[str, str], message: str) -> None:
    np.savez(run / "v.npz", texts=np.array(["a", "b"]), embeddings=np.eye(2, 32, dtype=np.float32))
    settings = {"teacher": run / "teacher"} | keys
    done = run_inside(command(run, settings.pop("teacher"), "refused", **settings), run)
    assert done.returncode == 2 and message in done.stderr, done.stderr[-500:]


def test_a_corpus_of_roles_is_not_read_to_name_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sources(tmp_path)
    cfg = config(
        text=f"{tmp_path}/documents.txt@document,{tmp_path}/queries.txt@query", cache_dir=str(tmp_path / "cache")
    )
    corpus = read_corpus(cfg, Teacher("t", 4, "0" * 32, lambda asked: None), ())
    tokenized: list[LongTexts] = []
    monkeypatch.setattr(feed_roles, "tokens_of", lambda _, __, texts: tokenized.append(texts))
    monkeypatch.setattr(kept_tokens, "LARGE", 20)
    corpus_tokens(cfg, prompted(), corpus)

    def refuses(*_: object) -> None:
        raise AssertionError("a text was read")

    monkeypatch.setattr(StoredTexts, "take", refuses)
    assert kept_tokens.table_name(tokenized[0], "of the tokenizer") and len(tokenized[0]) > 100


def test_a_role_without_a_prompt_is_told_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    model = replace(make_encoder(), prompts={"passage": "p: ", "title": "t: "}, default_prompt="title")
    folder = save_encoder(model, tmp_path / "m")
    cfg = config(text="a.txt@query,b.txt@query,c.txt@document")
    teacher = open_teacher(str(folder), 0, "float32")
    with caplog.at_level(logging.WARNING, "jdistill"):
        start = check_roles(cfg, teacher, model)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and all("none for a query: read without one" in line for line in told)
    assert start.prompts["document"] == "p: "  # by the name that sentence-transformers looks for
    texts = sentences(3)
    np.testing.assert_array_equal(
        teacher.in_role("query").answer(texts),
        replace(model, default_prompt=None, normalize=False).encode(texts, batch_size=32),
    )
