"""The further texts that --config.augment makes of a run's training texts: they follow those of their source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.progress import log
from jdistill.data.text.augment import text_variants, variants_identity
from jdistill.data.text.holdout import comparable
from jdistill.data.text.kept_texts import keep_texts
from jdistill.data.text.repeats import repeated_rows
from jdistill.data.text.stored_texts import StoredTexts, fingerprint_of
from jdistill.data.text.text_sources import TextSource
from jdistill.feeds.tokens import cache_folder


def with_variants(
    cfg: ConfigDict, train: Sequence[str], apart: Sequence[str], source: TextSource | None = None
) -> StoredTexts:
    """The training texts, and after them their variants (data.text.augment) that equal no other text and none of those kept apart, held
    out or of an evaluation set. source: whose column has the paraphrases; None: cfg.text."""
    forbidden = {comparable(text) for text in apart}
    path, column = (source.path, source.column) if source else (cfg.text, "")
    goes_by = (cfg.augment, path, column or cfg.text_column)

    def with_further() -> Iterator[str]:
        variants = text_variants(train, *goes_by)  # which refuses what it cannot do before the first text
        yield from train
        yield from (text for text in variants if comparable(text) not in forbidden)

    of_train, of_variants = fingerprint_of(train), variants_identity(*goes_by)
    identity = None if of_variants is None else [of_train, digest(sorted(forbidden)), *of_variants]
    name = f"texts and variants by {cfg.augment}"
    every = keep_texts(with_further(), name, of_train, identity, cache_folder(cfg) / "texts").texts
    log.info("augmented: %d further texts by %s", len(every) - len(train), cfg.augment)
    if cfg.get("split_sentences") and cfg.augment.startswith("column:"):
        log.warning(
            "WARNING: paraphrases are of whole documents, and --config.split_sentences=True trains on sentences, which have none"
        )
    return every


def sources_with_variants(
    cfg: ConfigDict, named: Sequence[TextSource], train: Sequence[StoredTexts], apart: Sequence[str]
) -> list[StoredTexts]:
    """with_variants of each source that has texts. Where sources have one role, a variant equals no text of theirs, and comes once.

    Args:
      train: of each source its training texts, distinct in each role.
    """
    every = [
        with_variants(cfg, texts, apart, of) if len(texts) else texts for texts, of in zip(train, named, strict=True)
    ]
    roles = [of.role for of in named]
    shared = [i for i, role in enumerate(roles) if roles.count(role) > 1]  # alone, a source's variants are distinct
    of_shared = [train[i] for i in shared] + [every[i][len(train[i]) :] for i in shared]
    again = repeated_rows(of_shared, 2 * [roles[i] for i in shared], cache_folder(cfg) / "texts")[len(shared) :]
    for i, rows in zip(shared, again, strict=True):
        if len(rows):
            every[i] = every[i].without(len(train[i]) + rows, len(every[i]) - len(rows), None)
    return every
