"""D2LLM: Decomposed and Distilled Large Language Models for Semantic Search (Liao et al., ACL 2024).

A language model judges pairs (jdistill.teachers.judge), and a bi-encoder on the same model learns its scores: low-rank adapters, pooling by
multihead attention (PMA, eq. 4 and 5) and an interaction module (IEM, eq. 6) in the place of the judge's attention between the texts.
First, if asked for, the judge itself is tuned on labelled pairs (Appendix D).
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.candidates import ScoredCandidates
from jdistill.feeds.judge_tuning import PROMPTS, JudgeTuning
from jdistill.feeds.judged import imitates
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.unlabelled import check_unlabelled
from jdistill.losses.imitation import (
    FORMS,
    WEIGHTS,
    contrastive_imitation,
    feature_imitation,
    hard_over_easy,
    rank_imitation,
    score_imitation,
)
from jdistill.losses.listed import listwise_kl
from jdistill.methods.d2llm_candidates import Kinds, kinds_of, score_others
from jdistill.methods.d2llm_judge import build_judge
from jdistill.models import lora
from jdistill.models.interaction import (
    INTERACTIONS,
    interaction_of,
    one_branch,
    score_pairs,
)
from jdistill.models.pooling import pool_each
from jdistill.models.precision import settled_dtype
from jdistill.models.registry import hidden_states
from jdistill.models.segments import Segments
from jdistill.students.pma import STARTS, beside_cosine, start_modules
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student
from jdistill.train.method import Method, scalars

POOLINGS = ("pma", "mean", "lasttoken")
# loss.random_negatives -> whether candidates that nobody chose are negatives in (symmetric, asymmetric) search.
TASKS = {"both": (True, True), "symmetric": (True, False), "asymmetric": (False, True), "none": (False, False)}
# Term of eq. 11, or of ours, -> key of cfg.loss.
COEFFICIENTS = {
    "ri_ph": "alpha", "ri_hi": "beta", "fi": "gamma", "si": "delta", "vectors": "vectors", "listed": "listed",
}  # fmt: skip
VECTORS_TEMPERATURE = 0.05  # of the cosines in the vectors' own term


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Tuning of the judge, where cfg.tune.epochs asks for it, and distillation. Raises UserError for names that are not listed,
    and a judge with an adapter that is to be tuned."""
    if not cfg.symmetric and not cfg.asymmetric:
        raise UserError("--config.symmetric or --config.asymmetric is needed: a file of labelled pairs")
    if cfg.augment:
        raise UserError(f"--config.augment={cfg.augment}: pairs that a judge reads have no variants; leave it empty")
    for key, value, listed in (
        ("interaction", cfg.interaction, INTERACTIONS),
        ("pooling", cfg.pooling, POOLINGS),
        ("heads_start", cfg.heads_start, STARTS),
        ("tune.prompts", cfg.tune.prompts, PROMPTS),
        ("loss.form", cfg.loss.form, FORMS),
        ("loss.hard_over_easy", cfg.loss.hard_over_easy, WEIGHTS),
        ("loss.random_negatives", cfg.loss.random_negatives, tuple(TASKS)),
    ):
        if value not in listed:
            raise UserError(f"--config.{key}={value!r} is not one of {', '.join(listed)}")
    least = 4 if cfg.heads_start == "similarity" else 1
    if cfg.interaction != "cosine" and cfg.iem_size < least:
        raise UserError(f"--config.iem_size={cfg.iem_size}: the interaction module needs a width of {least} or more")
    if cfg.interaction == "cosine" and cfg.iem_cosine:
        raise UserError(
            f"--config.iem_cosine={cfg.iem_cosine} adds cosines to the logits of an interaction module, and --config.interaction=cosine "
            "has none; set --config.iem_cosine=0"
        )
    if not cfg.lora.rank and cfg.pooling != "pma" and cfg.interaction == "cosine":
        raise UserError(
            f"--config.lora.rank=0 with --config.pooling={cfg.pooling} and --config.interaction=cosine leaves nothing to train; raise the rank"
        )
    scalars(cfg.loss, "temperature")
    check_unlabelled(cfg, imitates(cfg))
    distil = Stage("distil", ScoredCandidates(), cfg, build, fits=fits)
    if not cfg.tune.epochs and not cfg.tune.max_steps:
        return (distil,)
    if cfg.judge.adapter:  # what tuning wrote would fit the model with that adapter in it, and no other
        raise UserError(
            f"--config.judge.adapter={cfg.judge.adapter} is a tuned judge: --config.tune.epochs=0 takes it as it is"
        )
    changed = cfg.copy_and_resolve_references()
    changed.update({key: value for key, value in cfg.tune.items() if key in changed})
    return Stage("tune", JudgeTuning(), changed, build_judge, trains="judge"), distil


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises UserError for keys that do not fit the start, whose adapters the judge may have too."""
    check_student(cfg, dataclasses.replace(start, pooling="mean"))
    if cfg.lora.rank:
        lora.paths(start.params, cfg.lora.paths)


def build(cfg: ConfigDict, context: Start) -> Method:
    """The bi-encoder: a frozen base with adapters, a pooler and the interaction module, which alone are trained."""
    if cfg.loss.beta and not (cfg.hard_negatives and cfg.easy_negatives):
        log.warning(
            "WARNING: --config.loss.beta=%g weighs RI_HI, which compares hard with easy negatives, and there are none of one kind: it is 0",
            cfg.loss.beta,
        )
    base = make_student(cfg, dataclasses.replace(context.encoder, pooling="mean"), context.tokens)
    rng = np.random.default_rng([cfg.seed, 6])
    student = dataclasses.replace(base, pooling=cfg.pooling, normalize=False)
    iem_size = cfg.iem_size if cfg.interaction != "cosine" else 0
    pooler, head = start_modules(cfg.heads_start, student, iem_size, rng, context.tokens)
    head = beside_cosine(head, cfg.iem_cosine) if head and cfg.iem_cosine else head
    student = dataclasses.replace(student, pooler=pooler)
    adapters = lora.start(base.params, cfg.lora.paths, cfg.lora.rank, np.random.default_rng([cfg.seed, 7]))
    params: Tree = {"adapters": adapters}
    params |= {"pooler": pooler} if pooler else {}
    params |= {"iem": head} if head else {}
    frozen = {"base": base.params} | scalars(cfg.loss, "temperature", *COEFFICIENTS.values())

    def merged(params: Tree) -> Tree:
        return student_weights(cfg, params, base.params)

    return Method(params, student, frozen, partial(represent, cfg, base), partial(objective, cfg), merged)


def student_weights(cfg: ConfigDict, params: Tree, base: Tree) -> Tree:
    """The student's own weights: the base with the adapters in it, and the pooler."""
    return {"model": lora.merge(base, params["adapters"], cfg.lora.alpha)} | (
        {"pooler": params["pooler"]} if "pooler" in params else {}
    )


