"""Where a run's folder is worked on: at its path, or, of a URL, in a local mirror that one process at a time holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.fetched import RUN_FILES
from jdistill.core.files import some_of
from jdistill.core.progress import log
from jdistill.core.remote import Store, is_url
from jdistill.core.run_folder import is_config
from jdistill.core.run_mirror import RunMirror
from jdistill.core.store_lock import LOCK_OBJECT, StoreLock


@contextmanager
def mirrored_run(workdir: str | Path, what: str = "a run") -> Iterator[Path]:
    """The local folder to work in for a run's folder. Of a URL it is a mirror: at the end, however it comes, what is in it is stored.

    Args:
      workdir: a path, which is given as it is, or a URL.
      what: works there, for another process's message.

    Raises: UserError where another process works in a store's folder, where that holds something else, and where not all of the mirror
      could be stored in the end; StoreError where the store does not answer or refuses.
    """
    if not is_url(str(workdir)):
        yield Path(workdir)
        return
    workdir = str(workdir)
    if sharding.process_count() > 1:
        raise UserError(
            f"--workdir={workdir}: a run of several processes needs a folder that all of them share; name one on a shared file system"
        )
    store = Store(workdir, "workdir")
    _check_holds_run(store)
    lock = StoreLock(store, what)
    try:
        with lock.held():
            mirror = RunMirror(store, lock)
            mirror.fetch()
            log.info("%s is worked on in %s", store.shown, mirror.folder)
            with mirror.kept_up():
                yield mirror.folder
            log.info("all of %s is in %s", mirror.folder, store.shown)
    except BaseException:
        lock.check()  # which interrupted what was going on
        raise


def _check_holds_run(store: Store) -> None:
    there = [name for name in store.files() if name != LOCK_OBJECT]
    if there and RUN_FILES not in there and not _has_config(store):
        raise UserError(
            f"{store.label} is not empty and holds no run (it holds {some_of(there)}); choose a new or an empty folder"
        )


def _has_config(store: Store) -> bool:
    """Whether a folder without a list of its files is a run's all the same, such as one that was copied there."""
    try:
        return is_config(json.loads(store.read("config.json") or b"null"))
    except (ValueError, RecursionError):
        return False
