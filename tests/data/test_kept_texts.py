"""A corpus kept on disk: what reading it into memory gives, made once, never half, and anew where its source has changed."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from naive import remove_evaluation_texts

from jdistill.core import files, sorted_keys
from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.sorted_keys import keys_of_texts
from jdistill.data.text import distinct, kept_split, kept_texts, stored_texts, text_file
from jdistill.data.text.holdout import split_held_out
from jdistill.data.text.kept_split import split_kept
from jdistill.data.text.kept_texts import keep_sentences, keep_source, keep_texts
from jdistill.data.text.sentences import sentences_of
from jdistill.data.text.sources import read_texts
from jdistill.data.text.stored_texts import JoinedTexts, put_together, take_texts

KEY = "config.text"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, batches and buckets of a few texts."""
    for module, name, value in (
        (text_file, "BATCH_TEXTS", 5),
        (text_file, "FEW_ROWS", 2),
        (stored_texts, "BLOCK", 4),
        (distinct, "HELD", 3),
        (distinct, "BUCKET_ROWS", 8),
        (sorted_keys, "BUCKET_ROWS", 8),
        (kept_split, "BLOCK_TEXTS", 4),
    ):
        monkeypatch.setattr(module, name, value)


words = st.sampled_from(["a", "b", "A dog 's bed .", "a dog's bed", "Straße", "STRASSE", "…", "two words"])
rows = st.one_of(
    words,
    st.integers(0, 12).map(lambda i: f" text {i} "),
    st.sampled_from(["", "   ", "nul \0 within", "x" * 100_001, "x" * 400_001, "\ufeff"]),
)


