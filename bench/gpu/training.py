"""One pass over the same text with the teacher's vectors at hand: our training, and sentence-transformers' trainer (bench.st_trainer).

Sentences a second of the whole call, tokenising and compiling included, on both sides; of ours also of its steps alone and of their later
half. The teacher's vectors are random, which costs no less. Each in a process of its own, since both would take the card's memory.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from configs import simtde
from gpu.made_up import make_encoder, make_texts, save
from gpu.parts import Cell, Row, Setting
from gpu.timing import peak_gib


def _text(setting: Setting) -> tuple[Path, list[str]]:
    """The file of the text, and its sentences."""
    file, texts = setting.folder / "sentences.txt", make_texts(setting.pick(200_000, 64), setting.pick(30_522, 500))
    if not file.is_file():
        file.write_text("\n".join(texts) + "\n")
    return file, texts


def train_ours(setting: Setting, batch_size: int, dtype: str) -> Row:
    """SimTDE's stage of a run, without export and evaluation."""
    from jdistill.run.stages import prepare, train_stages

    cfg = simtde.get_config()
    cfg.update({"batch_size": batch_size, "dtype": dtype, "teacher_dtype": dtype, "length_multiple": 8, "epochs": 1.0})
    cfg.update({"teacher": str(save(make_encoder(setting), setting.folder / "teacher")), "held_out": 0})
    cfg.update({"text": str(_text(setting)[0]), "text_column": "", "cache_dir": str(setting.folder / "cache")})
    cfg.update(
        {"index_texts": 0, "log_every": setting.pick(20, 1), "checkpoint_every": 1_000_000, "checkpoint_minutes": 0.0}
    )
    cfg.student.start = "random"  # its SVD is no part of the training's time
    if setting.toy:
        cfg.update_from_flattened_dict({"student.embedding_size": 8, "student.layers": 1})
    folder = setting.folder / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run = prepare(cfg)
    teacher = run.shared.teacher.in_role("")
    teacher.cache(Path(cfg.cache_dir)).fill(run.shared.corpus.train, partial(_random_vectors, teacher.width))
    began = time.perf_counter()
    trained = train_stages(run, folder).stages[0]
    seconds = time.perf_counter() - began
    lines = [json.loads(line) for line in (folder / trained["name"] / "metrics.jsonl").read_text().splitlines()]
    rates = [line["sentences_per_s"] for line in lines if "sentences_per_s" in line]
    return {
        "sentences_per_s": trained["sentences"] / seconds,
        "steps_sentences_per_s": trained["sentences"] / trained["seconds"],
        "later_sentences_per_s": statistics.median(rates[len(rates) // 2 :]),
        "seconds": seconds,
        "sentences": trained["sentences"],
        "peak_gib_so_far": peak_gib(),
    }


def _random_vectors(width: int, texts: Sequence[str]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((len(texts), width), np.float32)


def train_trainer(setting: Setting, batch_size: int, dtype: str) -> Row:
    """Its student is the teacher's last three layers, with MSELoss."""
    from st_trainer import train_theirs

    encoder = make_encoder(setting)
    _, texts = _text(setting)
    vectors = _random_vectors(encoder.dim, texts)
    flags = Namespace(
        teacher=str(save(encoder, setting.folder / "teacher")), batch_size=batch_size, seed=0, st_bf16=dtype == "bfloat16", st_dropout=0.0,
    )  # fmt: skip
    _, seconds = train_theirs(flags, texts, vectors, 1e-4, setting.folder / "sentence-transformers")
    return {"sentences_per_s": len(texts) / seconds, "seconds": seconds, "sentences": len(texts)}


def ours(setting: Setting) -> Iterator[Cell]:
    """Ours."""
    size, dtype = setting.pick((512, "bfloat16"), (16, "float32"))
    yield Cell({"by": "jdistill", "batch": size, "dtype": dtype}, partial(train_ours, setting, size, dtype), 60)


def theirs(setting: Setting) -> Iterator[Cell]:
    """Sentence-transformers'."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the card is torch's
    size, dtype = setting.pick((512, "bfloat16"), (16, "float32"))
    labels = {"by": "sentence-transformers", "batch": size, "dtype": dtype}
    yield Cell(labels, partial(train_trainer, setting, size, dtype), 40)
