"""D2LLM's judge: its scores of pairs in batches by length, beside the same model in transformers, padded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpu.encoding import products
from gpu.made_up import make_decoder, make_texts, save
from gpu.parts import Cell, Row, Setting
from gpu.timing import seconds_a_call
from jdistill.teachers.judge import ASYMMETRIC, Judge

CANDIDATES = 13  # passages of a query: its positive, 8 hard negatives and 4 easy ones


Measured = dict[
    tuple[str, int], tuple[Judge, float, np.ndarray]
]  # type and batch size -> our judge, its pairs/s and logits


def _pairs(setting: Setting) -> tuple[list[str], list[str]]:
    """Queries and passages, a row a pair."""
    count = setting.pick(128, 3)
    texts = make_texts(count * (1 + CANDIDATES), make_decoder(setting).config.vocab_size)
    return [text for text in texts[:count] for _ in range(CANDIDATES)], texts[count:]


def scores(setting: Setting, dtype: str, batch_size: int, measured: Measured) -> Row:
    """Pairs a second."""
    judge = Judge(replace(make_decoder(setting), dtype=dtype), template=ASYMMETRIC)
    queries, passages = _pairs(setting)
    z, _ = judge.score(queries, passages, batch_size)
    span = setting.pick(2.0, 0.0)
    seconds = seconds_a_call(lambda: judge.score(queries, passages, batch_size), lambda scored: scored, span)
    measured[dtype, batch_size] = (judge, len(queries) / seconds, z)
    return {"pairs_per_s": len(queries) / seconds} | products(dtype)


def scores_in_transformers(setting: Setting, dtype: str, batch_size: int, measured: Measured) -> Row:
    """The same in transformers, whose logits must come out alike, and our rate over its own."""
    judge, ours, z = measured[dtype, batch_size]
    queries, passages = _pairs(setting)
    theirs = _Theirs(setting, judge, dtype, queries, passages, batch_size)
    seconds = seconds_a_call(theirs.score, lambda scored: scored, setting.pick(2.0, 0.0))
    row: Row = {"pairs_per_s": len(queries) / seconds, "ratio": ours * seconds / len(queries)} | products(dtype)
    return row | {"largest_difference": float(np.abs(theirs.score() - z).max())}


class _Theirs:
    """The same judge in transformers: whole prompts, sorted by length and padded."""

    def __init__(self, setting: Setting, judge: Judge, dtype: str, queries: Any, passages: Any, batch_size: int):
        import torch
        from transformers import AutoModelForCausalLM

        torch.backends.cuda.matmul.allow_tf32 = True  # as JAX rounds float32 products on such a card
        folder = save(judge.model, setting.folder / "judge")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.model = model.to(self.device).eval()
        self.answers, self.prompts = judge.answer_tokens, judge.prompts(queries, passages)
        order = sorted(range(len(self.prompts)), key=lambda row: len(self.prompts[row]))
        self.batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]

    def score(self) -> np.ndarray:
        """logit(yes) - logit(no), float32 [N]."""
        import torch

        z = np.empty(len(self.prompts), np.float32)
        with torch.inference_mode():
            for rows in self.batches:
                longest = max(len(self.prompts[row]) for row in rows)
                ids, mask = (torch.zeros(len(rows), longest, dtype=torch.long) for _ in range(2))
                for i, row in enumerate(rows):  # from the left, so that every answer stands last
                    ids[i, longest - len(self.prompts[row]) :] = torch.tensor(self.prompts[row])
                    mask[i, longest - len(self.prompts[row]) :] = 1
                out = self.model(
                    input_ids=ids.to(self.device), attention_mask=mask.to(self.device), logits_to_keep=1, use_cache=False,
                    position_ids=(mask.cumsum(1) - 1).clamp(min=0).to(self.device),
                )  # fmt: skip
                yes, no = (out.logits[:, -1, answer].float() for answer in self.answers)
                z[rows] = (yes - no).cpu().numpy()
        return z


def cells(setting: Setting) -> Iterator[Cell]:
    """Beside transformers first, then our other batch sizes and float32."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # torch needs memory of the same card
    kinds = setting.pick(
        (("bfloat16", 64, True), ("bfloat16", 16, False), ("bfloat16", 256, False), ("float32", 64, True)),
        (("float32", 8, True),),
    )
    measured: Measured = {}
    for dtype, batch_size, beside in kinds:
        for by, measure in (("jdistill", scores), ("transformers", scores_in_transformers))[: 1 + beside]:
            labels = {"by": by, "dtype": dtype, "batch": batch_size}
            yield Cell(labels, partial(measure, setting, dtype, batch_size, measured), 20)
