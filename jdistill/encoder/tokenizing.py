"""Token ids of a corpus by processes of their own, one a core.

In the process that trains, malloc has one arena (core.memory), in which the tokenizers library's threads wait for one another, and the lists of ids
are made under Python's lock. A process a core, each with one thread, has neither (docs/performance.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import IO

import numpy as np

from jdistill.core.cores import core_count
from jdistill.core.errors import UserError
from jdistill.data.batching.kept_tokens import Tokenizing, in_this_process
from jdistill.encoder.batch_ids import truncating_json
from jdistill.encoder.encoder import Encoder

FEWEST = 40_000  # texts that are worth starting processes for
MOST_PROCESSES = 16


@contextmanager
def tokenizing(encoder: Encoder, count: int) -> Iterator[Tokenizing]:
    """What tokenises `count` texts as the encoder does: in this process where they are few, or where the tokenizer's class has its own way."""
    library = truncating_json(encoder.tokenizer, encoder.max_length) if count >= FEWEST else None
    if library is None:
        yield in_this_process(encoder.tokenize)
        return
    processes = _Processes(encoder, library)
    try:
        yield Tokenizing(processes.tokens, processes.count)
    finally:
        processes.close()


class _Processes:
    """Processes that tokenise, started when they are first needed."""

    def __init__(self, encoder: Encoder, library: str):
        self.encoder, self.library = encoder, library
        self.count = min(core_count(), MOST_PROCESSES)
        self._idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()
        self._started: list[subprocess.Popen[bytes]] = []
        self._ready: set[subprocess.Popen[bytes]] = set()
        for _ in range(self.count):
            self._idle.put(None)

    def tokens(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in a row int32, and the number of each one's int32; by whichever process is idle."""
        process = self._idle.get()
        try:
            process = process or self._start()
            return self._ask(process, self.encoder.texts_with_prompt(texts))
        finally:
            self._idle.put(process)

    def _start(self) -> subprocess.Popen[bytes]:
        # In a process group of its own, so that Ctrl-C reaches this process alone, whose end closes the other's input.
        path = os.pathsep.join(part for part in sys.path if part)
        env = os.environ | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-P", "-m", "jdistill.encoder.tokenizing_server"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, process_group=0)
        self._started.append(process)
        return process

    def _ask(self, process: subprocess.Popen[bytes], texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        assert process.stdin is not None and process.stdout is not None
        try:
            if process not in self._ready:
                _send(process.stdin, self.library)
                self._ready.add(process)
            _send(process.stdin, texts)
            counts = _receive(process.stdout, np.dtype(np.int64), 2)
            ids, lengths = (_receive(process.stdout, np.dtype(np.int32), int(count)) for count in counts)
        except (OSError, EOFError) as error:
            raise UserError(
                f"a process that tokenises ended before its texts (exit code {process.wait()}); was it killed, or is there too little memory? "
                "Run the command again: what was tokenised is kept"
            ) from error
        return ids, lengths

    def close(self) -> None:
        """Ends the processes."""
        for process in self._started:
            process.kill()
            process.communicate()


def _send(requests: IO[bytes], message: str | list[str]) -> None:
    requests.write(json.dumps(message).encode() + b"\n")
    requests.flush()


def _receive(replies: IO[bytes], dtype: np.dtype, count: int) -> np.ndarray:
    content = replies.read(count * dtype.itemsize)
    if len(content) < count * dtype.itemsize:
        raise EOFError
    return np.frombuffer(content, dtype)
