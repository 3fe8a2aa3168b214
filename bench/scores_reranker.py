"""The cross-encoder of bench/scores.py: MiniLM, trained by sentence-transformers on mined and drawn passages; how often it is right.

Needs the torch extra.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.folders import replacing
from jdistill.data.text.locations import resolve
from jdistill.encoder.cross_encoder import load_cross_encoder
from jdistill.retrieval.bm25 import bm25_search

WORD = re.compile(r"\w+")
SAVE_EVERY = 100  # steps


def train_reranker(flags: argparse.Namespace, triplets: list[dict[str, Any]], folder: Path) -> None:
    """MiniLM with a head of one output: first told positives from drawn passages, then to rank them above mined ones.

    On mined passages alone, which share the query's words as its positive does, it had learnt nothing after 200 steps.

    Args:
        flags: reranker_start, _rate, _steps (of either stage), _queries, _seed and _bf16, max_length and workdir.
        triplets: query, positive and negatives.
        folder: to be written.
    """
    import torch
    import transformers
    from sentence_transformers.cross_encoder import CrossEncoder
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, ListNetLoss

    start = resolve(flags.reranker_start, "reranker_start")
    torch.manual_seed(flags.reranker_seed)  # of the head
    bare = flags.workdir / "reranker-start"
    transformers.AutoModelForSequenceClassification.from_pretrained(start, num_labels=1).save_pretrained(bare)
    transformers.AutoTokenizer.from_pretrained(start).save_pretrained(bare)
    model = CrossEncoder(str(bare), max_length=flags.max_length)
    draw = np.random.default_rng(flags.reranker_seed)
    passages = np.array([row["positive"] for row in triplets])
    pairs = [
        (row["query"], passage, float(k == 0))
        for row in triplets
        for k, passage in enumerate([row["positive"], draw.choice(passages)])
    ]
    lists = [  # ListNetLoss takes the softmax of labels as its target: with 100 all of it is the positive's
        (row["query"], [row["positive"], *row["negatives"][k : k + 2], draw.choice(passages)], [100.0, 0.0, 0.0, 0.0])
        for row in triplets
        for k in range(0, len(row["negatives"]) - 1, 2)
    ]
    of_pairs, of_lists = flags.reranker_steps
    _train(flags, model, pairs, BinaryCrossEntropyLoss(model), "pairs", of_pairs, 4 * flags.reranker_queries)
    _train(flags, model, lists, ListNetLoss(model, mini_batch_size=-1), "lists", of_lists, flags.reranker_queries)
    with replacing(folder, "reranker", key="workdir") as beside:
        model.save_pretrained(str(beside))


def _train(
    flags: argparse.Namespace, model: Any, rows: list[tuple[Any, ...]], loss: Any, stage: str, steps: int, batch: int
) -> None:
    """sentence-transformers' trainer on rows of query, passage(s) and label(s), drawn by the seed; goes on from its last checkpoint."""
    import torch
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    columns = dict(zip(("query", "passage", "label"), map(list, zip(*rows, strict=True)), strict=True))
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(flags.workdir / "trainer" / stage), max_steps=steps, per_device_train_batch_size=batch,
        learning_rate=flags.reranker_rate,
        warmup_steps=0.1, logging_steps=25, save_strategy="steps", save_steps=SAVE_EVERY, save_total_limit=1, report_to=[],
        seed=flags.reranker_seed, disable_tqdm=True,
        bf16=flags.reranker_bf16, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=Dataset.from_dict(columns), loss=loss)
    out = Path(str(arguments.output_dir))
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(out)) if out.is_dir() else None)


def ranking_accuracy(held_out: list[dict[str, Any]], folder: Path) -> dict[str, float]:
    """Percent of held-out rows whose positive stands above all negatives: by the reranker, BM25, and the share of a query's words."""
    passages = list(dict.fromkeys(text for row in held_out for text in (row["positive"], *row["negatives"])))
    row_of = {text: i for i, text in enumerate(passages)}
    _, score_of = bm25_search([row["query"] for row in held_out], passages, 1)
    model = load_cross_encoder(str(folder))
    first: dict[str, list[bool]] = {"reranker": [], "bm25": [], "word_overlap": []}
    for i, row in enumerate(held_out):
        texts = [row["positive"], *row["negatives"]]
        words = set(WORD.findall(row["query"].lower()))
        by = {
            "reranker": model.logits([row["query"]] * len(texts), texts)[:, 0],
            "bm25": score_of(i, [row_of[text] for text in texts]),
            "word_overlap": np.array([len(words & set(WORD.findall(text.lower()))) for text in texts]),
        }
        for name, scores in by.items():
            first[name].append(bool(scores[0] > scores[1:].max()))
    return {name: 100 * float(np.mean(wins)) for name, wins in first.items()} | {"rows": len(held_out)}
