"""SimTDE: Simple Transformer Distillation for Sentence Embeddings (Xie et al., SIGIR 2023), section 3.

The student is a compact token-embedding block, a projection to the teacher's width and K encoder layers that start as
layers of the teacher, the paper's last K or evenly spread ones: ELECTRA's layout. Two terms are distilled, the token
embeddings and the sentence embedding. The rows of the paper's Table 2 are switches of `cfg.student` and `cfg.loss`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses import embedding
from jdistill.models.cutting import copied_layers
from jdistill.models.precision import settled_dtype
from jdistill.models.registry import ModelConfig, architecture_of
from jdistill.models.segments import token_positions
from jdistill.models.token_batch import TokenBatch
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student
from jdistill.train.method import Method, scalars

# L_SE (eq. 4) in the four forms that the paper tries.
SENTENCE_LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "mse": embedding.mse,
    "kl": embedding.kl_divergence,
    "pair_mse": lambda student_BxD, teacher_BxD: jnp.square(_pair_differences(student_BxD, teacher_BxD)).mean(),
    "pair_mae": lambda student_BxD, teacher_BxD: jnp.abs(_pair_differences(student_BxD, teacher_BxD)).mean(),
}
TOKEN_LOSSES = ("block", "table", "none")


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Distillation alone. Raises UserError for matched layers beside translations, of which the teacher's hidden states tell nothing."""
    if cfg.loss.hidden and cfg.text_pairs:
        raise UserError(
            f"--config.loss.hidden={cfg.loss.hidden} matches the teacher's hidden states of each text, and the teacher does not read the "
            "translations of --config.text_pairs; set --config.loss.hidden=0"
        )
    # The other sentence losses compare vectors up to a shift or a rotation.
    return (Stage("distil", Texts(), cfg, build, fits=fits, aligned=cfg.loss.sentence == "mse"),)


def build(cfg: ConfigDict, context: Start) -> Method:
    """Binds SimTDE to its start, the encoder whose layers the student copies: as a rule the teacher itself.

    Raises UserError for switches that do not fit together.
    """
    start = context.encoder
    config = fits(cfg, start, context.is_teacher, context.teacher_width)
    encoder = make_student(cfg, start, context.tokens)
    layers = matched_layers(cfg, config, start.config)
    params: Tree = {}
    if config.hidden_size != start.config.hidden_size:
        encoder, params = _with_matrices(cfg, encoder, start.config.hidden_size, len(layers))
    params = {"student": encoder.weights()} | params
    frozen: Tree = scalars(cfg.loss, "alpha", "hidden")
    if layers:
        frozen["teacher"] = start.params
    elif cfg.loss.token != "none":
        frozen["teacher"] = {name: start.params[name] for name in ("embeddings", "project") if name in start.params}
    parts = Parts(cfg.loss, config, start.config, start.pooling, layers, jnp.dtype(settled_dtype(cfg.dtype)))
    return Method(params, encoder, frozen, partial(represent, parts), partial(objective, parts))


def _with_matrices(cfg: ConfigDict, encoder: Encoder, teacher_width: int, layers: int) -> tuple[Encoder, Tree]:
    """LMX-KD: a learnable matrix per matched layer, dropped at export, and one for the sentence, which the student keeps.

    Returns: the student with its own, and {"match": {layer: [d, D]}}.
    """
    d = encoder.config.hidden_size
    rng = np.random.default_rng([cfg.seed, 2])
    sentence, *matched = (rng.normal(0, d**-0.5, (d, teacher_width)).astype(np.float32) for _ in range(layers + 1))
    encoder = dataclasses.replace(encoder, dense=({"kernel": sentence},), dense_activations=("Identity",))
    return encoder, {"match": {str(k): matrix for k, matrix in enumerate(matched)}}


class Parts(NamedTuple):
    """What the equations read and nothing trains: switches, shapes, and which layers are matched."""

    loss: ConfigDict
    student: ModelConfig
    teacher: ModelConfig
    pooling: str
    layers: list[int]  # of the teacher's hidden states, that the student's are matched to
    dtype: jnp.dtype