@settings(derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(rows.map(str.encode) | st.just(b"bad \xff"), max_size=30), min_size=1, max_size=3),
    st.lists(words, max_size=3),
    st.integers(0, 6),
    st.integers(0, 9),
)
def test_kept_is_what_reading_into_memory_gives(
    tmp_path_factory: pytest.TempPathFactory,
    caplog: pytest.LogCaptureFixture,
    small: None,
    sources: list[list[bytes]],
    evaluation: list[str],
    held_out: int,
    max_texts: int,
) -> None:
    folder = tmp_path_factory.mktemp("source")
    for number, lines in enumerate(sources):
        (folder / f"{number}.txt").write_bytes(b"".join(line + b"\n" for line in lines))
    cache = tmp_path_factory.mktemp("cache")
    try:
        caplog.clear()
        naive = read_texts(str(folder), key=KEY)
    except UserError as error:
        with pytest.raises(UserError) as refused:
            keep_source(str(folder), "", KEY, cache)
        assert str(refused.value) == str(error) and not [path for path in cache.iterdir() if path.is_dir()]
        return
    told = caplog.messages
    for _ in range(2):  # as it is made, and as it is found again
        caplog.clear()
        kept = keep_source(str(folder), "", KEY, cache)
        assert caplog.messages == told
        assert list(kept.texts) == naive.texts and kept.texts == naive.texts
        assert list(kept.skipped.counts.items()) == list(naive.skipped.items())
        texts, removed = remove_evaluation_texts(naive.texts, evaluation)
        train, apart = split_held_out(texts, min(held_out, len(texts) // 10), seed=0)
        train = train[:max_texts] if max_texts else train
        mine = split_kept(kept, evaluation, held_out, max_texts, seed=0)
        assert (list(mine[0]), mine[1], mine[2]) == (train, apart, removed)
        assert mine[0].fingerprint == digest(train) == digest(mine[0])
        assert (mine[0].text_keys() == keys_of_texts(train)).all()


def corpus_of(tmp_path: Path, texts: list[str]) -> stored_texts.StoredTexts:
    (tmp_path / "a.txt").write_text("\n".join(texts))
    return keep_source(str(tmp_path / "a.txt"), "", KEY, tmp_path / "cache").texts


def test_long_texts_are_a_sequence(tmp_path: Path, small: None) -> None:
    texts = [f"text {i}" for i in range(23)]
    kept = corpus_of(tmp_path, texts)
    left = kept.without(np.array([0, 1, 7, 22]), 15, None)
    without = [text for i, text in enumerate(texts) if i not in (0, 1, 7, 22)][:15]
    for mine, theirs in (
        (kept, texts),
        (left, without),
        (kept + ["more", "and"], [*texts, "more", "and"]),
        (["first"] + left, ["first", *without]),
        (put_together(left, kept), without + texts),
        (JoinedTexts([left, kept + ["x"]]), [*without, *texts, "x"]),
    ):
        assert len(mine) == len(theirs) and list(mine) == theirs and mine == theirs and mine != theirs[:-1]
        for at in (slice(3), slice(2, 9), slice(5, None), slice(9, 2), slice(None, None, 3), slice(None, None, -1)):
            assert list(mine[at]) == theirs[at], at
        assert list(mine[2:14][3:]) == theirs[2:14][3:] and mine[-1] == theirs[-1] and "text 9" in mine
        order = random.Random(0).choices(range(len(theirs)), k=50)
        assert take_texts(mine, np.array(order)) == [theirs[i] for i in order] == take_texts(theirs, np.array(order))
        assert (mine.text_keys(np.array(order)) == keys_of_texts(theirs[i] for i in order)).all()
        assert (keys_of_texts(mine[2:7]) == keys_of_texts(theirs[2:7])).all()
        assert not mine.take(np.empty(0, np.int64)) and "texts: 'text" in repr(mine[3:])
        with pytest.raises(IndexError, match="of"):
            mine[len(theirs)]
    assert put_together(["a"], ["b"]) == ["a", "b"]


def test_a_slice_of_several_sources_that_is_one_of_them_keeps_its_fingerprint(tmp_path: Path) -> None:
    whole = corpus_of(tmp_path, [f"text {i}" for i in range(9)])
    first, second = (whole.without(np.array(gone), 5, name) for gone, name in (([0], "a"), ([1, 2], "b")))
    joined = JoinedTexts([first, second, ["in memory"]])
    assert joined[:5] is first and joined[5:10] is second and joined[5:10].fingerprint == "b"
    assert joined[:10].fingerprint == JoinedTexts([first, second]).fingerprint == digest(["a", "b"])
    assert joined[6:10].fingerprint is None and list(joined[6:10]) == list(second)[1:]
    assert list(joined[3:6]) == [*list(first)[3:], second[0]] and not list(joined[5:5]) and not list(joined[4:2])
    assert list(joined[10:]) == ["in memory"] and len(joined[10:] + first) == 6


def test_a_source_that_changed_is_told_and_read_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jdistill")
    source, cache = tmp_path / "a.txt", tmp_path / "cache"
    source.write_text("one\ntwo\n")
    before = keep_source(str(source), "", KEY, cache)
    made = (before.folder / distinct.TEXTS_FILE).stat().st_mtime_ns
    again = keep_source(str(source), "", KEY, cache)
    assert (again.folder / distinct.TEXTS_FILE).stat().st_mtime_ns == made and "changed" not in caplog.text
    times = source.stat()
    source.write_text("one\nsix\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))  # as `cp -p` leaves it
    after = keep_source(str(source), "", KEY, cache)
    assert list(after.texts) == ["one", "six"] and "a.txt has changed since its texts were kept" in caplog.text
    assert list(before.texts) == ["one", "two"]  # who reads the old one goes on
    assert after.content != before.content
    other = keep_source(str(source), "text", KEY, cache)
    assert other.folder != after.folder


def test_texts_that_are_made_again_alike_stay_in_their_files(tmp_path: Path) -> None:
    def kept(texts: list[str], identity: list[str] | None = None) -> tuple[kept_texts.KeptTexts, list[int]]:
        made = keep_texts(texts, "made up", "name", identity, tmp_path)
        assert list(made.texts) == list(dict.fromkeys(texts)) and not files.damage(made.folder, "texts")
        return made, [(made.folder / name).stat().st_ino for name in (distinct.TEXTS_FILE, distinct.KEYS_FILE)]

    before, of_before = kept(["one", "two"])
    assert kept(["one", "two", "one"])[1] == of_before  # which another process may have mapped
    assert kept(["one", "six"])[1][0] != of_before[0] and list(before.texts) == ["one", "two"]
    kept(["one", "ten"], ["a"])  # what was made without an identity is of none
    assert list(keep_texts(iter(()), "made up", "name", ["a"], tmp_path).texts) == ["one", "ten"]
    kept(["one", "two"], ["b"])
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", [distinct.TEXTS_FILE, distinct.KEYS_FILE, kept_texts.ABOUT_FILE, "jdistill.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damaged_files_are_made_anew(tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jdistill")
    texts = [f"text {i}" for i in range(200)]
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\n".join(texts).encode()))
    kept = keep_source(str(tmp_path / "a.txt.gz"), "", KEY, tmp_path / "cache")
    path = kept.folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.unlink() if damage == "delete" else path.write_bytes({"flip": content, "cut": content[:20]}[damage])
    again = keep_source(str(tmp_path / "a.txt.gz"), "", KEY, tmp_path / "cache")
    assert list(again.texts) == texts and (again.texts.text_keys() == keys_of_texts(texts)).all()
    assert "read anew" in caplog.text
    assert not list((tmp_path / "cache").glob(".*"))


def test_a_damaged_split_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(f"text {i}" for i in range(100)))
    kept = keep_source(str(tmp_path / "a.txt"), "", KEY, tmp_path / "cache")
    train, held_out, _ = split_kept(kept, [], 5, 0, 0)
    (path,) = (tmp_path / "cache").glob("*.npz")
    for content in (b"", path.read_bytes()[:-30], path.read_bytes().replace(b"\x01", b"\x02")):
        path.write_bytes(content)
        again = split_kept(kept, [], 5, 0, 0)
        assert again[0] == train and again[1] == held_out and len(held_out) == 5


def test_a_killed_reading_is_never_taken_for_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(f"text {i}" for i in range(100)))

    class Killed(BaseException): ...

    def dies(*_: object, **__: object) -> None:
        raise Killed

    for place, name in ((sorted_keys.SortedKeys, "repeats"), (files, "seal")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, name, dies)
            patch.setattr("shutil.rmtree", lambda *_, **__: None)  # a killed process takes nothing away
            with pytest.raises(Killed):
                keep_source(str(tmp_path / "a.txt"), "", KEY, tmp_path / "cache")
            assert list((tmp_path / "cache").glob(".jdistill-new-*"))
    assert len(keep_source(str(tmp_path / "a.txt"), "", KEY, tmp_path / "cache").texts) == 100
    assert not list((tmp_path / "cache").glob(".*"))


def test_sentences_of_kept_documents_are_those_in_memory(tmp_path: Path, small: None) -> None:
    pytest.importorskip("spacy")
    documents = ["One sentence. And another! One sentence.", "And another! A third?", "No end"]
    (tmp_path / "a.txt").write_text("\n".join(documents))
    kept = keep_source(str(tmp_path / "a.txt"), "", KEY, tmp_path / "cache")
    for _ in range(2):
        assert list(keep_sentences(kept).texts) == [text for text in dict.fromkeys(sentences_of(documents)) if text]
