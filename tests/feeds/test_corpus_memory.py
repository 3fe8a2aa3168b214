"""A corpus does not live in memory: what is allocated from its file to its batches is bounded by blocks, whatever its length."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ml_collections import ConfigDict

from jdistill.core import sorted_keys
from jdistill.data.batching import kept_tokens, order
from jdistill.data.batching.kept_tokens import in_this_process, tokenize_once
from jdistill.data.text import distinct, kept_split, stored_texts, text_file
from jdistill.data.text.readers import BLOCK_BYTES
from jdistill.data.text.stored_texts import JoinedTexts, PromptedTexts, StoredTexts
from jdistill.data.text.text_file import TextFile
from jdistill.feeds.corpus import Corpus, read_corpus
from jdistill.feeds.teacher_embeddings import TeacherEmbeddings
from jdistill.feeds.texts import text_batches
from jdistill.feeds.tokens import cache_folder
from jdistill.teachers import cache as caches
from jdistill.teachers import key_index, missing
from jdistill.teachers.cache import CHUNK
from jdistill.teachers.embeddings import Teacher
from jdistill.train.dataset import Data

COUNT, CHARACTERS = 60_000, 400
BLOCK, BUCKET, SHARD = 1 << 11, 1 << 12, 2000
HELD = CHARACTERS + 60  # bytes of a text as a string
# What is held at once: the reader's block and its lines, texts on their way to the file and from it, a fill's chunk, shards on their way with their
# tokens as lists, buckets of keys with their copies.
BLOCKS = (
    3 * BLOCK_BYTES
    + 6 * BLOCK * HELD
    + 2 * CHUNK * HELD
    + 3 * SHARD * (HELD + 56 + 8 * CHARACTERS // 50)
    + 10 * BUCKET * 16
)
BOUND = BLOCKS + 2 * COUNT  # a byte a text for what comes again, and one for what is asked


@pytest.mark.parametrize("of", ["file", "teacher", "roles"])
def test_what_is_allocated_does_not_grow_with_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """Of a text file, of the texts that a teacher brings, and of two files in two roles."""
    strings = COUNT * (CHARACTERS + 49)  # bytes of the texts, were they in memory
    assert strings > 1.5 * BOUND
    for module, names, value in (
        (text_file, ["BATCH_TEXTS"], BLOCK),
        (stored_texts, ["BLOCK"], BLOCK),
        (kept_split, ["BLOCK_TEXTS"], BLOCK),
        (distinct, ["HELD"], BLOCK),
        (sorted_keys, ["BUCKET_ROWS"], BUCKET),
        (distinct, ["BUCKET_ROWS"], BUCKET),
        (key_index, ["KEPT_ABOVE"], BUCKET),
        (caches, ["BUCKET_ROWS", "LOOKED_UP"], BUCKET),
        (missing, ["BUCKET_ROWS", "LOOKED_UP"], BUCKET),
        (order, ["LARGE", "WINDOW"], BUCKET),
        (kept_tokens, ["LARGE"], BUCKET),
    ):
        for name in names:
            monkeypatch.setattr(module, name, value)
    for attempt in ("first", "again"):  # a table of the interpreter's own may grow meanwhile, but not twice
        (folder := tmp_path / attempt).mkdir()
        (folder / "warm.txt").write_text("".join(f"{i}\n" for i in range(2000)))
        first_batches(folder, "warm.txt", 10, of)  # modules are loaded
        with open(folder / "text.txt", "w") as file:
            file.writelines(f"{i % (COUNT - 1000)} ".ljust(CHARACTERS, "a") + "\n" for i in range(COUNT))
        corpus, data, allocated = allocated_by(folder, of)
        if max(allocated) < BOUND:
            break
    assert max(allocated) < BOUND
    last = data.batches.steps_per_epoch - 1
    expected = [[len(corpus.train[i]), float(corpus.train[i].split()[0])] for i in data.batches.at(last)[1].tolist()]
    assert len(corpus.train) == COUNT - 1000 - 50 + (2000 if of == "roles" else 0)
    np.testing.assert_array_equal(data.batch(last)["teacher"].reshape(-1, 2), np.array(expected, np.float32))


def allocated_by(folder: Path, of: str) -> tuple[Corpus, Data, list[int]]:
    """What first_batches gives of text.txt, as it is made and as it is found again, and the most bytes that each of Python and Arrow held."""
    allocated: list[int] = []
    tracemalloc.start()
    try:
        for _ in range(2):
            tracemalloc.reset_peak()
            before, arrow = tracemalloc.get_traced_memory()[0], pa.total_allocated_bytes()
            corpus, data = first_batches(folder, "text.txt", CHARACTERS // 50, of)
            allocated += [tracemalloc.get_traced_memory()[1] - before, pa.total_allocated_bytes() - arrow]
    finally:
        tracemalloc.stop()
    return corpus, data, allocated


def test_what_is_asked_of_a_part_of_the_corpus_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that reads half of an epoch."""
    monkeypatch.setattr(missing, "LOOKED_UP", BUCKET)
    monkeypatch.setattr(caches, "LOOKED_UP", BUCKET)
    (tmp_path / "warm.txt").write_text("".join(f"{i}\n" for i in range(2000)))
    corpus_and_embeddings(tmp_path, "warm.txt", "file")[1].ask_for(np.arange(100))  # modules are loaded
    with open(tmp_path / "text.txt", "w") as file:
        file.writelines(f"{i} ".ljust(CHARACTERS, "a") + "\n" for i in range(COUNT))
    corpus, embeddings, _ = corpus_and_embeddings(tmp_path, "text.txt", "file")
    rows = np.arange(0, len(corpus.train), 2)
    tracemalloc.start()
    try:
        embeddings.ask_for(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (
        peak < 4 * CHUNK * HELD + 100 * COUNT < len(rows) * HELD
    )  # a chunk and its texts, and what is kept of each key and row
    np.testing.assert_array_equal(
        embeddings.train(rows[-3:])[:, 1], [float(corpus.train[i].split()[0]) for i in rows[-3:]]
    )


def test_views_of_a_corpus_share_what_is_left_out(tmp_path: Path) -> None:
    """Of one that has texts of a source before, a fill has a view for every chunk."""
    with text_file.TextWriter(tmp_path / "texts.arrow") as file:
        for i in range(40_000):
            file.add(str(i))
    corpus = StoredTexts(TextFile(tmp_path / "texts.arrow"), np.empty(0, sorted_keys.KEY), np.arange(0, 40_000, 2))
    tracemalloc.start()
    try:
        views = [corpus[start : start + 100] for start in range(0, len(corpus), 100)]
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()
    assert views[-1][50:52] == ["39901", "39903"] and views[0].take(np.array([7])) == ["15"]


def lines_of(path: Path) -> Iterator[str]:
    with open(path) as file:
        yield from (line.rstrip("\n") for line in file)


def corpus_and_embeddings(folder: Path, name: str, of: str) -> tuple[Corpus, TeacherEmbeddings, ConfigDict]:
    """A corpus, what its teacher answers, and their config."""
    several = f"{folder / name}@document,{folder / 'warm.txt'}*2" if name != "warm.txt" else f"{folder / name}@query"
    names = {"file": str(folder / name), "teacher": "", "roles": several}
    cfg = ConfigDict(
        {"text": names[of], "text_column": "", "text_role": "", "pairs": "", "cache_dir": str(folder / "cache"), "split_sentences": False,
         "held_out": 50, "max_texts": 0, "augment": "", "senteval": "", "beir": "", "dev_pairs": "", "dev_retrieval": "", "batch_size": 64, "seed": 0,
         "chunk_size": 0, "length_multiple": 1, "student": {"dropout": 0.0},
         "max_steps": 10, "answers_ahead": 0}
    )  # fmt: skip
    own = lines_of(folder / name) if of == "teacher" else None

    def answer(texts: list[str]) -> np.ndarray:
        return np.array([[len(text), float(text.split()[0])] for text in texts])

    in_role = Teacher("t", 2, f"in role {name}", answer)
    teacher = Teacher("t", 2, f"t {name}", answer, texts=own, roles=lambda role: in_role)
    corpus = read_corpus(cfg, teacher, ["never"])
    return corpus, TeacherEmbeddings(cfg, corpus, teacher), cfg


def first_batches(folder: Path, name: str, tokens_each: int, of: str) -> tuple[Corpus, Data]:
    """A corpus and its packed batches, the last of an epoch made."""
    corpus, embeddings, cfg = corpus_and_embeddings(folder, name, of)
    ranges = corpus.role_rows()
    texts = (
        corpus.train if len(ranges) == 1 else JoinedTexts([PromptedTexts(corpus.train[i:j], "p") for _, i, j in ranges])
    )
    tokens = tokenize_once(
        texts,
        in_this_process(lambda texts: [[7] * tokens_each for _ in texts]),
        "t",
        cache_folder(cfg) / "tokens",
        chunk=SHARD,
    )
    data = text_batches(cfg, corpus, tokens, embeddings.train, 0, packed=True)
    data.batch(data.batches.steps_per_epoch - 1)
    return corpus, data
