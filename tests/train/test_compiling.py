"""Programs are compiled while the first batch waits for its answers: before they come, only those that are needed, errors told."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from simtde_setting import config, random_tokens, small_teacher, start

from jdistill.core import sharding
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.texts import text_batches
from jdistill.methods import simtde
from jdistill.train.calls import Call
from jdistill.train.compiling import compiling, expected_calls
from jdistill.train.dataset import Data
from jdistill.train.loop import train

TEXTS = 200


@pytest.mark.parametrize("steps_per_call", [1, 2])
def test_the_step_is_compiled_before_the_answers_are_there(tmp_path: Path, steps_per_call: int) -> None:
    """A teacher that answers once the step's program is there; nothing is compiled for the step after that."""
    cfg = config("", **{"student.layers": 1, "max_steps": 4, "batch_size": 8, "steps_per_call": steps_per_call})
    tokens = random_tokens(TEXTS)
    of_texts = start(small_teacher(), tokens)
    method, corpus = simtde.build(cfg, of_texts), Corpus([str(i) for i in range(TEXTS)], [], 0)
    compiled: list[str] = []
    step_is_there, waited = threading.Event(), []

    def listen(event: str, seconds: float, **about: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(threading.current_thread().name)
            if compiled[-1].startswith("compiling"):
                step_is_there.set()

    def answers(rows: np.ndarray) -> np.ndarray:
        waited.append(step_is_there.wait(120))
        return of_texts.embeddings(rows)

    data = text_batches(cfg, corpus, tokens, answers, 0, packed=True, in_their_place=of_texts.embeddings)
    (tmp_path / "stage").mkdir()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        params, _, steps, *_ = train(cfg, method, data, tmp_path / "stage", lambda params: {})
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert steps == 4 and all(waited) and compiled.count("compiling_0") == 1

    (tmp_path / "alone").mkdir()
    alone = replace(data, made_up=None)
    expected, *_ = train(cfg, method, alone, tmp_path / "alone", lambda params: {})
    jax.tree.map(np.testing.assert_array_equal, params, expected)


def padded_data(asked: list[np.ndarray]) -> Data:
    cfg = config("", **{"batch_size": 8, "max_steps": 40, "length_buckets": 4})
    tokens = random_tokens(TEXTS)

    def answers(rows: np.ndarray) -> np.ndarray:
        asked.append(rows)
        return np.zeros((len(rows), 8), np.float32)

    corpus = Corpus([str(i) for i in range(TEXTS)], [], 0)
    return text_batches(
        cfg, corpus, tokens, answers, 0, in_their_place=lambda rows: np.ones((len(rows), 8), np.float32)
    )


def test_a_call_of_each_shape_is_expected_the_next_one_first_and_nobody_is_asked() -> None:
    asked: list[np.ndarray] = []
    data, mesh = padded_data(asked), sharding.local_mesh()
    first = 3
    expected = expected_calls(data, first, 1, mesh)
    widths = [call.batch["ids"].shape[1] for call in expected]
    assert not asked and sorted(widths) == sorted(data.batches.shapes_used()) and len(widths) > 1
    next_one = data.batch(first)
    assert widths[0] == next_one["ids"].shape[1] and len(asked) == 1
    assert {name: (x.shape, x.dtype) for name, x in expected[0].batch.items()} == {
        name: (x.shape, x.dtype) for name, x in next_one.items()
    }
    assert expected_calls(replace(data, made_up=None), first, 1, mesh) == []


def test_after_the_block_nothing_more_is_begun_and_what_was_is_waited_for() -> None:
    begun, ended, go = [], [], threading.Event()

    def compile_for(call: Call) -> None:
        begun.append(call.steps)
        assert go.wait(60)
        ended.append(call.steps)

    with compiling([Call(1, {}), Call(2, {})], compile_for):
        while not begun:
            pass
        threading.Timer(0.2, go.set).start()
    assert begun == ended == [1]


def test_what_compiling_raised_is_raised_and_the_teachers_error_comes_first() -> None:
    def fail(call: Call) -> None:
        raise ValueError("out of memory")

    with pytest.raises(ValueError, match="out of memory"), compiling([Call(1, {})], fail):
        pass
    with pytest.raises(OSError, match="the teacher is gone"), compiling([Call(1, {})], fail):
        raise OSError("the teacher is gone")
