"""int8 for torch of a model whose token table multiplies what it gives: EmbeddingGemma's."""

from __future__ import annotations

from pathlib import Path

import pytest
from decoder_setting import write_published

import jdistill
from jdistill.export.folder import export
from jdistill.export.targets import add_form


def test_the_tables_scale_is_kept(tmp_path: Path) -> None:
    """Without it vectors have a mean cosine of 0.79 to Flax's, which is refused."""
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = jdistill.load(str(write_published("embeddinggemma", tmp_path / "published")))
    export(model, tmp_path / "export")
    assert add_form(model, tmp_path / "export", "torch-int8") == tmp_path / "export" / "torch_int8"
