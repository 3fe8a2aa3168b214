"""The command line: a mistake in it is one line that names file or key and what to do, exit status 2, no traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from absl import flags
from commands import ROOT, run

from jdistill.config.flags import define_config, parse


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch):
    """arguments -> the config that jdistill.main would run."""

    def config_of(*arguments: str):
        values = flags.FlagValues()
        define_config(values)
        flags.DEFINE_string("workdir", None, "", flag_values=values)
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, "argv", ["main", *arguments])
        parse(sys.argv, values)
        return values["config"].value

    return config_of


@pytest.fixture
def refused(parsed, capsys: pytest.CaptureFixture):
    """arguments -> the one line on standard error, without "error: "."""

    def message(*arguments: str) -> str:
        with pytest.raises(SystemExit) as stop:
            parsed(*arguments)
        printed = capsys.readouterr()
        assert stop.value.code == 2 and printed.out == ""
        assert printed.err.startswith("error: ") and printed.err.count("\n") == 1, printed.err
        return printed.err.removeprefix("error: ").strip()

    return message


def test_keys_and_variants_are_set(parsed):
    cfg = parsed("--config=configs/simtde.py:paper", "--config.epochs=2", "--noconfig.onnx", "--config.text", "a.txt")
    assert (cfg.loss.alpha, cfg.epochs, cfg.onnx, cfg.text) == (0.5, 2.0, False, "a.txt")
    assert parsed("--config", "configs/quickstart.py", "--config.loss.alpha", "0.25").loss.alpha == 0.25
    with pytest.raises(AttributeError):
        cfg.unknown = 3  # locked


def test_without_a_config(refused):
    for arguments in ((), ("--workdir=runs/a",), ("--config.epochs=3",)):
        assert refused(*arguments) == "--config is missing: --config configs/NAME.py or configs/NAME.py:VARIANT"
    assert refused("--config=").startswith("--config=: no file is named; give --config configs/NAME.py")
    assert refused("--config.epochs=3", "--config=configs/simtde.py").startswith(
        "Found --config.epochs=3 in argv before"
    )


def test_a_config_that_is_not_there(refused, tmp_path: Path):
    message = refused("--config=configs/simtd.py")
    assert message.startswith("--config=configs/simtd.py: there is no such file; give --config configs/NAME.py")
    assert message.endswith("; near it: configs/simtde.py")
    assert "; there are: configs/bilstm_sra.py, configs/" in refused("--config=/nowhere/mine.py")
    assert refused(f"--config={tmp_path}").startswith(f"--config={tmp_path}: this is a folder, not a config file")


@pytest.mark.parametrize("content,message", [
    ("x = (\n", "FILE, line 1: this is no Python: '(' was never closed"),
    ("import nonsense_module\n", "FILE, line 1: ModuleNotFoundError: No module named 'nonsense_module'"),
    ("raise OSError('boom')\n", "FILE, line 1: OSError: boom"),
    ("x = 1\n", "--config=FILE: FILE has no function get_config(), which is to return a ConfigDict"),
    ("get_config = 3\n", "--config=FILE: FILE has no function get_config(), which is to return a ConfigDict"),
    ("def get_config():\n    return 1 / 0\n", "FILE, line 2: ZeroDivisionError: division by zero"),
    ("def get_config():\n    pass\n", "--config=FILE: get_config() of FILE returns NoneType, not a ConfigDict"),
    ("def get_config(variant):\n    pass\n", "--config=FILE: FILE needs a variant: --config=FILE:VARIANT"),
    ("from configs import base\n\ndef get_config():\n    c = base.get_config()\n    c.epochs = 'two'\n",
     "FILE, line 5: TypeError: Could not override field 'epochs'"),
    ("\0", "FILE, line 1: this is no Python: source code string cannot contain null bytes"),
    ("x = '\xff'\n".encode("latin-1"), "this is no Python: (unicode error) 'utf-8' codec can't decode byte 0xff"),
])  # fmt: skip
def test_a_config_that_cannot_be_read(refused, tmp_path: Path, content: str | bytes, message: str):
    file = tmp_path / "mine.py"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message.replace("FILE", str(file)) in refused(f"--config={file}")


def test_a_config_that_lacks_the_others(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "configs", None)  # as it is in a folder without them
    file = tmp_path / "mine.py"
    file.write_text("from configs import base\n")
    assert "; run the command in the folder that holds configs/" in refused(f"--config={file}")


def test_an_unknown_variant(refused):
    assert refused("--config=configs/simtde.py:tiny").startswith(
        "configs/simtde.py has no variant 'tiny'; it has paper, last, deep,"
    )
    message = refused("--config=configs/quickstart.py:deep")
    assert message == "--config=configs/quickstart.py:deep: configs/quickstart.py has no variants; leave :deep away"


def test_an_unknown_key_is_named_with_those_near_it(refused):
    assert refused("--config=configs/ibkd.py", "--config.temperature=3") == (
        "--config.temperature: this config has no such key; near it: --config.loss.temperature, "
        "--config.finetune.loss.temperature, --config.loss.scores_temperature"
    )
    for wrong, right in (("loss.alhpa", "loss.alpha"), ("losss.alpha", "loss.alpha"), ("batchsize", "batch_size")):
        message = refused("--config=configs/simtde.py", f"--config.{wrong}=3")
        assert message.startswith(f"--config.{wrong}: this config has no such key; near it: --config.{right}")
    assert refused("--config=configs/simtde.py", "--noconfig.zzz") == (
        "--config.zzz: this config has no such key; docs/configs.md lists all"
    )
    assert refused("--config=configs/simtde.py", "--config.machine=h200") == (
        "--config.machine: this config has no such key; --machine is a flag of the command, without config."
    )
    assert refused("--config=configs/simtde.py", "--config.epochs.first=3").startswith(
        "--config.epochs.first: this config has no such key"
    )
    assert refused("--config=configs/simtde.py", "--config.student=runs/a").startswith(
        "--config.student is a block of keys; set one of them: --config.student.copy_layers, --config.student.dropout, "
    )


def test_a_value_of_another_type_on_the_command_line(refused):
    for key, value, must in (
        ("epochs", "abc", "a number, 0 or more"),
        ("batch_size", "3.5", "a whole number, 1 or more"),
        ("batch_size", "", "a whole number, 1 or more"),
        ("onnx", "perhaps", "True or False"),
        ("loss.alpha", "1,0", "a number, 0 or more"),
    ):
        message = refused("--config=configs/simtde.py", f"--config.{key}={value}")
        assert message == f"--config.{key}={value}: must be {must}"
    for value in ("{3", '{"alpha": 0.5}'):
        message = refused("--config=configs/simtde.py", f"--config.loss={value}")
        assert message.startswith("--config.loss is a block of keys; set one of them: --config.loss.")


def test_words_without_dashes_are_not_passed_over(refused):
    """--config.onnx False would leave it True, and config.epochs=3 would do nothing."""
    for arguments in (("config.epochs=3",), ("--config.onnx", "False")):
        assert refused("--config=configs/simtde.py", *arguments) == (
            f"{arguments[-1]!r} is no flag: write --config.KEY=VALUE, with = also for True and False"
        )


def test_a_config_that_was_changed_is_read_anew(parsed, tmp_path: Path):
    """In the same second and of the same length, which Python's compiled copies do not tell apart."""
    file = tmp_path / "mine.py"
    for count in (3, 4):
        file.write_text(
            f"from ml_collections import ConfigDict\n\ndef get_config():\n    return ConfigDict({{'a': {count}}})\n"
        )
        assert parsed(f"--config={file}").a == count
    assert list(tmp_path.iterdir()) == [file]


def test_the_command_itself(tmp_path: Path):
    """In a process of its own: exit status 2, and nothing but the line."""
    where = ["--config=configs/simtde.py", f"--workdir={tmp_path / 'run'}"]
    done = run([sys.executable, "-m", "jdistill.main", *where, "--config.batchsize=8"])
    line = "error: --config.batchsize: this config has no such key; near it: --config.batch_size"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "run").exists()
