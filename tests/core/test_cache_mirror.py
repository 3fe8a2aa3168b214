"""A cache in a store: what one machine made another finds, and neither spoils the other's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import Counting
from fsspec.implementations.memory import MemoryFileSystem
from remote_setting import enter_machine, objects

from jdistill.core import cache_mirror, remote
from jdistill.core.cache_mirror import cache_root
from jdistill.core.fetched import path_here
from jdistill.core.remote import Store, StoreError
from jdistill.data.batching.kept_tokens import in_this_process, tokenize_once
from jdistill.data.text import kept_texts
from jdistill.data.text.kept_texts import keep_source
from jdistill.teachers import fills_beside
from jdistill.teachers.cache import AnswerCache


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    enter_machine(monkeypatch, tmp_path / "one")
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))
    return f"memory://{tmp_path.name}/cache"


TEXTS = [f"text {i}" for i in range(50)]


def ask(url: str, texts: list[str], width: int = 3) -> list[str]:
    """Texts that the teacher was asked, in their own order, on a machine that has just begun."""
    teacher, cache = Counting(), AnswerCache(cache_root(url) / "teacher" / "name", width)
    cache.fill(texts, teacher, chunk=20)
    np.testing.assert_array_equal(cache.gather(cache.rows(texts)), Counting()(texts))
    return sorted(teacher.asked, key=texts.index)


def test_another_machine_asks_what_nobody_asked(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(url, TEXTS[:30]) == TEXTS[:30]
    enter_machine(monkeypatch, tmp_path / "two")
    assert ask(url, TEXTS) == TEXTS[30:]
    enter_machine(monkeypatch, tmp_path / "one")
    assert ask(url, TEXTS) == []
    enter_machine(monkeypatch, tmp_path / "three")
    assert ask(url, TEXTS) == []


def test_two_machines_at_once_keep_the_answers_of_both(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = AnswerCache(cache_root(url) / "teacher" / "name", 3)
    enter_machine(monkeypatch, tmp_path / "two")
    assert ask(url, TEXTS[:10]) == TEXTS[:10]
    one_roots = {one.folder.parents[1]: url}
    monkeypatch.setattr(cache_mirror, "_roots", one_roots)
    one.fill(TEXTS[10:], Counting())
    enter_machine(monkeypatch, tmp_path / "three")
    assert ask(url, TEXTS) == []


def test_answers_of_another_shape_are_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(url, TEXTS[:3])
    enter_machine(monkeypatch, tmp_path / "two")
    with pytest.raises(Exception, match="another shape"):
        AnswerCache(cache_root(url) / "teacher" / "name", 4)


def test_two_side_by_side_share_the_questions(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second fills as the first is asked for the third time, and stores; the first finds it when its part is full."""
    monkeypatch.setattr(cache_mirror, "PART_BYTES", 12 * 10)
    monkeypatch.setattr(fills_beside, "LOOKING", 1e9)
    asked: list[str] = []

    class Meanwhile(Counting):
        def __call__(self, texts: list[str]) -> np.ndarray:
            if len(self.asked) == 4:
                here = dict(cache_mirror._roots)
                enter_machine(monkeypatch, tmp_path / "two")
                asked.extend(ask(url, TEXTS[10:]))
                monkeypatch.setattr(cache_mirror, "_roots", here)
            return super().__call__(texts)

    first, cache = Meanwhile(), AnswerCache(cache_root(url) / "teacher" / "name", 3)
    cache.fill(TEXTS, first, chunk=2)
    assert asked == TEXTS[10:] and set(first.asked[12:]) <= set(TEXTS[:10])  # 12 fill its part
    assert cache.lacks(TEXTS) == 0
    np.testing.assert_array_equal(cache.gather(cache.rows(TEXTS)), Counting()(TEXTS))


def test_machines_go_through_the_texts_in_orders_of_their_own(url: str, tmp_path: Path) -> None:
    orders = []
    for _ in range(2):
        teacher = Counting()
        cache_mirror._own_parts.clear()
        AnswerCache(cache_root(f"{url}-{len(orders)}") / "teacher" / "name", 3).fill(TEXTS, teacher, chunk=2)
        orders.append(teacher.asked)
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == sorted(TEXTS)


