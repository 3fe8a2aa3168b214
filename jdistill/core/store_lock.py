"""One run at a time in a folder of an object store: a lock object that shows signs of life, and is taken over where it shows none.

A store has no locks that die with their process. The object says who holds it, and is written anew every REFRESH_S. Who finds one watches it:
if it changes in as many looks as fill STALE_S it is somebody's, else its process is gone. No two clocks are compared.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.core.remote import Store, StoreError

LOCK_OBJECT = "jdistill-lock.json"
REFRESH_S, STALE_S = 10.0, 60.0
SETTLE_S = 2.0  # after which, of two processes that take over one lock, both see whose it is


class StoreLock:
    """A lock that this process holds in a folder of a store.

    Args:
      store: the folder.
      what: works there ("a run"), for the other process's message.
    """

    def __init__(self, store: Store, what: str):
        self._store, self._what = store, what
        self._mine: dict[str, Any] = {
            "token": secrets.token_hex(16), "what": what, "host": socket.gethostname(), "process": os.getpid(), "machine": _machine(),
            "started": _start_of(os.getpid()), "since": time.strftime("%Y-%m-%d %H:%M:%S %z"), "beats": 0,
        }  # fmt: skip
        self._ended = threading.Event()
        self.lost = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds it meanwhile. Raises UserError where another process holds it, with who that is."""
        self._take()
        beating = threading.Thread(target=self._beat, daemon=True)
        beating.start()
        try:
            with _heeding_sigint():
                yield
        finally:
            self._ended.set()
            beating.join(STALE_S)
            self._give_back()

    def check(self) -> None:
        """Raises UserError where another process has taken it over."""
        if self.lost:
            raise UserError(
                f"{self._store.shown} was taken over by another process, since this one was silent for {STALE_S:.0f} s; it went on there"
            )

    def lose(self) -> None:
        """Notes that another process has taken it over, and interrupts the main thread, unless that is who found out."""
        before, self.lost = self.lost, True  # before the signal, whose handler asks
        if not before and threading.current_thread() is not threading.main_thread():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # which also ends its waiting

    def _take(self) -> None:
        while True:
            # Read first, since some stores write over what is there whatever they are asked.
            if (seen := self._store.read(LOCK_OBJECT)) is None:
                self._store.write(LOCK_OBJECT, self._content(), new=True)
                # What it answers may be lost, and says nothing where such a store had two writers: it is read back.
                if (seen := self._store.read(LOCK_OBJECT)) is not None and self._is_mine(seen):
                    return
            if seen is not None and self._is_abandoned(seen):
                self._store.write(LOCK_OBJECT, self._content())
                time.sleep(SETTLE_S)
                now = self._store.read(LOCK_OBJECT)
                if now is None or not self._is_mine(now):
                    raise self._refusal(now or seen)
                return

    def _is_abandoned(self, seen: bytes) -> bool:
        """Whether a lock shows no sign of life; False where it was given back meanwhile. Raises UserError where it shows one."""
        holder = _holder(seen)
        # Where this user may not look at the first process, whose it is, another's that is alive would seem to be gone.
        if holder.get("machine") and holder["machine"] == self._mine["machine"] and _start_of(1):
            if holder.get("started") != _start_of(holder.get("process")):
                log.info(
                    "%s: taken over from process %s of this machine, which is gone",
                    self._store.shown,
                    holder.get("process"),
                )
                return True
            raise self._refusal(seen)
        log.info(
            "%s is held by %s: watched for %.0f s whether that is alive", self._store.shown, _name_of(holder), STALE_S
        )
        pause = min(REFRESH_S, STALE_S) / 4
        looks = math.ceil(STALE_S / pause)  # counted, since a clock goes on while this process stands still
        for _ in range(looks):
            time.sleep(pause)
            now = self._store.read(LOCK_OBJECT)
            if now is None:
                return False
            if now != seen:
                raise self._refusal(now)
        log.warning("%s: no sign of life of %s in %.0f s; taken over", self._store.shown, _name_of(holder), STALE_S)
        return True

    def _refusal(self, seen: bytes) -> UserError:
        return UserError(
            f"{self._store.shown} is in use by {self._what} of another process ({_name_of(_holder(seen))}); wait for its end, or choose "
            "another place"
        )

    def _content(self) -> bytes:
        return (json.dumps(self._mine, indent=2) + "\n").encode()

    def _beat(self) -> None:
        """Shows signs of life, and interrupts the main thread once the lock is another's. A store that is away is waited for."""
        while not self._ended.wait(REFRESH_S):
            try:
                if not self._is_kept():
                    self.lose()
                    return
                self._mine["beats"] += 1
                self._store.write(LOCK_OBJECT, self._content())
            except (StoreError, OSError) as error:
                log.warning("the lock could not be renewed: %s", error)

    def _is_kept(self) -> bool:
        seen = self._store.read(LOCK_OBJECT)
        return seen is None or self._is_mine(seen)

    def _is_mine(self, seen: bytes) -> bool:
        return bool(_holder(seen).get("token") == self._mine["token"])

    def _give_back(self) -> None:
        try:
            if not self.lost and self._is_kept():
                self._store.delete([LOCK_OBJECT])
        except (StoreError, OSError) as error:
            log.warning("the lock could not be given back: %s", error)


def _holder(content: bytes) -> dict[str, Any]:
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _name_of(holder: dict[str, Any]) -> str:
    return f"process {holder.get('process', '?')} on {holder.get('host', '?')} since {holder.get('since', '?')}"


@contextmanager
def _heeding_sigint() -> Iterator[None]:
    """A process that a shell put in the background ignores SIGINT, by which _beat interrupts it; not within this."""
    ignored = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    )
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _machine() -> str:
    """What names this machine until it starts again, and the container whose process numbers these are; "" where nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " " + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_of(process: object) -> str:
    """When a process of this machine began, since another may have its number by now; "" where there is none, or one that has ended and
    is not yet taken away."""
    try:
        state, *figures = Path(f"/proc/{int(str(process))}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else figures[18]
    except (OSError, IndexError, ValueError):
        return ""
