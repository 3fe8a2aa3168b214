"""D2LLM's judge, tuned before it teaches (Liao et al., ACL 2024, section 3.1.1 and Appendix D)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from jdistill.core.types import Array, Tree
from jdistill.feeds.judge_tuning import TuningFeed
from jdistill.feeds.stage import Start
from jdistill.losses.imitation import judge_logits
from jdistill.models import lora
from jdistill.models.beginnings import Beginnings
from jdistill.models.pooling import last_token_pool
from jdistill.models.precision import settled_dtype
from jdistill.models.registry import hidden_states
from jdistill.train.method import Method


def build_judge(cfg: ConfigDict, context: Start[TuningFeed]) -> Method:
    """Appendix D: low-rank adapters on the judge, cross entropy of its yes and no."""
    model = context.feed.judge.model
    adapters = lora.start(model.params, cfg.lora.paths, cfg.lora.rank, np.random.default_rng([cfg.seed, 5]))
    begun_nxP, of_begun_nxP = context.feed.beginnings(cfg)
    frozen = {
        "base": model.params,
        "answers": context.feed.answer_rows(),
        "beginnings": {"ids": begun_nxP, "mask": of_begun_nxP},
    }

    dtype = jnp.dtype(settled_dtype(cfg.dtype))

    def represent(params: Tree, frozen: Tree, batch: dict[str, Array], rng: Array | None) -> dict[str, Array]:
        """The logits of prompts, whose places but the instructions' are ids and mask [n, L], int32 and bool, and beginning int32 [n]."""
        weights = lora.beside(frozen["base"], params["adapters"], cfg.lora.alpha, rng, cfg.student.dropout)
        read, begun = partial(hidden_states, model.config, weights, dtype=dtype, remat=cfg.remat), frozen["beginnings"]
        # The instructions once, not for each prompt: causal layers make the same of them whatever follows.
        before = Beginnings(read(begun["ids"], begun["mask"]), begun["mask"], batch["beginning"])
        states = read(batch["ids"], batch["mask"], before=before)
        # A template that ends otherwise has other tokens for yes and no.
        answers_nx2xD = frozen["answers"][batch["beginning"]]
        return {"logit": jax.vmap(judge_logits)(last_token_pool(states[-1], batch["mask"]), answers_nx2xD)}

    def merged(params: Tree) -> Tree:
        return {"model": lora.merge(model.params, params["adapters"], cfg.lora.alpha)}

    return Method({"adapters": adapters}, model, frozen, represent, judge_objective, merged)


def judge_objective(
    params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """Appendix D: cross entropy of sigmoid(z) with the labels, 0 or 1."""
    z_n, label_n = reps["logit"], batch["label"]
    loss = optax.sigmoid_binary_cross_entropy(z_n, label_n).mean()
    return loss, {"loss": loss, "accuracy": ((z_n > 0) == (label_n > 0.5)).mean()}
