"""Texts tokenised once: their tokens are kept on disk by content, with checksums."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from jdistill.core.digest import digest
from jdistill.core.files import TEMPORARY, write_bytes, write_json
from jdistill.core.locks import only_one
from jdistill.core.progress import log, progress
from jdistill.data.batching.batches import TokenTable


def tokenize_once(
    texts: Sequence[str],
    tokenize: Callable[[list[str]], list[list[int]]],
    fingerprint: str,
    folder: Path,
    chunk: int = 20_000,
) -> TokenTable:
    """The texts' token ids, from `folder` if the same texts were tokenised before.

    Args:
      tokenize: n texts -> n lists of token ids.
      fingerprint: names the tokenizer, prompt and maximum length. The files' name is a hash of it and of the texts.
      folder: where they are kept.
      chunk: texts tokenised at a time.
    """
    name = digest(fingerprint, texts)
    kept = _KeptTokens(folder / name)
    if (table := kept.read(len(texts))) is not None:
        return table
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder / f"{TEMPORARY}lock-{name}", folder, "tokenising", wait=True):
        for left_over in folder.glob(f"{TEMPORARY}*-{name}.*"):  # of a killed process
            left_over.unlink()
        if (table := kept.read(len(texts), quiet=True)) is not None:  # another process made it meanwhile
            return table
        parts: list[np.ndarray] = [np.empty(0, np.int32)]
        lengths: list[int] = []
        with progress("tokenising", len(texts), "texts") as meter:
            for start in range(0, len(texts), chunk):
                rows = tokenize(list(texts[start : start + chunk]))
                parts.append(np.fromiter((token for row in rows for token in row), np.int32))
                lengths += [len(row) for row in rows]
                meter.advance(len(rows))
        if len(lengths) != len(texts):
            raise ValueError(f"the tokenizer gave {len(lengths)} rows for {len(texts)} texts")
        ids = np.concatenate(parts)
        ids = ids.astype(np.uint16) if ids.max(initial=0) < 2**16 else ids
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        kept.write(ids, offsets)
        log.info("tokenised %d texts: %.1f tokens a text", len(texts), len(ids) / max(len(texts), 1))
        return kept.read(len(texts)) or TokenTable(ids, offsets)


class _KeptTokens:
    """A token table on disk: STEM.ids.npy, STEM.offsets.npy and, written last, STEM.json with the checksums of both."""

    def __init__(self, stem: Path):
        self.ids, self.offsets, self.about = (
            stem.with_name(stem.name + end) for end in (".ids.npy", ".offsets.npy", ".json")
        )

    def read(self, rows: int, quiet: bool = False) -> TokenTable | None:
        """The table, ids memory-mapped; None where it is not there or damaged, of which is warned unless `quiet`."""
        if not self.about.exists():
            return None
        try:
            sums = json.loads(self.about.read_text())
            table = TokenTable(np.load(self.ids, mmap_mode="r"), np.load(self.offsets))
            whole = sums == _checksums(table) and len(table.offsets) == rows + 1 and table.offsets[-1] == len(table.ids)
        except (OSError, ValueError, EOFError, TypeError) as error:
            if not quiet:
                log.warning("%s: the kept tokens cannot be read (%s); tokenised again", self.about, error)
            return None
        if not whole and not quiet:
            log.warning("%s: the kept tokens are damaged; tokenised again", self.about)
        return table if whole else None

    def write(self, ids: np.ndarray, offsets: np.ndarray) -> None:
        """Processes that write the same at once write the same bytes, each file whole."""
        for path, array in ((self.ids, ids), (self.offsets, offsets)):
            buffer = io.BytesIO()
            np.save(buffer, array)
            write_bytes(path, buffer.getvalue())
        write_json(self.about, _checksums(TokenTable(ids, offsets)))


def _checksums(table: TokenTable) -> dict[str, int]:
    arrays = {"ids": table.ids, "offsets": table.offsets}
    return {name: zlib.crc32(np.ascontiguousarray(array).data) for name, array in arrays.items()}
