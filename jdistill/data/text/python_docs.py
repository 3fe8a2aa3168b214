"""python-docs: sentences from the documentation that every Python carries, its docstrings and help topics."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jdistill.core.errors import UserError
from jdistill.data.text.docstring_prose import prose_sentences

# Not documentation, or (tkinter, turtle) a package of its own on some systems: one Python version is to give one text.
SKIPPED = {
    "__phello__",
    "_vendor",
    "antigravity",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "msilib",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "this",
    "tkinter",
    "turtle",
    "turtledemo",
}
# Written in C, so there is no source to parse; safe to import, and mostly imported already.
COMPILED = (
    "builtins",
    "sys",
    "math",
    "itertools",
    "time",
    "gc",
    "marshal",
    "errno",
    "atexit",
    "faulthandler",
    "posix",
    "_thread",
    "_signal",
    "_io",
    "_functools",
    "_collections",
    "_operator",
    "_string",
    "_sre",
    "_codecs",
    "_weakref",
    "_imp",
    "_warnings",
    "_abc",
    "_symtable",
    "_tracemalloc",
    "array",
    "_bisect",
    "binascii",
    "cmath",
    "_csv",
    "_datetime",
    "_decimal",
    "_elementtree",
    "fcntl",
    "grp",
    "_hashlib",
    "_heapq",
    "_json",
    "_lsprof",
    "mmap",
    "_pickle",
    "pwd",
    "pyexpat",
    "_queue",
    "_random",
    "resource",
    "select",
    "_socket",
    "_sqlite3",
    "_ssl",
    "_statistics",
    "_struct",
    "syslog",
    "termios",
    "unicodedata",
    "zlib",
    "_bz2",
    "_lzma",
    "_ctypes",
    "_asyncio",
    "_contextvars",
    "_posixsubprocess",
    "_multiprocessing",
    "_zoneinfo",
    "_uuid",
)


@cache
def _sentences() -> tuple[str, ...]:
    root = Path(sysconfig.get_path("stdlib"))
    sentences = dict.fromkeys(sentence for text in _documents(root) for sentence in prose_sentences(text))
    if not sentences:
        raise UserError(f"python-docs: no standard library can be read at {root}; name another --config.text")
    return tuple(sentences)


def python_docs() -> list[str]:
    """Distinct sentences (15 to 300 characters) of the standard library's docstrings and of pydoc_data.topics.

    In a fixed order; about 12,700 with Python 3.11 to 3.13, in a few seconds. Modules are parsed, not imported, but
    for a fixed list of compiled ones. Raises UserError where there is no standard library.
    """
    return list(_sentences())


def numbered_sentences(rest: str, column: str, key: str) -> Iterator[tuple[int, str]]:
    """The same, as a text source's rows. Raises UserError for anything after the name."""
    if rest:
        raise UserError(f"--{key}=python-docs:{rest}: nothing comes after python-docs")
    return enumerate(python_docs(), 1)


def _documents(root: Path) -> Iterator[str]:
    topics = root / "pydoc_data" / "topics.py"
    if topics.is_file():
        for node in ast.walk(ast.parse(topics.read_bytes())):
            if isinstance(node, ast.Dict):
                texts = (value.value for value in node.values if isinstance(value, ast.Constant))
                yield from (text for text in texts if isinstance(text, str))
    for name in sorted(sys.stdlib_module_names - SKIPPED):
        for path in [root / f"{name}.py", *sorted((root / name).rglob("*.py"))]:
            inside = path.relative_to(root).with_suffix("").parts
            if path.is_file() and not SKIPPED & set(inside) and not any(_is_private(part) for part in inside):
                yield from _docstrings(path)
    for name in COMPILED:
        try:
            module = importlib.import_module(name)
        except ImportError:  # not built into this Python
            continue
        yield from _compiled_docs(module)


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings(action="ignore"):  # invalid escapes in other people's docstrings
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not isinstance(node, ast.Module) and _is_private(node.name):
                continue
            yield ast.get_docstring(node) or ""
        if not isinstance(node, ast.expr):
            todo += reversed(list(ast.iter_child_nodes(node)))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _compiled_docs(module: object) -> Iterator[str]:
    for holder in [module, *(value for _, value in sorted(vars(module).items()) if isinstance(value, type))]:
        for name, value in sorted(vars(holder).items()):
            text = value if name == "__doc__" else getattr(value, "__doc__", None)
            # A plain value shows the docstring of its class: int's on every constant.
            own = name == "__doc__" or callable(value) or type(value).__name__.endswith("descriptor")
            if own and isinstance(text, str):
                yield inspect.cleandoc(text)
