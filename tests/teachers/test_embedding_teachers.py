"""How an encoder is asked as a teacher: few texts at a time on a CPU, many on accelerators."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences

from jdistill.core import sharding
from jdistill.encoder.encoder import Encoder
from jdistill.teachers.embeddings import open_teacher


@pytest.mark.parametrize(("platform", "at_once"), [("cpu", 32), ("gpu", 1024)])
def test_a_teacher_reads_as_many_texts_as_its_devices_take(
    platform: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32 texts over eight GPUs are four for each, which wait for their launches."""
    teacher = open_teacher(str(save_encoder(make_encoder(num_layers=1), tmp_path / "teacher")), 0, "float32")
    asked: list[int] = []

    def watched(self: Encoder, texts: list[str], batch_size: int) -> np.ndarray:
        asked.append(batch_size)
        return np.zeros((len(texts), self.dim), np.float32)

    monkeypatch.setattr(Encoder, "encode", watched)
    monkeypatch.setattr(sharding, "platform", lambda: platform)
    if platform == "gpu":
        monkeypatch.setattr(sharding, "local_mesh", lambda: SimpleNamespace(size=8))
    assert teacher.answer(sentences(40)).shape == (40, 32) and asked == [at_once]
