"""Object stores by their URLs (s3://, gs://, https:// and whatever else fsspec reads); nothing else in jdistill knows fsspec.

Nothing of a store can be memory-mapped, locked or renamed, so all work is done in local folders, and files are fetched and stored
whole (core.fetched, core.run_mirror, core.cache_mirror). fsspec is imported when a URL is seen.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from jdistill.core.errors import UserError, first_line
from jdistill.core.files import TEMPORARY
from jdistill.core.printable import without_secrets
from jdistill.core.progress import Progress, log, progress
from jdistill.core.time_limit import within

URL = re.compile(r"[a-z][a-z0-9+.-]*://")
LIBRARIES = {
    "s3": "pip install 'jdistill[s3]'",
    "gs": "pip install 'jdistill[gcs]'",
    "http": "pip install aiohttp requests",
}  # what fetches such URLs, beside what jdistill brings
ANSWER_S = 60.0  # within which a store answers one question
SLOWEST = 50_000  # bytes a second, by which the transfer of a file may take longer
UNTOLD_S = 24 * 3600.0  # for one of whose size the store says nothing
PAUSES = (1.0, 5.0)  # seconds before a question is asked again; the libraries below ask several times themselves
VERSIONS = ("ETag", "etag", "generation", "md5Hash", "mtime", "LastModified", "updated", "created")  # of an object
WEB_VERSIONS = ("Content-MD5", "Digest", "Last-Modified")  # of one that a web server has, without ETag
# Beside FileNotFoundError, what does not change when it is asked again.
FINAL = (
    PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ImportError, ValueError, TypeError,
)  # fmt: skip
OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG)

_Answer = TypeVar("_Answer")
# Of an object: its size in bytes, and, as the store has them, what tells that it has changed.
ObjectVersion = list[Any]


class StoreError(UserError):
    """A store that does not answer, refuses, or lacks what is asked of it."""


def is_url(source: str) -> bool:
    """Whether a source names a store, as s3://bucket/text.txt.gz does, and no path, hub id or scheme such as pkg:."""
    return URL.match(source) is not None


def local_only(source: str) -> Path:
    """The path of a flag that takes no URL, for argparse; ~ is the home. Raises UserError for a URL."""
    if is_url(source):
        raise UserError(f"{source}: must be a local path here; give one, and copy what is written there to the store")
    return Path(os.path.expanduser(source))


