"""The pieces of a tokenizer, which of them no cut may take, and which a text needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.encoder.vocabulary.merges import Merges

KINDS = ("BPE", "WordPiece", "Unigram")  # of models that read a text by smaller pieces where a piece is gone
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
SPARE = re.compile(r"\[unused\d+\]|<unused\d+>")  # rows that a vocabulary keeps for its users; no text is read by them


@dataclass(frozen=True)
class TokenPieces:
    """The pieces of a fast tokenizer.

    Args:
      state: the content of its tokenizer.json.
      ids: of each piece of the model.
      outside: ids of added tokens that are no pieces of the model.
    """

    state: Mapping[str, Any]
    ids: Mapping[str, int]
    outside: Mapping[str, int]

    @classmethod
    def of(cls, state: Mapping[str, Any], where: str) -> TokenPieces:
        """The pieces of a tokenizer.json. Raises UserError for a model that cannot do without some of its pieces."""
        model = state["model"]
        if model.get("type") not in KINDS:
            raise UserError(
                f"{where}: the vocabulary of a {model.get('type')} tokenizer cannot be cut, for no smaller pieces would read what is gone; "
                f"{', '.join(KINDS)} can: leave --config.student.vocabulary empty"
            )
        unigram = model["type"] == "Unigram"
        ids = {piece: i for i, (piece, _) in enumerate(model["vocab"])} if unigram else dict(model["vocab"])
        added = {token["content"]: int(token["id"]) for token in state.get("added_tokens") or ()}
        return cls(state, ids, {token: i for token, i in added.items() if token not in ids})

    @classmethod
    def of_tokenizer(cls, tokenizer: Any, where: str) -> TokenPieces:
        """The pieces of a tokenizer of transformers. Raises UserError as `of`, and for one that is slow."""
        if not getattr(tokenizer, "is_fast", False):
            raise UserError(
                f"{where}: the vocabulary of a slow tokenizer cannot be cut; only that of a tokenizer.json can"
            )
        return cls.of(json.loads(tokenizer.backend_tokenizer.to_str()), where)

    @property
    def model(self) -> Mapping[str, Any]:
        return self.state["model"]

    def __len__(self) -> int:
        return len(self.ids) + len(self.outside)

    @property
    def all_ids(self) -> dict[str, int]:
        """The id of every piece and added token."""
        return {**self.ids, **self.outside}

    @cached_property
    def piece_of(self) -> dict[int, str]:
        """The model's pieces by their ids."""
        return {i: piece for piece, i in self.ids.items()}

    @cached_property
    def always(self) -> frozenset[int]:
        """The ids that every cut keeps: of added tokens, of what is put around a text, of the unknown piece, and of the pieces that read
        any text: bytes, or where there are none single characters.

        Of a Unigram also the least likely piece, by which it weighs what is unknown: without it a text could be cut another way.
        """
        kept = {*self.outside.values(), *(int(token["id"]) for token in self.state.get("added_tokens") or ())}
        kept |= set(ids_of_processor(self.state.get("post_processor")))
        kept |= {self.ids[piece] for piece in self.ids if self._reads_any(piece)}
        if self.model["type"] == "Unigram":
            if self.model.get("unk_id") is not None:
                kept.add(int(self.model["unk_id"]))
            kept.add(int(np.argmin([score for _, score in self.model["vocab"]])))
        elif self.model.get("unk_token") in self.ids:
            kept.add(self.ids[self.model["unk_token"]])
        return frozenset(kept)

    def _reads_any(self, piece: str) -> bool:
        if self.model.get("byte_fallback"):
            return BYTE.fullmatch(piece) is not None
        bare = piece.removeprefix(self.model.get("continuing_subword_prefix") or "")
        return len(piece) == 1 or len(bare.removesuffix(self.model.get("end_of_word_suffix") or "")) == 1

    @cached_property
    def merges(self) -> Merges | None:
        return Merges(self.model) if self.model["type"] == "BPE" else None

    def needed_for(self, number: int) -> set[int]:
        """The ids that a text's piece needs: its own, and of a BPE those on the way to it."""
        if self.merges is None or number not in self.piece_of or number in self.always:
            return {number}
        return {self.ids[piece] for piece in self.merges.way(self.piece_of[number]) if piece in self.ids} | {number}

    def needed_by(self, numbers: Iterable[int]) -> set[int]:
        """The ids that no cut may take where texts have these pieces: theirs, and those of `always`."""
        return set(self.always).union(*map(self.needed_for, numbers))


def ids_of_processor(processor: Mapping[str, Any] | None) -> Iterator[int]:
    """The ids that a post-processor of a tokenizer.json puts around a text."""
    for part in (processor or {}).get("processors") or ():
        yield from ids_of_processor(part)
    for token in ((processor or {}).get("special_tokens") or {}).values():
        yield from map(int, token["ids"])
    for side in ("sep", "cls"):
        if side in (processor or {}):
            yield int((processor or {})[side][1])


def chosen_pieces(pieces: TokenPieces, counts: np.ndarray, needed: set[int], size: int) -> set[int]:
    """The ids that a cut keeps.

    Args:
      pieces: of the whole vocabulary.
      counts: int64 [V], how often the text has each id.
      needed: ids that are kept whatever the text has (TokenPieces.needed_by).
      size: ids at most, those of the pieces that are used most, then of the others those that come first, as more common ones do in most
        vocabularies: a student is asked with words that its text does not have; 0: of all that are used.

    Raises: UserError for a size that is less than what is needed.
    """
    if size and size < len(needed):
        raise UserError(
            f"--config.student.vocabulary={size}: {len(needed)} pieces are always kept (special and added tokens, prompts, and the bytes or "
            f"characters that read any text); give {len(needed)} or more, or text"
        )
    kept = set(needed)
    used = np.flatnonzero(counts)
    first = used[np.lexsort((used, -counts[used]))].tolist()
    others = (i for i in sorted(set(pieces.piece_of) - set(first)) if not SPARE.fullmatch(pieces.piece_of[i]))
    for number in [*first, *(others if size else ())]:
        if size and len(kept) >= size:
            break
        more = pieces.needed_for(number) - kept
        if not size or len(kept) + len(more) <= size:
            kept |= more
    return kept
