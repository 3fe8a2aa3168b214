"""The teacher cache: found by content, grown by appending, whole after a kill at any moment."""

from __future__ import annotations

import json
import os
import resource
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import Counting
from hypothesis import given, settings

from jdistill.core.errors import UserError
from jdistill.teachers.cache import AnswerCache, DamagedRows, in_one_piece
from jdistill.teachers.fill import ask


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
    assert isinstance(cache.parts[0].values, np.memmap)


def test_a_changed_key_is_told_as_its_text_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts, others = [f"text {i}" for i in range(30)], [f"other {i}" for i in range(5)]
    AnswerCache(tmp_path, 3).fill(texts, Counting())
    AnswerCache(tmp_path, 3).fill(others, Counting())
    keys = max(tmp_path.glob("*.keys"), key=lambda path: path.stat().st_size)  # those of `texts`
    content = bytearray(keys.read_bytes())
    content[16 * 7 + 3] ^= 1
    keys.write_bytes(content)
    teacher, cache = Counting(), AnswerCache(tmp_path, 3)
    with caplog.at_level("WARNING", "jdistill"):
        assert cache.fill(texts, teacher) == 1 and teacher.asked == ["text 7"]
    assert "1 answers in" in caplog.text and "their keys too" in caplog.text
    assert (cache.rows(texts) >= 0).all() and (cache.rows(others) >= 0).all() and len(cache) == 35
    caplog.clear()
    AnswerCache(tmp_path, 3).fill([*texts, "one more"], teacher)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]  # the others' answers are whole


def test_keys_that_were_cut_off_are_told_as_their_texts_are_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f"text {i}" for i in range(30)]
    AnswerCache(tmp_path, 3).fill(texts, Counting())
    keys = next(tmp_path.glob("*.keys"))
    keys.write_bytes(keys.read_bytes()[: 16 * 20 + 5])
    with caplog.at_level("WARNING", "jdistill"):
        assert AnswerCache(tmp_path, 3).fill(texts, Counting()) == 10
    assert "10 answers are not there whole" in caplog.text


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


def test_two_fills_at_once_take_a_part_each(tmp_path: Path) -> None:
    def nested(texts: list[str]) -> np.ndarray:
        AnswerCache(tmp_path, 3).fill(["other"], Counting())  # while the first part is held
        return Counting()(texts)

    AnswerCache(tmp_path, 3).fill(["a"], nested)
    assert sorted(path.name for path in tmp_path.glob("*.keys")) == ["part-00000.keys", "part-00001.keys"]
    cache = AnswerCache(tmp_path, 3)
    np.testing.assert_array_equal(cache.gather(cache.rows(["a", "other"])), Counting()(["a", "other"]))