@pytest.mark.parametrize("lost", ["values", "sums", "keys"])
def test_a_part_that_is_half_there_or_damaged_is_asked_again(
    url: str, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(url, TEXTS)
    name, content = next((name, content) for name, content in objects(url).items() if name.endswith(lost))
    Store(url).write(name, content[: len(content) // 2])
    enter_machine(monkeypatch, tmp_path / "two")
    assert 0 < len(ask(url, TEXTS)) < 50


def test_a_long_part_is_followed_by_another(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_mirror, "PART_BYTES", 12 * 20)
    for end in (15, 30, 45):
        ask(url, TEXTS[:end])
    assert len([name for name in objects(url) if name.endswith(".keys")]) == 2


@pytest.mark.parametrize("end", [KeyboardInterrupt, None])
def test_what_was_answered_until_the_end_of_a_process_is_stored(
    url: str, end: type[BaseException] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it where a signal came; where the machine was taken away, the parts that were full."""
    monkeypatch.setattr(cache_mirror, "PART_BYTES", 12 * 10)
    monkeypatch.setattr(cache_mirror, "PARTS_OF_A_SIZE", 1000)
    left: list[dict[str, bytes]] = []

    class Ended(Counting):
        def __call__(self, texts: list[str]) -> np.ndarray:
            if len(self.asked) >= 35:
                left.append(dict(objects(url)))
                raise end or SystemExit
            return super().__call__(texts)

    teacher = Ended()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        AnswerCache(cache_root(url) / "teacher" / "name", 3).fill(TEXTS[:49], teacher, chunk=7)
    if end is None:  # as it was while the teacher answered
        Store(url).delete(sorted(objects(url).keys() - left[0].keys()))
    enter_machine(monkeypatch, tmp_path / "two")
    kept = teacher.asked[: 35 if end else 28]
    assert ask(url, TEXTS) == [text for text in TEXTS if text not in kept]


@pytest.mark.parametrize("writer", [0, 1, 7])
def test_every_writer_stores_full_parts(url: str, writer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_mirror, "PART_BYTES", 12 * 10)
    monkeypatch.setattr(cache_mirror, "PARTS_OF_A_SIZE", 1000)
    stored: list[int] = []  # texts with an answer in the store, whenever the teacher is asked

    class Watched(Counting):
        def __call__(self, texts: list[str]) -> np.ndarray:
            stored.append(sum(len(of) // 16 for name, of in objects(url).items() if name.endswith(".keys")))
            return super().__call__(texts)

    cache = AnswerCache(cache_root(url) / "teacher" / "name", 3, writer=writer)
    AnswerCache(cache.folder, 3)  # the first writer, which describes the cache
    cache.fill(TEXTS[:49], Watched(), chunk=7)
    assert stored == [0, 0, 14, 14, 28, 28, 42]


def test_parts_grow_with_their_number(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_mirror, "PART_BYTES", 10)
    monkeypatch.setattr(cache_mirror, "PARTS_OF_A_SIZE", 2, raising=False)
    cache, teacher = AnswerCache(cache_root(url) / "teacher" / "name", 3), Counting()
    for i in range(40):
        cache.fill([f"text {i}"], teacher)  # 12 bytes
    assert len(cache.parts) < 12 and len(cache) == len(teacher.asked) == 40
    sizes = [int(part.values.nbytes) for part in cache.parts]
    assert min(sizes) == 12 and 40 < max(sizes) <= 6 * 12


def test_tokens_are_made_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def tokenize(texts: list[str]) -> list[list[int]]:
        made.append(len(texts))
        return [[len(text), 7] for text in texts]

    tables = []
    for machine in ("one", "two"):
        enter_machine(monkeypatch, tmp_path / machine)
        tables.append(tokenize_once(TEXTS, in_this_process(tokenize), "name", cache_root(url) / "tokens"))
    assert made == [50]
    np.testing.assert_array_equal(tables[0].ids, tables[1].ids)
    for name in objects(url):  # a machine that was killed as it stored them
        if name.startswith("tokens/") and name.endswith(".json"):
            Store(url).delete([name])
    enter_machine(monkeypatch, tmp_path / "three")
    tokenize_once(TEXTS, in_this_process(tokenize), "name", cache_root(url) / "tokens")
    assert made == [50, 50]


def test_texts_of_a_url_are_read_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"memory://{tmp_path.name}/a.txt"
    Store(source).write("", b"one\ntwo\n")
    assert list(keep_source(source, "", "config.text", cache_root(url) / "texts").texts) == ["one", "two"]
    enter_machine(monkeypatch, tmp_path / "two")
    assert list(keep_source(source, "", "config.text", cache_root(url) / "texts").texts) == ["one", "two"]
    assert not (tmp_path / "two" / "jdistill" / "fetched").exists()  # the source itself was not needed
    Store(source).write("", b"one\nsix\n")
    enter_machine(monkeypatch, tmp_path / "three")
    assert list(keep_source(source, "", "config.text", cache_root(url) / "texts").texts) == ["one", "six"]


def test_a_store_that_refuses_is_told_before_anything_is_made(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    with pytest.raises(StoreError, match=f"--config.cache_dir={url}: the store refuses"):
        cache_root(url)


def test_a_store_that_fails_later_costs_no_run(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache_root(url)
    monkeypatch.setattr(MemoryFileSystem, "put_file", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("gone")))
    with caplog.at_level("WARNING", logger="jdistill"):
        assert ask(url, TEXTS) == TEXTS
    assert "could not be stored" in caplog.text


def test_a_local_cache_is_where_it_was(tmp_path: Path) -> None:
    assert cache_root(str(tmp_path)) == tmp_path
    AnswerCache(tmp_path / "teacher", 3).fill(TEXTS, Counting())
    assert (tmp_path / "teacher" / "part-00000.keys").is_file()


def test_the_home_folder_may_be_written_as_in_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_root("~/answers") == path_here("~/answers", "beir") == Path("/home/somebody/answers")


def test_a_fetching_of_texts_that_was_killed_is_ended(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"memory://{tmp_path.name}/a.txt"
    Store(source).write("", b"one\ntwo\n")
    first = keep_source(source, "", "config.text", cache_root(url) / "texts").folder
    enter_machine(monkeypatch, tmp_path / "two")
    half = cache_root(url) / "texts" / first.name
    half.mkdir(parents=True)
    (half / "about.json").write_text("{}")  # the seal comes last
    monkeypatch.setattr(kept_texts, "write_distinct", lambda *_: pytest.fail("the source was read anew"))
    assert list(keep_source(source, "", "config.text", cache_root(url) / "texts").texts) == ["one", "two"]
