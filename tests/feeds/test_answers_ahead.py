"""How far ahead the teacher answers: what the steps read and no more, at a time or at once, and the same numbers either way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simtde_setting import config, random_tokens

from jdistill.core import sharding
from jdistill.core.mapped import file_sum
from jdistill.data.text.text_sources import TextSource
from jdistill.feeds.corpus import Corpus, SourceRows
from jdistill.feeds.teacher_embeddings import TeacherEmbeddings
from jdistill.feeds.texts import text_batches
from jdistill.teachers import key_index
from jdistill.teachers.cache import AnswerCache
from jdistill.teachers.embeddings import Teacher
from jdistill.train.dataset import Data

TEXTS = 640


def feed(
    tmp_path: Path, num_extra: int = 0, sources: tuple[SourceRows, ...] = (), **keys: Any
) -> tuple[Data, list[str], TeacherEmbeddings]:
    """Batches of 16 of TEXTS texts; the texts that the teacher is asked for, in their order; its embeddings."""
    asked: list[str] = []

    def answer(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[float(text), 1.0] for text in texts], np.float32)

    cfg = config(batch_size=16, cache_dir=str(tmp_path), **keys)
    corpus = Corpus([str(i) for i in range(TEXTS)], [], 0, sources)
    embeddings = TeacherEmbeddings(cfg, corpus, Teacher("made up", 2, "f", answer))
    tokens = random_tokens(TEXTS)
    data = text_batches(cfg, corpus, tokens, embeddings.train, 0, num_extra, cfg.packed, embeddings.ask_for)
    return data, asked, embeddings


def check(data: Data, step: int) -> None:
    rows = data.batches.at(step)[1]
    np.testing.assert_array_equal(data.batch(step)["teacher"].reshape(16, 2)[:, 0], rows)


@pytest.mark.parametrize("packed", [True, False])
def test_a_short_run_asks_for_its_own_batches_alone(tmp_path: Path, packed: bool) -> None:
    data, asked, _ = feed(tmp_path, max_steps=5, packed=packed)
    for step in range(5):
        check(data, step)
        assert len(asked) == 5 * 16  # at the first look
    assert {int(text) for text in asked} == set(np.concatenate([data.batches.at(step)[1] for step in range(5)]))


def test_most_of_an_epoch_is_asked_whole(tmp_path: Path) -> None:
    data, asked, _ = feed(tmp_path, max_steps=21)
    check(data, 0)
    assert list(map(int, asked)) == list(range(TEXTS))


def test_of_a_part_of_a_source_no_text_is_asked_for_that_no_epoch_draws(tmp_path: Path) -> None:
    """Two epochs of a fourth of 480 texts and of all of 160 others: the first source's are another fourth each time."""
    sources = tuple(
        SourceRows(TextSource(name, weight=weight), rows, 0)
        for name, weight, rows in (("a", 0.25, 480), ("b", 1.0, 160))
    )
    data, asked, _ = feed(tmp_path, sources=sources, epochs=2.0)
    steps = 2 * data.batches.steps_per_epoch
    read = np.unique(np.concatenate([data.batches.at(step)[1] for step in range(steps)]))
    for step in range(steps):
        check(data, step)
    assert sorted(map(int, asked)) == read.tolist()
    assert (read >= 480).sum() >= 150 and 120 < (read < 480).sum() <= 240


def test_answers_come_so_many_texts_at_a_time(tmp_path: Path) -> None:
    data, asked, _ = feed(tmp_path, epochs=1.0, answers_ahead=64)
    for step in range(40):
        check(data, step)
        assert len(asked) == 64 * (step // 4 + 1)
    assert len(set(asked)) == TEXTS


def test_a_window_does_not_look_again_at_the_answers_of_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "KEPT_ABOVE", 250)  # of which an index is kept in a file
    sums, looked_at = [], []
    gather = AnswerCache.gather

    def counted_sum(path: Path, *place: int) -> int:
        sums.append(path)
        return file_sum(path, *place)

    def counted_gather(cache: AnswerCache, rows: np.ndarray, columns: slice = slice(None)) -> np.ndarray:
        looked_at.append(len(rows))
        return gather(cache, rows, columns)

    data, _, embeddings = feed(tmp_path, epochs=1.0, answers_ahead=64)
    Teacher("made up", 2, "f", lambda texts: None).cache(tmp_path).fill(
        [f"other {i}" for i in range(100)], lambda texts: np.ones((len(texts), 2))
    )
    monkeypatch.setattr(key_index, "file_sum", counted_sum)
    monkeypatch.setattr(AnswerCache, "gather", counted_gather)
    for step in range(40):
        check(data, step)
    assert sum(looked_at) == 100 + TEXTS  # the others' once, and each batch's
    assert len(sums) == 2 * 4  # an index is written of 292 keys, and of 548: each twice of keys and index
    assert embeddings.lacking(False) == 0


def test_a_resumed_run_asks_for_the_texts_of_the_same_windows(tmp_path: Path) -> None:
    data, asked, _ = feed(tmp_path / "a", epochs=1.0, answers_ahead=64)
    for step in range(12):
        check(data, step)
    other, again, _ = feed(tmp_path / "b", epochs=1.0, answers_ahead=64)
    check(other, 6)  # of steps 4 to 7
    assert again == asked[64:128]


def test_further_texts_and_further_processes_have_all_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, asked, _ = feed(tmp_path / "a", num_extra=2, max_steps=5)
    check(data, 0)
    assert len(asked) == TEXTS
    monkeypatch.setattr(sharding, "process_count", lambda: 2)
    monkeypatch.setattr(sharding, "barrier", lambda what: None)
    data, asked, _ = feed(tmp_path / "b", max_steps=5)
    data.rows_of(0, *data.batches.at(0))
    assert len(asked) == TEXTS  # of one chunk, which is the first process's


@pytest.mark.parametrize(
    ("keys", "processes"),
    [
        ({"max_steps": 5}, 1),
        ({"max_steps": 21}, 1),
        ({"max_steps": 30, "answers_ahead": 64}, 1),
        ({"max_steps": 60}, 1),
        ({"max_steps": 5, "num_extra": 2}, 1),
        ({"max_steps": 5}, 2),
    ],
)
def test_a_plan_counts_the_texts_that_are_asked_for(
    tmp_path: Path, keys: dict[str, int], processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharding, "process_count", lambda: processes)
    monkeypatch.setattr(sharding, "barrier", lambda what: None)
    data, asked, _ = feed(tmp_path, **keys)
    for step in range(keys["max_steps"]):
        data.rows_of(step, *data.batches.at(step))
    assert data.asked == len(set(asked))


def test_what_a_start_looks_at_is_asked_for_alone(tmp_path: Path) -> None:
    _, asked, embeddings = feed(tmp_path, max_steps=5)
    np.testing.assert_array_equal(embeddings.train(np.array([7, 3]))[:, 0], [7, 3])
    np.testing.assert_array_equal(embeddings.train(np.array([3, 9, 7]))[:, 0], [3, 9, 7])
    assert asked == ["7", "3", "9"]
