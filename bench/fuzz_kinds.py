"""What the fuzzer damages: for each kind of input a whole sample, made in a folder, and the reader with what it must have given."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzz_models
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_models import WORDS

from jdistill.core.files import SEAL
from jdistill.data.sets.beir import read_collection, write_collection
from jdistill.data.sets.pairs import read_pairs
from jdistill.data.sets.sts import read_scored_pairs
from jdistill.data.sets.tasks import read_task
from jdistill.data.sets.triplets import read_triplets
from jdistill.data.text.glove import read_glove
from jdistill.data.text.sources import read_texts
from jdistill.data.text.vectors import read_vectors
from jdistill.evals.entity import read_entities
from jdistill.retrieval import index


@dataclass(frozen=True)
class Kind:
    """make: writes the whole sample into a folder. read: reads it, given the file that was damaged, and raises AssertionError for an
    answer that is not sane. only: the end of the files' names that are damaged."""

    make: Callable[[Path], object]
    read: Callable[[Path, Path], object]
    only: tuple[str, ...] = ("",)


def _rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _tables(names: tuple[str, ...], columns: dict[str, list[Any]]) -> Callable[[Path], None]:
    """Writes the columns in each of the formats."""

    def make(folder: Path) -> None:
        for name in names:
            path, cut = folder / name, "\t" if ".tsv" in name else ","
            if name.endswith(".parquet"):
                pq.write_table(pa.table(columns), path)
                continue
            if ".jsonl" in name:
                text = "".join(json.dumps(row) + "\n" for row in _rows(columns))
            elif ".txt" in name:
                text = "\n".join(str(row[0]) for row in zip(*columns.values(), strict=True))
            else:
                text = "\n".join(cut.join(map(str, row)) for row in [columns, *zip(*columns.values(), strict=True)])
            path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())

    return make


def _texts(path: Path) -> None:
    found = read_texts(str(path), "" if ".txt" in path.name else "text").texts
    assert found and len(set(found)) == len(found) and all(text.strip() == text and text.encode() for text in found)


def _usable(*lists: list[str]) -> None:
    assert (
        len(lists[0])
        and len(set(map(len, lists))) == 1
        and all(text.strip() and text.encode() for row in lists for text in row)
    )


def _vectors(path: Path) -> None:
    texts, vectors = read_vectors(path)
    _usable(texts)
    assert (
        vectors.dtype == np.float32
        and len(vectors) == len(texts)
        and np.isfinite(vectors).all()
        and vectors.any(1).all()
    )


def _task(folder: Path) -> None:
    task = read_task("mine", str(folder))
    for split in (task.train, task.dev):
        assert len(split) == len(split.labels) and (split.labels < len(task.labels)).all()
        assert all(text.strip() and text.encode() for text in split.texts)


def _glove(path: Path) -> None:
    words, vectors = read_glove.__wrapped__(path, 3)
    assert len(words) == len(vectors) and np.isfinite(vectors).all()


def _index(folder: Path) -> None:
    index.build_index(np.random.default_rng(0).normal(size=(20, 8))).save(folder / "index", WORDS * 2, "abc")
    (folder / "index" / SEAL).unlink()  # which would tell of any damage before a file is read


def _searched(folder: Path) -> None:
    saved = index.load_index(folder / "index")
    assert len(saved.texts) == saved.index.rows and all(isinstance(text, str) for text in saved.texts)
    scores, rows = saved.index.search(np.ones((1, saved.index.dim), np.float32), 3)
    assert ((rows >= -1) & (rows < saved.index.rows)).all() and np.isfinite(scores[rows >= 0]).all()


def _configs(folder: Path) -> None:
    for path in sorted((Path(__file__).parents[1] / "configs").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, "get_config") and module.get_config().method:  # base.py has none
            (folder / f"{path.stem}.json").write_text(module.get_config().to_json())


def _checked_config(path: Path) -> None:
    from ml_collections import ConfigDict

    from jdistill.config.keys import check_config

    try:
        values = json.loads(path.read_text())
        config = ConfigDict(values)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return  # what is no ConfigDict comes to no check
    check_config(config)


