"""Two fills of one cache at a time: each text is asked once but for the chunks in hand, and all find all answers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from conftest import Counting

from jdistill.teachers import fills_beside
from jdistill.teachers.cache import AnswerCache

TEXTS, CHUNK = [f"text {i}" for i in range(200)], 8


@pytest.fixture(autouse=True)
def looks_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fills_beside, "LOOKING", 1e9)


def check_whole(folder: Path) -> None:
    cache = AnswerCache(folder, 3)
    assert cache.lacks(TEXTS) == 0
    np.testing.assert_array_equal(cache.gather(cache.rows(TEXTS)), Counting()(TEXTS))


class Meanwhile(Counting):
    """Answers, and has something done as it is asked for the first time."""

    def __init__(self, done: Callable[[], object]):
        super().__init__()
        self._done = done

    def __call__(self, texts: list[str]) -> np.ndarray:
        if not self.asked:
            self._done()
        return super().__call__(texts)


def test_what_another_answers_meanwhile_is_not_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = Counting()
    first = Meanwhile(lambda: AnswerCache(tmp_path, 3).fill(TEXTS[50:150], other, CHUNK))
    with caplog.at_level("INFO", "jdistill"):
        assert AnswerCache(tmp_path, 3).fill(TEXTS, first, CHUNK) == 200  # had no answer as it began
    assert first.asked == TEXTS[:50] + TEXTS[150:] and sorted(other.asked) == sorted(TEXTS[50:150])
    assert caplog.messages[-1] == f"teacher answers: 100 asked, 100 found in {tmp_path}"
    check_whole(tmp_path)


def test_of_another_that_has_all_nothing_more_is_asked(tmp_path: Path) -> None:
    first = Meanwhile(lambda: AnswerCache(tmp_path, 3).fill(TEXTS, Counting(), CHUNK))
    cache = AnswerCache(tmp_path, 3)
    assert cache.fill(TEXTS, first, CHUNK) == 200 and first.asked == TEXTS[:CHUNK]
    assert cache.lacks(TEXTS) == 0
    check_whole(tmp_path)


def test_what_was_there_before_is_not_taken_for_news(tmp_path: Path) -> None:
    AnswerCache(tmp_path, 3, writer=1).fill(TEXTS[:100], Counting(), CHUNK)
    teacher = Meanwhile(lambda: AnswerCache(tmp_path, 3).fill(["of another corpus"], Counting()))
    assert AnswerCache(tmp_path, 3).fill(TEXTS, teacher, CHUNK) == 100 and teacher.asked == TEXTS[100:]
    check_whole(tmp_path)


def test_what_came_to_its_own_part_while_that_was_anothers_is_not_asked(tmp_path: Path) -> None:
    late = AnswerCache(tmp_path, 3)  # opened before the other fill, which has ended as it begins its own
    AnswerCache(tmp_path, 3).fill(TEXTS[20:], Counting(), CHUNK)
    teacher = Counting()
    assert late.fill(TEXTS, teacher, CHUNK) == 200 and teacher.asked == TEXTS[:20]
    check_whole(tmp_path)


@pytest.mark.parametrize("end", ["values", "sums"])
def test_a_key_whose_answer_is_not_there_whole_is_asked(tmp_path: Path, end: str) -> None:
    def half_of_another() -> None:
        AnswerCache(tmp_path, 3).fill(TEXTS[100:], Counting(), CHUNK)
        file = tmp_path / f"part-00001.{end}"
        os.truncate(file, file.stat().st_size // 2)

    AnswerCache(tmp_path, 3).fill(TEXTS, first := Meanwhile(half_of_another), CHUNK)
    assert len(first.asked) == len(set(first.asked)) == 150
    check_whole(tmp_path)


def test_of_many_the_last_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fills_beside, "REMEMBERED", 30)
    other = Counting()
    first = Meanwhile(lambda: AnswerCache(tmp_path, 3).fill(TEXTS, other, CHUNK))
    AnswerCache(tmp_path, 3).fill(TEXTS, first, CHUNK)
    assert len(first.asked) == 200 - len(set(other.asked[-30:]) - set(TEXTS[:CHUNK]))
    check_whole(tmp_path)


@pytest.mark.parametrize("fills", [2, 3])
def test_in_step_they_share_the_texts(tmp_path: Path, fills: int) -> None:
    """All ask at the same moments, as do seeds that were begun together: without orders of their own each would ask for everything."""
    together = threading.Barrier(fills)
    teachers = [Counting() for _ in range(fills)]

    def fill(teacher: Counting) -> None:
        def answer(texts: list[str]) -> np.ndarray:
            with suppress(threading.BrokenBarrierError):  # once another has nothing more to ask
                together.wait(60)
            return teacher(texts)

        AnswerCache(tmp_path, 3).fill(TEXTS, answer, CHUNK)
        together.abort()

    threads = [threading.Thread(target=fill, args=(teacher,)) for teacher in teachers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    asked = [len(teacher.asked) for teacher in teachers]
    assert sum(asked) <= 1.4 * len(TEXTS) and min(asked) > 0, asked
    check_whole(tmp_path)


PROCESS = """
import sys, time
from pathlib import Path
import numpy as np
from jdistill.teachers.cache import AnswerCache

def answer(texts):
    time.sleep(0.05)
    return np.array([[len(text), 1.0, 2.0] for text in texts])

cache = AnswerCache(Path(sys.argv[1]), 3)
print("open", flush=True)
sys.stdin.readline()
asked = []
cache.fill([f"text {i}" for i in range(200)], lambda texts: (asked.extend(texts), answer(texts))[1], 8)
print(len(asked), flush=True)
assert cache.lacks([f"text {i}" for i in range(200)]) == 0
"""


def test_two_processes_share_the_texts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    pair = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    pipes = [(process.stdin, process.stdout) for process in pair]
    assert [out.readline() for _, out in pipes if out] == ["open\n"] * 2
    for into, _ in pipes:
        assert into is not None
        into.write("\n")
        into.flush()
    asked = [int(process.communicate(timeout=120)[0]) for process in pair]
    assert not any(process.returncode for process in pair) and sum(asked) <= 1.4 * 200, asked
