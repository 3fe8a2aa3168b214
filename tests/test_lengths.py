"""No file of Python is longer than 250 lines and no function longer than 80: what is longer does more than one thing."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("jdistill", "tests", "bench", "configs", "docs", "launch")
SOURCES = {path: path.read_text() for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))}
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 250, 80


def test_no_file_is_too_long() -> None:
    lines = {str(path.relative_to(ROOT)): len(source.splitlines()) for path, source in SOURCES.items()}
    assert {Path(name).parts[0] for name in lines} == set(FOLDERS)
    assert not (long := {name: count for name, count in lines.items() if count > LINES_OF_A_FILE}), long


def test_no_function_is_too_long() -> None:
    lines = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, source in SOURCES.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not (long := {name: count for name, count in lines.items() if count > LINES_OF_A_FUNCTION}), long
