"""A model run by sentence-transformers: its prompts by role; the library that is installed and does not import, as where torch lacks another."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences
from hostile_setting import change

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.torch_backend import add_files, load_torch_encoder
from jdistill.export.folder import export
from jdistill.teachers.embeddings import open_teacher

BROKEN = "sentence-transformers is installed and cannot be imported .*OSError: libtorch.so: cannot open"


@pytest.mark.parametrize("name", ["passage", "corpus"])
def test_a_document_s_prompt_by_another_name_is_taken_whoever_runs_the_model(tmp_path: Path, name: str) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    folder, texts = save_encoder(make_encoder(num_layers=1), tmp_path / "model"), sentences(3)
    change(folder / "config_sentence_transformers.json", prompts={"query": "q: ", name: "p: "})
    ours, by_torch = jdistill.load(folder), load_torch_encoder(str(folder))
    for role, text in (("query", "q: "), ("document", "p: ")):
        assert by_torch.prompt_in_role(role) == ours.in_role(role).prompt_text() == text
        expected = ours.in_role(role).encode(texts)
        np.testing.assert_allclose(by_torch.encode_in_role(iter(texts), role), expected, atol=1e-5)
        asked = open_teacher(f"st:{folder}", 0, "float32").in_role(role)
        assert asked.prompt == text
        np.testing.assert_allclose(asked.answer(texts), expected, atol=1e-5)


@pytest.mark.parametrize(("name", "is_kept"), [("document", True), ("passage", False)])
def test_kept_answers_are_taken_where_they_had_the_prompt(tmp_path: Path, name: str, is_kept: bool) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    folder = save_encoder(make_encoder(num_layers=1), tmp_path / "model")
    change(folder / "config_sentence_transformers.json", prompts={name: "p: "})
    model = load_torch_encoder(str(folder)).model
    before = hashlib.blake2b(repr((model.max_seq_length, None, model.prompts)).encode(), digest_size=16)
    add_files(before, folder)
    before.update(b"document")
    asked = open_teacher(f"st:{folder}", 0, "float32").in_role("document")
    assert (asked.fingerprint == before.hexdigest()) == is_kept


@pytest.mark.parametrize("name", ["weights.pt", "embeddings.npy", "bpe.codes"])
def test_a_changed_file_of_weights_or_pieces_makes_another_model(tmp_path: Path, name: str) -> None:
    def hashed() -> str:
        digest = hashlib.blake2b(digest_size=16)
        add_files(digest, tmp_path)
        return digest.hexdigest()

    (tmp_path / name).write_bytes(b"one")
    before = hashed()
    (tmp_path / name).write_bytes(b"two")
    assert hashed() != before


def test_one_string_is_no_list_of_letters_for_torch_either(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = load_torch_encoder(str(save_encoder(make_encoder(num_layers=1), tmp_path / "model")))
    with pytest.raises(UserError, match="texts is one string, 'a stone'"):
        model.encode("a stone")
    with pytest.raises(UserError, match="texts is one string, 'a stone'"):
        model.encode_in_role("a stone", "query")


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence-transformers that raises as torch does, of a system that lacks a library."""
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


@pytest.mark.parametrize("name", ["chat_template.jinja", "additional_chat_templates/rerank.jinja", "config.json"])
def test_a_file_that_decides_what_a_model_answers_changes_its_digest(tmp_path: Path, name: str) -> None:
    def digest() -> str:
        of_files = hashlib.blake2b()
        add_files(of_files, tmp_path)
        return of_files.hexdigest()

    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{{ query }}")
    before = digest()
    (tmp_path / "README.md").write_text("a card")
    assert digest() == before
    (tmp_path / name).write_text("Query: {{ query }}")
    assert digest() != before


def test_an_adapter_is_told_by_the_model_that_it_changes_too(tmp_path: Path) -> None:
    base, adapter = save_encoder(make_encoder(num_layers=1), tmp_path / "base"), tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{base}"}}')

    def digest() -> str:
        hashed = hashlib.blake2b(digest_size=16)
        add_files(hashed, adapter)
        return hashed.hexdigest()

    before = digest()
    assert digest() == before
    save_encoder(make_encoder(num_layers=1, seed=1), base)
    assert digest() != before
    (adapter / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{adapter}"}}')
    assert digest() != before  # and an adapter that names its own folder is read once
    (adapter / "checkpoint").mkdir()
    (adapter / "checkpoint" / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{adapter}"}}')
    digest()  # and so is one around it
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "https://example.org/model"}')
    with pytest.raises(UserError, match="the base of an adapter is a folder or a hub id, not https://example.org"):
        digest()
