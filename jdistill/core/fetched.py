"""Local copies of what a URL names, for reading: fetched once, and what has changed in the store again."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path, PurePosixPath

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.files import TEMPORARY, default_folder, look_into, write_json
from jdistill.core.left_over import take_away
from jdistill.core.locks import only_one
from jdistill.core.progress import log
from jdistill.core.remote import ObjectVersion, Store, StoreError, is_url

RUN_FILES = "jdistill-files.json"  # of a run's folder in a store: its files as of one moment, written after them (core.run_mirror)
HALF_FETCHED = TEMPORARY + 16 * "[0-9a-f]"  # a pattern of what Store.fetch writes into

_warned: set[str] = set()  # URLs of which it was said that their store tells no versions


def fetched_folder() -> Path:
    """Where copies lie; it may be deleted whenever no command runs."""
    return default_folder() / "fetched"


def mirrors_folder() -> Path:
    """Where the local folders of runs and caches in stores lie."""
    return default_folder() / "mirrors"


def versions_of(url: str, key: str) -> dict[str, ObjectVersion]:
    """What tells whether a file or folder of a store has changed, by name; of a file itself by "". Raises StoreError where there is none."""
    return _readable(Store(url, key))


def local_copy(url: str, key: str, parts: tuple[str, ...] = ()) -> Path:
    """A local copy of a file or a folder of a store; what was fetched before, and has not changed since, is not fetched again.

    Args:
      url: of the file or folder. Of a run's folder those files count that were there whole at one moment.
      key: the config key or flag that named it, for messages.
      parts: what the names of the wanted files of a folder begin with; empty: all are wanted.

    Raises: StoreError where it is not there or cannot be had.
    """
    store = Store(url, key)
    place = fetched_folder() / digest(store.url, parts)
    copy = place / (
        re.sub(r"[^\w.-]", "_", store.url.partition("?")[0].rpartition("/")[2])[-100:].lstrip(".") or "file"
    )
    place.mkdir(parents=True, exist_ok=True)
    with only_one(place / f"{TEMPORARY}lock", place, "the fetching", wait=True):
        there, record = _readable(store, parts), place / ".versions.json"  # no copy begins so
        before = look_into(record)
        before = before if isinstance(before, dict) else {}
        if copy.is_file() != ("" in there) and copy.exists():
            _remove(copy)
        # Whatever has left the store, also what came of a fetch that was cut off.
        for name in fetched_names(copy) - there.keys():
            _remove(copy / name)
        sizes = {
            name: size
            for name, (size, tells) in there.items()
            if not _is_here(copy / name, [size, tells], before.get(name))
        }
        if sizes:
            write_json(
                record, {name: version for name, version in before.items() if name in there and name not in sizes}
            )
            for half_fetched in place.rglob(HALF_FETCHED):
                take_away(half_fetched)
            if len(sizes) < len(there) or before:
                log.info("%s: %d of %d files are new or have changed", store.shown, len(sizes), len(there))
            store.fetch_all(sizes, copy, f"fetching {store.shown}")
        if there != before:
            write_json(record, there)
    return copy


def fetched_names(copy: Path) -> set[str]:
    """The files of a copied folder, by their names in the store; "" is a copied file."""
    if not copy.is_dir():
        return {""} if copy.exists() else set()
    return {
        path.relative_to(copy).as_posix()
        for path in copy.rglob("*")
        if not path.is_dir() and TEMPORARY not in path.name
    }


def path_here(source: str, key: str, parts: tuple[str, ...] = ()) -> Path:
    """A source as a local path: of a URL its local_copy; ~ is the home folder."""
    return local_copy(source, key, parts) if is_url(source) else Path(os.path.expanduser(source))


def run_files(store: Store) -> dict[str, list] | None:
    """What RUN_FILES says of a run's folder in a store, name -> [bytes, digest]; None where there is none. Raises UserError for a damaged
    one."""
    content = store.read(RUN_FILES)
    if content is None:
        return None
    try:
        listed = json.loads(content)["files"]
        if any(name.startswith("/") or ".." in PurePosixPath(name).parts for name in listed):
            raise ValueError("a name leads out of the folder")
        return {name: [int(size), str(of_content)] for name, (size, of_content) in listed.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(
            f"{store.shown}/{RUN_FILES} is damaged; remove it to have the run's other files taken as they are"
        ) from None


def _readable(store: Store, parts: tuple[str, ...] = ()) -> dict[str, ObjectVersion]:
    there = store.files()
    if RUN_FILES in there:
        whole = run_files(store) or {}
        there = {name: version for name, version in there.items() if name in whole}
    if parts:
        there = {name: version for name, version in there.items() if name.startswith(parts)}
    if not there:
        raise StoreError(f"{store.label}: there is no such object, and no folder that holds any; check the name")
    if store.url not in _warned and not all(tells for _, tells in there.values()):
        _warned.add(store.url)
        log.warning(
            "WARNING: %s: its store says neither by a digest nor by a time when an object has changed, so that one of the same size is taken for "
            "the one before; give a changed object another name",
            store.shown,
        )
    return there


def _is_here(path: Path, version: ObjectVersion, before: ObjectVersion | None) -> bool:
    return version == before and path.is_file() and version[0] in (-1, path.stat().st_size)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
