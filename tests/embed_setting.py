"""A model with prompts and a text, and what jdistill.embed makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_encoder, save_encoder, sentences

from jdistill import embed
from jdistill.core.progress import log, setup_logging

TEXTS = sentences(130)
PROMPTS = {"query": "ask: ", "passage": "tell: "}


def write_place(folder: Path) -> Path:
    """A folder with MODEL, which has prompts for both roles, and text.txt."""
    save_encoder(replace(make_encoder(), prompts=PROMPTS), folder / "MODEL")
    (folder / "text.txt").write_text("\n".join(TEXTS) + "\n")
    return folder


def let_logs_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands keep their log lines from the loggers above, where pytest listens."""
    setup_logging()
    monkeypatch.setattr(log, "propagate", True)


def run_embed(place: Path, *more: str, out: str = "out", model: str = "MODEL", text: str = "text.txt") -> int:
    where = ["--model", str(place / model), "--text", str(place / text), "--out", str(place / out)]
    return embed.main([*where, "--part_size", "50", *more])


def error_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a command said that was refused; its log stands on standard error too, where an earlier test has set it up."""
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return [line for line in said.splitlines() if line.startswith("error: ")]


def read_folder(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])


def vectors_of(table: pa.Table) -> np.ndarray:
    return table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
