"""A small SimTDE with its batch, without a tokenizer: what the tests of gradients and devices share."""

from __future__ import annotations

import numpy as np
from conftest import random_params, tiny_config

from configs import simtde as config_file
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.layout import Layout
from jdistill.data.batching.packing import deal, pack_texts
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Start
from jdistill.methods import simtde
from jdistill.train.method import Method

VARIANTS = [
    "",
    "deep",
    "matched",
    "no_token",
    "lrn",
    "lmx",
    "random",
    "kl",
    "pair_mse",
    "pair_mae",
    "normalized",
    "table",
    "thin",
]

# One variant for each way that a loss is computed: what may differ between devices.
LOSSES = ["", "lmx", "pair_mse", "table"]


def config(variant: str = "", **changes: object):
    """configs/simtde.py:variant made small: 2 layers, compact width 12."""
    c = config_file.get_config(variant)
    c.student.layers = c.student.layers and 2
    c.student.embedding_size = c.student.embedding_size and 12
    c.student.hidden_size = c.student.hidden_size and 16
    c.update_from_flattened_dict(changes)
    return c


def small_teacher(vocab_size: int = 90) -> Encoder:
    bert = tiny_config(vocab_size=vocab_size)
    return Encoder(config=bert, params=random_params(bert), tokenizer=None, max_length=bert.usable_positions)  # type: ignore[arg-type]


def random_tokens(texts: int, vocab_size: int = 90) -> TokenTable:
    rng = np.random.default_rng(5)
    lengths = rng.integers(2, 17, texts)
    return TokenTable(rng.integers(5, vocab_size, lengths.sum()), np.concatenate([[0], np.cumsum(lengths)]))


def start(teacher: Encoder, tokens: TokenTable, width: int = 32, is_teacher: bool = True) -> Start:
    """What a method is built from, with the teacher's true answers."""

    def answers(rows: np.ndarray) -> np.ndarray:
        return teacher.encode_ids(tokens.lists(rows), normalize=False)

    return Start(teacher, is_teacher, width, tokens, answers, None)


def setting(
    variant: str = "", batch_size: int = 8, dropout: float = 0.0, **changes: object
) -> tuple[Method, dict[str, np.ndarray]]:
    """The method, and a batch [batch_size, 20] with the teacher's true answers."""
    teacher, tokens = small_teacher(), random_tokens(max(batch_size, 300))
    method = simtde.build(config(variant, **{"student.dropout": dropout} | changes), start(teacher, tokens))
    rows = np.arange(batch_size)
    ids, mask = tokens.padded(rows, 20, 0)
    return method, {"ids": ids, "mask": mask, "teacher": start(teacher, tokens).embeddings(rows)}


def packed_setting(
    batch_size: int = 8, dropout: float = 0.0, groups: int = 8, **changes: object
) -> tuple[Method, dict[str, np.ndarray]]:
    """The method, and the texts of setting() packed in groups, with the teacher's true answers."""
    method, padded = setting("", batch_size, dropout, **changes)
    tokens = random_tokens(max(batch_size, 300))
    rows_nxg = deal(tokens.lengths[:batch_size], groups)
    packed = pack_texts(tokens, rows_nxg, Layout((batch_size // groups,), (20,), (3,)), 0)
    return method, packed | {"teacher": padded["teacher"][rows_nxg]}
