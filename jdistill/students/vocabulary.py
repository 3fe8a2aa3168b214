"""A student's vocabulary where it is to be smaller than its start's: the start with some rows of its token table, and a tokenizer to match."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_body
from jdistill.encoder.formats.tokenizer import begins_in_lower_case, load_tokenizer, lower_case
from jdistill.encoder.vocabulary.pieces import TokenPieces, chosen_pieces
from jdistill.encoder.vocabulary.renumbered import new_ids, renumbered_tokenizer
from jdistill.models.registry import architecture_of

OF_TEXT = "text"


def vocabulary_asked(cfg: ConfigDict) -> str:
    """cfg.student.vocabulary; "" where the student keeps its start's, as one does whose keys have no such key."""
    student = cfg.get("student")
    return str(student.get("vocabulary", "")) if isinstance(student, ConfigDict) else ""


def most_pieces(asked: str) -> int:
    """How many pieces a student's vocabulary may have at most; 0: as many as the text uses."""
    return 0 if asked == OF_TEXT else int(asked)


def check_cut(cfg: ConfigDict, start: Encoder) -> None:
    """Raises UserError where cfg asks for a vocabulary that its start's tokenizer cannot be cut to: before a text is read."""
    if asked := vocabulary_asked(cfg):
        pieces = TokenPieces.of_tokenizer(start.tokenizer, start.source)
        chosen_pieces(pieces, np.zeros(0, np.int64), set(pieces.always), most_pieces(asked))


def cut_vocabulary(start: Encoder, counts: np.ndarray, size: int = 0) -> tuple[Encoder, dict[int, int]]:
    """The start with the pieces that a text uses. A text all of whose pieces are kept has the same vectors, to the bit.

    Args:
      counts: int64 [V], how often the text has each id.
      size: of the vocabulary, at most; 0: as large as the text's pieces make it.

    Returns: the encoder, and new ids by the old ones of what is kept.

    Raises: UserError for a tokenizer that cannot be cut, or not so far.
    """
    pieces = TokenPieces.of_tokenizer(start.tokenizer, start.source)
    of_prompts = (
        start.tokenizer(list(start.prompts.values()), add_special_tokens=False)["input_ids"] if start.prompts else []
    )
    padding = _padding(start, pieces)
    needed = pieces.needed_by({padding, *(number for prompt in of_prompts for number in prompt)})
    new_of = new_ids(pieces, chosen_pieces(pieces, counts, needed, size), padding)
    cut = with_rows(start, list(new_of), new_of[padding])
    return replace(cut, tokenizer=_cut_tokenizer(cut, pieces, new_of)), new_of


def cut_like(start: Encoder, state: Mapping[str, Any]) -> Encoder:
    """The start with the rows that a cut kept, by the tokenizer.json that it wrote; its tokenizer stays as it was."""
    of_start, of_cut = TokenPieces.of_tokenizer(start.tokenizer, start.source), TokenPieces.of(state, "the student")
    old = of_start.all_ids
    rows = [old[piece] for piece, _ in sorted(of_cut.all_ids.items(), key=lambda item: item[1])]
    return with_rows(start, rows, rows.index(_padding(start, of_start)))


def with_rows(start: Encoder, rows: Sequence[int], padding: int) -> Encoder:
    """The encoder with some rows of its token table, which the tokenizer is yet to follow.

    Args:
      rows: old ids, by the new ones.
      padding: the new id of the padding token.

    Raises: UserError where the architecture counts positions from a padding token that moved.
    """
    architecture = architecture_of(start.config)
    changes: dict[str, Any] = {"vocab_size": len(rows)}
    if start.config.pad_token_id >= 0:
        changes["pad_token_id"] = padding
    config = replace(start.config, **changes)
    if config.usable_positions != start.config.usable_positions:
        raise UserError(
            f"{start.source}: a vocabulary of {len(rows)} pieces moves the padding token {start.config.pad_token_id}, from which this model counts "
            "its positions; raise --config.student.vocabulary above it"
        )
    table = np.ascontiguousarray(np.asarray(architecture.token_table(start.params))[np.asarray(rows)])
    return replace(start, config=config, params=architecture.with_token_table(start.params, table))


def _padding(start: Encoder, pieces: TokenPieces) -> int:
    """The padding token's id: the model's, or where it has none that is a piece the tokenizer's."""
    own = start.config.pad_token_id
    return own if own in pieces.all_ids.values() else int(start.tokenizer.pad_token_id)


def _cut_tokenizer(cut: Encoder, pieces: TokenPieces, new_of: Mapping[int, int]) -> Any:
    """The tokenizer with the pieces that are kept, read from its files as an export's is."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_body(cut, folder)
        write_json(folder / "tokenizer.json", renumbered_tokenizer(pieces, new_of))
        tokenizer = load_tokenizer(folder, cut.config)
    if begins_in_lower_case(cut.tokenizer):  # which not every class of tokenizers keeps in its files
        lower_case(tokenizer)
    tokenizer.name_or_path, tokenizer.model_max_length = cut.tokenizer.name_or_path, cut.tokenizer.model_max_length
    vocabulary = {piece: new_of[old] for piece, old in pieces.all_ids.items() if old in new_of}
    if tokenizer.get_vocab() != vocabulary:
        raise UserError(
            f"{cut.source}: its tokenizer, a {type(tokenizer).__name__}, numbers its pieces in its own way; leave --config.student.vocabulary empty"
        )
    return tokenizer


def check_same_tokens(start: Encoder, cut: Encoder, new_of: Mapping[int, int], texts: Sequence[str]) -> None:
    """Holds the cut against texts: one whose pieces are all kept is to be cut into the same.

    Raises: UserError with the text that is not.
    """
    unknown = start.tokenizer.unk_token_id
    for text, before, after in zip(texts, start.tokenize(texts), cut.tokenize(texts), strict=True):
        there = all(number in new_of and number != unknown for number in before)
        if there and [new_of[number] for number in before] != after:
            raise UserError(
                f"{start.source}: its tokenizer cannot be cut, for then it reads {text[:60]!r} by other "
                "pieces; leave --config.student.vocabulary empty"
            )


def pieces_saved(student: Encoder, whole: int) -> dict[str, Any]:
    """What a cut from `whole` pieces spared a student: {"pieces", "of", "saved_percent": of the parameters that it would have had}."""
    fewer = (whole - student.config.vocab_size) * student.config.embedding_size
    share = 100 * fewer / (student.num_params + fewer)
    return {"pieces": student.config.vocab_size, "of": whole, "saved_percent": share}


def saved_line(student: Encoder, whole: int) -> str:
    """The same in words."""
    about = pieces_saved(student, whole)
    return (
        f"vocabulary of {about['pieces']:,} of {about['of']:,} pieces, {about['saved_percent']:.0f} % fewer parameters"
    )
