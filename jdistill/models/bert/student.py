"""A student of BERT's kind before training: some layers of its start, its token embeddings compressed where they are to be narrower."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.models.bert.compact import compact_start, random_start
from jdistill.models.bert.config import BertConfig
from jdistill.models.bert.narrowed import NEURON_TOKENS, narrowed_layers
from jdistill.models.bert.sensitivity import sensitivity
from jdistill.models.cutting import Cut, checked_layers

SENSITIVE_STARTS = ("weighted", "tempered")  # by what the start's vectors feel of its token embeddings
FITTED_STARTS = ("svd", *SENSITIVE_STARTS)  # to the start's own token embeddings
BLOCK_STARTS = (*FITTED_STARTS, "random")
TEMPERED = (
    0.75  # power of a token's frequency by which it counts in the fit of a tempered start, word2vec's for its negatives
)
SizesOfBert = TypeVar("SizesOfBert", bound=BertConfig)


def student_config(whole: BertConfig, student: ConfigDict) -> BertConfig:
    """The student's architecture: its start's, with another embedding_size (0: the hidden size; -1: the start's own),
    layers (0: all), hidden_size and intermediate_size (0: the start's; -1 and -2: the hidden size and half as much again).
    Where tokens are narrower than the layers it is an ELECTRA."""
    config = resized(whole, student)
    hidden = config.hidden_size
    if config.embedding_size != hidden and whole.model_type != "electra":
        config = dataclasses.replace(
            config,
            model_type="electra",
            max_positions=whole.usable_positions,
            type_vocab_size=max(1, whole.type_vocab_size),
        )
    _check_block(student, config, whole)
    return config


def resized(whole: SizesOfBert, student: ConfigDict) -> SizesOfBert:
    """The start's architecture with the student's widths, layers and dropout. Raises UserError where heads or layers do not fit."""
    hidden = student.hidden_size or whole.hidden_size
    if hidden % whole.num_heads:
        raise UserError(
            f"--config.student.hidden_size={hidden} does not divide into the start's {whole.num_heads} heads"
        )
    inner = hidden * whole.intermediate_size // whole.hidden_size
    asked = {-1: hidden, -2: hidden * 3 // 2}.get(student.intermediate_size, student.intermediate_size)
    if asked > inner:
        raise UserError(
            f"--config.student.intermediate_size={asked}: a layer of the start has {inner} inner neurons at this width, "
            "of which a student keeps some; set fewer, or 0 for all"
        )
    return dataclasses.replace(
        whole,
        embedding_size=whole.embedding_size if student.embedding_size == -1 else student.embedding_size or hidden,
        hidden_size=hidden,
        num_layers=checked_layers(student, whole),
        intermediate_size=asked or inner,
        hidden_dropout=student.dropout,
        attention_dropout=student.dropout,
    )


def _check_block(student: ConfigDict, config: BertConfig, whole: BertConfig) -> None:
    check_block_start(student)
    if student.start in FITTED_STARTS and config.hidden_size == whole.hidden_size:
        check_block_width(config.embedding_size, whole)


def check_block_start(student: ConfigDict) -> None:
    """Raises UserError where student.start is none of BLOCK_STARTS."""
    if student.start not in BLOCK_STARTS:
        raise UserError(f"--config.student.start={student.start!r} is not one of {', '.join(BLOCK_STARTS)}")


def check_block_width(width: int, whole: BertConfig) -> None:
    """Raises UserError for a width of which the SVD of the start's token embeddings has not as many axes."""
    widest = whole.embedding_size
    if width > widest:
        otherwise = (
            "0 for a table of the layers' own width" if widest == whole.hidden_size else "-1 for the start's own"
        )
        raise UserError(
            f"--config.student.embedding_size={width}: the compact block is fitted to the token embeddings of the "
            f"start, which are {widest} wide; set --config.student.embedding_size={max(1, widest // 2)}, another width below {widest}, "
            f"or {otherwise}; with --config.student.start=random it is not fitted"
        )


def student_params(cut: Cut[BertConfig]) -> Tree:
    """Parameters of the student: the embedding block, a projection where it is narrower than the layers, and the layers."""
    config = cut.config
    embeddings, project = _block(cut)
    if config.embedding_size == config.hidden_size:
        project = {}
    if config.type_vocab_size and "type" not in embeddings:
        embeddings = embeddings | {"type": {"embedding": np.zeros((1, config.embedding_size), np.float32)}}
    if config.intermediate_size < cut.whole.intermediate_size and any(layer is not None for layer in cut.layers):
        narrow = narrowed_layers(config, cut.whole, cut.params, cut.layers, _texts(cut))
        cut = dataclasses.replace(cut, params=narrow)
    return {"embeddings": embeddings} | ({"project": project} if project else {}) | cut.taken(random_layer)


def _texts(cut: Cut[BertConfig]) -> list[list[int]]:
    """Token ids of texts of the training text, as many as the inner neurons are measured on."""
    ids, positions = cut.sample()
    starts = np.flatnonzero(positions[:NEURON_TOKENS] == 0)
    return [part.tolist() for part in np.split(ids[:NEURON_TOKENS], starts[1:])]


def _block(cut: Cut[BertConfig]) -> tuple[Tree, Tree]:
    """The embedding block and its projection, {} where there is none: the start's own, or one fitted to it, or random."""
    config, whole, block = cut.config, cut.whole, cut.params["embeddings"]
    if (config.embedding_size, config.hidden_size) == (whole.embedding_size, whole.hidden_size):
        return block, cut.params.get("project", {})
    if config.model_type != whole.model_type:  # without RoBERTa's unused first rows
        block = block | {"position": {"embedding": block["position"]["embedding"][whole.position_offset :]}}
    if cut.block_start in FITTED_STARTS and whole.hidden_size == config.hidden_size != config.embedding_size:
        sensitive, power = cut.block_start in SENSITIVE_STARTS, TEMPERED if cut.block_start == "tempered" else 1.0
        metric = sensitivity(whole, cut.params, cut.pooling, _texts(cut), cut.rng) if sensitive else None
        return fitted_block(cut, block, metric, power)
    if cut.block_start in FITTED_STARTS:
        log.warning(
            "the token embeddings start at random: a fitted start needs the start's own width in every layer, and narrower embeddings"
        )
    return random_start(block, config.embedding_size, config.hidden_size, cut.seed)


def fitted_block(
    cut: Cut[SizesOfBert], block: Tree, metric: np.ndarray | None = None, power: float = 1.0
) -> tuple[Tree, Tree]:
    """A block as narrow as the student's, and its projection to the width of the block that it is fitted to, and on to that of the layers
    where the start has a projection of its own.

    Args:
      block: the start's embedding block, its position table from the first token's on.
      metric, power: as compact.compact_start takes them.
    """
    width, whole = cut.config.embedding_size, cut.whole
    ids, positions = cut.sample()
    # Of a stage that is resumed too, whose checkpoint then takes its place.
    log.info(
        "compact start: fitting %d of %d dimensions to %d tokens of the text", width, whole.embedding_size, len(ids)
    )
    embeddings, project, explained = compact_start(
        block, width, ids, positions, whole.layer_norm_eps, metric=metric, power=power
    )
    log.info(
        "compact start: %d of %d dimensions explain %.1f %% of the token embeddings' variance in this text",
        width,
        whole.embedding_size,
        100 * explained,
    )
    if on := cut.params.get("project"):
        project = {name: project[name] @ on["kernel"] for name in ("kernel", "bias")}
        project["bias"] = project["bias"] + on["bias"]
    return embeddings, project


def random_layer(config: BertConfig, rng: np.random.Generator) -> Tree:
    """One layer, normal(0.02) as BERT starts."""
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
