"""A run's folder in an object store: worked on in a local mirror, fetched before the run, and stored as it grows.

The store holds the run's files, and RUN_FILES, which lists them and is written after them: what is not listed is not there. So a checkpoint
counts once all of it is stored. The mirror is what this machine did last; where another has gone on since, the store's files take its place.
A list that is none of this process's own says so too: it stores nothing more.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.fetched import RUN_FILES, mirrors_folder, run_files
from jdistill.core.files import TEMPORARY, file_digest, look_into, write_json
from jdistill.core.folders import clear_swap
from jdistill.core.progress import log, progress
from jdistill.core.remote import Store, StoreError
from jdistill.core.store_lock import LOCK_OBJECT, StoreLock
from jdistill.core.stored_checkpoints import CHECKPOINT, UNFINISHED, checkpoints_of, holds_all

LOOKS = 3  # at a folder that changes meanwhile
LOOK_EVERY_S = 1.0  # for checkpoints, which are stored at once
STORE_EVERY_S = 30.0  # logs and whatever else has changed

NO_LIST = digest(b"")
MOST_REVISIONS = 100  # that are remembered: of an hour or so

FileList = dict[str, list]  # by name: size in bytes, file_digest
FileState = tuple[int, int]  # size in bytes, time of the last change in nanoseconds


class RunMirror:
    """A run's folder in a store and its mirror.

    Args:
      store: of the run's folder.
      lock: that this process holds there.
    """

    def __init__(self, store: Store, lock: StoreLock):
        self._store, self._lock = store, lock
        self.folder = mirrors_folder() / f"{digest(store.url)[:16]}-{Path(store.url).name}"
        # Of which lists in the store this mirror has come, or has made them.
        self._record = self.folder.with_name(f"{self.folder.name}.json")
        self._links = self.folder.with_name(f"{TEMPORARY}links-{self.folder.name}")
        self._listed: FileList = {}  # as RUN_FILES has it
        self._stored: dict[str, tuple[FileState, str]] = {}  # a file's state as it was stored last, and its digest
        # Digests of RUN_FILES: as it was found, and of each that this process has written or tried to.
        self._revisions: list[str] = []
        self._ended = threading.Event()

    def fetch(self) -> None:
        """Brings the mirror to what is in the store, unless that came from it; half-stored checkpoints are left out and removed."""
        clear_swap(self.folder)
        content = self._store.read(RUN_FILES)
        there = self._store.files()
        copied: FileList = {name: [size, ""] for name, (size, _) in there.items() if name != LOCK_OBJECT}
        self._listed = (run_files(self._store) if content else copied) or {}
        self._revisions = [digest(content or b"")]
        if content:
            self._store.delete(name for name in there if name not in self._listed and CHECKPOINT.match(name))
        record = look_into(self._record)
        came_of_it = isinstance(record, list) and self._revisions[0] in record and self.folder.is_dir()
        if came_of_it and holds_all(self._files(), self._listed):  # or what this machine made of it since
            # One whose writing was given up may still arrive.
            self._revisions += [revision for revision in record if revision != NO_LIST]
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=f"{TEMPORARY}new-{self.folder.name}-"))
        try:
            lacking = checkpoints_of(self._listed.keys() - there.keys())
            names = [name for name in self._listed if name in there and checkpoints_of([name]).isdisjoint(lacking)]
            if names:
                self._store.fetch_all({name: there[name][0] for name in names}, beside, f"fetching {self._store.shown}")
            self._drop_damaged(beside)
            shutil.rmtree(self.folder, ignore_errors=True)
            os.rename(beside, self.folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        self._stored = {
            name: (state, of_content) for name, state in self._files().items() if (of_content := self._listed[name][1])
        }
        write_json(self._record, self._revisions)
        if not content:
            self._store_list(self._listed)  # from now on what is not listed is not there

    def _drop_damaged(self, folder: Path) -> None:
        """Removes checkpoints a file of which is not what was listed: a kill came between a new file and the list."""
        for name, (_, of_content) in self._listed.items():
            match = CHECKPOINT.match(name)
            if match and of_content and (folder / name).is_file() and file_digest(folder / name) != of_content:
                log.warning("%s/%s has changed since it was stored, and is left out", self._store.shown, match[0])
                shutil.rmtree(folder / match[0])

    @contextmanager
    def kept_up(self) -> Iterator[None]:
        """Stores what changes in the mirror meanwhile, and at the end the rest."""
        keeping = threading.Thread(target=self._keep_up, daemon=True)
        keeping.start()
        try:
            yield
        except BaseException:
            self._end(keeping)
            try:
                self.store_changes()
            except (UserError, OSError) as refusal:
                self._lock.check()
                lacks = "WARNING: not all of %s is stored (%s); the same command on this machine stores it"
                log.warning(lacks, self.folder, refusal)
            raise
        self._end(keeping)
        try:
            self.store_changes(shows_progress=True)
        except StoreError as refusal:
            raise StoreError(
                f"{refusal}. All of the run is in {self.folder}, and the same command stores it"
            ) from refusal

    def _end(self, keeping: threading.Thread) -> None:
        self._ended.set()
        keeping.join()

    def _keep_up(self) -> None:
        """A store that does not answer for a time is no reason to stop a run: it is told once, and what lacks is stored later."""
        fails, stored, last = False, checkpoints_of(self._listed), time.monotonic()
        while not self._ended.wait(LOOK_EVERY_S) and not self._lock.lost:
            checkpoints = checkpoints_of(self._files())
            if (fails or checkpoints == stored) and time.monotonic() < last + STORE_EVERY_S:
                continue
            last = time.monotonic()
            try:
                self.store_changes()
                fails, stored = False, checkpoints
            except (UserError, OSError) as refusal:
                if not fails and not self._lock.lost:
                    log.warning("%s. The run goes on in %s, and is stored when that can be done", refusal, self.folder)
                fails = True

    def store_changes(self, shows_progress: bool = False) -> None:
        """Stores what has changed in the mirror, then the list of its files; then removes what is no longer in it.

        Raises: UserError where another process has taken the run over, StoreError where the store refuses.
        """
        self._check_is_ours()
        snapshot = self._snapshot()
        changed = {name: of for name, of in snapshot.items() if self._stored.get(name, (None,))[0] != of[1]}
        shown = progress(f"storing {self._store.shown}", sum(size for _, (size, _) in changed.values()), "bytes")
        gone: set[str] = set()
        with shown if shows_progress else nullcontext() as meter:
            for name, (path, state) in changed.items():
                try:
                    self._store_file(name, path, state)
                except FileNotFoundError:
                    gone |= {name, *checkpoints_of([name])}
                if meter is not None:
                    meter.advance(state[0])
        shutil.rmtree(self._links, ignore_errors=True)
        whole = [name for name in sorted(snapshot) if gone.isdisjoint({name, *checkpoints_of([name])})]
        listed: FileList = {name: [self._stored[name][0][0], self._stored[name][1]] for name in whole}
        if listed != self._listed:
            self._store_list(listed)

    def _store_file(self, name: str, path: Path, state: FileState) -> None:
        of_content = file_digest(path)
        if self._listed.get(name) != [state[0], of_content]:
            self._store.put(path, name)
        self._stored[name] = state, of_content

    def _check_is_ours(self) -> None:
        """A process that stood still may find neither the lock of who took over nor its own, but another list of files."""
        content = self._store.read(RUN_FILES)
        if content is not None and digest(content) not in self._revisions:
            self._lock.lose()
        self._lock.check()

    def _store_list(self, listed: FileList) -> None:
        self._lock.check()
        content = json.dumps({"made_by": "jdistill", "token": secrets.token_hex(8), "files": listed}, indent=1).encode()
        # All of them: a kill may come before or after it is stored, and one whose writing was given up may still arrive.
        self._revisions = [*self._revisions[-MOST_REVISIONS:], digest(content)]
        write_json(self._record, self._revisions)
        self._store.write(RUN_FILES, content)
        # A store without a list is from now on one whose run was removed.
        self._revisions = [revision for revision in self._revisions if revision != NO_LIST]
        write_json(self._record, self._revisions)
        gone, self._listed = self._listed.keys() - listed.keys(), listed
        self._stored = {name: of for name, of in self._stored.items() if name in listed}
        self._store.delete(sorted(gone))

    def _snapshot(self) -> dict[str, tuple[Path, FileState]]:
        """The mirror's files of one moment, by name: where each lies, and its state. Those of checkpoints that are not stored yet are
        links, so that one which makes room for the next meanwhile is stored whole. Of looks that a change of checkpoints fell into, in
        which the old one is gone and the new one not seen, another follows."""
        for _ in range(LOOKS):
            snapshot, going = self._look()
            if not going:
                break
        return {name: of for name, of in snapshot.items() if checkpoints_of([name]).isdisjoint(going)}

    def _look(self) -> tuple[dict[str, tuple[Path, FileState]], set[str]]:
        """(files as _snapshot has them, checkpoints that came or went meanwhile)."""
        shutil.rmtree(self._links, ignore_errors=True)
        files, snapshot = self._files(), {}
        for name, state in files.items():
            path = self.folder / name
            if CHECKPOINT.match(name) and self._stored.get(name, (None,))[0] != state:
                path = self._links / name
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(self.folder / name, path)
                except FileNotFoundError:
                    continue
                except OSError:  # a file system without links
                    path = self.folder / name
            snapshot[name] = path, state
        return snapshot, checkpoints_of(files.keys() ^ self._files().keys())

    def _files(self) -> dict[str, FileState]:
        """The mirror's files, by name; what is being written is left out."""
        files: dict[str, FileState] = {}
        for place, folders, names in os.walk(self.folder):
            folders[:] = [name for name in folders if not name.startswith(TEMPORARY) and UNFINISHED not in name]
            for name in names:
                path = Path(place, name)
                try:
                    about = path.stat()
                except OSError:  # gone meanwhile
                    continue
                if not name.startswith(TEMPORARY):
                    files[path.relative_to(self.folder).as_posix()] = (about.st_size, about.st_mtime_ns)
        return files
