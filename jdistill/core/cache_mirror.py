"""A cache in an object store: what a local mirror of it lacks is fetched by its name, and what is made there is stored.

Names are those of the content, so that machines never write one object in two ways, and need no lock: tokens, texts and mined negatives are
stored with the file that vouches for them last; answers in parts that no two processes share. What the store spoils, or brings half, the
checksums of the local files tell.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from jdistill.core.digest import digest
from jdistill.core.fetched import mirrors_folder
from jdistill.core.files import TEMPORARY
from jdistill.core.printable import without_secrets
from jdistill.core.progress import log
from jdistill.core.remote import Store, StoreError, is_url

CACHE_MARK = "jdistill-cache.json"
# Of a part, after which answers go into another: a part is stored whole each time it has grown. After each PARTS_OF_A_SIZE they may be
# larger by as much, so that a cache of any size is of no more parts than a process can open.
PART_BYTES, PARTS_OF_A_SIZE = 1 << 26, 32
DERIVED = ".index"  # ends names of files that are made again from those beside them

_roots: dict[Path, str] = {}  # local folders of caches in stores, and their URLs
_own_parts: dict[Path, int] = {}


def cache_root(location: str, key: str = "config.cache_dir") -> Path:
    """The local folder of a cache: of a URL a mirror; ~ is the home folder.

    Raises: StoreError where the store does not answer, or may not be written to.
    """
    if not is_url(location):
        return Path(os.path.expanduser(location))
    root = mirrors_folder() / f"cache-{digest(location.rstrip('/'))[:16]}"
    if root not in _roots:
        Store(location, key).write(CACHE_MARK, b'{"made_by": "jdistill", "what": "a cache, which may be deleted"}\n')
        log.info("%s is worked on in %s", without_secrets(location), root)
        _roots[root] = location.rstrip("/")
    return root


def bring_files(folder: Path, pattern: str, vouching: str) -> None:
    """Fetches files of a folder that its store has, where the folder is of a mirror.

    Args:
      folder: in a cache.
      pattern: of their names.
      vouching: the name of the one that was stored last, without which the others do not count.
    """
    with _store_of(folder, "fetched") as store:
        there = _sizes_there(store, pattern) if store else {}
        if store and vouching in there:
            _fetch(store, folder, there, _sizes_here(folder, pattern), vouching)


def share_files(folder: Path, pattern: str, vouching: str) -> None:
    """Stores files of a folder that were just made, where the folder is of a mirror. Arguments as of bring_files."""
    with _store_of(folder, "stored") as store:
        if store:
            for name in sorted(_sizes_here(folder, pattern), key=lambda name: _rank(name, vouching)):
                store.put(folder / name, name)


def sync_parts(folder: Path) -> None:
    """Fetches the parts of a folder of answers that this mirror lacks, and stores those that its store lacks; they only grow."""
    with _store_of(folder, "stored or completed") as store:
        if store:
            there, here = _sizes_there(store, "*"), _sizes_here(folder, "*")
            _fetch(store, folder, there, here)
            for name in sorted(here, key=_rank):
                if here[name] > there.get(name, -1):
                    store.put(folder / name, name)


def own_part(folder: Path, writer: int) -> int:
    """The number of the part of a folder that this process adds answers to: the writer's own where the folder is of no mirror, else one that
    no other process has."""
    if _url_of(folder) is None:
        return writer
    if folder not in _own_parts or is_part_full(folder / f"part-{_own_parts[folder]}.values"):
        _own_parts[folder] = random.SystemRandom().randrange(10**8, 10**9)
    return _own_parts[folder]


def is_part_full(values: Path) -> bool:
    """Whether a part, by the file of its values, is to be stored and another begun; never in a folder of no mirror."""
    if _url_of(values.parent) is None or not values.is_file() or values.stat().st_size <= PART_BYTES:
        return False
    parts = sum(1 for _ in values.parent.glob("part-*.values"))
    return values.stat().st_size > PART_BYTES * (1 + parts // PARTS_OF_A_SIZE)


def _url_of(folder: Path) -> str | None:
    """Where a folder of a mirror lies in its store; None for any other folder."""
    for root, url in _roots.items():
        if folder.is_relative_to(root):
            return f"{url}/{folder.relative_to(root).as_posix()}"
    return None


@contextmanager
def _store_of(folder: Path, what: str) -> Iterator[Store | None]:
    """A folder's place in its store; None where it is of no mirror. A store that fails meanwhile costs work that is done twice, and no
    run: it is said what could not be done."""
    url = _url_of(folder)
    if url is None:
        yield None
        return
    try:
        yield Store(url)
    except (StoreError, OSError) as error:
        log.warning("the cache %s could not be %s: %s", without_secrets(url), what, error)


def _sizes_there(store: Store, pattern: str) -> dict[str, int]:
    return {name: size for name, (size, _) in store.files().items() if _counts(name, pattern)}


def _sizes_here(folder: Path, pattern: str) -> dict[str, int]:
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.stat().st_size for name, path in paths.items() if _counts(name, pattern)}


def _fetch(store: Store, folder: Path, there: dict[str, int], here: dict[str, int], vouching: str = "") -> None:
    lacking = sorted(
        (name for name in there if there[name] > here.get(name, -1)), key=lambda name: _rank(name, vouching)
    )
    if lacking:
        store.fetch_all({name: there[name] for name in lacking}, folder, f"fetching {store.shown}")


def _rank(name: str, vouching: str = "") -> tuple[bool, str]:
    """Sorts what vouches for the others behind them: a row of answers counts once its key is there."""
    return name == vouching or name.endswith(".keys"), name


def _counts(name: str, pattern: str) -> bool:
    return (
        fnmatch(name, pattern)
        and not name.endswith(DERIVED)
        and not any(part.startswith(TEMPORARY) for part in Path(name).parts)
    )
