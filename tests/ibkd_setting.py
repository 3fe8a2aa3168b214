"""Small IBKD, its baselines and the fine-tuning stage with their batches, without a tokenizer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from simtde_setting import LOSSES, random_tokens, small_teacher, start
from steps import loss_of

from configs import ibkd as config_file
from jdistill.data.batching.layout import Layout
from jdistill.data.sets.triplets import TripletTokens
from jdistill.feeds.stage import Start
from jdistill.feeds.texts import Texts, other_rows
from jdistill.feeds.triplets import LabelledTriplets
from jdistill.methods import METHODS
from jdistill.train.method import Method

NEGATIVES = 2
# name -> (variant of configs/ibkd.py, stage, changed keys): one for each way that a loss is computed.
SETTINGS: dict[str, tuple[str, str, dict[str, object]]] = {
    "ibkd": ("", "distil", {}),
    "ibkd_imq": ("", "distil", {"kernel": "imq", "hsic.estimator": "n_minus_1"}),
    "ibkd_linear": ("", "distil", {"kernel": "linear", "hsic.estimator": "unbiased"}),
    "ibkd_blocks": ("", "distil", {"block_size": 4, "hsic.gamma": 0.0}),
    "ckd": ("ckd", "distil", {"loss.similarity": "bilinear"}),
    "mse": ("mse", "distil", {}),
    "crd": ("crd", "distil", {"loss.buffer_per_text": 3, "loss.critic_dim": 8}),
    "hpd": ("hpd", "distil", {"output_dim": 8}),
    "finetune": ("", "finetune", {"output_dim": 8, "projection_start": "random"}),
    "finetune_own": ("", "finetune", {"loss.own_negatives": True}),
    "finetune_margins": (
        "",
        "finetune",
        {"loss.scores": "margin_mse", "loss.in_batch": 0.0, "finetune.loss.beta": 0.0},
    ),
    "finetune_kl": ("", "finetune", {"loss.scores": "kl", "loss.scores_weight": 3.0, "loss.scores_temperature": 2.0}),
    "supervised": ("supervised", "finetune", {}),
    "finetune_packed": ("", "finetune", {"output_dim": 8, "projection_start": "random"}),
}
# What test_sharding.py compiles for any number of devices: packed texts, matrices in chunks and blocks, D2LLM's lists and a base
# that is split too.
ON_ANY_COUNT = ("packed", "ibkd_blocks", "d2llm_spread")
IN_TWO_PROCESSES = ("", "packed", "ibkd", "finetune")


def of_devices(count: int) -> list[str]:
    """For 1 and 8 devices SimTDE's losses, whole matrices, rows of several texts, buffers of others and the recurrent
    student too."""
    return [
        *ON_ANY_COUNT,
        *(
            [
                *LOSSES,
                "ibkd",
                "finetune",
                "finetune_packed",
                "finetune_kl",
                "crd",
                "bilstm",
                "own_pairs",
                "task",
                "distilface",
            ]
            if count in (1, 8)
            else []
        ),
    ]


def config(variant: str = "", **changes: object):
    c = config_file.get_config(variant)
    c.student.layers = 2
    c.batch_size = c.finetune.batch_size = 8
    c.triplets = "given"
    c.update_from_flattened_dict({k: v for k, v in changes.items()})
    return c


def triplet_tokens(rows: int) -> TripletTokens:
    """Random triplets with one or two negatives each."""
    rng = np.random.default_rng(3)
    passages = random_tokens(4 * rows)
    columns = rng.permutation(4 * rows)[: rows * (NEGATIVES + 1)].reshape(rows, NEGATIVES + 1)
    columns[rng.random(rows) < 0.3, -1] = -1
    columns[3, 1], columns[5, 0], anchor_texts = columns[1, 0], columns[4, 0], 4 * rows + np.arange(rows)
    anchor_texts[6] = anchor_texts[2]  # rows 1 and 3, 4 and 5 share a passage, 2 and 6 an anchor
    anchor_texts[0] = columns[7, 0]  # and row 7's positive is the text of row 0's anchor
    return TripletTokens(random_tokens(rows), passages, columns, anchor_texts)


def setting(name: str, rows: int = 8, dropout: float = 0.0, **changes: object) -> tuple[Method, dict[str, np.ndarray]]:
    """The method, and a batch of so many rows, 20 tokens wide, with the teacher's true answers."""
    variant, which, own = SETTINGS[name]
    cfg = config(variant, **{"student.dropout": dropout} | own | changes)
    teacher, tokens = small_teacher(), random_tokens(max(rows, 300))
    stage = next(stage for stage in METHODS[cfg.method](cfg) if stage.name == which)
    given: Start = start(teacher, tokens)
    method = stage.build(stage.cfg, given)
    which_rows = np.arange(rows)
    if isinstance(stage.data, LabelledTriplets):
        triplets = triplet_tokens(rows)
        if stage.cfg.loss.scores:
            scores = np.random.default_rng(4).normal(0, 3, triplets.columns.shape).astype(np.float32)
            triplets = replace(triplets, scores=scores)
        if name == "finetune_packed":  # in eight groups, which as many devices share
            texts = rows // 8 * (NEGATIVES + 2)
            return method, triplets.packed(which_rows.reshape(8, -1), Layout((texts,), (20,), (3,)), 0)
        return method, triplets.padded(which_rows, 20, 0)
    ids, mask = tokens.padded(which_rows, 20, 0)
    batch = {"ids": ids, "mask": mask, "teacher": given.embeddings(which_rows)}
    if isinstance(stage.data, Texts) and stage.data.num_extra:
        others = other_rows(which_rows, 5, cfg.seed, stage.data.num_extra, len(tokens.lengths))
        batch["others"] = given.embeddings(others.ravel()).reshape(*others.shape, -1)
        batch |= {"row": which_rows.astype(np.int32), "other_rows": others.astype(np.int32)}
    return method, batch


def evaluate(method: Method, batch: dict, params=None) -> tuple[float, dict[str, float], dict[str, np.ndarray]]:
    params = method.params if params is None else params
    total, metrics, reps = loss_of(method)(params, batch)
    return float(total), {k: float(v) for k, v in metrics.items()}, {k: np.asarray(v) for k, v in reps.items()}
