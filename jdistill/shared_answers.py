"""Questions to a teacher, shared out over the processes of a run, whose answers all of them find."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jdistill import sharding
from jdistill.cache import CHUNK, AnswerCache, Pieces
from jdistill.errors import UserError


def places_of(
    cache: AnswerCache, keys: Sequence[str], answers: Pieces, what: str, chunk: int = CHUNK, alone: bool = False
) -> np.ndarray:
    """Where the answer to each key is kept, int64 [N]; those not known yet are asked for, `chunk` keys at a time (AnswerCache.fill).

    All processes of a run call it with the same keys, each asks for its share and waits for the others; alone: this one asks for
    all, as the first does while the others wait for its results. cache: of this process (sharding.process_index()). Raises UserError
    where answers are missing after all.
    """
    # Shared out by place, on which all processes agree: what each finds missing may differ, as others fill the same cache meanwhile.
    chunks = [keys[start : start + chunk] for start in range(0, len(keys), chunk)]
    own = chunks if alone else chunks[sharding.process_index() :: sharding.process_count()]
    cache.fill_by_piece(own, answers, what)
    if not alone:
        sharding.wait_for_all(what)
        cache.reload()
    places = cache.rows(keys)
    if (places < 0).any():
        raise UserError(
            f"{cache.folder} lacks {(places < 0).sum()} answers after filling ({what}); run the command again"
        )
    return places