_A = [f"the {word} is here and has number {i}" for i, word in enumerate(WORDS)]
_B = [f"a {word} of the {i}th kind" for i, word in enumerate(WORDS)]
_HALF = [str(i % 2) for i in range(10)]
_PAIRS = {"sentence1": _A, "sentence2": _B, "label": _HALF}
KINDS: dict[str, Kind] = {
    "texts": Kind(
        _tables(
            ("a.txt", "a.txt.gz", "a.csv", "a.tsv", "a.jsonl", "a.jsonl.gz", "a.parquet"), {"text": _A, "other": _B}
        ),
        lambda _, path: _texts(path),
    ),
    "pairs": Kind(
        _tables(
            ("a.jsonl", "a.csv", "a.tsv", "a.parquet"),
            {name.replace("sentence", "sent"): x for name, x in _PAIRS.items()},
        ),
        lambda _, path: _usable((found := read_pairs(str(path), "symmetric")).queries, found.passages),
    ),
    "triplets": Kind(
        _tables(("a.jsonl", "a.csv", "a.tsv", "a.parquet"), {"anchor": _A, "positive": _B, "negative": WORDS}),
        lambda _, path: _usable((found := read_triplets(str(path))).anchors, found.positives),
    ),
    "scored pairs": Kind(
        _tables(("a.jsonl", "a.tsv", "a.txt"), {"sentence1": _A, "sentence2": _B, "score": list(range(10))}),
        lambda _, path: _usable(*read_scored_pairs(path)[:2]),
        (".jsonl", ".tsv"),
    ),
    "candidates": Kind(
        _tables(("a.csv",), {"query": WORDS, "entity": _HALF, "label": _HALF}), lambda _, path: read_entities(path)
    ),
    "task": Kind(
        lambda folder: [_tables((f"{split}.jsonl", f"{split}.tsv"), _PAIRS)(folder) for split in ("train", "dev")],
        lambda folder, path: _task_of(folder, path),
    ),
    "collection": Kind(
        lambda folder: write_collection(
            folder,
            dict(zip(WORDS, _A, strict=True)),
            dict(zip(WORDS, _B, strict=True)),
            {word: {word: 1} for word in WORDS},
        ),
        lambda folder, _: read_collection(folder),
    ),
    "vectors": Kind(lambda folder: _write_vectors(folder), lambda _, path: _vectors(path)),
    "glove": Kind(
        lambda folder: [
            _tables((name,), {"line": [f"{word} 1 2.5 {i}" for i, word in enumerate(WORDS)]})(folder)
            for name in ("g.txt", "g.txt.gz")
        ],
        lambda _, path: _glove(path),
    ),
    "model json": Kind(fuzz_models.make_bert, fuzz_models.check_folder, (".json",)),
    "model tensors": Kind(fuzz_models.make_bert, fuzz_models.check_folder, (".safetensors",)),
    "decoder": Kind(fuzz_models.make_decoder, fuzz_models.check_folder, (".json",)),
    "bilstm": Kind(fuzz_models.make_bilstm, fuzz_models.check_folder, (".json", ".safetensors")),
    "pair scorer": Kind(
        fuzz_models.make_scorer, lambda folder, _: fuzz_models.check_scorer(folder), (".json", ".safetensors")
    ),
    "classifier": Kind(
        fuzz_models.make_classifier,
        lambda folder, _: fuzz_models.check_classifier(folder),
        ("head.json", "head.safetensors"),
    ),
    "adapter": Kind(fuzz_models.make_adapter, lambda folder, _: fuzz_models.check_adapter(folder)),
    "index": Kind(_index, lambda folder, _: _searched(folder)),
}
if importlib.util.find_spec("gguf"):
    KINDS["gguf"] = Kind(fuzz_models.make_gguf, fuzz_models.check_gguf)
if importlib.util.find_spec("jdistill.config.keys"):
    KINDS["config"] = Kind(_configs, lambda _, path: _checked_config(path))


def _task_of(folder: Path, damaged: Path) -> None:
    """The folder's task in the format of the damaged file."""
    for path in folder.glob("*.jsonl" if damaged.suffix == ".tsv" else "*.tsv"):
        path.unlink()
    _task(folder)


def _write_vectors(folder: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    np.savez(folder / "v.npz", texts=np.array(_A), embeddings=vectors)
    np.savez_compressed(folder / "w.npz", texts=np.array(_A), embeddings=vectors)
    pq.write_table(pa.table({"text": _A, "embedding": list(vectors)}), folder / "v.parquet")