def represent(
    cfg: ConfigDict, base: Encoder, params: Tree, frozen: Tree, batch: dict[str, Array], rng: Array | None
) -> dict[str, Array]:
    """Section 3.1.2: the pooled vectors of a query and its candidates, whose texts lie packed in R sequences of S tokens.

    Args:
      base: whose architecture the student has; its weights come with `frozen`.
      batch: ids, segments and positions int32 [n, R, S], a token's segment the number of its text from 1, 0 for padding;
        real bool [n, T], which of the T = 1 + C texts are there.

    Returns: vectors [n, T, D], the query's first.
    """
    (n, R, S), T = batch["ids"].shape, batch["real"].shape[1]
    ids, segments, positions = (batch[name].reshape(n * R, S) for name in ("ids", "segments", "positions"))
    model = lora.beside(frozen["base"], params["adapters"], cfg.lora.alpha, rng, cfg.student.dropout)
    of_rows, dtype = Segments(segments, positions), jnp.dtype(settled_dtype(cfg.dtype))
    states = hidden_states(base.config, model, ids, segments > 0, dtype, remat=cfg.remat, segments=of_rows)
    member_nxTxRS = segments.reshape(n, 1, R * S) == jnp.arange(1, T + 1)[:, None]
    state_nxRSxD = states[-1].reshape(n, R * S, -1)
    return {"vectors": pool_each(cfg.pooling, [state_nxRSxD], member_nxTxRS, params.get("pooler"))}