def test_a_cache_of_many_parts_is_opened_by_a_process_that_may_open_few_files(tmp_path: Path) -> None:
    for number in range(40):
        AnswerCache(tmp_path, 3, writer=number).fill([f"text {number}"], Counting())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = [os.dup(0) for _ in range(50)]
    for handle in room:
        os.close(handle)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(room) + 1, hard))
        cache = AnswerCache(tmp_path, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(cache) == 40


def test_what_has_not_grown_stays_open(tmp_path: Path) -> None:
    AnswerCache(tmp_path, 3, writer=1).fill(["of another"], Counting())
    cache = AnswerCache(tmp_path, 3)
    cache.fill(["one", "two"], Counting())
    own, other = cache.parts
    cache.fill(["three"], Counting())
    assert cache.parts[1] is other and len(cache.parts[0]) == 3 and len(own) == 2
    cache.strike(cache.rows(["of another"]))
    assert cache.rows(["of another", "three"]).tolist() == [-1, 2]
    other.values_path.with_suffix(".keys").unlink()
    AnswerCache(tmp_path, 3, writer=1).fill(["in its place"], Counting())  # as much, in another file
    again = cache.opened_again()
    assert again.parts[1] is not other and again.rows(["in its place"]).tolist() == [3]
    assert cache.parts[1] is other  # who reads it goes on


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("end, at", [("values", 4), ("values", -1), ("sums", 5), ("keys", 3)])
def test_a_changed_byte_is_never_an_answer(tmp_path: Path, end: str, at: int, caplog: pytest.LogCaptureFixture) -> None:
    texts = [f"text {i}" for i in range(9)]
    AnswerCache(tmp_path, 3).fill(texts, Counting())
    AnswerCache(tmp_path, 3, writer=1).fill(["of another part"], Counting())
    flip(tmp_path / f"part-00000.{end}", at)
    teacher = Counting()
    with caplog.at_level("INFO", logger="jdistill"):
        answers = ask(AnswerCache(tmp_path, 3), [*texts, "of another part"], in_one_piece(teacher), "answers")
        np.testing.assert_array_equal(answers.read(), Counting()([*texts, "of another part"]))
    assert len(teacher.asked) == 1 and "damaged" in caplog.text
    # And it is mended for good.
    teacher.asked.clear()
    again = AnswerCache(tmp_path, 3)
    assert again.fill(texts, teacher) == 0
    np.testing.assert_array_equal(again.gather(again.rows(texts)), Counting()(texts))


@pytest.mark.parametrize("end", ["values", "sums", "keys"])
@pytest.mark.parametrize("left", [0, 7, 20, None])
def test_a_file_cut_or_lost_is_asked_again(tmp_path: Path, end: str, left: int | None) -> None:
    texts = [f"text {i}" for i in range(9)]
    AnswerCache(tmp_path, 3).fill(texts, Counting())
    path = tmp_path / f"part-00000.{end}"
    path.unlink() if left is None else path.write_bytes(path.read_bytes()[:left])
    cache = AnswerCache(tmp_path, 3)
    cache.fill(texts, Counting())
    np.testing.assert_array_equal(cache.gather(cache.rows(texts)), Counting()(texts))


def test_answers_from_before_there_were_checksums_are_found(tmp_path: Path) -> None:
    AnswerCache(tmp_path, 3).fill(["a", "b"], Counting())
    (tmp_path / "part-00000.sums").unlink()
    (tmp_path / ".jdistill-abc_1234-part-00000.sums").touch()  # as a process that was killed in their writing left it
    teacher = Counting()
    cache = AnswerCache(tmp_path, 3)
    assert cache.fill(["a", "b"], teacher) == 0 and not list(tmp_path.glob(".jdistill-*"))
    np.testing.assert_array_equal(cache.gather(cache.rows(["b"])), Counting()(["b"]))
    flip(tmp_path / "part-00000.values", 1)
    with pytest.raises(DamagedRows, match="1 answers in"):
        AnswerCache(tmp_path, 3).gather(np.array([0, 1]))


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"width": 3}', "9" * 5000, "[" * 100_000])
def test_a_broken_about_file_is_written_again(tmp_path: Path, content: str) -> None:
    AnswerCache(tmp_path, 3).fill(["a"], Counting())
    (tmp_path / "about.json").write_text(content)
    assert len(AnswerCache(tmp_path, 3)) == 1
    assert json.loads((tmp_path / "about.json").read_text())["width"] == 3


def test_an_answer_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="answer to 'bad' is not finite"):
        AnswerCache(tmp_path, 1).fill(["good", "bad"], lambda texts: np.array([[1.0], [np.nan]]))
    assert len(AnswerCache(tmp_path, 1)) == 0


def test_another_width_is_refused(tmp_path: Path) -> None:
    AnswerCache(tmp_path, 3)
    with pytest.raises(UserError, match="answers of another shape"):
        AnswerCache(tmp_path, 4)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(st.dictionaries(st.sampled_from(["values", "sums", "keys"]), st.integers(0, 160), min_size=1))
def test_a_cache_cut_at_any_byte_asks_again_for_what_it_lost_and_no_more(left: dict[str, int]) -> None:
    texts = [f"text {i}" for i in range(10)]
    row_bytes = {"values": 12, "sums": 4, "keys": 16}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        AnswerCache(folder, 3).fill(texts, Counting())
        for end, size in left.items():
            path = folder / f"part-00000.{end}"
            path.write_bytes(path.read_bytes()[:size])
        whole_rows = min([10, *(size // row_bytes[end] for end, size in left.items())])
        teacher = Counting()
        answers = ask(AnswerCache(folder, 3), texts, in_one_piece(teacher), "answers")
        np.testing.assert_array_equal(answers.read(), Counting()(texts))
        assert teacher.asked == texts[whole_rows:]
        assert AnswerCache(folder, 3).fill(texts, teacher) == 0
