"""How a command's --help reads: examples as they stand, a default behind each flag that has one."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any


class CommandHelp(argparse.HelpFormatter):
    """argparse's formatter for a command whose description has prose and indented commands: prose fits the terminal, commands keep their
    lines."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        told = action.required or action.default in (None, "", [], argparse.SUPPRESS) or action.default is False
        return text if told or not text else f"{text} (default: {_shown(action.default)})"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(
            textwrap.indent(part, indent) if part.startswith(" ") else textwrap.fill(" ".join(part.split()), width)
            for part in paragraphs
        )


def _shown(default: Any) -> str:
    some = default if isinstance(default, list | tuple) else [default]
    return " ".join(map(str, some)).replace("%", "%%")
