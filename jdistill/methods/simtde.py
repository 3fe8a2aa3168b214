"""SimTDE: Simple Transformer Distillation for Sentence Embeddings (Xie et al., SIGIR 2023), section 3.

The student is a compact token-embedding block, a projection to the teacher's width and K encoder layers that start as
the teacher's last K: ELECTRA's layout. Two terms are distilled, the token embeddings and the sentence embedding. The
rows of the paper's Table 2 are switches of `cfg.student` and `cfg.loss`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Stage, Start
from jdistill.losses import embedding
from jdistill.models.pooling import pool
from jdistill.models.registry import ModelConfig, architecture_of, hidden_states
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student
from jdistill.train.method import Method, scalars

SENTENCE_LOSSES = ("mse", "kl", "pair_mse", "pair_mae")
TOKEN_LOSSES = ("block", "table", "none")


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    return (Stage("distil", "texts", cfg, build, fits=fits),)


def build(cfg: ConfigDict, given: Start) -> Method:
    """Binds SimTDE to its start, the encoder whose last layers the student copies: as a rule the teacher itself.

    Raises UserError for switches that do not fit together.
    """
    loss, start = cfg.loss, given.encoder
    config = fits(cfg, start, given.is_teacher, given.teacher_width)
    whole, architecture = start.config, architecture_of(start.config)
    encoder = make_student(cfg, start, given.tokens)
    teacher_layers = _matched_layers(loss, config, whole)
    match: Tree = {}
    if config.hidden_size != start.config.hidden_size:
        # LMX-KD: a learnable matrix per matched layer, dropped at export, and one for the sentence, which the student
        # keeps.
        d, D = config.hidden_size, start.config.hidden_size
        rng = np.random.default_rng([cfg.seed, 2])
        matrices = [rng.normal(0, d**-0.5, (d, D)).astype(np.float32) for _ in range(len(teacher_layers) + 1)]
        encoder = dataclasses.replace(encoder, dense=({"kernel": matrices[0]},), dense_activations=("Identity",))
        match = {"match": {str(k): matrix for k, matrix in enumerate(matrices[1:])}}
    params = {"student": encoder.weights()} | match
    frozen: Tree = scalars(loss, "alpha", "hidden")
    if loss.token != "none" or teacher_layers:
        needed = (
            start.params
            if teacher_layers
            else {name: start.params[name] for name in ("embeddings", "project") if name in start.params}
        )
        frozen["teacher"] = needed

    dtype = jnp.dtype(cfg.dtype)

    def represent(params: Tree, frozen: Tree, batch: dict[str, Array], rng: Array | None) -> dict[str, Array]:
        states = hidden_states(config, params["student"]["model"], batch["ids"], batch["mask"], dtype, rng)
        sentence_BxD = pool(start.pooling, states, batch["mask"], params["student"].get("pooler"))
        if "dense" in params["student"]:
            sentence_BxD = sentence_BxD @ params["student"]["dense"]["0"]["kernel"]
        out = {"sentence": sentence_BxD}
        if loss.token == "block":
            out["tokens"] = states[0]  # eq. 2: TokenEmb_S^proj
        for k, _ in enumerate(teacher_layers):
            h_BxLxd = states[len(states) - len(teacher_layers) + k]
            out[f"hidden_{k}"] = h_BxLxd @ params["match"][str(k)] if match else h_BxLxd
        return out

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        sentence = _sentence_loss(reps["sentence"], batch["teacher"], loss)  # eq. 4: L_SE
        metrics = {"sentence_loss": sentence}
        total = sentence
        if loss.token != "none":
            token = _token_loss(params, frozen["teacher"], reps, batch)  # eq. 3: L_TE
            metrics["token_loss"] = token
            total = frozen["alpha"] * token + (1.0 - frozen["alpha"]) * sentence  # eq. 5: L_KD
        if teacher_layers:
            targets = jax.lax.stop_gradient(hidden_states(whole, frozen["teacher"], batch["ids"], batch["mask"], dtype))
            terms = [
                embedding.masked_mse(reps[f"hidden_{k}"], targets[layer], batch["mask"])
                for k, layer in enumerate(teacher_layers)
            ]
            metrics["hidden_loss"] = jnp.stack(terms).mean()
            total = total + frozen["hidden"] * metrics["hidden_loss"]
        return total, metrics | {"loss": total}

    def _token_loss(params: Tree, teacher: Tree, reps: dict[str, Array], batch: dict[str, Array]) -> Array:
        if loss.token == "block":
            target = jax.lax.stop_gradient(architecture.embed(whole, teacher, batch["ids"], jnp.float32))
            return embedding.masked_mse(reps["tokens"], target, batch["mask"])
        # The whole table: every entry of the vocabulary at the first position, through both blocks (eq. 1 with I =
        # the vocabulary).
        every_Vx1 = jnp.arange(config.vocab_size)[:, None]
        mine = architecture.embed(config, params["student"]["model"], every_Vx1, dtype)
        target = jax.lax.stop_gradient(architecture.embed(whole, teacher, every_Vx1, jnp.float32))
        return embedding.mse(mine, target)

    return Method(params, encoder, frozen, represent, objective)


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> ModelConfig:
    """The student's architecture. Raises UserError for switches that do not fit the start, the teacher, or one another."""
    whole = start.config
    if not architecture_of(whole).compresses:
        raise UserError(
            f"SimTDE compresses the token embeddings of a BERT-like encoder, and {start.source} is a {whole.model_type}, "
            "which has no form with narrower ones; name an encoder in --config.start, or choose another method"
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
        raise UserError(f"--config.loss.sentence={loss.sentence!r} is not one of {SENTENCE_LOSSES}")
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
        raise UserError(
            "a teacher given as vectors: or st: has no token embeddings or hidden states to distil; "
            "set --config.loss.token=none and --config.loss.hidden=0"
        )


def _matched_layers(loss: ConfigDict, config: ModelConfig, teacher: ModelConfig) -> list[int]:
    """The teacher's hidden states (1 = output of its first layer) that the student's last layers are matched to."""
    return list(range(teacher.num_layers - config.num_layers + 1, teacher.num_layers + 1)) if loss.hidden else []


def _sentence_loss(student_BxD: Array, teacher_BxD: Array, loss: ConfigDict) -> Array:
    """L_SE (eq. 4) in the four forms the paper tries; loss.normalize puts both sides on the unit sphere first."""
    if loss.normalize:
        # Of length sqrt(D), so that an element is of order one and alpha weighs terms of like size.
        length = student_BxD.shape[-1] ** 0.5
        student_BxD, teacher_BxD = length * embedding.unit(student_BxD), length * embedding.unit(teacher_BxD)
    if loss.sentence == "mse":
        return embedding.mse(student_BxD, teacher_BxD)
    if loss.sentence == "kl":
        return embedding.kl_divergence(student_BxD, teacher_BxD)
    difference_BxB = embedding.pair_cosines(student_BxD) - embedding.pair_cosines(teacher_BxD)
    return jnp.square(difference_BxB).mean() if loss.sentence == "pair_mse" else jnp.abs(difference_BxB).mean()
