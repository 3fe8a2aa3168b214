"""The size of a form that shapes alone tell, against the file that is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import make_encoder

from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.export.form_size import expected_bytes, weight_bytes
from jdistill.export.targets import TARGETS

FORMS = ("onnx", "sentence-transformers", "onnx-int8", "torch-int8")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compact", [False, True])
def test_the_expected_size_is_that_of_the_file_and_never_below_it(form: str, compact: bool, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"model_type": "electra", "embedding_size": 40} if compact else {"embedding_size": 96}
    model = make_encoder(hidden_size=96, intermediate_size=384, num_layers=3, max_positions=512, **changes)
    write_files(model, tmp_path)
    write_weights(model, tmp_path)
    written = weight_bytes(TARGETS[form].write(model, tmp_path, ()))
    assert written <= expected_bytes(form, model.config) <= 1.005 * written
