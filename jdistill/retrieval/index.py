"""FAISS: a cosine index over vectors, exact or of any kind FAISS has, built, saved with its texts, loaded, searched."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from jdistill.core import files
from jdistill.core.errors import UserError, first_line
from jdistill.core.files import write_json
from jdistill.core.folders import replacing
from jdistill.data.text.vector_folder import EMBEDDINGS_SEAL
from jdistill.encoder.encoder import Encoder
from jdistill.retrieval.index_kinds import refusal_of, refuse_other_scores
from jdistill.retrieval.index_texts import IndexTexts, write_texts

EXACT = "Flat"
STUDENT, TEACHER = INDEX_OWNERS = ("student", "teacher")  # whose vectors a run's index may hold
INDEX_SEAL = "index"  # of its folder's seal
VECTORS, TEXTS, ABOUT, ASKED = "vectors.faiss", "texts.jsonl", "index.json", ("asked_by", "owner")


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to length one, so that inner products are cosines; a zero row stays zero.

    Args:
      vectors: [N, D], numbers.

    Returns: float32 [N, D].

    Raises: UserError naming the first row that holds NaN or infinity.
    """
    rows = np.ascontiguousarray(vectors, np.float32)
    if rows.ndim != 2:
        raise ValueError(f"vectors of shape {rows.shape} instead of [rows, width]")
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise UserError(
            f"the model's vector of text {int(np.argmin(finite))} holds NaN or infinity, as do "
            f"{int((~finite).sum())} of {len(rows)}: its weights are damaged or its training diverged"
        )
    # The largest entry goes first: the squares of very small or very large entries leave float32's range.
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), np.finfo(np.float32).tiny)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return rows


def row_cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cosine of each row with the other's: two [N, D] to float32 [N]."""
    return np.einsum("nd,nd->n", unit_rows(left), unit_rows(right))


