"""Folders that are made whole beside their place and then take it: only an empty one, a new one or one of ours gives way."""

from __future__ import annotations

import glob
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.left_over import RANDOM_PART, bring_back, clear_beside, take_away
from jdistill.core.locks import only_one
from jdistill.core.run_folder import is_config


def check_out(out: Path, kind: str, key: str, overwrite: bool = False, workdir: Path | None = None) -> None:
    """Refuses a folder that a command may not replace, before it does any work.

    Args:
      out: the folder that is to be written.
      kind: of the seal that a folder of ours has ("export", "index").
      key: what error messages call it ("--out").
      overwrite: whether the user allows what is not ours to be replaced.
      workdir: a run's folder, which `out` may not be, hold or lie in; overwrite does not change that.

    Raises: UserError with what is there.
    """
    here = Path(os.path.abspath(out))
    if here == here.parent or not here.name:
        raise UserError(f"{key}={out} is no folder that can be replaced; name a new one")
    if workdir is not None:
        there = workdir.resolve()
        for place in (here, here.resolve()):
            if _is_within(place, there) or _is_within(there, place):
                raise UserError(
                    f"{key}={out} is, holds or lies in the run's folder {workdir}; choose a folder apart from it"
                )
    if Path.cwd().resolve() == here.resolve() or here.resolve() in Path.cwd().resolve().parents:
        raise UserError(f"{key}={out} is the folder that you work in, or holds it; name a new one")
    if out.is_symlink():
        raise UserError(
            f"{key}={out} is a symbolic link (to {os.readlink(out)}); name the folder itself, or remove the link"
        )
    if out.exists() and not out.is_dir():
        raise UserError(f"{key}={out} is a file; name a folder")
    _check_parent(out, key)
    if out.is_dir() and not overwrite:
        _refuse_foreign(out, kind, key)


def _is_within(place: Path, folder: Path) -> bool:
    """Whether a path is a folder or lies in it, also by another name that it has, as where a file system takes small letters for large."""
    there = folder.exists()
    return any(
        name == folder or (there and name.exists() and os.path.samefile(name, folder))
        for name in (place, *place.parents)
    )


def _check_parent(out: Path, key: str) -> None:
    """Refuses a place in what is no folder, or in one that may not be written to."""
    parent = next(place for place in out.absolute().parents if place.exists())
    if not parent.is_dir():
        raise UserError(f"{key}={out}: {parent} is a file; name a folder")
    if not os.access(parent, os.W_OK):
        raise UserError(f"{key}={out}: {parent} cannot be written to")


def _refuse_foreign(out: Path, kind: str, key: str, legacy: Sequence[str] = ()) -> None:
    there = files.foreign(out, kind, legacy)
    if not there:
        return
    some = files.some_of(there)
    sealed = files.read_seal(out, kind) is not None
    why = (
        f"holds files that jdistill did not put there ({some})"
        if sealed
        else f"is not empty and no {kind} of jdistill's (it holds {some})"
    )
    of_run = "move them away" if legacy else "choose another folder, move them, or give --overwrite to have it replaced"
    raise UserError(f"{key}={out} {why}; {of_run}")


def check_out_file(out: Path, key: str, overwrite: bool, made_by: str = "") -> None:
    """Refuses a file that a command may not write, before it does any work.

    made_by: the command; a JSON file whose "made_by" says so is ours, and is replaced. A file of a run, an export or another
      folder that we sealed is refused in any case: without it that folder is damaged.

    Raises: UserError with what is there.
    """
    if out.is_dir() or not out.name:
        raise UserError(f"{key}={out} is a folder; name a file")
    _check_parent(out, key)
    here = Path(os.path.realpath(out.parent)) / out.name
    for folder in here.parents:
        kind, sealed = files.sealed_as(folder)
        within = here.relative_to(folder)
        if within.as_posix() in sealed | ({files.SEAL} if kind else set()):
            raise UserError(f"{key}={out} belongs to the {kind} in {folder}, which vouches for it; choose another name")
        of_stage = (folder / within.parts[0] / "checkpoints").is_dir()
        if (
            (of_stage or within == Path("config.json"))
            and here.exists()
            and is_config(files.look_into(folder / "config.json"))
        ):
            raise UserError(f"{key}={out} belongs to the run in {folder}; choose another name")
    if overwrite or not (out.exists() or out.is_symlink()):
        return
    if not out.is_file():
        raise UserError(f"{key}={out} is no regular file; name another")
    if not (made_by and _made_by(out) == made_by):
        raise UserError(f"{key}={out} is there already; choose another name, remove it, or give --overwrite")


