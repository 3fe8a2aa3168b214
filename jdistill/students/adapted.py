"""The weights of a student that is adapters on a base: the base by the run's config, the adapters and the pooler by its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.json_files import read_json
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder import loading
from jdistill.models import lora
from jdistill.students.transformer import make_student
from jdistill.students.vocabulary import cut_like, vocabulary_asked


def adapted_weights(
    workdir: Path, student: Path, params: dict[str, Any], check_base: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """What Encoder.with_weights takes, from the "adapters" and "pooler" of a D2LLM run's parameters.

    Args:
      student: the folder with the student's files, of which a vocabulary that was cut is read.
      check_base: raises for a base that the adapters were not trained on, given its parameters.
    """
    cfg = ConfigDict(json.loads((workdir / "config.json").read_text()))
    start = replace(loading.load(cfg.start or cfg.teacher, key="config.teacher"), pooling="mean")
    if vocabulary_asked(cfg):
        start = cut_like(start, read_json(student / "tokenizer.json"))
    no_tokens = TokenTable(
        np.zeros(0, np.int32), np.zeros(1, np.int64)
    )  # which only a compact table would be fitted to
    base = make_student(cfg, start, no_tokens)
    check_base(base.params)
    weights = {"model": lora.merge(base.params, params["adapters"], cfg.lora.alpha)}
    return weights | ({"pooler": params["pooler"]} if "pooler" in params else {})
