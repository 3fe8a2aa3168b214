"""A teacher and text that a budget is for, and the config and command of a run with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commands import command
from conftest import make_encoder, save_encoder, sentences
from ml_collections import ConfigDict

from configs import budget as config_file
from jdistill.config.keys import check_config
from jdistill.students.menu import SHAPE_KEYS

LAYERS, WIDTH = 4, 32


def write_place(place: Path) -> Path:
    """The folder, with a teacher and text in it."""
    save_encoder(make_encoder(num_layers=LAYERS), place / "teacher")
    (place / "text.txt").write_text("\n".join(sentences(120)) + "\n")
    return place


def keys_of(place: Path, **changes: Any) -> dict[str, Any]:
    return {
        "teacher": str(place / "teacher"), "text": str(place / "text.txt"), "cache_dir": str(place / "cache"), "text_column": "",
        "budget.mb": 2.0,
    } | changes  # fmt: skip


def config(place: Path, **changes: Any) -> ConfigDict:
    cfg = config_file.get_config()
    cfg.update_from_flattened_dict(keys_of(place, **changes))
    check_config(cfg)
    return cfg.lock()


def run_command(place: Path, workdir: str, **changes: Any) -> list[str]:
    small = {
        "held_out": 20, "batch_size": 8, "max_steps": 4, "checkpoint_every": 2, "latency_texts": 0, "length_buckets": 1, "index_texts": 0,
    }  # fmt: skip
    return command("configs/budget.py", place / workdir, keys_of(place, **small | changes))


def shape(layers: int, embedding_size: int, intermediate_size: int) -> dict[str, int]:
    return dict(zip(SHAPE_KEYS, (layers, embedding_size, intermediate_size), strict=True))
