"""A small run on parallel text, whose second language is the first one's words turned round."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import commands
from commands import run_inside
from conftest import make_encoder, save_encoder, sentences

from configs import ibkd
from jdistill.run.stages import prepare


def turned(text: str) -> str:
    """A text in the made-up language: each word from its end."""
    return " ".join(word[::-1] for word in text.split())


def write_inputs(folder: Path) -> Path:
    """The folder with a teacher, text.txt, and pairs.tsv in it."""
    save_encoder(make_encoder(num_layers=1), folder / "teacher")
    texts = [text for text in sentences(3000, seed=3) if len(text.split()) <= 6][:720]
    (folder / "text.txt").write_text("\n".join(texts[600:]) + "\n")
    rows = [f"{text}\t{turned(text)}\n" for text in texts[:660]]  # 60 of the sources in text.txt too
    (folder / "pairs.tsv").write_text("source\ttranslation\n" + "".join(rows))
    return folder


def settings(folder: Path, **keys: Any) -> dict[str, Any]:
    return {
        "triplets": "", "start": "", "teacher": folder / "teacher", "text": folder / "text.txt", "text_column": "",
        "text_pairs": folder / "pairs.tsv", "cache_dir": folder / "cache", "student.layers": 0, "student.dropout": 0.0,
        "epochs": 0.0, "max_steps": 300, "batch_size": 32, "checkpoint_every": 100, "held_out": 60, "latency_texts": 0,
        "index_texts": 0, "onnx": False, "learning_rate": 5e-3, "output_dim": 0, "dtype": "float32", "teacher_dtype": "float32",
    } | keys  # fmt: skip


def run(folder: Path, workdir: str, **keys: Any) -> subprocess.CompletedProcess:
    return run_inside(commands.command("configs/ibkd.py:mse", folder / workdir, settings(folder, **keys)), folder)


def prepared(folder: Path, **keys: Any):
    cfg = ibkd.get_config("mse")
    own = {name: str(value) if isinstance(value, Path) else value for name, value in settings(folder, **keys).items()}
    cfg.update_from_flattened_dict(own)
    return cfg, prepare(cfg)
