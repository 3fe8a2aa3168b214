"""A signal that comes while the teacher answers the texts of the next steps: what it answered is kept, and the training ends saved."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from simtde_setting import config, random_tokens, small_teacher, start

from jdistill.core.sorted_keys import keys_of_texts
from jdistill.core.stopping import Stopped, stop_if_asked, stopping_by
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.teacher_embeddings import TeacherEmbeddings
from jdistill.feeds.texts import text_batches
from jdistill.methods import simtde
from jdistill.teachers.cache import AnswerCache
from jdistill.teachers.embeddings import Teacher
from jdistill.train.loop import train
from jdistill.train.method import TrainedStage
from jdistill.train.signals import Interrupted

TEXTS, WINDOW, STEPS = 96, 32, 12


def test_a_fill_ends_after_the_piece_in_hand(tmp_path: Path) -> None:
    signals: list[str] = []
    asked: list[str] = []

    def pieces(texts: list[str]) -> Iterator[tuple[list[int], np.ndarray]]:
        for i, text in enumerate(texts):
            asked.append(text)
            if text == "1":
                signals.append("SIGTERM")
            yield [i], np.array([[float(text)]])

    chunks = [["0", "1"], ["2", "3"]]
    with pytest.raises(Stopped), stopping_by(signals):
        AnswerCache(tmp_path, 1).fill_by_piece(chunks, pieces)
    assert asked == ["0", "1"]
    again = AnswerCache(tmp_path, 1)
    assert again.fill_by_piece(chunks, pieces) == 2  # nobody is asked to stop by what came before
    np.testing.assert_array_equal(again.gather(again.find(keys_of_texts(["0", "1", "2", "3"])))[:, 0], range(4))


def stage(folder: Path, asked: list[str], prefetch: int, signal_at: int = 0) -> TrainedStage:
    """A stage whose teacher answers so many texts at a time; with the answers to the first `signal_at` a signal comes."""
    cfg = config("", **{
        "student.layers": 1, "max_steps": STEPS, "batch_size": TEXTS // STEPS, "checkpoint_every": STEPS, "packed": False,
        "answers_ahead": WINDOW, "prefetch": prefetch, "cache_dir": str(folder / "cache"),
    })  # fmt: skip
    tokens = random_tokens(TEXTS)
    of_texts = start(small_teacher(), tokens)
    method, corpus = simtde.build(cfg, of_texts), Corpus([str(i) for i in range(TEXTS)], [], 0)

    def answer(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        if len(asked) == signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(Stopped):
                while True:  # until the main thread has taken note of it
                    stop_if_asked()
                    time.sleep(0.01)
        return of_texts.embeddings(np.array(texts, np.int64))

    embeddings = TeacherEmbeddings(cfg, corpus, Teacher("made up", of_texts.teacher_width, "f", answer))
    data = text_batches(cfg, corpus, tokens, embeddings.train, 0, ask_for=embeddings.ask_for)
    (folder / "stage").mkdir(exist_ok=True, parents=True)
    return train(cfg, method, data, folder / "stage", lambda _: {})


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_training_ends_saved_and_goes_on_to_the_same_end(tmp_path: Path, prefetch: int) -> None:
    asked: list[str] = []
    with pytest.raises(Interrupted) as interrupted:
        stage(tmp_path / "stopped", asked, prefetch, signal_at=2 * WINDOW)
    assert len(asked) == 2 * WINDOW and 0 < interrupted.value.step <= WINDOW // (TEXTS // STEPS)
    resumed = stage(tmp_path / "stopped", asked, prefetch)
    assert len(asked) == len(set(asked)) == TEXTS  # what was answered is kept
    whole = stage(tmp_path / "whole", [], prefetch)
    jax.tree.map(np.testing.assert_array_equal, resumed.params, whole.params)
