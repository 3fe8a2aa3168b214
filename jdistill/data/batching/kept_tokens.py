"""Texts tokenised once: their tokens are kept on disk by content, with checksums, and what a killed process had done is taken up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from jdistill.core.cache_mirror import bring_files, share_files
from jdistill.core.digest import digest
from jdistill.core.files import TEMPORARY
from jdistill.core.left_over import clear_beside, take_away
from jdistill.core.locks import only_one
from jdistill.core.mapped import file_sum
from jdistill.core.progress import log, progress
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.order import LARGE
from jdistill.data.batching.token_shards import TokenShards, write_table
from jdistill.data.text.stored_texts import LongTexts

AHEAD = 1  # shards that wait for a worker, so that none waits for a shard


@dataclass(frozen=True)
class Tokenizing:
    """How texts become tokens.

    Args:
      tokens: n texts -> the ids of all of them in a row, int32 [sum of lengths], and the number of each one's, int32 [n].
      workers: calls of it that may run at once.
    """

    tokens: Callable[[list[str]], tuple[np.ndarray, np.ndarray]]
    workers: int


def in_this_process(tokenize: Callable[[list[str]], list[list[int]]]) -> Tokenizing:
    """By a function that gives a list of ids for each text, one call at a time."""

    def tokens(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = tokenize(texts)
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths

    return Tokenizing(tokens, workers=1)


def tokenize_once(
    texts: Sequence[str],
    tokenizing: Tokenizing,
    fingerprint: str,
    folder: Path,
    chunk: int = 20_000,
) -> TokenTable:
    """The texts' token ids, memory-mapped, from `folder` if the same texts were tokenised before.

    Args:
      tokenizing: how they become tokens.
      fingerprint: names the tokenizer, prompt and maximum length. The files' name is a hash of it and of the texts.
      folder: where they are kept.
      chunk: texts tokenised at a time; what a killed process loses at most.
    """
    name = table_name(texts, fingerprint)
    kept = _KeptTokens(folder / name)
    if not kept.about.exists():
        bring_files(folder, f"{name}.*", kept.about.name)
    shards = TokenShards(folder / f"{TEMPORARY}shards-{name}", len(texts), chunk)
    if (table := kept.read(len(texts))) is not None and not shards.folder.exists():
        return table
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder / f"{TEMPORARY}lock-{name}", folder, "tokenising", wait=True):
        clear_beside(kept.stem, ".*")
        if (table := kept.read(len(texts), quiet=True)) is not None:  # another process made it meanwhile
            if shards.folder.exists():
                take_away(shards.folder)
            return table
        _tokenize_shards(texts, tokenizing, shards)
        write_table(shards, kept.stem, with_lengths=len(texts) > LARGE)
        share_files(folder, f"{name}.*", kept.about.name)
        take_away(shards.folder)
        table = kept.read(len(texts))
        if table is None:
            raise OSError(f"{kept.about}: the tokens just written cannot be read back; is the disk sound?")
        log.info("tokenised %d texts: %.1f tokens a text", len(texts), len(table.ids) / max(len(texts), 1))
        return table


def table_name(texts: Sequence[str], fingerprint: str) -> str:
    """The name of a token table: a hash of its texts and of what tokenises them. Of many texts whose own hash is kept it is made of
    that one, so that they need not be read."""
    own = texts.fingerprint if isinstance(texts, LongTexts) and len(texts) > LARGE else None
    return digest(fingerprint, own or texts)


def _tokenize_shards(texts: Sequence[str], tokenizing: Tokenizing, shards: TokenShards) -> None:
    """Makes the shards that are not there, in their order; the next are tokenised while one is written."""

    def tokenized(part: slice) -> tuple[np.ndarray, np.ndarray]:
        ids, lengths = tokenizing.tokens(list(texts[part]))
        if len(lengths) != part.stop - part.start:
            raise ValueError(f"the tokenizer gave {len(lengths)} rows for {part.stop - part.start} texts")
        return ids, lengths

    missing = shards.missing()
    done = len(texts) - sum(part.stop - part.start for part in missing)
    if done:
        log.info("tokenising: %d texts were done before", done)
    ahead = tokenizing.workers + AHEAD
    with (
        ThreadPoolExecutor(tokenizing.workers) as workers,
        progress("tokenising", len(texts), "texts", initial=done) as meter,
    ):
        coming = [workers.submit(tokenized, part) for part in missing[:ahead]]
        try:
            for number, part in enumerate(missing):
                ids, lengths = coming.pop(0).result()
                if number + ahead < len(missing):
                    coming.append(workers.submit(tokenized, missing[number + ahead]))
                shards.write(part, ids, lengths)
                meter.advance(len(lengths))
        finally:
            for future in coming:
                future.cancel()


class _KeptTokens:
    """A token table on disk: STEM.ids.npy, STEM.offsets.npy, of many texts STEM.lengths.npy, and, written last, STEM.json with the checksums
    of all."""

    def __init__(self, stem: Path):
        self.stem, self.about = stem, stem.with_name(stem.name + ".json")

    def _path(self, array: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}.{array}.npy")

    def read(self, rows: int, quiet: bool = False) -> TokenTable | None:
        """The table, memory-mapped; None where it is not there or damaged, of which is warned unless `quiet`."""
        if not self.about.exists():
            return None
        try:
            sums = json.loads(self.about.read_text())
            names = ["ids", "offsets", *(["lengths"] if "lengths" in sums else [])]
            arrays = [np.load(self._path(name), mmap_mode="r") for name in names]
            table = TokenTable(*arrays)
            whole = sums == {
                name: file_sum(self._path(name), of.offset) for name, of in zip(names, arrays, strict=True)
            }
            whole = whole and len(table) == rows and table.offsets[-1] == len(table.ids)
        except (OSError, ValueError, EOFError, TypeError, AttributeError) as error:
            if not quiet:
                log.warning("%s: the kept tokens cannot be read (%s); tokenised again", self.about, error)
            return None
        if not whole and not quiet:
            log.warning("%s: the kept tokens are damaged; tokenised again", self.about)
        return table if whole else None
