"""Which kinds of FAISS's indexes are made, known before there are vectors, and on how many of these they are trained."""

from __future__ import annotations

import re
from typing import Any

import faiss

from jdistill.core.errors import UserError


def check_kind(kind: str, effort: str, width: int, rows: int) -> None:
    """Refuses, before there are vectors, an index that build_index could not make. Raises UserError with FAISS's reason."""
    try:
        made = faiss.index_factory(width, kind, faiss.METRIC_INNER_PRODUCT)
        if effort:
            faiss.ParameterSpace().set_index_parameters(made, effort)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        raise refusal_of(kind, effort, rows, width, error) from None
    refuse_centring(made, kind)
    least = _fewest_to_train(made)
    if rows < least:
        raise UserError(
            f"FAISS makes no index {kind!r} of {rows} vectors: its clusters need at least {least} to be trained on"
        )


def refuse_centring(made: Any, kind: str) -> None:
    """Raises UserError where an index of FAISS's takes the mean off its vectors first: inner products are then no cosines."""
    chain = getattr(faiss.downcast_index(made), "chain", None)  # of the transforms before an index
    steps = [faiss.downcast_VectorTransform(chain.at(i)) for i in range(chain.size())] if chain is not None else []
    if any(isinstance(step, faiss.PCAMatrix | faiss.ITQTransform) for step in steps):
        raise UserError(
            f"an index {kind!r} takes the vectors' mean off them before it compares them, so that its scores are no cosines and rank texts "
            "otherwise; OPQ in the place of PCA or ITQ (OPQ16_64,IVF256,PQ16) turns and shortens vectors without, and RR64 at random"
        )


def refusal_of(kind: str, effort: str, rows: int, width: int, error: Exception) -> UserError:
    """FAISS's error of an index, in a line that names it."""
    reason = re.sub(r"^Error in .*?\.cpp:\d+: ", "", str(error))
    return UserError(
        f"FAISS makes no index {kind!r}{f' with {effort!r}' if effort else ''} of {rows} vectors of width {width}: {reason}"
    )


def training_rows(kind: str, width: int) -> int:
    """As many vectors as FAISS looks at, of more, when it trains an index of this kind; of one that is not trained a few."""
    return 256 * _fewest_to_train(faiss.index_factory(width, kind, faiss.METRIC_INNER_PRODUCT))


def _fewest_to_train(made: Any) -> int:
    """How many vectors the k-means of an index of FAISS's need: one a centroid."""
    as_it_is: Any = faiss.downcast_index(made)  # another name: it holds no reference to what it looks into
    inner = [as_it_is.index] if hasattr(as_it_is, "index") else []  # a transform, or a map of ids, before an index
    lists = [as_it_is.nlist] if hasattr(as_it_is, "nlist") else []
    codes = [as_it_is.pq.ksub] if hasattr(as_it_is, "pq") else []
    return max([1, *lists, *codes, *map(_fewest_to_train, inner)])
