"""The texts of a batch as a model reads them, padded or packed: hidden states and pooled vectors, one way for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from jdistill.core.types import Array
from jdistill.data.batching.layout import MOST_BLOCKS
from jdistill.models.pooling import mean_pool, pool, pool_each
from jdistill.models.registry import ModelConfig, hidden_states
from jdistill.models.segments import Segments, blocks_of, members

MOST_ROWS = 64  # that a group's tokens are arranged in
IDS, LENGTHS = ([f"{name}_{k}" for k in range(MOST_BLOCKS)] for name in ("ids", "lengths"))
TOKEN_ARRAYS = ("ids", "mask", *IDS, *LENGTHS, "place")  # the arrays of a batch that TokenBatch reads


@dataclass(frozen=True)
class TokenBatch:
    """The texts of a batch.

    Args:
      ids_BxL: int32 token ids; a row is a text or, where texts are packed, whatever divides a group's tokens.
      mask_BxL: bool, true for tokens.
      segments: of packed texts; None: a row is a text.
      member: of packed texts, for each block whose a token is, bool [n * R, K, W].
      place_nxg: of packed texts, n groups of g, where each stands among the K of all rows of its group, int32; [n, g, C] of rows of C texts.
    """

    ids_BxL: Array
    mask_BxL: Array
    segments: Segments | None = None
    member: tuple[Array, ...] = ()
    place_nxg: Array | None = None

    @classmethod
    def of(cls, batch: Mapping[str, Array]) -> TokenBatch:
        """Reads a batch's "ids" and "mask" [n, L], or what data.batching.packing makes of packed texts."""
        if "place" not in batch:
            return cls(batch["ids"], batch["mask"])
        ids = [batch[name] for name in IDS if name in batch]
        n, blocks = ids[0].shape[0], tuple((x.shape[1], x.shape[2]) for x in ids)
        lengths = [batch[name].reshape(n * rows, -1) for name, (rows, _) in zip(LENGTHS, blocks, strict=False)]
        member = tuple(members(of_row, width) for of_row, (_, width) in zip(lengths, blocks, strict=True))
        numbers, positions = zip(*map(_whose, member), strict=True)

        def joined(parts: Sequence[Array]) -> Array:
            tokens_nxL = jnp.concatenate([x.reshape(n, -1) for x in parts], axis=1)
            rows = next(count for count in range(MOST_ROWS, 0, -1) if tokens_nxL.shape[1] % count == 0)
            return tokens_nxL.reshape(n * rows, -1)

        segments = Segments(joined(numbers), joined(positions), blocks)
        return cls(joined(ids), segments.of_BxL > 0, segments, member, batch["place"])

    def states(
        self, config: ModelConfig, params: Any, dtype: jnp.dtype = jnp.float32, rng: Array | None = None
    ) -> tuple[Array, ...]:
        """All hidden states of the tokens, [B, L, D] each, as models.registry.hidden_states has them."""
        return hidden_states(config, params, self.ids_BxL, self.mask_BxL, dtype, rng, segments=self.segments)

    def pool(self, name: str, states: Sequence[Array], params: Any = None) -> Array:
        """The vectors of the texts: float32 [B, D], or of packed ones [n, g, D], of rows of C texts [n, g, C, D].

        Args:
          name: of a pooler.
          states: num_layers + 1 arrays [B, L, D].
          params: the pooler's own, of pma alone.
        """
        if self.segments is None:
            return pool(name, states, self.mask_BxL, params)
        return self._each(name, states, params)

    def mean(self, state_BxLxD: Array) -> Array:
        """The mean of a state over each text's tokens, shaped as pool has it."""
        if self.segments is None:
            return mean_pool(state_BxLxD, self.mask_BxL)
        return self._each("mean", [state_BxLxD])

    def by_group(self, x_BxL: Array) -> Array:
        """What is known of each token, [B, L, ...], as rows that no chunk of the batch divides: of packed texts [n, tokens, ...]."""
        return x_BxL if self.place_nxg is None else x_BxL.reshape(self.place_nxg.shape[0], -1, *x_BxL.shape[2:])

    def _each(self, name: str, states: Sequence[Array], params: Any = None) -> Array:
        assert self.segments is not None and self.place_nxg is not None
        of_block = zip(blocks_of(self.segments.blocks, *states), self.member, strict=True)
        vectors = [pool_each(name, own, member, params) for own, member in of_block]
        n = self.place_nxg.shape[0]
        every_nxTxD = jnp.concatenate([x.reshape(n, -1, x.shape[-1]) for x in vectors], axis=1)
        chosen = jnp.take_along_axis(every_nxTxD, self.place_nxg.reshape(n, -1, 1), axis=1)
        return chosen.reshape(*self.place_nxg.shape, -1)


def _whose(member_BxKxW: Array) -> tuple[Array, Array]:
    """For each token the number of its text in the row, from 1, and its position in the text: int32 [B, W] each, 0 in padding."""
    numbers_K = jnp.arange(1, member_BxKxW.shape[1] + 1, dtype=jnp.int32)
    places_W = jnp.arange(member_BxKxW.shape[2], dtype=jnp.int32)
    first_BxKx1 = member_BxKxW.argmax(2)[..., None].astype(jnp.int32)
    return (member_BxKxW * numbers_K[:, None]).sum(1), (member_BxKxW * (places_W - first_BxKx1)).sum(1)


def rows_and_texts(batch: Mapping[str, Array]) -> tuple[int, int]:
    """Rows of a batch that chunks and devices share, and texts (triplets) of each: groups, where texts are packed."""
    if "place" in batch:
        groups, texts = batch["place"].shape[:2]
        return groups, texts
    return next(iter(batch.values())).shape[0], 1


def by_text(arrays: Mapping[str, Array], batch: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays of a batch text by text (triplet by triplet), [n, ...]: those of packed texts are [groups, texts of a group, ...] before.

    Args:
      arrays: of the batch or made of it, by name; those that TokenBatch reads stay as they are.
      batch: the batch.
    """
    if "place" not in batch:
        return dict(arrays)
    shape = batch["place"].shape[:2]
    return {
        name: x.reshape(-1, *x.shape[2:]) if name not in TOKEN_ARRAYS and x.shape[:2] == shape else x
        for name, x in arrays.items()
    }
