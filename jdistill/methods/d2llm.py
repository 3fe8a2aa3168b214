"""D2LLM: Decomposed and Distilled Large Language Models for Semantic Search (Liao et al., ACL 2024).

A language model judges pairs (jdistill.teachers.judge), and a bi-encoder on the same model learns its scores: low-rank adapters, pooling by
multihead attention (PMA, eq. 4 and 5) and an interaction module (IEM, eq. 6) in the place of the judge's attention between the texts.
First, if asked for, the judge itself is tuned on labelled pairs (Appendix D).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.candidates import ScoredCandidates
from jdistill.feeds.judge_tuning import JudgeTuning, TuningFeed
from jdistill.feeds.stage import Stage, Start
from jdistill.losses.embedding import over_row_blocks
from jdistill.losses.imitation import (
    FORMS,
    WEIGHTS,
    contrastive_imitation,
    feature_imitation,
    hard_over_easy,
    rank_imitation,
    score_imitation,
)
from jdistill.models import lora
from jdistill.models.interaction import (
    INTERACTIONS,
    interaction_of,
    matrix,
    one_branch,
    score,
)
from jdistill.models.pooling import last_token_pool, pool_each
from jdistill.models.registry import hidden_states
from jdistill.students.pma import STARTS, start_modules
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student
from jdistill.train.method import Method, scalars

POOLINGS = ("pma", "mean", "lasttoken")
TASKS = {"both": (True, True), "symmetric": (True, False), "asymmetric": (False, True), "none": (False, False)}


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Tuning of the judge, where cfg.tune.epochs asks for it, and distillation. Raises UserError for names that are not listed,
    and a judge with an adapter that is to be tuned."""
    if not cfg.symmetric and not cfg.asymmetric:
        raise UserError("--config.symmetric or --config.asymmetric is needed: a file of labelled pairs")
    for key, value, listed in (
        ("interaction", cfg.interaction, INTERACTIONS),
        ("pooling", cfg.pooling, POOLINGS),
        ("heads_start", cfg.heads_start, STARTS),
        ("loss.form", cfg.loss.form, FORMS),
        ("loss.hard_over_easy", cfg.loss.hard_over_easy, WEIGHTS),
        ("loss.random_negatives", cfg.loss.random_negatives, tuple(TASKS)),
    ):
        if value not in listed:
            raise UserError(f"--config.{key}={value!r} is not one of {', '.join(listed)}")
    least = 4 if cfg.heads_start == "similarity" else 1
    if cfg.interaction != "cosine" and cfg.iem_size < least:
        raise UserError(f"--config.iem_size={cfg.iem_size}: the interaction module needs a width of {least} or more")
    scalars(cfg.loss, "temperature")
    distil = Stage("distil", ScoredCandidates(), cfg, build, fits=fits)
    if not cfg.tune.epochs and not cfg.tune.max_steps:
        return (distil,)
    if cfg.judge.adapter:  # what tuning wrote would fit the model with that adapter in it, and no other
        raise UserError(
            f"--config.judge.adapter={cfg.judge.adapter} is a tuned judge: --config.tune.epochs=0 takes it as it is"
        )
    changed = cfg.copy_and_resolve_references()
    changed.update(cfg.tune)
    return Stage("tune", JudgeTuning(), changed, build_judge, trains="judge"), distil


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises UserError for keys that do not fit the start, whose adapters the judge may have too."""
    check_student(cfg, dataclasses.replace(start, pooling="mean"))
    if cfg.lora.rank:
        lora.paths(start.params, cfg.lora.paths)


def build_judge(cfg: ConfigDict, given: Start[TuningFeed]) -> Method:
    """Appendix D: low-rank adapters on the judge, cross entropy of its yes and no."""
    judge = given.feed.judge
    model = judge.model
    adapters = lora.start(model.params, cfg.lora.paths, cfg.lora.rank, np.random.default_rng([cfg.seed, 5]))
    frozen = {"base": model.params, "answers": judge.answer_rows}

    def represent(params: Tree, frozen: Tree, batch: dict[str, Array], rng: Array | None) -> dict[str, Array]:
        weights = lora.merge(frozen["base"], params["adapters"], cfg.lora.alpha, rng, cfg.student.dropout)
        states = hidden_states(
            model.config, weights, batch["ids"], batch["mask"], jnp.dtype(cfg.dtype), remat=cfg.remat
        )
        y_nxD = last_token_pool(states[-1], batch["mask"])
        both_nx2 = y_nxD @ frozen["answers"].T
        return {"logit": both_nx2[:, 0] - both_nx2[:, 1]}  # eq. 1 to 3: z = logit(yes) - logit(no)

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        z_n, label_n = reps["logit"], batch["label"]
        loss = optax.sigmoid_binary_cross_entropy(z_n, label_n).mean()
        return loss, {"loss": loss, "accuracy": ((z_n > 0) == (label_n > 0.5)).mean()}

    def merged(params: Tree) -> Tree:
        return {"model": lora.merge(model.params, params["adapters"], cfg.lora.alpha)}

    return Method({"adapters": adapters}, model, frozen, represent, objective, merged)


def build(cfg: ConfigDict, given: Start) -> Method:
    """The bi-encoder: a frozen base with adapters, a pooler and the interaction module, which alone are trained."""
    base = make_student(cfg, dataclasses.replace(given.encoder, pooling="mean"), given.tokens)
    rng = np.random.default_rng([cfg.seed, 6])
    student = dataclasses.replace(base, pooling=cfg.pooling, normalize=False)
    iem_size = cfg.iem_size if cfg.interaction != "cosine" else 0
    pooler, head = start_modules(cfg.heads_start, student, iem_size, rng, given.tokens)
    student = dataclasses.replace(student, pooler=pooler)
    adapters = lora.start(base.params, cfg.lora.paths, cfg.lora.rank, np.random.default_rng([cfg.seed, 7]))
    params: Tree = {"adapters": adapters}
    params |= {"pooler": pooler} if pooler else {}
    params |= {"iem": head} if head else {}
    kind = interaction_of(cfg)
    loss, (P, K, I) = cfg.loss, (cfg.positives, cfg.hard_negatives, cfg.easy_negatives)

    def weights(params: Tree, base: Tree, rng: Array | None = None) -> Tree:
        model = lora.merge(base, params["adapters"], cfg.lora.alpha, rng, cfg.student.dropout)
        return {"model": model} | ({"pooler": params["pooler"]} if pooler else {})

    def represent(params: Tree, frozen: Tree, batch: dict[str, Array], rng: Array | None) -> dict[str, Array]:
        (n, R, S), T = batch["ids"].shape, batch["real"].shape[1]
        ids, segments, positions = (batch[name].reshape(n * R, S) for name in ("ids", "segments", "positions"))
        trained, dtype = weights(params, frozen["base"], rng), jnp.dtype(cfg.dtype)
        packed = (segments, positions)
        states = hidden_states(base.config, trained["model"], ids, segments > 0, dtype, remat=cfg.remat, packed=packed)
        member_nxTxRS = segments.reshape(n, 1, R * S) == jnp.arange(1, T + 1)[:, None]
        state_nxRSxD = states[-1].reshape(n, R * S, -1)
        return {"vectors": pool_each(cfg.pooling, state_nxRSxD, member_nxTxRS, trained.get("pooler"))}

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        y_nxTxD, real_nxC, z_teacher = reps["vectors"], batch["real"][:, 1:], batch["z"]
        n, T, _ = y_nxTxD.shape
        C = T - 1
        query_nxD, passage_nxCxD = y_nxTxD[:, 0], y_nxTxD[:, 1:]
        kind_C = np.repeat([0, 1, 2], (P, K, I))
        positive, hard, easy = (real_nxC & (kind_C == which) for which in range(3))
        near_J = P + K  # positives and hard negatives stand first
        head = one_branch(params.get("iem"), batch["symmetric"][0], kind)

        repeated = jnp.broadcast_to(query_nxD[:, None], passage_nxCxD.shape)
        z_nxC, features_nxCxF = score(head, repeated, passage_nxCxD)
        # The passages of the batch's other queries, but for those that are this query's own.
        texts_nxC = batch["texts"][:, 1:]
        m_passages, m_real, m_texts = passage_nxCxD.reshape(n * C, -1), real_nxC.reshape(-1), texts_nxC.reshape(-1)

        def against_all(rows: dict[str, Array]) -> dict[str, Array]:
            own = (rows["texts"][:, :, None] == m_texts[None, None, :]) & rows["real"][:, :, None]
            return {"z": matrix(head, rows["query"], m_passages), "mask": m_real[None, :] & ~own.any(1)}

        rows = {"query": query_nxD, "texts": texts_nxC, "real": real_nxC}
        others = over_row_blocks(against_all, rows, cfg.block_size)

        # CI's D-: the hard negatives and, in the tasks that have them, those that nobody chose.
        random = jnp.where(batch["symmetric"][0], *TASKS[loss.random_negatives])
        s_teacher = jax.nn.sigmoid(z_teacher)
        if not loss.imitate:  # Table 3: plain contrastive, the labels in the place of the teacher's scores
            s_teacher = positive.astype(jnp.float32)
        terms = {
            "ci": contrastive_imitation(
                z_nxC,
                s_teacher,
                positive,
                hard,
                easy & random,
                others["z"],
                others["mask"] & random,
                frozen["temperature"],
                loss.form,
            )
        }
        near = (positive | hard)[:, :near_J]
        if loss.alpha:  # eq. 7
            terms["ri_ph"] = rank_imitation(z_nxC[:, :near_J], z_teacher[:, :near_J], near)
        if loss.beta:  # eq. 8
            terms["ri_hi"] = hard_over_easy(z_nxC, z_teacher, hard, easy, loss.hard_over_easy)
        if loss.gamma and features_nxCxF is not None:  # eq. 9, 10
            terms["fi"] = feature_imitation(features_nxCxF[:, :near_J], batch["r"], near)
        if loss.delta:  # ours
            logit_nxJ = z_nxC[:, :near_J] / frozen["temperature"]
            terms["si"] = score_imitation(logit_nxJ, z_teacher[:, :near_J], near)
        # Eq. 11: L = CI + alpha RI_PH + beta RI_HI + gamma FI, and delta SI
        names = {"ri_ph": "alpha", "ri_hi": "beta", "fi": "gamma", "si": "delta"}
        weight = {"ci": 1.0} | {term: frozen[name] for term, name in names.items()}
        total = sum((weight[name] * value for name, value in terms.items()), jnp.float32(0.0))
        return total, terms | {"loss": total}

    def merged(params: Tree) -> Tree:
        return weights(params, base.params)

    frozen = {"base": base.params} | scalars(loss, "temperature", "alpha", "beta", "gamma", "delta")
    return Method(params, student, frozen, represent, objective, merged)
