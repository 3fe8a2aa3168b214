"""While a student trains, its devices hold no weights of the teacher or of the judge, in any role."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from conftest import make_encoder, save_encoder
from judged_setting import judged_files, judged_model
from simtde_setting import config

from jdistill.data.text.text_sources import TextSource
from jdistill.feeds.candidates import candidate_batches
from jdistill.feeds.corpus import Corpus, SourceRows
from jdistill.feeds.teacher_embeddings import TeacherEmbeddings
from jdistill.teachers.embeddings import open_teacher


def held() -> int:
    """Bytes of the arrays on the devices."""
    gc.collect()
    return sum(x.nbytes for x in jax.live_arrays())


def test_a_teacher_that_has_answered_in_both_roles_holds_nothing(tmp_path: Path) -> None:
    model = replace(make_encoder(), prompts={"query": "winter: ", "document": "garden: "})
    teacher = open_teacher(str(save_encoder(model, tmp_path / "teacher")), 0, "float32")
    weights = sum(x.nbytes for x in jax.tree.leaves(model.params))
    sources = tuple(SourceRows(TextSource("here", role), 4, 1) for role in ("query", "document"))
    texts = ["a river", "stone", "one day", "quiet", "engine", "the paper", "yellow", "a garden"]
    cfg = config("", cache_dir=str(tmp_path / "cache"))
    embeddings = TeacherEmbeddings(cfg, Corpus(texts, ["ocean", "candle"], 0, sources), teacher)
    before = held()
    embeddings.train(np.arange(8))
    embeddings.held_out()
    assert held() - before < weights / 4
    teacher.answer(["a river"])
    assert held() - before >= weights  # what it holds while it answers
    teacher.release()
    assert held() - before < weights / 4


def test_a_judge_that_has_answered_holds_nothing(tmp_path: Path) -> None:
    model = judged_model()
    cfg, judged = judged_files(tmp_path, model)
    weights = sum(x.nbytes for x in jax.tree.leaves(model.params))
    before = held()
    candidate_batches(cfg, judged, model)[1].batch(0)
    assert held() - before < weights / 4
    judge = next(iter(judged.judges.values()))
    judge.score(["a river"], ["stone"])
    assert held() - before >= weights
