"""The student before training: weights taken from its start, as a rule the teacher; its architecture is that of students.shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.types import Tree
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.order import sample_rows
from jdistill.encoder.encoder import Encoder
from jdistill.models.cutting import Cut, copied_layers
from jdistill.models.dense import apply_dense
from jdistill.models.precision import settled_dtype
from jdistill.models.registry import architecture_of
from jdistill.models.token_batch import TokenBatch
from jdistill.students.shape import check_student

SAMPLE_TOKENS = 120_000  # tokens of the text that the compact start is fitted to: its covariances no longer move


def make_student(cfg: ConfigDict, start: Encoder, tokens: TokenTable) -> Encoder:
    """The student of cfg.student, not yet trained.

    Layers start as the start's last, first or evenly spread ones (student.copy_layers), the token embeddings as the start's, or, where
    they are narrower, as its truncated SVD weighed by the training text (student.start). Dense projections of the start are left behind:
    what a student projects to, its method decides.

    Args:
      start: the encoder that it starts as.
      tokens: the training text by the start's tokenizer.

    Raises: UserError for keys that do not fit the start.
    """
    config, architecture = check_student(cfg, start), architecture_of(start.config)
    rng = np.random.default_rng([cfg.seed, 1])
    cut = Cut(
        config=config,
        whole=start.config,
        params=start.params,
        layers=copied_layers(cfg.student.copy_layers, config, start.config),
        block_start=cfg.student.start,
        pooling=start.pooling,
        sample=lambda: _sample_tokens(tokens, rng),
        rng=rng,
        seed=cfg.seed,
    )
    params = jax.tree.map(np.array, architecture.student_params(cut))
    return dataclasses.replace(start, config=config, params=params, dense=(), dense_activations=(), source="")


def representer(encoder: Encoder, dtype: str) -> Callable[..., dict[str, jax.Array]]:
    """The represent function of a method that needs a text's vectors alone.

    Args:
      encoder: the student; its weights come with the parameters.
      dtype: of the computation.

    Returns: (params, frozen, batch, rng) -> float32 arrays by name: "sentence" [n, D], the pooled last layer; "output" [n, D'], that after
      the encoder's dense projections, if it has any, else the same; "input" [n, D], the masked mean of the embedding layer's output (IBKD's
      X); of packed texts [groups, texts of a group, D]. Of the batch it reads the tokens (models.token_batch).
    """

    compute_type = jnp.dtype(settled_dtype(dtype))

    def represent(
        params: Tree, frozen: Tree, batch: dict[str, jax.Array], rng: jax.Array | None
    ) -> dict[str, jax.Array]:
        student, texts = params["student"], TokenBatch.of(batch)
        states = texts.states(encoder.config, student["model"], compute_type, rng)
        sentence_BxD = texts.pool(encoder.pooling, states, student.get("pooler"))
        dense = [student["dense"][str(i)] for i in range(len(encoder.dense))]
        output = apply_dense(sentence_BxD, dense, encoder.dense_activations)
        return {"sentence": sentence_BxD, "output": output, "input": texts.mean(states[0])}

    return represent


def of_rows(represent: Callable[..., dict[str, jax.Array]]) -> Callable[..., dict[str, jax.Array]]:
    """A represent function (representer) for rows of several texts: of "ids" and "mask" [n, T, L] it gives arrays [n, T, …], of packed ones
    [groups, rows of a group, T, …] as they come."""

    def represent_rows(
        params: Tree, frozen: Tree, batch: dict[str, jax.Array], rng: jax.Array | None
    ) -> dict[str, jax.Array]:
        if "place" in batch:  # packed
            return represent(params, frozen, batch, rng)
        n, T, L = batch["ids"].shape
        texts = {name: batch[name].reshape(n * T, L) for name in ("ids", "mask")}
        return {name: x.reshape(n, T, -1) for name, x in represent(params, frozen, texts, rng).items()}

    return represent_rows


def to_teacher(student_width: int, teacher_width: int, rng: np.random.Generator) -> np.ndarray:
    """W at its start: the identity where the widths agree, else random of unit scale; float32 [student_width, teacher_width]."""
    if student_width == teacher_width:
        return np.eye(student_width, dtype=np.float32)
    return rng.normal(0, student_width**-0.5, (student_width, teacher_width)).astype(np.float32)


def projected(student: Encoder, kernel_DxT: jax.typing.ArrayLike) -> Encoder:
    """The student whose vectors, after its own projections, are multiplied by a matrix [D, T] more, float32."""
    return dataclasses.replace(
        student,
        dense=(*student.dense, {"kernel": np.ascontiguousarray(kernel_DxT, np.float32)}),
        dense_activations=(*student.dense_activations, "Identity"),
    )


def _sample_tokens(tokens: TokenTable, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and their positions, int [N] each, of texts drawn at random until SAMPLE_TOKENS are there."""
    drawn = sample_rows(rng, len(tokens), SAMPLE_TOKENS)
    lengths = tokens.lengths_of(drawn)
    count = int(np.searchsorted(np.cumsum(lengths), SAMPLE_TOKENS)) + 1
    texts, lengths = drawn[:count], lengths[:count]
    ids = np.concatenate(tokens.lists(texts)).astype(np.int64)
    return ids, np.concatenate([np.arange(length) for length in lengths])
