"""A small D2LLM with its batch, without a tokenizer: what the tests of gradients and devices share."""

from __future__ import annotations

import numpy as np
from conftest import random_params, tiny_decoder_config
from simtde_setting import random_tokens, start

from configs import d2llm as config_file
from jdistill.encoder import Encoder
from jdistill.imitation import cosines
from jdistill.methods import METHODS
from jdistill.methods.contract import Method

COUNTS = (2, 3, 2)  # positives, hard and easy negatives


def config(variant: str = "", **changes: object):
    c = config_file.get_config(variant)
    c.symmetric = c.asymmetric = "given"
    c.positives, c.hard_negatives, c.easy_negatives = COUNTS
    c.lora.rank, c.iem_size, c.batch_size, c.dtype = 3, 6, 8, "float32"
    c.update_from_flattened_dict(changes)
    return c


def setting(
    variant: str = "", rows: int = 8, dropout: float = 0.0, **changes: object
) -> tuple[Method, dict[str, np.ndarray]]:
    """The method with adapters that do something, and a batch of so many queries, 12 tokens wide."""
    cfg, config_of = config(variant, **{"student.dropout": dropout} | changes), tiny_decoder_config(vocab_size=96)
    model = Encoder(config_of, random_params(config_of), tokenizer=None, max_length=64)  # type: ignore[arg-type]
    stage = METHODS["d2llm"](cfg)[-1]
    tokens, rng, C = random_tokens(rows * (1 + sum(COUNTS))), np.random.default_rng(0), sum(COUNTS)
    method = stage.build(stage.cfg, start(model, tokens))
    for adapter in method.params["adapters"].values():
        adapter["B"] = rng.normal(0, 0.05, adapter["B"].shape).astype(np.float32)
    T, J = 1 + C, COUNTS[0] + COUNTS[1]
    ids, mask = tokens.padded(np.arange(rows * T), 12, 0)
    real = np.ones((rows, T), bool)
    real[0, 2] = real[1, 4] = real[2, 7] = False  # one without a second positive, a hard and an easy negative
    texts = np.arange(rows * T).reshape(rows, T)
    texts[1, 1], texts[3, 6] = texts[0, 1], texts[0, 3]  # passages that several queries have
    return method, {
        "ids": ids.reshape(rows, T, 12),
        "mask": mask.reshape(rows, T, 12) & real[:, :, None],
        "real": real,
        "texts": texts.astype(np.int32),
        "z": rng.normal(0, 2, (rows, C)).astype(np.float32),
        "r": np.asarray(cosines(rng.normal(0, 1, (rows, J, 5)))),
        "symmetric": np.zeros(rows, bool),
    }
