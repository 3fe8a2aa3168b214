"""Two small files of labelled pairs with their judge, shared by the tests of what is made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from conftest import make_decoder, real_teacher_folder
from d2llm_setting import write_pairs
from ml_collections import ConfigDict

from configs import d2llm
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.judged import JudgedPairs, read_judged
from jdistill.teachers.judge import Judge

P, K, I = 1, 3, 2  # positives, hard and easy negatives of a query


def judged_model() -> Encoder:
    real_teacher_folder()
    return make_decoder(max_positions=256)


def judged_files(folder: Path, model: Encoder) -> tuple[ConfigDict, JudgedPairs]:
    write_pairs(folder / "same.jsonl", 32, split=True)
    write_pairs(folder / "answers.jsonl", 32, split=False)
    cfg = d2llm.get_config()
    cfg.symmetric, cfg.asymmetric = str(folder / "same.jsonl"), str(folder / "answers.jsonl")
    cfg.positives, cfg.hard_negatives, cfg.easy_negatives = P, K, I
    cfg.held_out_queries, cfg.dev_queries, cfg.batch_size, cfg.threshold_pairs = 8, 4, 8, 20
    cfg.judge.query_tokens = cfg.judge.passage_tokens = cfg.query_length = cfg.document_length = 20
    cfg.teacher_dtype, cfg.cache_dir = "float32", str(folder / "cache")
    return cfg, read_judged(cfg, model)


def asked(judge: Judge, query: str, passages: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(z, y), each pair in a call of its own."""
    found = [judge.score([query], [passage]) for passage in passages]
    return np.array([z[0] for z, _ in found]), np.array([y[0] for _, y in found])