@dataclass(frozen=True)
class Index:
    """`faiss_index` holds unit rows and compares by inner product: every score is a cosine, of a product-quantised index
    an approximate one."""

    faiss_index: faiss.Index

    @property
    def rows(self) -> int:
        """How many vectors it holds."""
        return int(self.faiss_index.ntotal)

    @property
    def dim(self) -> int:
        """Width of its vectors."""
        return int(self.faiss_index.d)

    @property
    def num_bytes(self) -> int:
        """Its size as a file."""
        sizes: list[int] = []
        faiss.write_index(self.faiss_index, faiss.PyCallbackIOWriter(lambda piece: sizes.append(len(piece))))  # type: ignore[attr-defined]
        return sum(sizes)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest rows of each query, best first: cosines float32 [Q, k] and row numbers int64 [Q, k].

        queries: [Q, D]. k is cut to the number of rows. Where an index that is not exact finds fewer than k, the last row
        numbers are -1. Raises UserError where k < 1 or the widths differ.
        """
        if k < 1:
            raise UserError(f"k is {k}; ask for at least 1 result")
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise UserError(
                f"queries of shape {queries.shape} do not fit an index of width {self.dim}: "
                "another model made the index"
            )
        return self.faiss_index.search(unit_rows(queries), min(k, self.rows))

    def stored_vectors(self) -> np.ndarray | None:
        """The unit rows that it holds, float32 [rows, dim]; None of an index that is not exact."""
        exact = faiss.downcast_index(self.faiss_index)
        return exact.reconstruct_n(0, self.rows) if isinstance(exact, faiss.IndexFlat) else None

    def save(
        self, folder: Path, texts: Collection[str], fingerprint: str, asked: tuple[str, str] = ("", ""), **settings: Any
    ) -> None:
        """Writes the vectors, their texts and the fingerprint of their encoder; replaces an older index whole.

        asked: asked_by and owner of SavedIndex. settings: kept by its seal. Raises UserError where the folder holds anything else.
        """
        if len(texts) != self.rows:
            raise ValueError(f"{len(texts)} texts for {self.rows} vectors")
        with replacing(folder, INDEX_SEAL, key="index", legacy=(VECTORS, TEXTS, ABOUT), settings=settings) as beside:
            _write_faiss(self.faiss_index, beside / VECTORS)
            write_texts(beside / TEXTS, texts)
            about = {"encoder_fingerprint": fingerprint, "rows": self.rows, "dim": self.dim}
            write_json(beside / ABOUT, about | (dict(zip(ASKED, asked, strict=True)) if any(asked) else {}))


def _write_faiss(index: faiss.Index, path: Path) -> None:
    """Writes through Python, whose errors name the file; FAISS's own end a process or say a line of C++."""
    with open(path, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class SavedIndex:
    """What a folder holds: index, texts, fingerprint of their encoder; where another asks, that one's, and the source of the first (owner)."""

    index: Index
    texts: Sequence[str]
    fingerprint: str
    asked_by: str = ""
    owner: str = ""


def build_index(vectors: np.ndarray, kind: str = EXACT, effort: str = "") -> Index:
    """An index over vectors, rows scaled to length one.

    Args:
      vectors: [N, D]; what has to be trained is trained on them.
      kind: as faiss.index_factory writes it: Flat (exact), IVF256,Flat (inverted lists), PQ48 or IVF256,PQ48 (product quantisation),
        HNSW32 (graph) and so on.
      effort: how hard it searches, such as nprobe=16 or efSearch=128; "": as FAISS sets it.

    Raises: UserError where there are no vectors, one holds NaN, or FAISS does not take the kind, for this width or number of vectors, and
      for a kind whose scores are no cosines (PCA, ITQ, HNSW with PQ).
    """
    if not len(vectors):
        raise UserError("there are no texts to index")
    rows = unit_rows(vectors)
    return fill_index(rows, [rows], kind, effort)


def fill_index(
    sample: np.ndarray, pieces: Iterable[np.ndarray], kind: str = EXACT, effort: str = "", rows: int | None = None
) -> Index:
    """An index over unit rows that come in pieces.

    Args:
      sample: float32 [M, D], unit rows; what has to be trained is trained on them.
      pieces: float32 [n, D] each, unit rows, in their order.
      kind, effort: as build_index has them.
      rows: of all pieces, for messages; None: as many as the sample has.

    Raises: UserError where FAISS does not take the kind, for this width or number of vectors.
    """
    try:
        made = faiss.index_factory(sample.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
        refuse_other_scores(made, kind)
        if not made.is_trained:
            made.train(sample)
        for piece in pieces:
            made.add(piece)
        if effort:
            faiss.ParameterSpace().set_index_parameters(made, effort)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        raise refusal_of(kind, effort, len(sample) if rows is None else rows, sample.shape[1], error) from None
    return Index(made)


def load_index(folder: Path) -> SavedIndex:
    """Reads what Index.save wrote. Raises UserError where a file is missing or damaged, or they do not fit together."""
    if files.read_seal(folder, INDEX_SEAL) and (wrong := files.damage(folder, INDEX_SEAL)):
        raise UserError(f"the index in {folder} is damaged ({', '.join(wrong)}); {_remake(folder)}")
    try:
        about = json.loads((folder / ABOUT).read_text())
        texts = IndexTexts(folder / TEXTS)
        loaded = Index(faiss.read_index(str(folder / VECTORS)))
        expected = about["rows"], about["dim"]
        of_encoders = [str(about["encoder_fingerprint"]), *(str(about.get(name, "")) for name in ASKED)]
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing; {_remake(folder)}") from None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:  # faiss raises RuntimeError
        raise UserError(f"the index in {folder} cannot be read ({first_line(error)}); {_remake(folder)}") from None
    if (loaded.rows, loaded.dim) != expected or len(texts) != loaded.rows:
        raise UserError(
            f"the index in {folder} is damaged: {ABOUT} tells of {expected[0]} rows, width {expected[1]}; "
            f"{VECTORS} holds {loaded.rows} of width {loaded.dim}, {TEXTS} {len(texts)}. {_remake(folder)}"
        )
    return SavedIndex(loaded, texts, *of_encoders)


def load_index_of(folder: Path, model: Encoder) -> SavedIndex:
    """As load_index, of an index that this model made, or that was made for its queries. Raises UserError for one that was not."""
    saved = load_index(folder)
    if model.fingerprint() != (saved.asked_by or saved.fingerprint):
        raise UserError(
            f"{folder} was made {'for' if saved.asked_by else 'by'} another model than {model.source}, so their vectors do "
            "not compare; train into a new --workdir, or embed into a new folder, which makes both"
        )
    return saved


def _remake(folder: Path) -> str:
    if files.read_seal(folder.parent, EMBEDDINGS_SEAL):
        return f"the command python -m jdistill.embed with --out {folder.parent} and --index makes it again"
    return f"the run's own command, python -m jdistill.main with --workdir {folder.parent}, makes it again"
