"""A small DistilFACE with its batch, without a tokenizer: for the tests of its loss and of devices."""

from __future__ import annotations

import numpy as np
from simtde_setting import random_tokens, small_teacher, start

from configs import distilface as config_file
from jdistill.methods.distilface import stages
from jdistill.train.method import Method


def setting(rows: int = 6, **changes: object) -> tuple[Method, dict[str, np.ndarray]]:
    """The method, and a batch of so many rows, 20 tokens wide."""
    cfg = config_file.get_config()
    cfg.student.layers, cfg.batch_size, cfg.pooling = 2, rows, ""
    cfg.teacher = "small" if {"loss.distil", "loss.align"} & changes.keys() else ""
    cfg.update_from_flattened_dict(changes)
    tokens = random_tokens(300)
    given = start(small_teacher(), tokens)
    ids, mask = tokens.padded(np.arange(rows), 20, 0)
    (stage,) = stages(cfg)
    return stage.build(cfg, given), {"ids": ids, "mask": mask, "teacher": given.embeddings(np.arange(rows))}