class Store:
    """A file of an object store, or a folder: all whose names begin with it and a slash.

    Each question is asked again where the store is slow or fails, and ends in a StoreError of one line.

    Args:
      url: of the file or folder.
      key: the config key or flag that named it, for messages; "": none.

    Raises: StoreError where fsspec knows no such store, or the library that reads it is not installed.
    """

    def __init__(self, url: str, key: str = ""):
        self.url, self.shown = url.rstrip("/"), without_secrets(url.rstrip("/"))
        self.label = f"--{key}={self.shown}" if key else self.shown
        self._fs, self._root = self._ask(self._open)
        self._root = self._root.rstrip("/")

    def _open(self) -> tuple[Any, str]:
        import fsspec

        # One store behind another, and files that are lists of others', may come from a stranger's settings and go anywhere.
        if "::" in self.url or self.url.startswith("reference:"):
            raise ValueError("URLs of one store behind another are not read here")
        return fsspec.url_to_fs(self.url, **({"auto_mkdir": True} if self.url.startswith("file:") else {}))

    def files(self) -> dict[str, ObjectVersion]:
        """The files of a folder, by their names relative to it, in order; of a file itself {"": its version}; of what is not there none.

        Raises: StoreError, also for a name that leads out of the folder.
        """

        def look() -> dict[str, Any]:
            self._fs.invalidate_cache()
            try:
                about = self._fs.info(self._root)
            except FileNotFoundError as error:
                _refuse_unreachable(error)
                about = None
            if about and about["type"] == "file":
                return {self._root: about}
            below = _listing(self._fs, self._root) if about else self._fs.find(self._root, detail=True)
            return {path: of for path, of in below.items() if of["type"] == "file" and not path.endswith("/")}

        there = {path.removeprefix(self._root).lstrip("/"): about for path, about in self._ask(look).items()}
        for name in there:
            if ".." in PurePosixPath(name).parts or "\0" in name:
                raise StoreError(f"{self.label} holds {name!r}, a name that leads out of it; remove it")
        return {name: _version(there[name]) for name in sorted(there)}

    def read(self, name: str) -> bytes | None:
        """A small file's bytes; None where there is none."""
        return self._ask(partial(_unless_missing, self._fs.cat_file, self._path(name)))

    def write(self, name: str, content: bytes, new: bool = False) -> bool:
        """Writes a small file, whole.

        Args:
          new: only where there is none.

        Returns: whether it was written.
        """

        def write() -> bool:
            try:
                self._fs.pipe_file(self._path(name), content, **({"mode": "create"} if new else {}))
            except FileExistsError:
                return False
            return True

        return self._ask(write)

    def fetch(self, name: str, path: Path, size: int, meter: Progress | None = None) -> None:
        """Brings a file of so many bytes, -1 of one whose store does not tell, to a local place, where it is whole or not there. meter:
        counts its bytes."""
        path.parent.mkdir(parents=True, exist_ok=True)

        def get() -> None:
            beside = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
            try:
                self._fs.get_file(self._path(name), str(beside))
                with open(beside, "rb") as file:
                    os.fsync(file.fileno())
                if size >= 0 and beside.stat().st_size != size:
                    raise ConnectionError(f"{beside.stat().st_size} of {size} bytes came")
                os.replace(beside, path)
            finally:
                beside.unlink(missing_ok=True)

        self._ask(get, size)
        if meter is not None:
            meter.advance(max(size, 0))

    def fetch_all(self, sizes: dict[str, int], folder: Path, what: str) -> None:
        """Brings files, name -> bytes, into a local folder in this order. what: it is, for the progress."""
        with progress(what, sum(max(size, 0) for size in sizes.values()), "bytes") as meter:
            for name, size in sizes.items():
                self.fetch(name, folder / name, size, meter)

    def put(self, path: Path, name: str) -> None:
        """Stores a local file, whole. Raises FileNotFoundError where it is gone."""
        size = path.stat().st_size
        try:
            self._ask(partial(self._fs.put_file, str(path), self._path(name)), size)
        except StoreError:
            path.stat()  # which may be gone meanwhile
            raise

    def delete(self, names: Iterable[str]) -> None:
        """Deletes files; one that is not there is no error."""
        for name in names:
            self._ask(partial(_unless_missing, self._fs.rm_file, self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _ask(self, question: Callable[[], _Answer], transfer: int = 0) -> _Answer:
        """What a function of the store gives. transfer: bytes that it moves; -1: the store does not tell how many."""
        for pause in (*PAUSES, None):
            try:
                return within(ANSWER_S + (transfer / SLOWEST if transfer >= 0 else UNTOLD_S), question)
            except Exception as error:  # each library has its own
                if isinstance(error, OSError) and (error.errno in OF_DISKS or error.filename is not None):
                    raise  # of a local file
                if pause is None or isinstance(error, (*FINAL, FileNotFoundError)) or _lacks_credentials(error):
                    raise StoreError(self._in_words(error)) from error
                log.info("%s: %s; asked again in %d s", self.shown, without_secrets(first_line(error))[:200], pause)
                time.sleep(pause)
        raise AssertionError("the last question has no pause")

    def _in_words(self, error: Exception) -> str:
        said = f"{self.label}: "
        why = f"({type(error).__name__}: {without_secrets(first_line(error))[:200]})"
        if isinstance(error, ImportError):
            scheme = self.url.partition(":")[0].removesuffix("s" if self.url.startswith("https") else "")
            return f"{said}what reads it is not installed; {LIBRARIES.get(scheme, first_line(error))}"
        if isinstance(error, FileNotFoundError):
            return f"{said}there is no such bucket or object {why}; check the name, and make the bucket first"
        if isinstance(error, PermissionError) or _lacks_credentials(error):
            return f"{said}the store refuses {why}; check the credentials and what they may do there"
        if isinstance(error, FINAL):
            return f"{said}cannot be used {why}; name an object, or a folder, of a store that fsspec knows"
        return (
            f"{said}the store does not answer as it should, {len(PAUSES) + 1} times asked {why}; check its address and the network, "
            "and run the same command again"
        )


def _unless_missing(question: Callable[[str], _Answer], path: str) -> _Answer | None:
    try:
        return question(path)
    except FileNotFoundError as error:
        _refuse_unreachable(error)
        return None


def _refuse_unreachable(error: FileNotFoundError) -> None:
    """Raises ConnectionError where a store's "not there" came of no answer at all, as fsspec tells it of web servers."""
    if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
        raise ConnectionError(first_line(error.__cause__)) from error


def _listing(store: Any, root: str) -> dict[str, dict[str, Any]]:
    """All below a folder by its path. What cannot be listed raises, where fsspec's own walk from folder to folder leaves it out."""
    from fsspec.spec import AbstractFileSystem

    if store.async_impl or type(store).find is not AbstractFileSystem.find:  # it asks for all at once
        return dict(store.find(root, detail=True))
    below, folders = dict[str, Any](), [root]
    for folder in folders:  # which grows
        for about in store.ls(folder, detail=True):
            below[about["name"]] = about
            if about["type"] == "directory":
                folders.append(about["name"])
    return below


def _version(about: dict[str, Any]) -> ObjectVersion:
    size = about.get("size")
    tells = next((f"{name} {about[name]}" for name in VERSIONS + WEB_VERSIONS if about.get(name) is not None), "")
    return [int(size) if size is not None else -1, tells]


def _lacks_credentials(error: Exception) -> bool:
    return "Credential" in type(error).__name__ or getattr(error, "code", getattr(error, "status", 0)) in (401, 403)
