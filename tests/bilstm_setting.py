"""A small BiLSTM-SRA, distilled and on a task of pairs, with its batch, without a tokenizer: for the tests of devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from conftest import make_encoder, sentences
from simtde_setting import random_tokens, small_teacher, start

from configs import bilstm_sra, bilstm_sra_task
from configs import bilstm_sra as config_file
from jdistill.data.sets.tasks import Split, Task
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Start
from jdistill.feeds.task import TaskFeed
from jdistill.methods import METHODS
from jdistill.students.bilstm import make_tokenizer
from jdistill.train.method import Method

SIZES = {"embedding_size": 12, "lstm_size": 8}


def setting(name: str, rows: int = 8, dropout: float = 0.0, **_: object) -> tuple[Method, dict[str, np.ndarray]]:
    """bilstm, own_pairs, or task: from scratch on pairs of which some have no label, with a teacher's logits. 20 tokens wide."""
    cfg = (
        bilstm_sra_task.get_config()
        if name == "task"
        else bilstm_sra.get_config("own_pairs" if name == "own_pairs" else "")
    )
    block = cfg.scratch if name == "task" else cfg.student
    block.update(SIZES | {"dropout": dropout})
    cfg.update({"task": {"task_dir": "given"}, "own_pairs": {"pairs": "given"}}.get(name, {}))
    (stage,) = METHODS[cfg.method](cfg)
    tokens, rng = random_tokens(max(2 * rows, 300)), np.random.default_rng(0)
    of_start = start(replace(small_teacher(), tokenizer=cast(Any, SimpleNamespace(pad_token_id=0))), tokens)
    split = Split(["a", "b", "c"], ["d", "e", "f"], np.arange(3, dtype=np.int32))
    task = Task("mine", ("no", "perhaps", "yes"), split, split, None)
    method = stage.build(stage.cfg, replace(of_start, feed=TaskFeed(cast(Any, None), task, split)))
    ids, mask = tokens.padded(np.arange(2 * rows), 20, 0)
    if name == "bilstm":
        return method, {"ids": ids[:rows], "mask": mask[:rows], "teacher": of_start.embeddings(np.arange(rows))}
    label, logits = rng.integers(-1, 3, rows).astype(np.int32), rng.normal(size=(rows, 3)).astype(np.float32)
    both = {"ids": ids.reshape(rows, 2, 20), "mask": mask.reshape(rows, 2, 20)}
    if name == "own_pairs":
        return method, both | {"teacher": of_start.embeddings(np.arange(2 * rows)).reshape(rows, 2, -1)}
    return method, both | {"label": label, "logits": logits}


def flavour(folder: Path, pairs: bool) -> None:
    """A task that a word decides: lemon or not, or whether both texts of a pair have it."""
    folder.mkdir()
    texts = sentences(400, seed=3)
    for split, rows in (("train", texts[:240]), ("dev", texts[240:320]), ("test", texts[320:])):
        lines = ["sentence1\tsentence2\tlabel" if pairs else "sentence\tlabel"]
        for i, text in enumerate(rows):
            first = f"{text} lemon" if i % 2 else text.replace("lemon", "copper")
            other = f"a {'lemon' if i % 4 < 2 else 'copper'} {i}"
            label = int(("lemon" in first) == ("lemon" in other)) if pairs else int("lemon" in first)
            lines.append(f"{first}\t{other}\t{label}" if pairs else f"{first}\t{label}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def config(**changes: object):
    cfg = config_file.get_config()
    cfg.student.embedding_size, cfg.student.lstm_size = 12, 8
    cfg.update_from_flattened_dict(changes)
    return cfg


def student(**changes: object) -> Encoder:
    """Untrained, from a tiny BERT with MiniLM's tokenizer."""
    cfg, start = config(**changes), make_encoder()
    (stage,) = METHODS["bilstm_sra"](cfg)
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    tokens = random_tokens(50, vocab_size=1000)
    return stage.build(
        cfg, Start(start, True, 32, tokens, lambda rows: np.zeros((len(rows), 32), np.float32), None)
    ).student
