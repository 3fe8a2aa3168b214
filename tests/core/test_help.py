"""--help of the commands: examples keep their lines, and a flag that has a default says which."""

from __future__ import annotations

import argparse

import pytest

from jdistill import embed, evaluate, mine
from jdistill.core.help import CommandHelp
from jdistill.export import command as export

ABOUT = """What it does, in a sentence that is longer than a terminal of forty columns.

    python -m one --in FILE_OF_A_LONG_NAME --out FILE_OF_A_LONG_NAME
    python -m two

The end."""


def test_prose_fits_the_terminal_and_commands_keep_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "42")
    lines = argparse.ArgumentParser(description=ABOUT, formatter_class=CommandHelp).format_help().splitlines()
    assert (
        "    python -m one --in FILE_OF_A_LONG_NAME --out FILE_OF_A_LONG_NAME" in lines and "    python -m two" in lines
    )
    assert "The end." in lines
    assert all(len(line) <= 40 for line in lines if not line.startswith("    python"))


def test_defaults_that_say_something_are_told() -> None:
    parser = argparse.ArgumentParser(formatter_class=CommandHelp)
    for name, default in {
        "size": 0,
        "share": "5 %",
        "rates": ["1", "2"],
        "empty": "",
        "nothing": None,
        "none": [],
    }.items():
        parser.add_argument(f"--{name}", default=default, help="some words")
    parser.add_argument("--yes", action="store_true", help="some words")
    parser.add_argument("--wanted", required=True, help="some words")
    told = {
        line.split()[0]: line.partition("some words")[2] for line in parser.format_help().splitlines() if "some" in line
    }
    shown = {"--size": " (default: 0)", "--share": " (default: 5 %)", "--rates": " (default: 1 2)"}
    assert told == shown | dict.fromkeys(("--empty", "--nothing", "--none", "--yes", "--wanted"), "")


@pytest.mark.parametrize("command", [embed, evaluate, mine, export])
def test_every_command_has_it(command) -> None:
    parser = command.make_parser()
    assert parser.formatter_class is CommandHelp and "(default: " in parser.format_help()