def represent(parts: Parts, params: Tree, frozen: Tree, batch: dict[str, Array], rng: Array | None) -> dict[str, Array]:
    """What is compared with the teacher: "sentence" [B, D], "tokens" [B, L, D] and "hidden_k" [B, L, D], those that are asked for."""
    texts = TokenBatch.of(batch)
    states = texts.states(parts.student, params["student"]["model"], parts.dtype, rng)
    sentence_BxD = texts.pool(parts.pooling, states, params["student"].get("pooler"))
    if "dense" in params["student"]:
        sentence_BxD = sentence_BxD @ params["student"]["dense"]["0"]["kernel"]
    reps = {"sentence": sentence_BxD}
    if parts.loss.token == "block":
        reps["tokens"] = texts.by_group(states[0])  # eq. 2: TokenEmb_S^proj
    for k, h_BxLxd in enumerate(states[len(states) - len(parts.layers) :]):
        matched = h_BxLxd @ params["match"][str(k)] if "match" in params else h_BxLxd
        reps[f"hidden_{k}"] = texts.by_group(matched)
    return reps


def objective(
    parts: Parts, params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """Eq. 5: L_KD = alpha L_TE + (1 - alpha) L_SE; with matched layers their mean squared difference beside it.

    Args:
      reps: as `represent` gives them.
      batch: ids int32 [B, L], mask bool [B, L], teacher float32 [B, D], the teacher's sentence embeddings.
    """
    sentence = sentence_loss(reps["sentence"], batch["teacher"], parts.loss)  # eq. 4: L_SE
    metrics = {"sentence_loss": sentence}
    total = sentence
    if parts.loss.token != "none":
        token = token_loss(parts, params["student"]["model"], frozen["teacher"], reps, batch)  # eq. 3: L_TE
        metrics["token_loss"] = token
        total = frozen["alpha"] * token + (1.0 - frozen["alpha"]) * sentence  # eq. 5: L_KD
    if parts.layers:
        metrics["hidden_loss"] = hidden_loss(parts, frozen["teacher"], reps, batch)
        total = total + frozen["hidden"] * metrics["hidden_loss"]
    return total, metrics | {"loss": total}


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> ModelConfig:
    """The student's architecture. Raises UserError for switches that do not fit the start, the teacher, or one another."""
    whole = start.config
    if not architecture_of(whole).compresses:
        raise UserError(
            f"SimTDE compresses the token embeddings of a BERT-like encoder, and {start.source} is a {whole.model_type}, "
            "which has no form with narrower ones; name an encoder in --config.start, or choose a method whose students take whole layers, "
            "such as --config configs/ibkd.py:mse --config.start= --config.triplets="
        )
    _check_switches(cfg, start, is_teacher, teacher_width)
    config = check_student(cfg, start)
    if config.hidden_size != whole.hidden_size and cfg.loss.token != "none":
        raise UserError(
            f"--config.student.hidden_size={config.hidden_size}: the token term needs the teacher's {whole.hidden_size}; "
            "set --config.loss.token=none"
        )
    return config


def _check_switches(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    loss, pooled = cfg.loss, start.pooled_width
    if loss.sentence not in SENTENCE_LOSSES:
        raise UserError(f"--config.loss.sentence={loss.sentence!r} is not one of {tuple(SENTENCE_LOSSES)}")
    if loss.sentence in ("pair_mse", "pair_mae") and cfg.batch_size < 2:
        raise UserError(f"--config.batch_size=1: --config.loss.sentence={loss.sentence} needs at least 2 texts in it")
    if loss.token not in TOKEN_LOSSES:
        raise UserError(f"--config.loss.token={loss.token!r} is not one of {TOKEN_LOSSES}")
    if not 0.0 <= loss.alpha <= 1.0:
        raise UserError(f"--config.loss.alpha={loss.alpha} must lie in 0..1")
    if start.dense:
        raise UserError(
            "SimTDE distils the pooled token vectors, and this teacher projects them further (a Dense module); "
            "use it through vectors: or st: with another --config.start"
        )
    if not teacher_width == pooled == start.config.hidden_size:
        raise UserError(
            f"the teacher's vectors are {teacher_width} wide, but the student's layers, started from "
            f"{start.source or 'the teacher'}, are {start.config.hidden_size}, and pooled by {start.pooling} {pooled}: SimTDE needs "
            "the same width; choose another --config.start, --config.teacher or --config.pooling"
        )
    if not is_teacher and (loss.token != "none" or loss.hidden):
        if cfg.start == cfg.teacher:
            raise UserError(
                f"--config.start={cfg.start} names the teacher's own folder, and the student's tokens are matched to the teacher that it starts "
                "as: leave --config.start empty"
            )
        raise UserError(
            "a teacher given as vectors: or st:, or beside another --config.start, has no token embeddings or hidden states that the student "
            "could be matched to; set --config.loss.token=none and --config.loss.hidden=0"
        )


def matched_layers(cfg: ConfigDict, config: ModelConfig, teacher: ModelConfig) -> list[int]:
    """The teacher's hidden states (1 = output of its first layer) that the student's are matched to, layer by layer: of the layer that each
    starts as, or the last ones where they start at random."""
    if not cfg.loss.hidden:
        return []
    taken = copied_layers(cfg.student.copy_layers, config, teacher)
    return [teacher.num_layers - len(taken) + k + 1 if of is None else of + 1 for k, of in enumerate(taken)]


def token_loss(parts: Parts, student: Tree, teacher: Tree, reps: dict[str, Array], batch: dict[str, Array]) -> Array:
    """L_TE (eq. 3): mean squared difference of the student's token embeddings and the teacher's.

    Of the batch's tokens (loss.token "block"), or of the whole vocabulary ("table"): every entry at the first position, through
    both blocks (eq. 1 and 2 with I = the vocabulary).
    """
    if parts.loss.token == "block":
        texts = TokenBatch.of(batch)
        target_BxLxD = teacher_block(teacher, texts, parts.teacher)
        return embedding.masked_mse(reps["tokens"], texts.by_group(target_BxLxD), texts.by_group(texts.mask_BxL))
    every_Vx1 = jnp.arange(parts.student.vocab_size)[:, None]
    of_teacher = teacher_block(teacher, TokenBatch(every_Vx1, every_Vx1 >= 0), parts.teacher)
    return embedding.mse(student_block(student, every_Vx1, parts.student, parts.dtype), of_teacher)


def hidden_loss(parts: Parts, teacher: Tree, reps: dict[str, Array], batch: dict[str, Array]) -> Array:
    """Mean over the matched layers of the mean squared difference of hidden states; padding never counts."""
    texts = TokenBatch.of(batch)
    targets = jax.lax.stop_gradient(texts.states(parts.teacher, teacher, parts.dtype))
    terms = [
        embedding.masked_mse(reps[f"hidden_{k}"], texts.by_group(targets[layer]), texts.by_group(texts.mask_BxL))
        for k, layer in enumerate(parts.layers)
    ]
    return jnp.stack(terms).mean()


def student_block(student: Tree, ids_BxL: Array, config: ModelConfig, dtype: jnp.dtype) -> Array:
    """The student's compact embedding output, projected to the teacher's width: eq. 2, TokenEmb_S^proj."""
    return architecture_of(config).embed(config, student, ids_BxL, dtype)


def teacher_block(teacher: Tree, texts: TokenBatch, config: ModelConfig) -> Array:
    """The teacher's embedding output (projected, where the teacher is an ELECTRA): eq. 1, TokenEmb_T."""
    positions = token_positions(config, texts.ids_BxL, texts.segments)
    embedded = architecture_of(config).embed(config, teacher, texts.ids_BxL, jnp.float32, positions)
    return jax.lax.stop_gradient(embedded)


def sentence_loss(student_BxD: Array, teacher_BxD: Array, loss: ConfigDict) -> Array:
    """L_SE (eq. 4) in the form that loss.sentence names; loss.normalize puts both sides on the unit sphere first."""
    if loss.normalize:
        # Of length sqrt(D), so that an element is of order one and alpha weighs terms of like size.
        length = student_BxD.shape[-1] ** 0.5
        student_BxD, teacher_BxD = length * embedding.unit(student_BxD), length * embedding.unit(teacher_BxD)
    return SENTENCE_LOSSES[loss.sentence](student_BxD, teacher_BxD)


def _pair_differences(student_BxD: Array, teacher_BxD: Array) -> Array:
    """How far the cosines of all pairs of texts lie apart, [B, B]."""
    return embedding.pair_cosines(student_BxD) - embedding.pair_cosines(teacher_BxD)
