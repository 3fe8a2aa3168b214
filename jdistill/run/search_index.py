"""The index that jdistill.search answers from: of the run's texts by its student, or by the teacher whose space the student shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.evals.agreement import ALIGNED
from jdistill.feeds.stage import Stage
from jdistill.feeds.tokens import cache_folder
from jdistill.retrieval import index
from jdistill.run.completeness import OF_INDEX
from jdistill.teachers.cache import in_one_piece
from jdistill.teachers.embeddings import Teacher, open_teacher
from jdistill.teachers.fill import ask

if TYPE_CHECKING:
    from jdistill.run.stages import Run, Trained

STUDENT, TEACHER = index.INDEX_OWNERS


def check_index_owner(cfg: ConfigDict, last: Stage) -> None:
    """Raises UserError for an index by the teacher that the student of a run's last stage could not ask."""
    if cfg.index_by == TEACHER and cfg.index_texts and not last.aligned:
        raise UserError(
            f"--config.index_by={TEACHER}: a student by --config.method={cfg.method} with these keys does not stand in its teacher's space, so "
            "its queries cannot ask the teacher's index; train by --config configs/search.py (simtde with loss.sentence=mse), by bilstm_sra with "
            "loss.target=vectors, or by ibkd, ckd, mse or crd (without triplets) or distilface with --config.loss.align=1; or set "
            f"--config.index_by={STUDENT}"
        )


def index_owner(cfg: ConfigDict, teacher: Teacher) -> dict[str, str]:
    """Whose index it is, as results.json has it."""
    return {"by": cfg.index_by, "model": teacher.source if cfg.index_by == TEACHER else STUDENT}


def owner_line(results: dict[str, Any]) -> str:
    """Whose index it is as a line of the log; empty where the student made it. Warns of a student that is far from its teacher."""
    owner = results.get("index", {})
    if owner.get("by") != TEACHER:
        return ""
    cosine = results.get("agreement", {}).get("mean_cosine")
    if cosine is not None and not cosine > ALIGNED:
        log.warning(
            "WARNING: the index holds the teacher's vectors, and the student's have a mean cosine of %.2f to them on held-out text, not above "
            "%.1f: train for longer, or set --config.index_by=%s", cosine, ALIGNED, STUDENT,
        )  # fmt: skip
    return f"the index holds vectors of the teacher, {owner['model']}; the student reads the questions"


def write_index(run: Run, trained: Trained, model: Encoder, folder: Path) -> None:
    """Writes the FAISS index of the run's texts, that jdistill.search answers from.

    Args:
      model: the exported student.
      folder: of the index.
    """
    cfg = run.cfg
    whole = trained.feed.index_texts()
    texts = list(whole[: cfg.index_texts])
    if len(texts) < len(whole):
        log.info("the index holds the first %d of %d texts (--config.index_texts)", len(texts), len(whole))
    settings = {key: cfg[key] for key in OF_INDEX}
    if cfg.index_by == TEACHER:
        teacher = _document_teacher(cfg)
        vectors = _answers(cfg, teacher, texts)
        fingerprint, asked = teacher.fingerprint, (model.fingerprint(), teacher.source)
    else:
        vectors = model.encode(texts, prompt=model.prompt_for("document"), show_progress=True)
        fingerprint, asked = model.fingerprint(), ("", "")
    index.build_index(vectors, cfg.index, cfg.index_effort).save(folder, texts, fingerprint, asked, **settings)


def _document_teacher(cfg: ConfigDict) -> Teacher:
    """The teacher as it fills an index of its own: of a document, at its own length, whatever the run read of a text."""
    source = cfg.teacher or cfg.start
    whole = open_teacher(source, 0, cfg.teacher_dtype, cfg.teacher_pooling, cfg.trust_remote_code)
    return whole.in_role("document") if whole.roles else whole


def _answers(cfg: ConfigDict, teacher: Teacher, texts: list[str]) -> np.ndarray:
    """Its vectors, float32 [N, D]: those that the steps have read are kept, where it read whole texts for them too; the rest is asked."""
    cache = teacher.cache(cache_folder(cfg))
    return ask(cache, texts, in_one_piece(teacher.answer), "vectors of the index", alone=True).read()
