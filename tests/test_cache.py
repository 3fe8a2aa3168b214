"""The teacher cache: found by content, grown by appending, whole after a kill at any moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jdistill.cache import AnswerCache
from jdistill.errors import UserError


class Counting:
    """A teacher that counts the texts it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.asked += texts
        return np.array([[len(text), sum(map(ord, text)), 1.0] for text in texts], np.float32)


def test_an_answer_is_found_again_whatever_the_order_batch_or_corpus(tmp_path: Path) -> None:
    teacher = Counting()
    texts = [f"text {i}" for i in range(50)]
    AnswerCache(tmp_path, 3).fill(texts, teacher, chunk=7)
    assert teacher.asked == texts
    cache = AnswerCache(tmp_path, 3)
    assert cache.fill(texts[::-1] + ["new one", "text 3", "new one"], teacher, chunk=100) == 1
    assert teacher.asked[50:] == ["new one"]
    mixed = ["text 9", "new one", "text 0"]
    np.testing.assert_array_equal(cache.gather(cache.rows(mixed)), Counting()(mixed))
    assert cache.rows(["never asked"]).tolist() == [-1]
    assert isinstance(cache.parts[0], np.memmap)


def test_a_killed_fill_loses_at_most_its_chunk(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(40)]

    class Killed(Exception): ...

    def dies_after(count: int):
        seen: list[str] = []

        def answer(batch: list[str]) -> np.ndarray:
            if len(seen) + len(batch) > count:
                raise Killed
            seen.extend(batch)
            return Counting()(batch)

        return answer

    with pytest.raises(Killed):
        AnswerCache(tmp_path, 3).fill(texts, dies_after(25), chunk=8)
    assert len(AnswerCache(tmp_path, 3)) == 24
    # Torn writes behind the last whole row: values without keys, half a row, half a key.
    with open(tmp_path / "part-00000.values", "ab") as values:
        values.write(b"x" * 17)
    with open(tmp_path / "part-00000.keys", "ab") as keys:
        keys.write(b"y" * 5)
    teacher = Counting()
    cache = AnswerCache(tmp_path, 3)
    assert cache.fill(texts, teacher) == 16
    np.testing.assert_array_equal(cache.gather(cache.rows(texts)), Counting()(texts))


def test_parts_of_several_processes_are_read_together(tmp_path: Path) -> None:
    AnswerCache(tmp_path, 3, writer=0).fill(["a", "b"], Counting())
    AnswerCache(tmp_path, 3, writer=1).fill(["c"], Counting())
    cache = AnswerCache(tmp_path, 3)
    np.testing.assert_array_equal(cache.gather(cache.rows(["c", "a", "b"])), Counting()(["c", "a", "b"]))


def test_two_fills_of_one_part_at_once_are_refused(tmp_path: Path) -> None:
    def nested(texts: list[str]) -> np.ndarray:
        AnswerCache(tmp_path, 3).fill(["other"], Counting())
        return Counting()(texts)

    with pytest.raises(UserError, match="another process is filling"):
        AnswerCache(tmp_path, 3).fill(["a"], nested)


def test_an_answer_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="answer to 'bad' is not finite"):
        AnswerCache(tmp_path, 1).fill(["good", "bad"], lambda texts: np.array([[1.0], [np.nan]]))
    assert len(AnswerCache(tmp_path, 1)) == 0


def test_another_width_is_refused(tmp_path: Path) -> None:
    AnswerCache(tmp_path, 3)
    with pytest.raises(UserError, match="answers of another shape"):
        AnswerCache(tmp_path, 4)
