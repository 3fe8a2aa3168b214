"""Which kinds of FAISS's indexes are made, known before there are vectors, and on how many of these they are trained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import faiss

from jdistill.core.errors import UserError

OF_OPQ = 256  # centroids of the quantiser that a rotation is fitted by, whatever comes after it
FEWEST_OF_NSG = 16  # neighbours; with 2 to 5 the building of 600 random vectors did not end in 10 s
WHOLE_NUMBERS = (
    faiss.ScalarQuantizer.QT_8bit_direct,
    faiss.ScalarQuantizer.QT_8bit_direct_signed,
)  # a scalar quantiser's types
OF_SEARCH = ("nprobe", "efSearch", "k_factor", "k_factor_rf")  # efforts, behind quantizer_ too, that are counts
MANY = 2**31  # rows to check a kind by, where it is not known yet how many there will be
OF_DISTRIBUTIONS = 65_536  # vectors that tell ranges of values, residuals and rotations well enough


def check_kind(kind: str, effort: str, width: int, rows: int) -> None:
    """Refuses, before there are vectors, an index that build_index could not make. Raises UserError with FAISS's reason."""
    try:
        made = faiss.index_factory(width, kind, faiss.METRIC_INNER_PRODUCT)
        if effort:
            faiss.ParameterSpace().set_index_parameters(made, effort)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        raise refusal_of(kind, effort, rows, width, error) from None
    refuse_other_scores(made, kind)
    refuse_useless(made, kind, effort)
    least = _fewest_to_train(made)
    if rows < least:
        raise UserError(
            f"FAISS makes no index {kind!r} of {rows} vectors: its clusters need at least {least} to be trained on"
        )


def check_index_flags(kind: str, effort: str, width: int) -> None:
    """check_kind of --index and --index_effort, before it is known how many vectors there will be. Raises UserError that names them."""
    try:
        check_kind(kind, effort, width, MANY)
    except UserError as error:
        raise UserError(f"--index={kind}{f' --index_effort={effort}' if effort else ''}: {error}") from None


def refuse_other_scores(made: Any, kind: str) -> None:
    """Raises UserError where an index of FAISS's gives no cosines: it takes the mean off its vectors first, or compares by distance, which
    FAISS has for some kinds whatever is asked of it."""
    if made.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise UserError(
            f"an index {kind!r} is one by distance in FAISS, where the best score is the lowest; IVF256,PQ48 and OPQ16_64,IVF256,PQ16 are as "
            "small, and HNSW32_SQ8 is a graph of small vectors, by inner products"
        )
    steps = [step for part in _parts(made) for step in _steps(part)]
    if any(isinstance(step, faiss.PCAMatrix | faiss.ITQTransform) for step in steps):
        raise UserError(
            f"an index {kind!r} takes the vectors' mean off them before it compares them, so that its scores are no cosines and rank texts "
            "otherwise; OPQ in the place of PCA or ITQ (OPQ16_64,IVF256,PQ16) turns and shortens vectors without, and RR64 at random"
        )


def refuse_useless(made: Any, kind: str, effort: str) -> None:
    """Raises UserError where FAISS takes a kind or an effort that it then cannot fill or search: by sizes of nothing, graphs too thin to be
    gone through, at which it ends the process or does not end, and ids of one's own, which nobody gives it."""
    parts = list(_parts(made))
    proposers = [faiss.downcast_index(part.quantizer) for part in parts if hasattr(part, "quantizer")]
    if fault := next(filter(None, map(_useless, parts + proposers)), ""):
        raise UserError(f"an index {kind!r} {fault}")
    for name, value in re.findall(r"(\w+)=([^, ]*)", effort):  # FAISS parts them at commas and spaces
        if not re.fullmatch(r"[+-]?\d+(\.\d*)?", value):
            raise UserError(f"an index's effort {effort!r}: {name}={value} is no number; such as nprobe=16")
        if any(isinstance(part, faiss.IndexPQ) for part in {"ht": parts, "quantizer_ht": proposers}.get(name, ())):
            raise UserError(
                f"an index {kind!r}: FAISS has {name} of it for Euclidean distances alone, and these are cosines; leave it out"
            )
        if name.endswith(OF_SEARCH) and float(value) < 1:
            raise UserError(f"an index {kind!r} that is searched with {name}={value} finds nothing; give 1 or more")


