"""Whether two models' vectors stand in one space, so that the one's queries may ask the other's index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from jdistill.core.errors import UserError
from jdistill.data.sets.collection import Collection
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.retrieval.index import row_cosines

ALIGNED = (
    0.5  # mean cosine to a model's vectors above which another stands in their space, so that it may ask its index
)
COMPARED = 32  # queries, and as many documents, of a collection
# What leaves a student in its teacher's space, for messages.
HOW_TO_ALIGN = (
    "only a student that is trained to that model's own vectors can ask its index: train one by --config configs/search.py "
    "(simtde with loss.sentence=mse), by ibkd, ckd, mse or crd (without triplets) or distilface with --config.loss.align=1, or, where it need "
    "not go into a Router, by bilstm_sra with loss.target=vectors"
)


def check_one_width(encoder: TextEncoder, corpus_model: TextEncoder, what: str = "the corpus model") -> None:
    """Raises UserError where a model's vectors cannot be compared with those of the model that fills the index. what: the latter."""
    if corpus_model.dim != encoder.dim:
        raise UserError(
            f"{what}: its vectors are {corpus_model.dim} wide and the student's {encoder.dim}; {HOW_TO_ALIGN}"
        )


def check_one_space(encoder: TextEncoder, corpus_model: TextEncoder, texts: Sequence[str], what: str) -> None:
    """Refuses two models whose vectors of the same texts, by their default prompts, have little to do with one another.

    Args:
      encoder: reads the queries.
      corpus_model: fills the index.
      what: the latter, for messages.

    Raises: UserError for different widths, and where the mean cosine is not above ALIGNED.
    """
    check_one_width(encoder, corpus_model, what)
    _check_cosine(encoder.encode(texts), corpus_model.encode(texts), what)


def check_asks_index_of(encoder: TextEncoder, corpus_model: TextEncoder, collection: Collection) -> None:
    """As check_one_space, by some of a collection's queries and documents, each by the prompt of its role: seconds, before it is encoded."""
    check_one_width(encoder, corpus_model)
    texts = {
        "query": evenly_drawn(collection.queries.values()),
        "document": evenly_drawn(collection.documents.values()),
    }
    vectors, of_owner = (
        np.concatenate([model.encode(of_role, prompt=model.prompt_for(role)) for role, of_role in texts.items()])
        for model in (encoder, corpus_model)
    )
    counted = " and ".join(f"{len(of_role)} {role}" for role, of_role in texts.items())
    _check_cosine(vectors, of_owner, f"the corpus model, of {counted} texts of {collection.name}")


def _check_cosine(vectors: np.ndarray, of_owner: np.ndarray, what: str) -> None:
    """Of the same texts, float32 [N, D] each."""
    cosine = float(np.mean(row_cosines(vectors, of_owner)))
    if not cosine > ALIGNED:
        raise UserError(
            f"{what}: the student's vectors have a mean cosine of {cosine:.2f} to its own, not above {ALIGNED}; {HOW_TO_ALIGN}"
        )


def evenly_drawn(texts: Iterable[str]) -> list[str]:
    """At most COMPARED of the texts that are not empty, evenly spaced."""
    filled = [text for text in texts if text.strip()]
    return filled[:: -(-len(filled) // COMPARED) or 1]
