"""An export sent to a stand-in of the hub: whole, private unless asked otherwise, and not at all unless asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import command, free_port, run_inside
from conftest import make_encoder, save_encoder, sentences
from hub_setting import Hub, contents, only_hub
from huggingface_hub import ModelCard, constants

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.export.command import main
from jdistill.export.push import plan_push, push_folder

NAME = "owner/my-student"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    place = tmp_path_factory.mktemp("push")
    save_encoder(make_encoder(num_layers=1), place / "teacher")
    (place / "text.txt").write_text("\n".join(sentences(120)) + "\n")
    keys = {
        "teacher": place / "teacher", "text": place / "text.txt", "text_column": "", "cache_dir": place / "cache", "held_out": 10,
        "student.layers": 1, "student.embedding_size": 12, "batch_size": 8, "max_steps": 2, "checkpoint_every": 2, "onnx": False,
        "latency_texts": 0, "index_texts": 0,
    }  # fmt: skip
    done = run_inside(command("configs/simtde.py", place / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    return place / "run"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with only_hub(monkeypatch, tmp_path) as hub:
        yield hub


def test_the_command_sends_the_folder_byte_for_byte_to_a_private_repository(
    run: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    out = tmp_path / "out"
    more = ["--push", NAME, "--license=apache-2.0", "--language", "en", "de"]
    assert main(["--workdir", str(run), "--out", str(out), "--format=onnx", *more]) == 0
    said = capsys.readouterr().err
    assert hub.repositories == {NAME: "private"} and hub.tokens == {"hf_secret"}
    sent = contents(out)
    assert hub.of(NAME) == sent
    assert {"README.md", "model.safetensors", "onnx/model.onnx", "tokenizer.json", "jdistill.json"} <= sent.keys()
    assert f"sent {len(sent)} files to {hub.url}/{NAME}/commit/" in said and "its owner alone" in said
    assert b"hf_secret" not in b"".join(sent.values()) and "hf_secret" not in said
    card = ModelCard.load(out / "README.md")
    assert card.data.license == "apache-2.0" and card.data.language == ["en", "de"]
    assert f'SentenceTransformer("{NAME}")' in card.text and f'snapshot_download("{NAME}")' in card.text
    assert not files.damage(out, "export")


def test_nothing_is_sent_unasked(run: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert main(["--workdir", str(run), "--out", str(tmp_path / "out")]) == 0
    assert hub.requests == []


def test_what_would_fail_is_refused_before_the_export(
    run: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--workdir", str(run), "--out", str(tmp_path / "out")]
    refusals = [([f"--push={NAME}"], f"--push={NAME} needs a token of the hub that may write: hf auth login keeps one")]
    refusals += [
        ([f"--push={name}"], f"--push={name}: the hub has no repository of such a name")
        for name in ("name", "a/b/c", "a/b c", "a/../b")
    ]
    refusals += [(["--push_public"], "--push_public says who may read what --push=OWNER/NAME sends")]
    for more, message in refusals:
        assert main([*arguments, *more]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, error
    for more in (["--license", "Apache 2"], ["--language", "English"]):
        with pytest.raises(SystemExit):
            main([*arguments, *more])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert main([*arguments, f"--push={NAME}"]) == 2
    assert "HF_HUB_OFFLINE is set" in capsys.readouterr().err
    assert hub.requests == [] and not (tmp_path / "out").exists()


def test_a_hub_that_is_not_there_or_refuses_leaves_the_export(
    run: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    out = tmp_path / "out"
    hub.refuses = True
    assert main(["--workdir", str(run), "--out", str(out), f"--push={NAME}"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"error: --push={NAME}: the hub at {hub.url} did not take it (HfHubHTTPError: 403" in error
    assert f"the export stays in {out}; hf upload {NAME} {out} --private sends it later" in error
    assert not hub.repositories and not hub.files and not files.damage(out, "export")
    before = contents(out)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(UserError, match=f"--push={NAME}: the hub at .* cannot be reached; the export stays in "):
        push_folder(plan_push(NAME, public=False), out)
    assert contents(out) == before


def small_folder(place: Path) -> Path:
    place.mkdir()
    (place / "README.md").write_text("---\nlicense: mit\n---\n# a\n")
    (place / "model.safetensors").write_bytes(os.urandom(1000))
    return place


def test_a_public_repository_only_by_its_own_flag(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    caplog.set_level("INFO")
    folder = small_folder(tmp_path / "folder")
    push_folder(plan_push(NAME, public=True), folder)
    assert hub.repositories == {NAME: "public"} and hub.of(NAME) == contents(folder)
    (folder / "model.safetensors").write_bytes(b"another")
    with pytest.raises(UserError, match="is public, where anybody would read the student; --push_public says"):
        push_folder(plan_push(NAME, public=False), folder)
    assert hub.files[NAME, "model.safetensors"] != b"another"
    older = {"older.txt": b"", "onnx/model.onnx": b"of another student"}
    hub.files.update({(NAME, name): content for name, content in older.items()})
    push_folder(plan_push(NAME, public=True), folder)
    assert hub.of(NAME) == contents(folder) | older
    assert "held older.txt, onnx/model.onnx before, which stay" in caplog.text
    assert "of them onnx/model.onnx are of another export" in caplog.text
    assert f"hf repos delete-files {NAME} onnx/model.onnx" in caplog.text
    # One that is private stays so, whatever the flag.
    hub.repositories["owner/hidden"] = "private"
    push_folder(plan_push("owner/hidden", public=True), folder)
    assert hub.repositories["owner/hidden"] == "private" and hub.of("owner/hidden") == contents(folder)
    assert "its owner alone" in caplog.records[-1].getMessage()


def test_all_that_the_hub_says_of_a_card_is_told(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError('Invalid metadata in README.md.\n- "license" must be one of [apache-2.0, mit]')

    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr("jdistill.export.push.HfApi.upload_folder", refuse)
    with pytest.raises(UserError, match='Invalid metadata in README.md. - "license" must be one of'):
        push_folder(plan_push(NAME, public=False), small_folder(tmp_path / "out"))