def _useless(part: Any) -> str:
    """What is wrong with a part of an index; "" where nothing is."""
    if getattr(part, "nlist", 1) < 1:
        return "has no clusters; IVF256,Flat has 256"
    if hasattr(part, "pq") and part.pq.nbits < 1:
        return "keeps no bits of a vector; IVF256,PQ48 keeps 48 times 8"
    if hasattr(part, "hnsw") and _neighbours(part) < 2:
        return "is a graph of fewer than two neighbours; HNSW32 has 32"
    if hasattr(part, "nsg") and part.nsg.R < FEWEST_OF_NSG:
        return f"is a graph of fewer than {FEWEST_OF_NSG} neighbours, which FAISS may not end to build; NSG32 has 32"
    if hasattr(part, "sq") and part.sq.qtype in WHOLE_NUMBERS:
        return "keeps whole numbers, which a unit vector's are all 0 as; SQ8 has them scaled"
    if isinstance(part, faiss.IndexIDMap | faiss.IndexIDMap2):
        return "asks for ids of one's own, where texts are numbered by their rows; leave IDMap out"
    return ""


def _neighbours(graph: Any) -> int:
    """Of a point of an HNSW graph, above its lowest layer, which has twice as many."""
    up_to_layer = faiss.vector_to_array(graph.hnsw.cum_nneighbor_per_level)
    return int(up_to_layer[1]) // 2 if len(up_to_layer) > 1 else 0


def refusal_of(kind: str, effort: str, rows: int, width: int, error: Exception) -> UserError:
    """FAISS's error of an index, in a line that names it."""
    reason = re.sub(r"^Error in .*?\.cpp:\d+: ", "", str(error))
    count = "" if rows == MANY else f"{rows} "
    return UserError(
        f"FAISS makes no index {kind!r}{f' with {effort!r}' if effort else ''} of {count}vectors of width {width}: {reason}"
    )


def training_rows(kind: str, width: int) -> int:
    """As many vectors as FAISS looks at, of more, when it trains an index of this kind; of one that is not trained a few."""
    made = faiss.index_factory(width, kind, faiss.METRIC_INNER_PRODUCT)
    learns = [part for part in _parts(made) if hasattr(part, "sq") or hasattr(part, "aq") or _learnt_steps(part)]
    return max(256 * _fewest_to_train(made), OF_DISTRIBUTIONS if learns else 1)


def _fewest_to_train(made: Any) -> int:
    """How many vectors the k-means of an index of FAISS's need: one a centroid."""
    fewest = [1]
    for part in _parts(made):
        fewest += [part.nlist] if hasattr(part, "nlist") else []
        fewest += [part.pq.ksub] if hasattr(part, "pq") else []
        fewest += [2 ** int(faiss.vector_to_array(part.aq.nbits).max())] if hasattr(part, "aq") else []
        fewest += [OF_OPQ for step in _steps(part) if isinstance(step, faiss.OPQMatrix)]
    return max(fewest)


def _parts(made: Any) -> Iterator[Any]:
    """An index and those within it: behind its transforms or ids, what it proposes from and ranks anew by, and what a graph keeps."""
    as_it_is: Any = faiss.downcast_index(made)  # another name: it holds no reference to what it looks into
    yield as_it_is
    for name in ("index", "base_index", "refine_index", "storage"):
        if getattr(as_it_is, name, None) is not None:
            yield from _parts(getattr(as_it_is, name))


def _steps(part: Any) -> list[Any]:
    """The transforms before an index."""
    chain = getattr(part, "chain", None)
    return [faiss.downcast_VectorTransform(chain.at(i)) for i in range(chain.size())] if chain is not None else []


def _learnt_steps(part: Any) -> bool:
    """Whether a transform before an index is fitted to vectors."""
    return any(not step.is_trained for step in _steps(part))
