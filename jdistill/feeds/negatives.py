"""Hard negatives of judged queries, by BM25 and by a bi-encoder (D2LLM, 3.2)."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.shared_folders import made_once
from jdistill.data.sets.candidates import Queries, in_turn
from jdistill.encoder import loading
from jdistill.feeds.tokens import cache_folder
from jdistill.retrieval.bm25 import bm25_search
from jdistill.retrieval.dense import dense_search
from jdistill.retrieval.mining import FORMAT_OF_MINING, Rules, mine, read_mined, scored_by


def mined_negatives(cfg: ConfigDict, queries: Queries, passages: list[str]) -> list[list[str]]:
    """Each query's hard negatives by BM25 and, where cfg.mining.encoder names one, by a bi-encoder in turn; kept by content. One process
    mines, the others wait for it."""
    rows = {text: i for i, text in enumerate(passages)}
    positives = [[rows[text] for text in right] for right in queries.positives]
    encoder = loading.load(cfg.mining.encoder, key="config.mining.encoder") if cfg.mining.encoder else None
    # A bi-encoder's cosines have a scale of which a share means something, and BM25's scores have none: it clears both's candidates.
    relative = cfg.mining.relative_margin or None if encoder else None
    rules = Rules(max(cfg.hard_negatives, 1), cfg.mining.first, cfg.mining.last, relative_margin=relative)
    window = min(len(passages), rules.last + max(map(len, positives)))
    rankings_of: list[list[list[str]]] = []
    of_encoder = encoder.fingerprint_in_roles() if encoder else ""
    by_words = f"bm25, cleared by {of_encoder}" if encoder and relative else "bm25"
    by_vectors = cache(partial(dense_search, encoder, queries.texts, passages, window)) if encoder else None

    def make(by: str, out: Path) -> None:
        out.unlink(missing_ok=True)
        if by_vectors is None or by == "bm25":
            search, score_of = bm25_search(queries.texts, passages, window)
        else:
            search, score_of = by_vectors()
            if by == by_words:
                search = scored_by(bm25_search(queries.texts, passages, window)[0], score_of)
        mine(queries.texts, positives, passages, search, score_of, rules, by, out)

    for by in (by_words, of_encoder) if encoder else (by_words,):
        name = digest(FORMAT_OF_MINING, repr((by, rules, positives)), queries.texts, passages)
        out = cache_folder(cfg) / "mined" / f"{name}.jsonl"
        mined = made_once(
            out, partial(read_mined, out, queries.texts, passages), partial(make, by, out), "mined negatives"
        )
        rankings_of.append([record["negatives"] for record in mined])
    return [list(in_turn(*rankings)) for rankings in zip(*rankings_of, strict=True)]
