"""Texts in an Arrow file (the stream format, which `datasets` reads too): written as they come, opened memory-mapped, read by number."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from jdistill.core.mapped import release

SCHEMA = pa.schema([pa.field("text", pa.large_string(), nullable=False)])
BATCH_TEXTS, BATCH_CHARACTERS = 1 << 14, 1 << 24  # of a record batch, which is written once it has either
FEW_ROWS = 32  # texts of a batch that are read one by one
OPENED_AT_ONCE = 512  # batches, the head of each of which brings in 64 KB


class TextWriter:
    """Appends texts to a new Arrow file, within `with`."""

    def __init__(self, path: Path):
        self._path = path
        self._held: list[str] = []
        self._characters = 0

    def __enter__(self) -> TextWriter:
        self._sink = pa.OSFile(str(self._path), "wb")
        self._writer = pa.ipc.new_stream(self._sink, SCHEMA)
        return self

    def __exit__(self, *error: object) -> None:
        self._flush()
        self._writer.close()
        self._sink.close()

    def add(self, text: str) -> None:
        """Appends a text."""
        self._held.append(text)
        self._characters += len(text)
        if len(self._held) >= BATCH_TEXTS or self._characters >= BATCH_CHARACTERS:
            self._flush()

    def add_array(self, texts: pa.Array) -> None:
        """Appends the texts of an Arrow array."""
        self._flush()
        if len(texts):
            self._writer.write_batch(pa.record_batch([texts], schema=SCHEMA))

    def _flush(self) -> None:
        if self._held:
            held, self._held, self._characters = self._held, [], 0
            self.add_array(pa.array(held, pa.large_string()))


class TextFile:
    """The texts of an Arrow file, which stay on disk.

    Args:
      path: of a file that a TextWriter wrote.
    """

    def __init__(self, path: Path):
        with open(path, "rb") as file:
            self._mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.batches: list[pa.Array] = []
        for batch in pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(self._mmap))):
            self.batches.append(batch.column(0))
            if len(self.batches) % OPENED_AT_ONCE == 0:
                release(self)
        self._starts = np.cumsum([0] + [len(batch) for batch in self.batches])
        release(self)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, rows: np.ndarray) -> list[str]:
        """The texts of these rows, int64 [n], in their order."""
        batch_of = np.searchsorted(self._starts, rows, side="right") - 1
        texts: list[str] = []
        # Runs of rows of one batch: a pass over the file has one a batch, a training batch hardly two rows of one.
        ends = [*(np.flatnonzero(np.diff(batch_of)) + 1).tolist(), len(rows)] if len(rows) else []
        start = 0
        for end in ends:
            batch, within = self.batches[batch_of[start]], rows[start:end] - self._starts[batch_of[start]]
            if len(within) <= FEW_ROWS:
                texts += [batch[i].as_py() for i in within.tolist()]
            else:
                texts += batch.take(pa.array(within)).to_pylist()
            start = end
        release(self)
        return texts

    def without(self, dropped: np.ndarray) -> Iterator[pa.Array]:
        """The texts, batch by batch, but for some; dropped: bool [N]."""
        for batch, start in zip(self.batches, self._starts.tolist(), strict=False):
            yield batch.filter(pa.array(~dropped[start : start + len(batch)]))
            release(self)