def write_out(out: Path, content: Any) -> None:
    """Writes a JSON file that a user named, and takes away what an earlier process that was killed left beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with only_one(out.with_name(f"{files.TEMPORARY}lock-{out.name}"), out, "the writing", wait=True):
        clear_beside(out)
        files.write_json(out, content)


def own_folder(out: Path, kind: str, key: str, overwrite: bool) -> None:
    """Makes a folder that a command writes several files into, and marks it as its own; one that holds anything else is refused.

    overwrite: whether the user allows that; a run, an export or another folder that we sealed is refused in any case.

    Raises: UserError with what is there.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{key}={out} is a file; name a folder")
    if (other := files.sealed_as(out)[0]) and other != kind:
        raise UserError(f"{key}={out} holds the {other} that jdistill made there; choose another folder")
    if out.is_dir() and not overwrite and files.read_seal(out, kind) is None:
        _refuse_foreign(out, kind, key)
    out.mkdir(parents=True, exist_ok=True)
    if files.read_seal(out, kind) is None:
        files.write_seal(out, kind, {})


def _made_by(path: Path) -> str:
    content = files.look_into(path)
    return str(content.get("made_by", "")) if isinstance(content, dict) else ""


@contextmanager
def replacing(
    out: Path, kind: str, *, key: str, overwrite: bool = False, legacy: Sequence[str] = (), **about: Any
) -> Iterator[Path]:
    """Gives a new folder beside `out` to write into; at the end it is sealed and takes the place of `out`.

    Where the body raises, or the swap fails, `out` stays as it was and nothing is left beside it. One process at a time; a second is refused.

    Args:
      out: the folder. key, kind, overwrite: as check_out has them. about: kept in the seal.
      legacy: patterns of our files' names, by which a folder within a run's is ours without a seal, or with a damaged one.

    Raises: UserError where something that is not ours is in the way, or another process writes there.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with only_one(out.with_name(f"{files.TEMPORARY}lock-{out.name}"), out, "the writing"):
        clear_swap(out)
        if out.exists() and not out.is_dir():
            raise UserError(f"{key}={out} is a file; name a folder")
        if out.is_dir() and not overwrite:
            _refuse_foreign(out, kind, key, legacy)
        beside = Path(tempfile.mkdtemp(dir=out.parent, prefix=f"{files.TEMPORARY}new-{out.name}-"))
        try:
            of_group = beside.stat().st_mode & stat.S_ISGID  # of a folder whose files are its group's
            beside.chmod(0o777 & ~files.umask() | of_group)
            with files.naming(out):
                yield beside
                files.seal(beside, kind, **about)
                _flush(beside)
            _swap(beside, out)
        finally:
            take_away(beside)


def _swap(beside: Path, out: Path) -> None:
    """Puts `beside` in the place of `out`; where that fails, `out` is as it was."""
    if not out.exists():
        os.rename(beside, out)
        return
    old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f"{files.TEMPORARY}old-{out.name}-"))
    os.rename(out, old / out.name)
    try:
        os.rename(beside, out)
    except BaseException:
        os.rename(old / out.name, out)
        old.rmdir()
        raise
    take_away(old)


def clear_swap(out: Path) -> None:
    """Takes away what `replacing` left beside an `out` whose lock this process holds, and brings back one that was moved away for a
    swap that never came."""
    for path in sorted(out.parent.glob(f"{files.TEMPORARY}old-{glob.escape(out.name)}-{RANDOM_PART}")):
        bring_back(path)
        take_away(path)
    for path in out.parent.glob(f"{files.TEMPORARY}new-{glob.escape(out.name)}-{RANDOM_PART}"):
        take_away(path)


def _flush(folder: Path) -> None:
    """Brings a folder's files to disk, so that a power cut does not leave a renamed folder of empty files."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file, suppress(OSError):
                os.fsync(file.fileno())
