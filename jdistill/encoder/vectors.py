"""The vectors of a batch: hidden states, pooler, projections and normalisation as one compiled function; and of many, batch after batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core import sharding
from jdistill.core.cores import core_count
from jdistill.core.mapped import slices_of
from jdistill.core.progress import Progress
from jdistill.data.batching.padding import batches_by_length
from jdistill.encoder.batch_ids import IdsOfTexts
from jdistill.losses import embedding
from jdistill.models.dense import apply_dense
from jdistill.models.pooling import pool
from jdistill.models.registry import ModelConfig, hidden_states

TOKENISED_AT_ONCE = 65_536  # whose token ids are in memory at once: a list of them takes forty bytes a token


def fill_vectors(
    out: np.ndarray,
    ids: Sequence[Sequence[int]] | IdsOfTexts,
    limits: tuple[int, int, int],
    embed: Callable[[tuple[np.ndarray, np.ndarray]], Any],
    meter: Progress | None = None,
    at_once: int = 1,
) -> None:
    """Writes the vectors of texts, some of which are tokenised at a time where they are not yet.

    Args:
      out: float32 [N, dim], which is filled.
      ids: of N texts.
      limits: pad_id, max_length and batch_size of batches_by_length.
      embed: token ids [R, L] and mask -> vectors [R, dim].
      meter: is told of the texts that are done.
      at_once: batches that are computed at the same time, each by a thread of its own.

    Raises: UserError for a batch_size below 1.
    """
    if len(ids) <= limits[2]:  # one batch, if they are no long texts: a thread would cost its start alone
        at_once = 1
    for part in slices_of(len(ids), TOKENISED_AT_ONCE):
        for numbers, vectors in _embedded(batches_by_length(ids[part], *limits), embed, at_once):
            out[part][numbers] = vectors[: len(numbers)]
            if meter is not None:
                meter.advance(len(numbers))


def _embedded(
    batches: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]],
    embed: Callable[[tuple[np.ndarray, np.ndarray]], Any],
    at_once: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(numbers, vectors float32 [R, dim]) of each batch, in their order. Arguments as of fill_vectors."""
    if at_once == 1:
        yield from ((numbers, np.asarray(embed((tokens, mask)))) for numbers, tokens, mask in batches)
        return
    begun: deque[tuple[np.ndarray, Future[np.ndarray]]] = deque()
    shapes: set[tuple[int, ...]] = set()
    threads = ThreadPoolExecutor(at_once, "encoding")
    try:
        for numbers, tokens, mask in batches:
            begun.append((numbers, threads.submit(lambda batch: np.asarray(embed(batch)), (tokens, mask))))
            if tokens.shape not in shapes:
                begun[-1][1].exception()  # the first of a shape alone: two threads would both compile its program
                shapes.add(tokens.shape)
            while len(begun) > at_once:
                first, vectors = begun.popleft()
                yield first, vectors.result()
        for first, vectors in begun:
            yield first, vectors.result()
    finally:
        threads.shutdown(cancel_futures=True)  # a batch that failed, or an interruption, waits for no further one


def at_once() -> int:
    """Batches that this process computes at the same time: on one CPU two, since much of a program runs on one core there."""
    return 2 if sharding.platform() == "cpu" and jax.device_count() == 1 and core_count() > 1 else 1


@partial(jax.jit, static_argnames=("config", "pooling", "dtype", "activations", "normalize"))
def embed_batch(
    params: Any,
    pooler: Any,
    dense: Any,
    ids_BxL: jax.Array,
    mask_BxL: jax.Array,
    *,
    config: ModelConfig,
    pooling: str,
    dtype: str,
    activations: tuple[str, ...],
    normalize: bool,
    passed_over: jax.Array | int | None = None,
) -> jax.Array:
    """The vectors of a batch of texts, by one compiled program for each shape.

    Args:
      params, pooler, dense: an encoder's weights.
      ids_BxL: int32 token ids.
      mask_BxL: bool, true for tokens.
      config, pooling, dtype, activations, normalize: as Encoder has them.
      passed_over: tokens at the beginning of each text that the pooler does not count; None: none.

    Returns: float32 [B, dim].
    """
    states = hidden_states(config, params, ids_BxL, mask_BxL, jnp.dtype(dtype))
    states, mask_BxL = after(passed_over, states, mask_BxL)
    x_BxD = apply_dense(pool(pooling, states, mask_BxL, pooler), dense, activations)
    return embedding.unit(x_BxD) if normalize else x_BxD


def after(passed_over: jax.Array | int | None, states: Any, mask_BxL: jax.Array) -> tuple[Any, jax.Array]:
    """States, each [B, L, D], and mask without the first tokens of each text, which a pooler does not count: they stand as padding now.

    passed_over: how many; None: all are counted.
    """
    if passed_over is None:
        return states, mask_BxL
    counted_BxL = mask_BxL & (jnp.arange(mask_BxL.shape[1]) >= passed_over)
    # To the end: a text begins with the first token that is counted.
    rolled: tuple[Any, jax.Array] = jax.tree.map(lambda x: jnp.roll(x, -passed_over, axis=1), (states, counted_BxL))
    return rolled
