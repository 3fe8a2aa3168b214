"""A tokenizer.json with some of its pieces, under new ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jdistill.encoder.vocabulary.pieces import TokenPieces


def new_ids(pieces: TokenPieces, kept: set[int], padding: int) -> dict[int, int]:
    """Old id -> new id of each that is kept, in their order, added tokens outside the model last, as the tokenizers library numbers them.

    Args:
      padding: the id that keeps its place, where it is a piece of the model's: RoBERTa and MPNet count positions from it.
    """
    inside = sorted(kept & set(pieces.ids.values()))
    if padding in inside and padding < len(inside):
        inside.remove(padding)
        inside.insert(padding, padding)
    return {old: new for new, old in enumerate([*inside, *sorted(kept & set(pieces.outside.values()))])}


def renumbered_tokenizer(pieces: TokenPieces, new_of: Mapping[int, int]) -> dict[str, Any]:
    """The tokenizer.json of the pieces that have a new id."""
    model = dict(pieces.model)
    kept = sorted((new_of[i], piece, i) for piece, i in pieces.ids.items() if i in new_of)
    if model["type"] == "Unigram":
        model["vocab"] = [pieces.model["vocab"][old] for _, _, old in kept]
        model["unk_id"] = None if model.get("unk_id") is None else new_of[model["unk_id"]]
    else:
        model["vocab"] = {piece: new for new, piece, _ in kept}
    if pieces.merges is not None:
        model["merges"] = pieces.merges.within(model["vocab"])
    added = [token | {"id": new_of[token["id"]]} for token in pieces.state.get("added_tokens") or ()]
    return dict(pieces.state) | {
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "post_processor": renumbered_processor(pieces.state.get("post_processor"), new_of),
        "model": model,
    }


def renumbered_processor(processor: Mapping[str, Any] | None, new_of: Mapping[int, int]) -> dict[str, Any] | None:
    """A post-processor of a tokenizer.json that puts the same tokens around a text by their new ids."""
    if processor is None:
        return None
    changed = dict(processor)
    if "processors" in changed:
        changed["processors"] = [renumbered_processor(part, new_of) for part in changed["processors"]]
    if "special_tokens" in changed:
        changed["special_tokens"] = {
            name: token | {"ids": [new_of[i] for i in token["ids"]]}
            for name, token in changed["special_tokens"].items()
        }
    for side in ("sep", "cls"):
        if side in changed:
            changed[side] = [changed[side][0], new_of[changed[side][1]]]
    return changed
