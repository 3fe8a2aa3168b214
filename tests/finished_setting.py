"""A small run to be finished, and what two finished ones share."""

from __future__ import annotations

import json
from pathlib import Path

import commands
import jax

from jdistill.core import files

SAME = (
    "export/model.safetensors",
    "export/tokenizer.json",
    "export/onnx/model.onnx",
    "index/vectors.faiss",
    "index/texts.jsonl",
)


def command(folder: Path, workdir: str, **keys: object) -> list[str]:
    settings: dict[str, object] = {
        "student.layers": 2,
        "student.embedding_size": 12,
        "teacher": folder / "teacher",
        "text": folder / "text.txt",
        "text_column": "",
        "cache_dir": folder / "cache",
        "max_steps": 12,
        "batch_size": 8,
        "checkpoint_every": 4,
        "keep_last": 3,
        "log_every": 4,
        "held_out": 12,
        "length_buckets": 1,
        "latency_texts": 0,
        "index_texts": 50,
        "learning_rate": 1e-3,
        "checkpoint": "best",
    }
    return commands.command("configs/simtde.py", folder / workdir, settings | keys)


def assert_same(workdir: Path, other: Path) -> None:
    for name in SAME:
        assert (workdir / name).read_bytes() == (other / name).read_bytes(), name
    assert results(workdir) == results(other)
    assert (workdir / "report.html").is_file()
    assert files.files_in(workdir) == files.files_in(other)


def results(workdir: Path) -> dict:
    found = json.loads((workdir / "results.json").read_text())
    found.pop("command")
    found["training"].pop("seconds")
    for stage in found["training"]["stages"]:
        stage.pop("seconds")
    return found


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def leaves(tree: object) -> list:
    return jax.tree.leaves(tree)
