"""A small run of the loop, its weights, and a checkpoint cut short."""

from __future__ import annotations

from pathlib import Path

import commands
import numpy as np

from jdistill.train.checkpoint import Checkpoints


def command(folder: Path, teacher: Path, workdir: str = "run", **keys: object) -> list[str]:
    settings: dict[str, object] = {
        "student.layers": 2,
        "student.embedding_size": 12,
        "student.dropout": 0.1,
        "teacher": teacher,
        "text": folder / "text.txt",
        "text_column": "",
        "cache_dir": folder / "cache",
        "max_steps": 60,
        "batch_size": 8,
        "checkpoint_every": 10,
        "log_every": 5,
        "held_out": 20,
        "length_buckets": 2,
        "latency_texts": 0,
        "index_texts": 0,
        "onnx": False,
        "learning_rate": 1e-3,
    }
    return commands.command("configs/simtde.py", folder / workdir, settings | keys)


def final_weights(workdir: Path) -> dict[str, np.ndarray]:
    checkpoints = Checkpoints(workdir / "distil" / "checkpoints", 100)
    _, state, _ = checkpoints.restore(None)
    checkpoints.close()
    return {f"{i}": np.asarray(leaf) for i, leaf in enumerate(__import__("jax").tree.leaves(state))}


def truncate(checkpoint: Path) -> None:
    for path in checkpoint.rglob("*"):
        if path.is_file() and path.stat().st_size > 2000:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
