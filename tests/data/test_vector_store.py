"""vectors:FOLDER: found by text, in any order, from any files; damage, other widths and unfinished folders are refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jdistill.core.errors import UserError
from jdistill.data.text.text_stream import StreamedText
from jdistill.data.text.vector_folder import EmbedSettings, claim_folder, seal_folder
from jdistill.data.text.vector_parts import GROUP_ROWS, part_fault, split_parts, write_part
from jdistill.data.text.vector_store import open_store
from jdistill.data.text.vectors import read_vectors
from jdistill.teachers.embeddings import open_teacher

RNG = np.random.default_rng(0)
TEXTS = [f"text {i} ü" for i in range(5000)]
VECTORS = RNG.normal(size=(5000, 8)).astype(np.float32)
SETTINGS = EmbedSettings("MODEL", "f" * 32, "document", "", "float32", 64, 8, 3000, True)


def made(folder: Path, settings: EmbedSettings = SETTINGS, sealed: bool = True) -> Path:
    """A folder as jdistill.embed makes it, of two parts."""
    claim_folder(folder, settings, "a.txt")
    stream = [StreamedText(text, f"id{i}") for i, text in enumerate(TEXTS)]
    start = 0
    sizes = []
    for part in split_parts(stream, settings.part_size):
        of_part = VECTORS[start : start + len(part.texts)]
        pieces = [of_part[at : at + GROUP_ROWS] for at in range(0, len(of_part), GROUP_ROWS)]
        write_part(folder, part, pieces, settings.width, settings.with_text, settings.made_by)
        start += len(part.texts)
        sizes.append(len(part.texts))
    if sealed:
        seal_folder(folder, sizes)
    return folder


def test_a_part_is_what_other_tools_read(tmp_path: Path) -> None:
    table = pq.read_table(made(tmp_path / "out") / "part-00001.parquet")
    assert table.schema.names == ["id", "text", "vector"] and len(table) == 2000
    assert table.schema.field("vector").type == pa.list_(pa.field("element", pa.float32(), nullable=False), 8)
    assert table["id"].to_pylist() == [f"id{i}" for i in range(3000, 5000)]
    np.testing.assert_array_equal(np.stack(table["vector"].to_pylist()).astype(np.float32), VECTORS[3000:])
    texts, vectors = read_vectors(tmp_path / "out" / "part-00000.parquet")  # each is a vectors:FILE by itself too
    assert texts == TEXTS[:3000]
    np.testing.assert_array_equal(vectors, VECTORS[:3000])


def test_any_rows_are_found_in_any_order(tmp_path: Path) -> None:
    store = open_store(made(tmp_path / "out"))
    assert len(store) == 5000 and store.width == 8
    order = RNG.permutation(5000)
    np.testing.assert_array_equal(store.rows_of([TEXTS[i] for i in order]), order)
    np.testing.assert_array_equal(store.vectors(order), VECTORS[order])
    np.testing.assert_array_equal(store.vectors(np.array([7, 7, 4999, 0])), VECTORS[[7, 7, 4999, 0]])
    assert store.vectors(np.array([], np.int64)).shape == (0, 8)
    assert store.rows_of(["nowhere", TEXTS[1]]).tolist() == [-1, 1]
    np.testing.assert_array_equal(np.concatenate(list(store.pieces())), VECTORS)
    assert store.texts is not None and list(store.texts) == TEXTS and len(store.texts) == 5000
    assert TEXTS[3] in store.texts and "nowhere" not in store.texts


def test_a_folder_teaches_as_a_file_does(tmp_path: Path) -> None:
    folder = made(tmp_path / "out")
    texts = pa.array(TEXTS)
    pq.write_table(pa.table({"text": texts, "vector": pa.array(list(VECTORS))}), tmp_path / "a.parquet")
    one, other = open_teacher(f"vectors:{folder}", 0, "float32"), open_teacher(f"vectors:{tmp_path}/a.parquet", 0, "float32")  # fmt: skip
    assert one.width == other.width == 8 and list(one.texts or []) == list(other.texts or [])
    np.testing.assert_array_equal(one.answer(TEXTS[2990:3010]), other.answer(TEXTS[2990:3010]))
    with pytest.raises(UserError, match="no vector for 1 of 2 texts asked for, such as 'nowhere'"):
        one.answer([TEXTS[0], "nowhere"])
    (tmp_path / "theirs").mkdir()
    (tmp_path / "a.parquet").rename(tmp_path / "theirs" / "a.parquet")
    theirs = open_teacher(f"vectors:{tmp_path}/theirs", 0, "float32")
    np.testing.assert_array_equal(theirs.answer(TEXTS[::-1]), VECTORS[::-1])
    assert len({one.fingerprint, theirs.fingerprint}) == 2


def test_without_texts_keys_find_the_vectors(tmp_path: Path) -> None:
    settings = EmbedSettings(**{**vars(SETTINGS), "with_text": False})
    folder = made(tmp_path / "out", settings)
    assert pq.read_schema(folder / "part-00000.parquet").names == ["id", "key", "vector"]
    teacher = open_teacher(f"vectors:{folder}", 0, "float32")
    assert teacher.texts is None
    np.testing.assert_array_equal(teacher.answer(TEXTS[10:20]), VECTORS[10:20])


def test_an_unfinished_folder_is_no_teacher(tmp_path: Path) -> None:
    folder = made(tmp_path / "out", sealed=False)
    with pytest.raises(UserError, match="is not finished: run its python -m jdistill.embed command again"):
        open_store(folder)
    seal_folder(folder, [3000, 2000])
    (folder / "part-00001.parquet").unlink()
    with pytest.raises(UserError, match="lacks part-00001.parquet"):
        open_store(folder)
    (folder / "jdistill.json").write_text("{")
    with pytest.raises(UserError, match="jdistill.json is damaged"):
        open_store(folder)


def test_a_changed_byte_is_found_wherever_it_lies(tmp_path: Path) -> None:
    """Every kind of place: among the vectors, the texts, the footer; what is not found changes nothing."""
    folder = made(tmp_path / "out")
    path = folder / "part-00001.parquet"
    (_, part) = split_parts([StreamedText(text, f"id{i}") for i, text in enumerate(TEXTS)], 3000)
    whole = path.read_bytes()
    before = pq.read_table(path)
    told = 0
    for place in RNG.integers(0, len(whole), 150).tolist() + list(range(len(whole) - 400, len(whole), 7)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            fault = part_fault(folder, part, 8, True, SETTINGS.made_by)
        except UserError:
            fault = "refused"
        told += fault is not None
        if fault is None:
            assert pq.read_table(path).equals(before), place
    assert told > 130
    path.write_bytes(whole[:-100])
    assert part_fault(folder, part, 8, True, SETTINGS.made_by)
    with pytest.raises(UserError, match="part-00001.parquet cannot be read.*damaged or cut short"):
        open_store(folder)
    middle = bytearray(whole)
    middle[len(whole) // 2] ^= 1
    path.write_bytes(middle)
    store = open_store(folder)  # texts are read, vectors when they are asked for
    with pytest.raises(UserError, match="part-00001.parquet cannot be read"):
        list(store.pieces())


def theirs(folder: Path, name: str, texts: list[str], vectors: list[list[float]]) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(
        pa.table({"text": pa.array(texts, pa.string()), "embedding": pa.array(vectors, pa.list_(pa.float64()))}),
        folder / name,
    )


def test_files_of_different_widths_are_named(tmp_path: Path) -> None:
    theirs(tmp_path / "in", "a.parquet", ["one"], [[1.0, 2.0]])
    theirs(tmp_path / "in", "b.parquet", ["two"], [[1.0, 2.0, 3.0]])
    with pytest.raises(UserError, match="vectors of .*a.parquet have 2 numbers, those of .*b.parquet have 3"):
        open_store(tmp_path / "in")


@pytest.mark.parametrize(
    ("texts", "vectors", "says"),
    [
        (["two", "three"], [[1.0, float("nan")], [1.0, 2.0]], "b.parquet row 0: the vector holds NaN or inf"),
        (["two", "three"], [[1.0, 2.0], [0.0, 0.0]], "b.parquet row 1: the vector is all zeros"),
        (["two", "three"], [[1.0, 2.0], [1.0]], "b.parquet row 1: the vector has 1 numbers"),
        (["two", " "], [[1.0, 2.0], [1.0, 3.0]], "b.parquet row 1: the text is blank"),
        (["two", "one "], [[1.0, 2.0], [1.0, 3.0]], "b.parquet row 1: the text of .*a.parquet row 0 again, with another"),
    ],
)  # fmt: skip
def test_a_broken_row_is_named_by_its_file(tmp_path: Path, texts: list[str], vectors: list, says: str) -> None:
    theirs(tmp_path / "in", "a.parquet", ["one"], [[1.0, 2.0]])
    theirs(tmp_path / "in", "b.parquet", texts, vectors)
    with pytest.raises(UserError, match=says):
        open_store(tmp_path / "in")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no file that is one of .parquet"):
        open_store(tmp_path)
    theirs(tmp_path / "in", "a.parquet", [], [])
    with pytest.raises(UserError, match="has no rows"):
        open_store(tmp_path / "in")
    theirs(tmp_path / "in", "b.parquet", ["one"], [[1.0, 2.0]])
    assert len(open_store(tmp_path / "in")) == 1
