"""Files and folders that are whole or not there, and a seal that tells ours from a user's and whole ones from damaged ones."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError, number_of

CHECKSUM = "checksum"  # of the rest of a seal
SEAL = "jdistill.json"  # in a folder that we made: its kind, and a digest of each file
TEMPORARY = ".jdistill-"  # begins the name of whatever is being written or taken away
HASHED_BYTES = 1 << 22
_UMASK = threading.Lock()


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file beside its place, to disk, then renames it: it is whole or not there, and an older one stays until then."""
    with writing_beside(path) as beside:
        beside.write_bytes(content)


@contextmanager
def writing_beside(path: Path) -> Iterator[Path]:
    """Gives an empty file to write into; at the end it is brought to disk and takes the name `path`. Where the body raises it is taken away."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY, suffix=f"-{path.name}"[-80:])
    beside = Path(name)
    try:
        with naming(path), open(handle, "rb") as file:
            yield beside
            os.fsync(file.fileno())
        as_new(beside)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Gives an OSError that names no file, as one of a write or of a library of another language, the name of what was being written."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        elif isinstance(error.filename, str) and os.sep not in error.filename:  # of a folder that was open, as rmtree's
            error.filename = f"{path}: {error.filename}"
        raise
    except Exception as error:
        if "(os error " in str(error):
            raise OSError(number_of(error), str(error), str(path)) from error
        raise


def write_json(path: Path, content: Any) -> None:
    """Writes JSON as write_bytes does."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def look_into(path: Path) -> Any:
    """A JSON file's content; None where there is no file, none that is ours to read, or no JSON in it.

    Raises: OSError where the machine or its disk refuses, so that nothing is known of the content.
    """
    try:
        return json.loads(path.read_text()) if path.is_file() else None  # a pipe would be waited for
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, ValueError, RecursionError):
        return None


def file_digest(path: Path) -> str:
    """A hash of a file's bytes."""
    hashed = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(HASHED_BYTES):
            hashed.update(block)
    return hashed.hexdigest()


def seal(folder: Path, kind: str, files: Iterable[str] | None = None, **about: Any) -> None:
    """Writes the seal of a finished folder: what it is (`kind`, `about`) and a digest of each of its files.

    files: paths in the folder that it vouches for; None: all there are.
    """
    names = sorted(files_in(folder) if files is None else files)
    write_seal(folder, kind, {name: file_digest(folder / name) for name in names}, **about)


def write_seal(folder: Path, kind: str, digests: Mapping[str, str], **about: Any) -> None:
    """Writes a seal of these files, name -> file_digest, with a checksum of itself."""
    content = {"made_by": "jdistill", "kind": kind, **about, "files": dict(digests)}
    write_json(folder / SEAL, {**content, CHECKSUM: _checksum(content)})


@contextmanager
def adding_to(folder: Path, kind: str) -> Iterator[None]:
    """Whatever is written into a sealed folder meanwhile is sealed too; of one that is not sealed nothing is."""
    before = {name: _state(folder / name) for name in files_in(folder)}
    yield
    content = read_seal(folder, kind)
    if content is not None:
        about = {name: value for name, value in content.items() if name not in ("made_by", "kind", "files")}
        # What was lost or changed before stays told: its digest is the one that it had.
        digests = {name: digest for name, digest in content["files"].items() if name not in before}
        for name in files_in(folder):
            untouched = name in before and before[name] == _state(folder / name)
            if untouched and name in content["files"]:
                digests[name] = content["files"][name]
            elif (name not in before or name in content["files"]) and (folder / name).is_file():
                digests[name] = file_digest(folder / name)
        write_seal(folder, kind, dict(sorted(digests.items())), **about)


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes where a file is written anew; None of a link that leads nowhere."""
    with suppress(OSError):
        about = path.stat()
        return about.st_ino, about.st_size, about.st_mtime_ns
    return None


def read_seal(folder: Path, kind: str) -> dict[str, Any] | None:
    """The seal of a folder that we made as a `kind`; None where it has none, another's or a broken one."""
    content = look_into(folder / SEAL)
    if not isinstance(content, dict) or content.get("made_by") != "jdistill" or content.get("kind") != kind:
        return None
    if not isinstance(content.get("files"), dict):
        return None
    return content if content.pop(CHECKSUM, None) == _checksum(content) else None


def sealed_as(folder: Path) -> tuple[str, set[str]]:
    """What a folder of ours says that it is, and the names of the files that its seal vouches for; "" and none of any other."""
    content = look_into(folder / SEAL)
    kind = content.get("kind") if isinstance(content, dict) else None
    seal = read_seal(folder, kind) if isinstance(kind, str) else None
    return (str(kind), set(seal["files"])) if seal is not None else ("", set())


def damage(folder: Path, kind: str, among: Iterable[str] = ("*",)) -> list[str]:
    """What is wrong with a sealed folder, a phrase a file ("x.json is missing", "y.json has changed"); empty where it is whole.

    among: patterns of the names of the files that are looked at.
    """
    content = read_seal(folder, kind)
    if content is None:
        return [f"{SEAL} is missing or damaged"] if folder.is_dir() else [f"{folder.name} is missing"]
    wrong = []
    for name, digest in content["files"].items():
        path = folder / name
        if not any(fnmatch(name, pattern) for pattern in among):
            continue
        if not path.is_file():
            wrong.append(f"{name} is missing")
        elif file_digest(path) != digest:
            wrong.append(f"{name} has changed")
    return wrong


def foreign(folder: Path, kind: str, legacy: Iterable[str] = ()) -> list[str]:
    """Names of the files in a folder that we did not put there as a `kind`: all of them where it is not sealed.

    legacy: patterns of the names that we give; a folder that is not sealed, or no longer, is told by them.
    """
    there, content = files_in(folder), read_seal(folder, kind)
    if content is not None:
        return sorted(there - content["files"].keys())
    return sorted(name for name in there if not any(fnmatch(name, pattern) for pattern in legacy))


def files_in(folder: Path) -> set[str]:
    """Paths of the files in a folder, links too, relative to it; its seal and what is being written are left out."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if (path.is_symlink() or not path.is_dir()) and path.name != SEAL and not path.name.startswith(TEMPORARY)
    }


def some_of(names: list[str]) -> str:
    """The first three names, and how many more there are, for a message."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dict as one of dotted keys."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return leaves


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def as_new(file: Path) -> None:
    """Gives a file the rights of any new one: temporary files, and those of safetensors, are their owner's alone."""
    os.chmod(file, 0o666 & ~umask())


def umask() -> int:
    """The process's mask for new files. Where Linux does not tell, it can only be read by setting it, which threads must not do at once."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    with _UMASK:
        mask = os.umask(0)
        os.umask(mask)
    return mask


def default_folder() -> Path:
    """Where answers are kept when the config names no `cache_dir`: $XDG_CACHE_HOME/jdistill or ~/.cache/jdistill. Raises UserError where this
    user has no home folder."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jdistill"
    except RuntimeError as error:
        raise UserError(f"there is no home folder to keep caches in ({error}); set HOME, or XDG_CACHE_HOME") from None
