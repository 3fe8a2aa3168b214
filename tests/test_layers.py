"""The rooms of the house: each imports those above it in DESIGN's list only, and some never reach JAX or a method."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    "core", "losses", "data", "models", "report", "encoder", "retrieval", "students", "teachers", "train", "evals", "export", "feeds",
    "methods", "config", "run", "sweep",
)  # fmt: skip
COMMANDS = {"main", "evaluate", "search", "compare", "mine", "embed"}
# Of a room, or of a module in it: rooms that it reaches neither itself nor through what it imports.
NEVER = {
    "jdistill.encoder.loading": {"methods", "feeds", "train", "run"},
    "jdistill.export.folder": {"methods", "feeds", "run"},
    "jdistill.export.command": {"methods", "feeds", "run"},
    "jdistill.evals.suite": {"methods", "feeds", "run", "train"},
}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "jdistill").rglob("*.py")
}


def imported(module: str) -> Iterator[str]:
    """Modules of jdistill that a module imports, also within its functions; not those that only a type checker reads."""
    tree = ast.parse(MODULES[module].read_text())
    for_types = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.dump(test.test)
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "jdistill":
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if full in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in MODULES)


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_module_is_in_a_room() -> None:
    """At the top stand the commands alone."""
    assert {room_of(module) for module in MODULES} == {"", *ROOMS, *COMMANDS}


def test_tests_stand_in_rooms_of_the_same_names() -> None:
    """At their top those of the commands and of the whole project alone, and what several use."""
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")} - {Path()}
    assert folders == set(map(Path, ROOMS))
    names = [path.name for path in (ROOT / "tests").rglob("*.py")]
    assert len(names) == len(set(names))  # which pytest imports by their names alone


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_downwards(room: str) -> None:
    above = {"", *ROOMS[: ROOMS.index(room) + 1]}
    wrong = [
        (module, name)
        for module in MODULES
        if room_of(module) == room
        for name in imported(module)
        if room_of(name) not in above
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("module", NEVER)
def test_what_loads_and_exports_a_student_knows_no_method(module: str) -> None:
    reached, left = set(), [module]
    while left:
        if (name := left.pop()) not in reached:
            reached.add(name)
            left += imported(name)
    assert not NEVER[module] & {room_of(name) for name in reached}, sorted(
        name for name in reached if room_of(name) in NEVER[module]
    )


def test_data_and_reports_need_no_jax() -> None:
    modules = [
        module for module in MODULES if room_of(module) in ("data", "report") and not module.endswith("__main__")
    ]
    code = f"import sys\nfor module in {modules}: __import__(module)\nprint([name for name in ('jax', 'flax', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr[-2000:]
