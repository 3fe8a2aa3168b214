"""How a BPE comes to a piece: the pieces on the way to it, without which its merges would stop before it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any


class Merges:
    """The merges of a BPE, in their order.

    Args:
      model: "model" of a tokenizer.json.
    """

    def __init__(self, model: Mapping[str, Any]):
        self.pairs = [tuple(row.split(" ", 1)) if isinstance(row, str) else tuple(row) for row in model["merges"]]
        self.prefix: str = model.get("continuing_subword_prefix") or ""
        self.suffix: str = model.get("end_of_word_suffix") or ""
        self.rank = {pair: rank for rank, pair in enumerate(self.pairs)}

    def merged(self, pair: tuple[str, ...]) -> str:
        """The piece that a pair becomes; what marks a piece within a word is not repeated."""
        return pair[0] + pair[1].removeprefix(self.prefix)

    def symbols(self, piece: str) -> list[str]:
        """The pieces of one character that a piece begins as."""
        inner = bool(self.prefix) and piece.startswith(self.prefix) and piece != self.prefix
        body = piece[len(self.prefix) :] if inner else piece
        last = self.suffix if self.suffix and body.endswith(self.suffix) and body != self.suffix else ""
        characters = list(body[: len(body) - len(last)])
        symbols = [
            character if i == 0 and not inner else self.prefix + character for i, character in enumerate(characters)
        ]
        return [*symbols[:-1], symbols[-1] + last]

    def way(self, piece: str) -> set[str]:
        """All pieces that stand in a word at some time until this one does, itself included.

        A piece that a text is cut into began as its own characters, and no merge across its ends came first: so its way is the same in
        every text. Where its characters alone end as something else, no text is cut into it by merges, unless it is marked in a
        way that is not known here: then all pieces stay that any merges could make it from.
        """
        symbols = self.symbols(piece)
        way = {piece, *symbols}
        while len(symbols) > 1:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in zip(symbols, symbols[1:], strict=False)]
            lowest = min(ranks)
            if lowest == len(self.rank):
                return self._any_way(piece)
            at = ranks.index(lowest)
            symbols[at : at + 2] = [self.merged((symbols[at], symbols[at + 1]))]
            way.add(symbols[at])
        return way if symbols == [piece] else self._any_way(piece)

    @cached_property
    def _pairs_of(self) -> dict[str, list[tuple[str, ...]]]:
        pairs: dict[str, list[tuple[str, ...]]] = {}
        for pair in self.pairs:
            pairs.setdefault(self.merged(pair), []).append(pair)
        return pairs

    def _any_way(self, piece: str) -> set[str]:
        way, left = set(), [piece]
        while left:
            if (part := left.pop()) not in way:
                way.add(part)
                left += [each for pair in self._pairs_of.get(part, ()) for each in pair]
        return way

    def within(self, pieces: Mapping[str, int]) -> list[list[str]]:
        """The merges, in their order, whose parts and result are among some pieces."""
        return [list(pair) for pair in self.pairs if {*pair, self.merged(pair)} <= pieces.keys()]
