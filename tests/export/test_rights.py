"""Whoever may read a folder may read every file of an export: a server, a container, another user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder

from jdistill.export.folder import export
from jdistill.export.targets import add_form


def random_dense(width: int, to: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"kernel": rng.normal(0, 0.3, (width, to)).astype(np.float32), "bias": np.zeros(to, np.float32)}


@pytest.fixture(params=[0o022, 0o077])
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_files_have_the_rights_of_new_ones(tmp_path: Path, mask: int) -> None:
    pytest.importorskip("sentence_transformers")
    model = replace(make_encoder(num_layers=1), dense=(random_dense(32, 16),), dense_activations=("Tanh",))
    export(model, tmp_path / "out", onnx=True)
    for form in ("onnx-int8", "torch-int8"):
        add_form(model, tmp_path / "out", form)
    rights = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert {"model.safetensors", "int8.safetensors", "model_quint8_avx2.onnx", "modules.json"} <= rights.keys()
    assert set(rights.values()) == {0o666 & ~mask}
