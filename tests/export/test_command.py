"""The flags of the export command: what --plain leaves out, what a run's own export may not become, flags that say nothing alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, save_encoder

from jdistill.encoder.classifier import Classifier, load_classifier, save_head
from jdistill.export import command
from jdistill.export.plain import with_built_in_pooler
from jdistill.export.torch_int8 import save_int8_folder

CONFIG = {"method": "classify", "teacher": "", "text": ""}
STUDENT = replace(make_encoder(num_layers=2), pooling="max_last2")
RNG = np.random.default_rng(0)
HEAD = {
    name: {"kernel": RNG.normal(size=shape).astype(np.float32), "bias": np.zeros(shape[1], np.float32)}
    for name, shape in (("hidden", (32, 256)), ("out", (256, 2)))
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a classifier, whose student's pooler sentence-transformers lacks."""
    save_head(Classifier(STUDENT, HEAD, ("no", "yes"), False), save_encoder(STUDENT, tmp_path / "run" / "export"))
    (tmp_path / "run" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setattr(command, "last_stage", lambda _: "task")
    monkeypatch.setattr(command, "load_trained", lambda *_: (STUDENT, {"student": STUDENT.weights, "head": HEAD}, 3))
    return tmp_path / "run"


@pytest.mark.parametrize("plain", [False, True])
def test_a_head_goes_with_the_vectors_that_it_was_trained_on(
    run: Path, tmp_path: Path, plain: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--workdir", str(run), "--out", str(tmp_path / "out"), *["--plain"] * plain]) == 0
    assert (tmp_path / "out" / "head.json").is_file() == (tmp_path / "out" / "head.safetensors").is_file() != plain
    told = "classifier's head was trained on another pooler's vectors, and is left out" in capsys.readouterr().err
    assert told == plain


@pytest.mark.parametrize("flag", ["--plain", "--documents=TEACHER", "--step=2", "--stage=distil"])
def test_a_run_s_own_export_becomes_no_other_model(run: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = load_classifier(str(run / "export")).fingerprint()
    assert command.main(["--workdir", str(run), "--out", str(run / "export"), "--overwrite", flag]) == 2
    error = capsys.readouterr().err
    assert f"{flag.split('=')[0]} is for a folder of its own" in error and "name another --out" in error
    assert load_classifier(str(run / "export")).fingerprint() == before


@pytest.mark.parametrize("flags", [["--target", "gguf"], ["--quantize=int8"], ["--format=gguf"]])
def test_further_forms_have_a_folder_of_their_own(
    run: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = load_classifier(str(run / "export")).fingerprint()
    command_flags = ["--workdir", str(run), "--out", str(run / "export"), "--overwrite"]
    assert command.main([*command_flags, *flags]) == 2
    assert "is the run's own export" in capsys.readouterr().err
    (run / "config.json").write_text(json.dumps(CONFIG | {"budget": {}}))
    assert command.main(command_flags) == 2
    assert "the run has a budget" in capsys.readouterr().err
    assert load_classifier(str(run / "export")).fingerprint() == before


def test_a_run_that_is_not_finished_is_said_to_be_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = f"WARNING: {run} is not finished: this is its student after step 3"
    assert command.main(["--workdir", str(run), "--out", str(tmp_path / "early"), "--plain"]) == 0
    assert told in capsys.readouterr().err
    (run / "results.json").write_text("{}")
    assert command.main(["--workdir", str(run), "--out", str(tmp_path / "late"), "--plain"]) == 0
    assert told not in capsys.readouterr().err


def test_a_run_s_own_export_keeps_its_graph(run: Path) -> None:
    (run / "config.json").write_text(json.dumps(CONFIG | {"onnx": True}))
    assert command.main(["--workdir", str(run), "--out", str(run / "export"), "--overwrite"]) == 0
    assert (run / "export" / "onnx" / "model.onnx").is_file() and (run / "export" / "head.json").is_file()


def test_a_head_whose_labels_nobody_knows_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "export" / "head.json").unlink()
    assert command.main(["--workdir", str(run), "--out", str(tmp_path / "out")]) == 2
    assert "head.json is missing, which names the labels" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_run_s_own_export_is_written_again(run: Path) -> None:
    before = load_classifier(str(run / "export")).fingerprint()
    assert command.main(["--workdir", str(run), "--out", str(run / "export"), "--overwrite", "--stage=task"]) == 0
    assert load_classifier(str(run / "export")).fingerprint() == before


@pytest.mark.parametrize("more", [(), ("--target", "torch-int8"), ("--format=site",)])
def test_quantize_for_alone_says_nothing(run: Path, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--workdir", str(run), "--out", str(run.parent / "out"), "--quantize_for=torch", *more]
    assert command.main(flags) == 2
    assert "quantize_for" in capsys.readouterr().err and not (run.parent / "out").exists()


def test_no_form_of_other_runtimes_is_copied_into_torch_int8(tmp_path: Path) -> None:
    plain = save_encoder(make_encoder(num_layers=1), tmp_path / "plain")
    for form in ("gguf", "onnx"):
        (plain / form).mkdir()
        (plain / form / "model").write_text("large")
    out = save_int8_folder(make_encoder(num_layers=1), plain, plain / "torch_int8")
    assert (out / "int8.safetensors").is_file() and not {"gguf", "onnx"} & {path.name for path in out.iterdir()}


def test_a_run_that_has_saved_nothing_yet_is_no_damaged_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run" / "distil").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text(json.dumps(CONFIG))
    save_encoder(STUDENT, tmp_path / "run" / "distil" / "student")
    assert command.main(["--workdir", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--stage=distil"]) == 2
    assert "distil keeps no checkpoint yet" in capsys.readouterr().err


def test_a_pooler_that_is_left_out_takes_its_numbers_with_it() -> None:
    model = make_encoder(num_layers=1)
    numbers = {"pma": {"query": {"kernel": np.zeros((32, 4), np.float32)}}}
    plain = with_built_in_pooler(replace(model, pooling="pma", pooler=numbers))
    assert plain.pooling == "mean" and plain.num_params == model.num_params
