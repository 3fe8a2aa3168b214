"""A source's texts kept as an Arrow file: made once from whatever came in, sealed, and made anew where the source has changed."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jdistill.core.cache_mirror import bring_files, share_files
from jdistill.core.digest import digest
from jdistill.core.files import SEAL, TEMPORARY, damage, look_into, read_seal, some_of, write_json
from jdistill.core.folders import clear_swap, replacing
from jdistill.core.locks import only_one
from jdistill.core.mapped import map_rows
from jdistill.core.progress import log
from jdistill.core.sorted_keys import KEY
from jdistill.data.text.distinct import KEYS_FILE, TEXTS_FILE, RowGroup, numbered, write_distinct
from jdistill.data.text.sentences import sentences_of, spacy_version
from jdistill.data.text.sources import open_source
from jdistill.data.text.stored_texts import StoredTexts
from jdistill.data.text.text_file import TextFile
from jdistill.data.text.usable import Skipped

KIND, ABOUT_FILE = "texts", "about.json"  # of the seal; what was read, and what skipped
FORMAT = "texts 1"  # of what is kept
FORMAT_OF_SOURCE = "source 3"  # another name for another reading of the same source


@dataclass(frozen=True)
class KeptTexts:
    """The distinct usable texts of a source.

    Args:
      texts: in its order, memory-mapped.
      skipped: rows left out, by reason.
      content: a digest of the texts.
      folder: where they are kept.
    """

    texts: StoredTexts
    skipped: Skipped
    content: str
    folder: Path


def keep_source(source: str, column: str, key: str, folder: Path, of_tables: bool = False) -> KeptTexts:
    """The texts that read_texts gives of a source, kept in a folder and found there again.

    Files are known by path, size and the times of their last change, a dataset by its fingerprint. Of a scheme nothing tells whether
    its texts have changed, so it is read each time.

    Args:
      source, column, key: as read_texts has them.
      folder: of all that is kept.
      of_tables: of a folder its tables alone are read, since a text file has no columns.

    Raises: UserError as read_texts.
    """
    opened = open_source(source, column, key, of_tables)
    name = digest(FORMAT_OF_SOURCE, os.fsencode(opened.name), column)
    return keep_rows(opened.row_groups, source, key, name, opened.identity, folder)


def keep_rows(
    row_groups: Callable[[], Iterable[RowGroup]],
    source: str,
    key: str,
    name: str,
    identity: list[Any] | None,
    folder: Path,
) -> KeptTexts:
    """The distinct usable rows of a source, kept in a folder.

    Args:
      row_groups: gives the rows; not called where they are kept already.
      source, key: for messages.
      name: of the rows among all that is kept.
      identity: JSON by which they are found again; None: they are kept anew each time.
      folder: of all that is kept.

    Raises: UserError where no row is usable.
    """

    def check(skipped: Skipped, count: int) -> None:
        if not count:
            skipped.tell(source, key, count)

    kept = _keep(folder / name, identity, source, row_groups, check)
    kept.skipped.tell(source, key, len(kept.texts))
    return kept


def keep_texts(texts: Iterable[str], what: str, name: str, identity: list[Any] | None, folder: Path) -> KeptTexts:
    """Texts that are no source of their own, distinct, kept in a folder.

    Args:
      texts: gone through once, or not at all where they are kept already; memory holds some thousand of them.
      what: they are, for messages.
      name: of the texts among all that is kept.
      identity: JSON by which they are found again; None: they are kept anew each time.
      folder: of all that is kept.
    """
    return _keep(
        folder / digest(FORMAT, what, name), identity, what, lambda: [(what, enumerate(texts, 1))], lambda *_: None
    )


def keep_sentences(documents: KeptTexts) -> KeptTexts:
    """The distinct sentences of documents (data.text.sentences), kept beside them. Raises UserError where spaCy is not installed."""
    identity = [documents.content, spacy_version()]
    name = digest(FORMAT, "sentences", documents.content)
    row_groups = [("sentence", numbered(sentences_of(documents.texts)))]
    return _keep(documents.folder.with_name(name), identity, "sentences", lambda: row_groups, lambda *_: None)


def _keep(
    out: Path,
    identity: list[Any] | None,
    what: str,
    row_groups: Callable[[], Iterable[RowGroup]],
    check: Callable[[Skipped, int], None],
) -> KeptTexts:
    """What is kept in `out`, if it is whole and of this identity, else what is made there now.

    Args:
      what: the source, for messages.
      check: raises UserError where what was read is not to be kept.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with only_one(out.with_name(f"{TEMPORARY}lock-{KIND}-{out.name}"), out, "the reading of text", wait=True):
        clear_swap(out)
        if not (out / SEAL).is_file():  # which comes last: a fetching that was killed is ended
            bring_files(out, "*", SEAL)
        kept = None if identity is None else _open(out, identity, what)
        if kept is None:
            with replacing(out, KIND, key="the kept texts", overwrite=True) as beside:
                skipped = write_distinct(row_groups(), beside)
                about = {"source": what, "identity": identity, "skipped": skipped.counts, "first": skipped.first}
                write_json(beside / ABOUT_FILE, about)
                check(skipped, (beside / KEYS_FILE).stat().st_size // KEY.itemsize)
                _take_over_same_files(out, beside)
            share_files(out, "*", SEAL)
            kept = _opened(out)
        return kept


def _take_over_same_files(out: Path, beside: Path) -> None:
    """Puts the files of `out` into `beside` where they hold the same: another process may have them mapped, and on a network's file
    system would die of their end."""
    for name in (TEXTS_FILE, KEYS_FILE):
        with suppress(OSError):  # a file system without hard links
            if (out / name).is_file() and filecmp.cmp(out / name, beside / name, shallow=False):
                os.link(out / name, beside / f"same-{name}")
                os.replace(beside / f"same-{name}", beside / name)


def _open(out: Path, identity: list[Any], what: str) -> KeptTexts | None:
    """The texts kept in a folder; None where there are none, or they are damaged or of another identity, which is said."""
    if not out.is_dir():
        return None
    about = look_into(out / ABOUT_FILE)
    if isinstance(about, dict) and about.get("identity", identity) != identity:
        log.info("%s has changed since its texts were kept in %s: read anew", what, out)
        return None
    if wrong := damage(out, KIND):
        log.warning("%s: the kept texts of %s are damaged (%s); read anew", out, what, some_of(wrong))
        return None
    return _opened(out)


def _opened(out: Path) -> KeptTexts:
    """The texts of a whole folder."""
    about, sealed = look_into(out / ABOUT_FILE), read_seal(out, KIND)
    assert sealed is not None  # what called has looked, or has made it
    file = TextFile(out / TEXTS_FILE)
    texts = StoredTexts(file, map_rows(out / KEYS_FILE, KEY, len(file)))
    return KeptTexts(texts, Skipped(about["skipped"], about["first"]), sealed["files"][KEYS_FILE], out)
