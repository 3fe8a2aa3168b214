"""The student before training: weights taken from its start, as a rule the teacher; its architecture is student_shape's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder.encoder import Encoder
from jdistill.models.bert import BertConfig
from jdistill.models.decoder import DecoderConfig
from jdistill.models.dense import apply_dense
from jdistill.models.pooling import mean_pool, pool
from jdistill.models.registry import ModelConfig, hidden_states
from jdistill.students.compact import compact_start, random_start
from jdistill.students.shape import check_student

SAMPLE_TOKENS = 120_000  # tokens of the text that the compact start is fitted to: its covariances no longer move


def make_student(cfg: ConfigDict, start: Encoder, tokens: TokenTable) -> Encoder:
    """The student of cfg.student, not yet trained.

    Layers start as the start's last, first or evenly spread ones (student.copy_layers), the token embeddings as the
    start's, or, where they are narrower, as its truncated SVD weighed by the training text's `tokens` (student.start).
    Dense projections of the start are left behind: what a student projects to, its method decides. Raises UserError for
    keys that do not fit the start.
    """
    config = check_student(cfg, start)
    if isinstance(start.config, DecoderConfig):
        params = _cut_decoder(cfg, config, start.config, start.params)
    else:
        assert isinstance(config, BertConfig) and isinstance(start.config, BertConfig)
        params = _parameters(cfg, config, start.config, start.params, tokens, np.random.default_rng([cfg.seed, 1]))
    return dataclasses.replace(start, config=config, params=params, dense=(), dense_activations=(), source="")


def _cut_decoder(cfg: ConfigDict, config: ModelConfig, whole: DecoderConfig, params: Tree) -> Tree:
    """The copied layers of a decoder with its token table and its final norm."""
    tree = {name: params[name] for name in ("word", "final_norm")}
    tree |= {f"layer_{k}": params[f"layer_{layer}"] for k, layer in enumerate(_copied_layers(cfg, config, whole))}
    return jax.tree.map(np.array, tree)


def representer(encoder: Encoder, dtype: str) -> Callable[..., dict[str, jax.Array]]:
    """The represent function of a method that needs a text's vectors alone: (params, frozen, batch, rng) -> arrays [n, …].

    "sentence": the pooled last layer, float32; "output": that after the encoder's dense projections, if it has any, else
    the same; "input": the masked mean of the embedding layer's output (IBKD's X). Reads batch["ids"], batch["mask"].
    """

    def represent(
        params: Tree, frozen: Tree, batch: dict[str, jax.Array], rng: jax.Array | None
    ) -> dict[str, jax.Array]:
        student, mask_BxL = params["student"], batch["mask"]
        states = hidden_states(encoder.config, student["model"], batch["ids"], mask_BxL, jnp.dtype(dtype), rng)
        sentence_BxD = pool(encoder.pooling, states, mask_BxL, student.get("pooler"))
        dense = [student["dense"][str(i)] for i in range(len(encoder.dense))]
        output = apply_dense(sentence_BxD, dense, encoder.dense_activations)
        return {"sentence": sentence_BxD, "output": output, "input": mean_pool(states[0], mask_BxL)}

    return represent


def to_teacher(student_width: int, teacher_width: int, rng: np.random.Generator) -> np.ndarray:
    """W [student_width, teacher_width] at its start: the identity where the widths agree, else random of unit scale."""
    if student_width == teacher_width:
        return np.eye(student_width, dtype=np.float32)
    return rng.normal(0, student_width**-0.5, (student_width, teacher_width)).astype(np.float32)


def _parameters(
    cfg: ConfigDict,
    config: BertConfig,
    teacher: BertConfig,
    of_teacher: Tree,
    tokens: TokenTable,
    rng: np.random.Generator,
) -> Tree:
    student, block = cfg.student, of_teacher["embeddings"]
    project: Tree = {}
    if (config.embedding_size, config.hidden_size) == (teacher.embedding_size, teacher.hidden_size):
        embeddings, project = block, of_teacher.get("project", {})
    else:
        if config.model_type != teacher.model_type:  # without RoBERTa's unused first rows
            positions = block["position"]["embedding"][teacher.position_offset :]
            block = block | {"position": {"embedding": positions}}
        if student.start == "svd" and config.hidden_size == teacher.hidden_size == teacher.embedding_size:
            ids, positions = _sample_tokens(tokens, rng)
            embeddings, project, explained = compact_start(
                block, config.embedding_size, ids, positions, teacher.layer_norm_eps
            )
            log.info(
                "compact start: %d of %d dimensions explain %.1f %% of the token embeddings' variance in this text",
                config.embedding_size,
                teacher.embedding_size,
                100 * explained,
            )
        else:
            if student.start == "svd":
                log.warning(
                    "the token embeddings start at random: svd needs the start's own, uncompressed width in every layer"
                )
            embeddings, project = random_start(block, config.embedding_size, config.hidden_size, cfg.seed)
    if config.embedding_size == config.hidden_size:
        project = {}
    if config.type_vocab_size and "type" not in embeddings:
        embeddings = embeddings | {"type": {"embedding": np.zeros((1, config.embedding_size), np.float32)}}
    tree: Tree = {"embeddings": embeddings} | ({"project": project} if project else {})
    for k, layer in enumerate(_copied_layers(cfg, config, teacher)):
        tree[f"layer_{k}"] = of_teacher[f"layer_{layer}"] if layer is not None else _random_layer(config, rng)
    return jax.tree.map(np.array, tree)


def _copied_layers(cfg: ConfigDict, config: ModelConfig, teacher: ModelConfig) -> list[int | None]:
    """For each student layer the teacher's layer that it starts as, or None for a random start."""
    K, N, which = config.num_layers, teacher.num_layers, cfg.student.copy_layers
    if which == "none" or config.hidden_size != teacher.hidden_size:
        return [None] * K
    if which == "last":
        return list(range(N - K, N))
    if which == "first":
        return list(range(K))
    return [round((k + 1) * N / K) - 1 for k in range(K)]  # spread evenly, the last layer included


def _random_layer(config: BertConfig, rng: np.random.Generator) -> Tree:
    D, F = config.hidden_size, config.intermediate_size

    def dense(rows: int, columns: int) -> Tree:
        return {
            "kernel": (0.02 * rng.standard_normal((rows, columns))).astype(np.float32),
            "bias": np.zeros(columns, np.float32),
        }

    def norm() -> Tree:
        return {"scale": np.ones(D, np.float32), "bias": np.zeros(D, np.float32)}

    return {
        "attention": {name: dense(D, D) for name in ("query", "key", "value", "out")},
        "attention_norm": norm(),
        "up": dense(D, F),
        "down": dense(F, D),
        "output_norm": norm(),
    }


def _sample_tokens(tokens: TokenTable, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and their positions, int [N] each, of texts drawn at random until SAMPLE_TOKENS are there."""
    lengths = tokens.lengths
    order = rng.permutation(len(lengths))
    texts = order[: int(np.searchsorted(np.cumsum(lengths[order]), SAMPLE_TOKENS)) + 1]
    ids = np.concatenate(tokens.lists(texts)).astype(np.int64)
    return ids, np.concatenate([np.arange(lengths[i]) for i in texts])
