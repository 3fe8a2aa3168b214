"""vectors:FILE: both formats give the same; every kind of broken row is refused by its number."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jdistill.core.errors import UserError
from jdistill.data.text.vectors import read_vectors

TEXTS = ["one", "zwei Käse", "三"]
VECTORS = np.arange(1, 13, dtype=np.float32).reshape(3, 4)


def parquet(path: Path, texts: Any = TEXTS, vectors: Any = VECTORS, name: str = "embedding", type_: Any = None) -> Path:
    column = pa.array([vector if vector is None else list(vector) for vector in vectors], type_)
    pq.write_table(pa.table({"text": texts, name: column}), path)
    return path


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("embedding", pa.list_(pa.float32())),
        ("vector", pa.large_list(pa.float64())),
        ("embedding", pa.list_(pa.float32(), 4)),
        ("vector", pa.list_(pa.int64())),
    ],
)
def test_parquet(tmp_path: Path, name: str, type_: pa.DataType) -> None:
    texts, vectors = read_vectors(parquet(tmp_path / "a.parquet", name=name, type_=type_))
    assert texts == TEXTS and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS)


def test_parquet_of_many_row_groups_keeps_the_order(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(25_000, 2)).astype(np.float32)
    texts = [f"text {i}" for i in range(len(vectors))]
    table = pa.table({"text": texts, "vector": pa.array(list(vectors))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7_000)
    read, found = read_vectors(tmp_path / "a.parquet")
    assert read == texts
    np.testing.assert_array_equal(found, vectors)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_npz(tmp_path: Path, dtype: type) -> None:
    np.savez(tmp_path / "a.npz", texts=np.array(TEXTS), embeddings=VECTORS.astype(dtype))
    texts, vectors = read_vectors(tmp_path / "a.npz")
    assert texts == TEXTS and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS)


def changed(row: int, value: Any) -> list[Any]:
    return [value if i == row else list(vector) for i, vector in enumerate(VECTORS.tolist())]


@pytest.mark.parametrize(
    ("vectors", "says"),
    [
        (changed(1, [1.0, float("nan"), 0, 0]), "row 1: the vector holds NaN or inf"),
        (changed(2, [1.0, float("inf"), 0, 0]), "row 2: the vector holds NaN or inf"),
        (changed(2, [1e300, 0.0, 0.0, 0.0]), "row 2: the vector holds NaN or inf"),
        (changed(1, [0.0, 0.0, 0.0, 0.0]), "row 1: the vector is all zeros"),
        (changed(2, [1.0, 2.0]), "row 2: the vector has 2 numbers, those before have 4"),
        (changed(1, None), "row 1: there is no vector"),
        (changed(1, [1.0, None, 3.0, 4.0]), "row 1: the vector holds a null"),
        ([[], [], []], "row 0: the vector is empty"),
    ],
)
def test_a_broken_vector_is_named_by_its_row(tmp_path: Path, vectors: list[Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_vectors(parquet(tmp_path / "a.parquet", vectors=vectors, type_=pa.list_(pa.float64())))


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["one", "  ", "three"], "row 1: the text is blank"),
        (["one", None, "three"], "row 1: the text is blank"),
        (["one", "two", "a\0b"], "row 2: the text is with NUL"),
        (["same", "two", " same "], "row 2: the text of row 0 again, with another vector"),
    ],
)
def test_a_broken_text_is_named_by_its_row(tmp_path: Path, texts: list[Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_vectors(parquet(tmp_path / "a.parquet", texts=texts))


def test_a_repeated_text_with_its_vector_counts_once(tmp_path: Path) -> None:
    vectors = np.stack([VECTORS[0], VECTORS[1], VECTORS[0] * 1.0001])
    texts, found = read_vectors(parquet(tmp_path / "a.parquet", texts=["same", "two", "same"], vectors=vectors))
    assert texts == ["same", "two"]
    np.testing.assert_array_equal(found, vectors[:2])


def test_what_is_missing_is_named_with_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must have columns text and embedding .*it has text, embeddings"):
        read_vectors(parquet(tmp_path / "a.parquet", name="embeddings"))
    with pytest.raises(UserError, match="column text holds int64"):
        read_vectors(parquet(tmp_path / "a.parquet", texts=[1, 2, 3]))
    with pytest.raises(UserError, match="column embedding holds list<.*string>"):
        read_vectors(parquet(tmp_path / "a.parquet", vectors=[["a"], ["b"], ["c"]]))
    np.savez(tmp_path / "a.npz", texts=np.array(TEXTS), vectors=VECTORS)
    with pytest.raises(UserError, match="no array embeddings; it has texts, vectors"):
        read_vectors(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", texts=np.array(TEXTS), embeddings=VECTORS[:2])
    with pytest.raises(UserError, match="3 texts but 2 vectors"):
        read_vectors(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", texts=np.array([], dtype=str), embeddings=np.empty((0, 4)))
    with pytest.raises(UserError, match="no rows"):
        read_vectors(tmp_path / "a.npz")
    for name, says in {"absent.npz": "no such file", "a.txt": "must be .parquet or .npz"}.items():
        if name == "a.txt":
            (tmp_path / name).write_text("x")
        with pytest.raises(UserError, match=says):
            read_vectors(tmp_path / name)


class Bomb:
    """Unpickling it would leave a file behind."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    left = tmp_path / "ran"
    np.savez(tmp_path / "object.npz", texts=np.array([Bomb(left)] * 3, dtype=object), embeddings=VECTORS)
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb(left)))
    for name in ("object.npz", "pickle.npz"):
        with pytest.raises(UserError, match=f"{name} cannot be read.*dtype=str"):
            read_vectors(tmp_path / name)
    assert not left.exists()


@pytest.mark.parametrize("name", ["a.parquet", "a.npz"])
def test_a_file_cut_short_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    np.savez(path, texts=np.array(TEXTS), embeddings=VECTORS) if name == "a.npz" else parquet(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=f"{name} cannot be read"):
        read_vectors(path)


def test_names_of_arrays_and_columns_are_shown_on_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", **{"t\nxts\x1b": np.zeros(3), "embeddings": np.zeros((3, 2))})
    with pytest.raises(UserError, match=r"no array texts; it has t\\nxts\\x1b, embeddings$"):
        read_vectors(tmp_path / "v.npz")
    pq.write_table(pa.table({"te\nxt": ["a"], "vector": [[1.0]]}), tmp_path / "v.parquet")
    with pytest.raises(UserError, match=r"it has te\\nxt, vector$"):
        read_vectors(tmp_path / "v.parquet")


def test_a_column_whose_name_is_no_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    pq.write_table(pa.table({"text": ["a"], "vector": [[1.0]]}), path, store_schema=False)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"vector", b"vec\xffor"))
    with pytest.raises(UserError, match="v.parquet cannot be read"):
        read_vectors(path)
