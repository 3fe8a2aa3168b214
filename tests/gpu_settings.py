"""Every method, tiny, with a batch of ROWS rows: what is compiled for GPUs that are not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from bilstm_setting import setting as bilstm
from conftest import random_params, tiny_decoder_config
from d2llm_setting import config as d2llm_config
from d2llm_setting import setting as d2llm
from distilface_setting import setting as distilface
from ibkd_setting import setting as ibkd
from ml_collections import ConfigDict
from simtde_setting import packed_setting, random_tokens, start
from simtde_setting import setting as simtde

from configs import base
from jdistill.encoder.encoder import Encoder
from jdistill.methods.d2llm_judge import build_judge
from jdistill.train.method import Method

ROWS = 80  # no size of a model's is a multiple of it, and 16 devices divide it
ONE_LAYER = {"student.layers": 1}
Made = tuple[Method, dict[str, np.ndarray]]


@dataclass(frozen=True)
class Compiled:
    """A method as it is compiled.

    Args:
      make: the method with its batch.
      keys: of the config, that decide how a step is made.
      pairs: whether its loss compares every text with every other at once.
    """

    make: Callable[[], Made]
    keys: dict[str, object] = field(default_factory=dict)
    pairs: bool = False

    def config(self) -> ConfigDict:
        cfg = base.get_config()
        cfg.batch_size, cfg.student = ROWS, ConfigDict({"dropout": 0.1})
        cfg.update_from_flattened_dict(self.keys)
        return cfg


def judge() -> Made:
    """The tuning of D2LLM's judge."""
    shape = tiny_decoder_config(vocab_size=96, num_layers=1)
    model = Encoder(shape, random_params(shape), tokenizer=None, max_length=64)  # type: ignore[arg-type]
    tokens, rng = random_tokens(ROWS), np.random.default_rng(0)
    answers = rng.normal(size=(2, 2, shape.hidden_size)).astype(np.float32)
    beginnings = random_tokens(2).padded(np.arange(2), 20, 0)
    feed = SimpleNamespace(
        judge=SimpleNamespace(model=model), answer_rows=lambda: answers, beginnings=lambda cfg: beginnings
    )
    of_start = start(model, tokens)
    method = build_judge(d2llm_config(), type(of_start)(**vars(of_start) | {"feed": cast(Any, feed)}))
    ids, mask = tokens.padded(np.arange(ROWS), 20, 0)
    odd = np.arange(ROWS) % 2
    return method, {"ids": ids, "mask": mask, "beginning": odd.astype(np.int32), "label": odd.astype(np.float32)}


def small_d2llm() -> Made:
    """All terms of the loss; its decoder has four layers, of which the student keeps one."""
    return d2llm("calibrated", ROWS, 0.1, **ONE_LAYER)


METHODS = {
    "simtde": Compiled(lambda: simtde("", ROWS, 0.1, **ONE_LAYER)),
    "ibkd": Compiled(lambda: ibkd("ibkd", ROWS, 0.1, **ONE_LAYER), pairs=True),
    "ckd": Compiled(lambda: ibkd("ckd", ROWS, 0.1, **ONE_LAYER), pairs=True),
    "mse": Compiled(lambda: ibkd("mse", ROWS, 0.1, **ONE_LAYER)),
    "crd": Compiled(lambda: ibkd("crd", ROWS, 0.1, **ONE_LAYER), pairs=True),
    "hpd": Compiled(lambda: ibkd("hpd", ROWS, 0.1, **ONE_LAYER)),
    "supervised": Compiled(lambda: ibkd("supervised", ROWS, 0.1, **ONE_LAYER), pairs=True),
    "distilface": Compiled(lambda: distilface(ROWS, **ONE_LAYER), pairs=True),
    "bilstm": Compiled(lambda: bilstm("bilstm", ROWS, 0.1)),
    "task": Compiled(lambda: bilstm("task", ROWS, 0.1)),
    "d2llm": Compiled(small_d2llm, pairs=True),
    "judge": Compiled(judge),
}
# Further ways to make a step, which only 8 devices are compiled for.
VARIANTS = {
    "packed": Compiled(lambda: packed_setting(ROWS, 0.1, groups=16, **ONE_LAYER)),
    "pair_mse": Compiled(lambda: simtde("pair_mse", ROWS, 0.1, **ONE_LAYER), pairs=True),
    "finetune": Compiled(lambda: ibkd("finetune_packed", ROWS, 0.1, **ONE_LAYER), pairs=True),
    # A bandwidth of its own: the median's is of a sample of rows, all pairs of which are looked at.
    "chunks_and_blocks": Compiled(
        lambda: ibkd("ibkd_blocks", ROWS, 0.1, block_size=16, **{"hsic.gamma": 0.5}, **ONE_LAYER), {"chunk_size": 40}
    ),
    "bfloat16": Compiled(lambda: ibkd("ibkd", ROWS, 0.1, dtype="bfloat16", **ONE_LAYER), pairs=True),
    "without_dropout": Compiled(lambda: ibkd("ibkd", ROWS, 0.0, dtype="bfloat16", **ONE_LAYER), pairs=True),
    "split_base": Compiled(small_d2llm, {"shard_frozen": True}, pairs=True),
    "split_state": Compiled(lambda: ibkd("ibkd", ROWS, 0.1, **ONE_LAYER), {"shard_params": True}, pairs=True),
}  # fmt: skip
EVERY = METHODS | VARIANTS