def objective(
    cfg: ConfigDict, params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """Eq. 11: L = CI + alpha RI_PH + beta RI_HI + gamma FI, and delta SI, which is ours, as the terms of vectors and lists are.

    Args:
      reps: vectors [n, T, D] as `represent` gives them.
      batch: real bool [n, T]; texts int32 [n, T], equal where two are the same text; symmetric bool [n], the same for all rows;
        z float32 [n, C], the teacher's logits; r float32 [n, P + K, P + K], the cosines of its features.
    """
    vectors_nxTxD, real_nxC, texts_nxT = reps["vectors"], batch["real"][:, 1:], batch["texts"]
    query_nxD, passage_nxCxD = vectors_nxTxD[:, 0], vectors_nxTxD[:, 1:]
    kinds = kinds_of(cfg, real_nxC)
    head = one_branch(params.get("iem"), batch["symmetric"][0], interaction_of(cfg))
    repeated_nxCxD = jnp.broadcast_to(query_nxD[:, None], passage_nxCxD.shape)
    z_nxC, features_nxCxF = score_pairs(head, repeated_nxCxD, passage_nxCxD)
    others = score_others(head, query_nxD, passage_nxCxD, texts_nxT, real_nxC, cfg.block_size)
    terms = loss_terms(cfg, frozen["temperature"], batch, kinds, z_nxC, features_nxCxF, others)
    if cfg.loss.vectors:
        cosines_nxC, _ = score_pairs(None, repeated_nxCxD, passage_nxCxD)
        of_others = score_others(None, query_nxD, passage_nxCxD, texts_nxT, real_nxC, cfg.block_size)
        terms["vectors"] = vectors_term(cfg, batch, kinds, cosines_nxC, of_others)
    weight = {"ci": 1.0} | {term: frozen[name] for term, name in COEFFICIENTS.items()}
    total = sum((weight[name] * value for name, value in terms.items()), jnp.float32(0.0))
    return total, terms | {"loss": total}


def vectors_term(
    cfg: ConfigDict, batch: dict[str, Array], kinds: Kinds, cosines_nxC: Array, others: dict[str, Array]
) -> Array:
    """Ours: InfoNCE of the vectors' cosines, its positives by the labels, its negatives those of CI, so that an index of the vectors alone
    finds what the module is to rank; a module leaves the vectors where its own terms want them."""
    random = jnp.where(batch["symmetric"][0], *TASKS[cfg.loss.random_negatives])
    positive, hard, easy = kinds
    return contrastive_imitation(
        cosines_nxC, positive, positive, hard, easy & random, others["z"], others["mask"] & random, VECTORS_TEMPERATURE
    )


def loss_terms(
    cfg: ConfigDict,
    temperature: Array,
    batch: dict[str, Array],
    kinds: Kinds,
    z_nxC: Array,
    features_nxCxF: Array,
    others: dict[str, Array],
) -> dict[str, Array]:
    """The terms that cfg.loss asks for, scalars by name: ci (section 3.2.1), ri_ph, ri_hi, fi, si, listed. Logits are z over the
    temperature in all of them."""
    loss, (positive, hard, easy), z_teacher = cfg.loss, kinds, batch["z"]
    # CI's D-: the hard negatives and, in the tasks that have them, those that nobody chose.
    random = jnp.where(batch["symmetric"][0], *TASKS[loss.random_negatives])
    s_teacher = jax.nn.sigmoid(z_teacher)
    labels = positive.astype(jnp.float32)
    s_ci = s_teacher if loss.imitate else labels  # Table 3: plain contrastive
    z_others, other_mask = others["z"], others["mask"] & random
    ci = contrastive_imitation(z_nxC, s_ci, positive, hard, easy & random, z_others, other_mask, temperature, loss.form)
    terms = {"ci": ci}
    near_J = cfg.positives + cfg.hard_negatives  # positives and hard negatives stand first
    near = (positive | hard)[:, :near_J]
    if loss.alpha:  # eq. 7
        terms["ri_ph"] = rank_imitation(z_nxC[:, :near_J], z_teacher[:, :near_J], near)
    if loss.beta:  # eq. 8
        terms["ri_hi"] = hard_over_easy(z_nxC / temperature, z_teacher, hard, easy, loss.hard_over_easy)
    if loss.gamma:  # eq. 9, 10
        terms["fi"] = feature_imitation(features_nxCxF[:, :near_J], batch["r"], near)
    if loss.delta:  # ours; where no term imitates the judge, the labels' cross entropy
        s_si = s_teacher if imitates(cfg) else labels
        terms["si"] = score_imitation(z_nxC[:, :near_J] / temperature, s_si[:, :near_J], near)
    if loss.listed:  # ours
        terms["listed"] = listwise_kl(z_nxC[:, :near_J] / temperature, z_teacher[:, :near_J], near)
    return terms
