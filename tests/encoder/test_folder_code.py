"""Code of a teacher of sentence-transformers: run where the user names its commit or digest, refused by name where not; and .bin of the hub."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences
from hub_setting import Hub, only_hub
from safetensors.numpy import load_file

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.folder_code import code_digest
from jdistill.encoder.torch_backend import load_torch_encoder
from jdistill.teachers.embeddings import Teacher, open_teacher

torch = pytest.importorskip("torch", reason="needs the torch extra")
NAME = "owner/with-code"
CODE = """
from pathlib import Path

from sentence_transformers.models import Normalize


class Shout(Normalize):
    def forward(self, features):
        Path({ran!r}).write_text("ran")
        features["sentence_embedding"] = {factor} * features["sentence_embedding"]
        return features
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with only_hub(monkeypatch, tmp_path) as hub:
        yield hub


def write_code(folder: Path, ran: Path, factor: float) -> None:
    (folder / "shout.py").write_text(CODE.format(ran=str(ran), factor=factor))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose last module is code of its own, which multiplies vectors by 3 and leaves the file `ran`."""
    folder = save_encoder(make_encoder(num_layers=1), tmp_path / "with code")
    rows = json.loads((folder / "modules.json").read_text())
    path = f"{len(rows)}_Shout"
    (folder / path).mkdir()
    rows.append({"idx": len(rows), "name": str(len(rows)), "path": path, "type": "shout.Shout"})
    (folder / "modules.json").write_text(json.dumps(rows))
    write_code(folder, tmp_path / "ran", 3.0)
    return folder


def teacher(source: str, trusted: str = "") -> Teacher:
    return open_teacher(f"st:{source}", 24, "float32", trusted_code=trusted)


def told(source: str, trusted: str = "") -> str:
    """The one line of the refusal."""
    with pytest.raises(UserError) as refused:
        teacher(source, trusted)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_folder_here_by_the_digest_of_its_code(folder: Path, tmp_path: Path) -> None:
    message = told(str(folder))
    digest = code_digest(folder)
    assert f"--config.teacher={folder} carries code (shout.py). Read it in {folder}; then " in message
    assert f"--config.trust_remote_code={digest} lets it run" in message and re.fullmatch("[0-9a-f]{32}", digest)
    assert not (tmp_path / "ran").exists()
    texts, plain = sentences(5), jdistill.load(str(save_encoder(make_encoder(num_layers=1), tmp_path / "plain")))
    trusted = teacher(str(folder), digest)
    np.testing.assert_allclose(trusted.answer(texts), 3 * plain.encode(texts), rtol=1e-4, atol=1e-5)
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    write_code(folder, tmp_path / "ran", 4.0)
    assert f"carries code (shout.py), which --config.trust_remote_code={digest} does not permit" in told(
        str(folder), digest
    )
    assert not (tmp_path / "ran").exists()
    again = teacher(str(folder), code_digest(folder))
    assert again.fingerprint != trusted.fingerprint, "other code gives other answers"


def test_a_repository_by_its_commit(folder: Path, tmp_path: Path, hub: Hub) -> None:
    first = hub.add_commit(NAME, folder)
    write_code(folder, tmp_path / "ran", 5.0)
    second = hub.add_commit(NAME, folder)
    for source, commit in ((NAME, second), (f"{NAME}@{first}", first)):
        message = told(source)
        assert (
            f"--config.teacher={source} carries code (shout.py)" in message
            and f"trust_remote_code={commit} lets" in message
        )
    assert not (tmp_path / "ran").exists()
    texts = sentences(3)
    vectors = {
        (source, trusted): teacher(source, trusted).answer(texts)
        for source, trusted in ((NAME, first), (NAME, second), (f"{NAME}@{first}", first))
    }
    lengths = {key: float(np.linalg.norm(value)) for key, value in vectors.items()}
    assert lengths[NAME, first] == lengths[f"{NAME}@{first}", first]
    assert lengths[NAME, second] / lengths[NAME, first] == pytest.approx(5 / 3, rel=1e-5)
    # Another commit's permission is none, and neither is a digest.
    assert "and the one after its @" in told(f"{NAME}@{first}", second)
    assert "a commit is needed, 40 hexadecimal digits" in told(NAME, code_digest(folder))
    for wrong in ("main", first[:7], "", first + "0"):
        assert "after the @ of a hub id comes a commit, 40 hexadecimal digits" in told(f"{NAME}@{wrong}")


def test_code_of_another_repository_is_refused_whoever_is_trusted(folder: Path, tmp_path: Path) -> None:
    rows = json.loads((folder / "modules.json").read_text())
    rows[-1]["type"] = "owner/other--shout.Shout"
    (folder / "modules.json").write_text(json.dumps(rows))
    message = told(str(folder), code_digest(folder))
    assert "names code of another repository (owner/other--shout.Shout), which no commit of this one pins" in message
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "owner/third--model.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    assert "(owner/other--shout.Shout, owner/third--model.Model)" in told(str(folder), code_digest(folder))
    assert not (tmp_path / "ran").exists()


def test_what_trusted_code_would_bring_from_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    settings = json.loads((folder / "sentence_bert_config.json").read_text())
    settings["tokenizer_name_or_path"] = "owner/tok"
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    assert "names code of another repository (owner/tok)" in told(str(folder), code_digest(folder))
    assert not (tmp_path / "ran").exists()


def test_classes_that_a_folder_names_need_trust_without_a_file_of_code_too(folder: Path) -> None:
    """sentence-transformers before 6 fetches and runs them for any folder that is on this machine."""
    (folder / "shout.py").unlink()
    rows = json.loads((folder / "modules.json").read_text())
    rows[-1]["type"] = "owner/other--shout.Shout"
    (folder / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(UserError, match=r"names code \(owner/other--shout.Shout\), run only by jdistill.evaluate"):
        load_torch_encoder(str(folder))


def test_an_auto_map_that_transformers_does_not_need_runs_nothing_and_asks_for_nothing(tmp_path: Path) -> None:
    folder = save_encoder(model := make_encoder(num_layers=1), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "owner/other--model.Model", "AutoConfig": "model.Config"}
    (folder / "config.json").write_text(json.dumps(config))
    np.testing.assert_allclose(teacher(str(folder)).answer(sentences(3)), model.encode(sentences(3)), atol=1e-5)
    (folder / "nested").mkdir()
    (folder / "nested" / "model.py").write_text("")
    assert "carries code (nested/model.py)" in told(str(folder))


@pytest.mark.parametrize("source", ["{folder}", "vectors:{folder}"])
def test_trust_without_a_teacher_that_could_run_code(folder: Path, source: str) -> None:
    with pytest.raises(UserError, match="only a teacher st:SOURCE can run code"):
        open_teacher(source.format(folder=folder), 24, "float32", trusted_code="0" * 40)


def test_a_repository_of_bins_alone_is_fetched_with_them(tmp_path: Path, hub: Hub) -> None:
    folder = save_encoder(model := make_encoder(num_layers=1), tmp_path / "model")
    weights = folder / "model.safetensors"
    torch.save({name: torch.from_numpy(of) for name, of in load_file(weights).items()}, folder / "pytorch_model.bin")
    hub.add_commit("owner/both", folder)
    weights.unlink()
    hub.add_commit("owner/bins", folder)
    texts = sentences(5)
    for name, fetched in (("owner/both", False), ("owner/bins", True)):
        np.testing.assert_array_equal(jdistill.load(name).encode(texts), model.encode(texts))
        assert any("pytorch_model.bin" in request for request in hub.requests) == fetched, name
    shutil.rmtree(tmp_path / "hub-cache")
