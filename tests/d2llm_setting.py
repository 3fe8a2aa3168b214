"""A small D2LLM with its batch, without a tokenizer: what the tests of gradients and devices share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from conftest import random_params, sentences, tiny_decoder_config
from simtde_setting import random_tokens, start

from configs import d2llm as config_file
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.packed_rows import PackedRows
from jdistill.data.sets.triplets import TripletTokens
from jdistill.encoder.encoder import Encoder
from jdistill.losses.imitation import cosines
from jdistill.methods import METHODS
from jdistill.train.method import Method

COUNTS = (2, 3, 2)  # positives, hard and easy negatives
SUMS = (64, 2 * 4)  # feed-forward width and layers of the decoder of make_decoder, both sides in float32
HEAD_SUMS = (64, 2 * 6)  # its feed-forward width; layers, pooler and head, both sides in float32
LOGIT = 4.5  # a large one of it: four times 0.2 sqrt(32), of weights of 0.2 and 32 normalised numbers


def config(variant: str = "", **changes: object):
    c = config_file.get_config(variant)
    c.symmetric = c.asymmetric = "given"
    c.positives, c.hard_negatives, c.easy_negatives = COUNTS
    c.lora.rank, c.iem_size, c.batch_size, c.dtype = 3, 6, 8, "float32"
    c.heads_start = "random"  # off the kinks of relu, at which a similarity starts
    c.update_from_flattened_dict(changes)
    return c


def setting(
    variant: str = "", rows: int = 8, dropout: float = 0.0, **changes: object
) -> tuple[Method, dict[str, np.ndarray]]:
    """The method with adapters that do something, and a batch of so many queries, in two sequences each."""
    cfg, config_of = (
        config(variant, **{"student.dropout": dropout} | changes),
        tiny_decoder_config(vocab_size=96),
    )
    model = Encoder(config_of, random_params(config_of), tokenizer=None, max_length=64)  # type: ignore[arg-type]
    stage = METHODS["d2llm"](cfg)[-1]
    tokens, rng, C = random_tokens(rows * (1 + sum(COUNTS))), np.random.default_rng(0), sum(COUNTS)
    method = stage.build(stage.cfg, start(model, tokens))
    for adapter in method.params["adapters"].values():
        adapter["B"] = rng.normal(0, 0.05, adapter["B"].shape).astype(np.float32)
    J = COUNTS[0] + COUNTS[1]
    columns = rows + np.arange(rows * C).reshape(rows, C)  # after the queries; each passage once
    columns[0, 1] = columns[1, 3] = columns[2, 6] = -1  # one without a second positive, a hard and an easy negative
    columns[1, 0], columns[3, 5] = columns[0, 0], columns[0, 2]  # passages that several queries have
    columns[2, 0] = 5  # a passage that is another query's own text
    queries = TokenTable(tokens.ids, tokens.offsets[: rows + 1])
    texts = PackedRows(TripletTokens(queries, tokens, columns, np.arange(rows)), longest=40)
    assert texts.sequences == 2
    return method, texts.padded(np.arange(rows), int(texts.lengths.max()), 0) | {
        "z": rng.normal(0, 2, (rows, C)).astype(np.float32),
        "r": np.asarray(cosines(rng.normal(0, 1, (rows, J, 5)))),
        "symmetric": np.zeros(rows, bool),
    }


def write_pairs(path: Path, queries: int, split: bool) -> None:
    """Pairs that word overlap tells apart: a query's right passage holds it, its wrong one does not. Of other texts with splits than without."""
    texts, rows = sentences(3 * queries, seed=5 if split else 4), []
    for i in range(queries):
        query, wrong = texts[i], texts[queries + i]
        name = {"split": "dev" if i % 4 else "test"} if split else {}
        first, second = ("sentence1", "sentence2") if split else ("question", "sentence")
        rows.append(name | {first: query, second: f"{query} indeed", "label": "entailment"})
        rows.append(name | {first: query, second: wrong, "label": "neutral"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
