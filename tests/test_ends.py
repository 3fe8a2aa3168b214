"""How a command ends: one line and a status, whatever happened; and other people's text on a terminal and in a card."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT, environment
from conftest import make_encoder, save_encoder

from jdistill import search
from jdistill.core import errors
from jdistill.core.errors import UserError, exits_cleanly
from jdistill.core.files import naming
from jdistill.core.printable import printable
from jdistill.encoder.loading import load
from jdistill.evals.collapse import check_tokens, check_vectors, effective_rank
from jdistill.export.card_text import code_span, plain
from jdistill.export.folder import export
from jdistill.retrieval.mining import Rules
from jdistill.teachers.cache import AnswerCache


def ends(error: BaseException, capsys: pytest.CaptureFixture[str], resumes: bool = True) -> tuple[int, str]:
    @exits_cleanly(resumes)
    def command() -> None:
        raise error

    status = command()
    return status, capsys.readouterr().err


def behind(error: Exception, other: Exception) -> Exception:
    error.__cause__ = other
    return error


@pytest.mark.parametrize("number, word", [
    (errno.ENOSPC, "make room"), (errno.EROFS, "can be written"), (errno.EACCES, "permissions"), (errno.EIO, "disk fails"),
    (errno.ENOTDIR, "a file stands"), (errno.EISDIR, "a folder stands"), (errno.EMFILE, "ulimit"), (errno.ELOOP, "circle"),
    (errno.ETIMEDOUT, "does not answer"), (errors.EREMOTEIO, "does not answer"),
])  # fmt: skip
def test_what_the_file_system_refuses_is_one_line(number: int, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = OSError(number, os.strerror(number), "there/model.safetensors")
    for error in (
        refused,
        behind(ValueError("a library's"), refused),
        behind(RuntimeError("a"), behind(KeyError("b"), refused)),
    ):
        status, said = ends(error, capsys)
        assert status == 2 and said.startswith("error: there/model.safetensors: ") and word in said
        assert said.count("\n") == 1


def test_what_rust_says_of_the_file_system_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = ends(Exception("Error while serializing: No space left on device (os error 28)"), capsys)
    assert status == 2 and "No space left" in said and "make room" in said and said.count("\n") == 1


def test_a_write_in_another_language_is_given_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @exits_cleanly(resumes=True)
    def command() -> None:
        with naming(tmp_path / "tokenizer.json"):
            raise Exception("No space left on device (os error 28)")

    assert command() == 2 and str(tmp_path / "tokenizer.json") in capsys.readouterr().err


def test_a_name_within_an_open_folder_is_given_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @exits_cleanly(resumes=True)
    def command() -> None:
        with naming(tmp_path):
            raise OSError(errno.EACCES, "Permission denied", "commit_success.txt")

    assert command() == 2 and f"{tmp_path}: commit_success.txt" in capsys.readouterr().err


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")

    @exits_cleanly(resumes=True)
    def command() -> None:
        AnswerCache(tmp_path / "file" / "teacher", 3)

    assert command() == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(tmp_path / "file") in said


@pytest.mark.parametrize("name", ["margin", "relative_margin"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_a_margin_that_is_no_number_is_refused(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{name} (nan|inf|-0.1) is no number"):
        Rules(**{name: value})


def test_ctrl_c_and_too_little_memory_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(KeyboardInterrupt(), capsys) == (130, "stopped by Ctrl-C; the same command goes on where it stopped\n")
    assert ends(KeyboardInterrupt(), capsys, resumes=False) == (130, "stopped by Ctrl-C\n")
    status, said = ends(MemoryError("Unable to allocate 9 TiB"), capsys)
    assert status == 2 and "9 TiB" in said and said.count("\n") == 1
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED") as of_jax:
        jnp.zeros(1 << 46).block_until_ready()
    for error in (of_jax.value, RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB.\nGPU 0 has …")):
        status, said = ends(error, capsys)
        assert status == 2 and "too little memory" in said and "ut of memory" in said and said.count("\n") == 1


def test_a_process_that_lost_another_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    lost = ValueError("UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer [127.0.0.1]:49307")
    status, said = ends(lost, capsys)
    assert status == 2 and "another process of this run has ended" in said and said.count("\n") == 1


def test_a_defect_of_ours_is_kept_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(errors, "_crash_folder", tmp_path)
    status, said = ends(ZeroDivisionError("of ours"), capsys)
    assert status == 1 and str(tmp_path / "crash.txt") in said and "ZeroDivisionError" in said and said.count("\n") == 1
    kept = (tmp_path / "crash.txt").read_text()
    assert "Traceback" in kept and "ZeroDivisionError: of ours" in kept and "test_ends.py" in kept
    # Where that folder is gone, among the temporary files.
    monkeypatch.setattr(errors, "_crash_folder", tmp_path / "gone")
    monkeypatch.setattr(errors.tempfile, "gettempdir", lambda: str(tmp_path))
    status, said = ends(ZeroDivisionError("of ours"), capsys)
    assert status == 1 and f"jdistill-crash-{os.getpid()}.txt" in said


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    code = (
        "from jdistill.core.errors import exits_cleanly\n@exits_cleanly(resumes=False)\ndef run():\n"
        "  for i in range(10**6): print(i)\nraise SystemExit(run())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0 and process.stderr.read() == ""


HOSTILE = "\x1b[2J\x1b]0;title\x07red\x9b31m \u202egnp.exe\u2066 \x00\x7f\r\u200b\u2028\ud800 ok é 東京 👩\u200d🔬"


def test_control_characters_are_shown() -> None:
    shown = printable(HOSTILE)
    assert shown.replace("\u200d", "").isprintable()
    assert "\\x1b[2J" in shown and "\\x9b" in shown and "\\u202e" in shown and "\\u2066" in shown and "\\ud800" in shown
    assert shown.endswith("ok é 東京 👩\u200d🔬")  # letters, and what joins them, stay
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc"


def test_search_shows_what_a_text_would_do_to_the_terminal(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(search, "answer", lambda *_: [(0.5, HOSTILE), (0.25, "two\nlines")])
    assert search.main(["a question", "--workdir", "run"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 2 and not any(mark in printed for mark in "\x1b\x07\x9b\u202e\u2066\x00\r\u2028")


def test_names_in_a_card_are_shown_letter_by_letter() -> None:
    for name in ("<script>alert(1)</script>", "[a](http://b)", "**bold**", "a|b", "x\ny", "`code`", "![i](j)"):
        assert not any(character in plain(name).replace(f"\\{character}", "") for character in "<>[]`*|!")
        assert "\n" not in plain(name)
    assert code_span("a`b``c") == "``` a`b``c ```" and code_span("plain") == "`plain`"


def test_the_card_of_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    from jdistill.export.card import write_card

    workdir = tmp_path / 'a"<b>`c`\x1b'
    workdir.mkdir()
    (workdir / "config.json").write_text(json.dumps({"method": "simtde", "teacher": "x`\n# heading\n<script>"}))
    export(make_encoder(num_layers=1), tmp_path / "out", add=[lambda folder: write_card(workdir, folder)])
    text = (tmp_path / "out" / "README.md").read_text()
    assert "\x1b" not in text and "\n# heading" not in text and "<b>" not in text.split("## Use")[0]
    assert 'SentenceTransformer("path/to/a\\"<b>`c`\\\\x1b")' in text


def test_vectors_that_are_all_alike_are_refused_and_few_directions_told(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    spread = rng.standard_normal((500, 64)).astype(np.float32)
    assert 50 < effective_rank(spread) <= 64
    alike = np.repeat(spread[:1], 500, 0)
    for vectors in (alike, alike * (1 + 1e-8), np.zeros((500, 64), np.float32)):
        with pytest.raises(UserError, match="gives the same vector for each of 500 different texts"):
            check_vectors(vectors, "the teacher")
    assert not caplog.records
    line = np.outer(rng.standard_normal(500), spread[0]).astype(np.float32)
    check_vectors(line + spread[1], "the teacher")
    assert "over 1.0 directions of 64" in caplog.text
    caplog.clear()
    check_vectors(spread, "the teacher")
    check_vectors(
        np.random.default_rng(0).normal(size=(3, 384)), "the teacher"
    )  # two directions are all there could be
    assert not caplog.records


def test_what_the_vocabulary_lacks_is_told_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    model = make_encoder()
    assert check_tokens(model, ["a plain sentence"] * 3, "the teacher") == 0.0 and not caplog.records
    assert 0.2 <= check_tokens(model, ["a plain \u0e01\u0e02 \u0e03\u0e04"], "the teacher") < 0.95
    assert "its vocabulary lacks" in caplog.text
    with pytest.raises(UserError, match="its vocabulary lacks 100 % of the tokens"):
        check_tokens(model, ["\U00012000 \U00012001 \U00012002"], "the teacher")


def test_an_export_that_has_changed_is_told_when_it_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def add_card(folder: Path) -> None:
        (folder / "README.md").write_text("A card.")

    export(make_encoder(num_layers=1), tmp_path / "out", add=[add_card])
    with caplog.at_level("WARNING", logger="jdistill"):
        load(str(tmp_path / "out"))
        assert "is not as it was exported" not in caplog.text
        (tmp_path / "out" / "README.md").write_text("A card of my own.")
        load(str(tmp_path / "out"))
        assert "is not as it was exported" not in caplog.text
        path = tmp_path / "out" / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
        load(str(tmp_path / "out"))
    assert "is not as it was exported: model.safetensors has changed" in caplog.text


def test_the_tokenizer_is_saved_the_same_whatever_it_was_used_for(tmp_path: Path) -> None:
    model = make_encoder(num_layers=1)
    save_encoder(model, tmp_path / "before")
    model.tokenizer(["a b c"], truncation=True, max_length=7, padding="max_length")
    save_encoder(model, tmp_path / "after")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "before" / name).read_bytes() == (tmp_path / "after" / name).read_bytes(), name
    assert json.loads((tmp_path / "after" / "tokenizer.json").read_text())["truncation"] is None


def test_a_peer_that_times_out_is_no_disk(capsys: pytest.CaptureFixture[str]) -> None:
    assert "another process of this run" in ends(RuntimeError("Gloo AllReduce failed: Connection timed out"), capsys)[1]
