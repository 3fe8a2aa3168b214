"""sentence-transformers that is installed and does not import, as with a torch that lacks a library of the system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import make_encoder, save_encoder

from jdistill.core.errors import UserError
from jdistill.encoder.torch_backend import load_torch_encoder
from jdistill.export.folder import export

BROKEN = "sentence-transformers is installed and cannot be imported .*OSError: libtorch.so: cannot open"


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence-transformers that raises as torch does."""
    package = tmp_path / "packages" / "sentence_transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise OSError('libtorch.so: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "sentence_transformers", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "packages")


def test_it_is_named_where_a_model_is_loaded(tmp_path: Path, broken: None) -> None:
    with pytest.raises(UserError, match=BROKEN):
        load_torch_encoder(str(save_encoder(make_encoder(), tmp_path / "model")))


def test_an_export_ends_by_it_and_leaves_nothing(tmp_path: Path, broken: None) -> None:
    with pytest.raises(UserError, match=BROKEN):
        export(make_encoder(), tmp_path / "export")
    assert not (tmp_path / "export").exists()
