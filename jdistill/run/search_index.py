"""The index that jdistill.search answers from: of the run's texts by its student, or by the teacher whose space the student shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.evals.shared_space import ALIGNED, HOW_TO_ALIGN
from jdistill.feeds.stage import Stage
from jdistill.feeds.teacher_index import document_answers, document_teacher
from jdistill.retrieval.index import STUDENT, TEACHER, build_index
from jdistill.teachers.embeddings import Teacher

if TYPE_CHECKING:
    from jdistill.run.stages import Run, Trained

# Keys that an index goes by; of judged pairs it holds the passages of the first test_pairs.
OF_INDEX = ("index", "index_effort", "index_texts", "index_by", "test_pairs")


def check_index_owner(cfg: ConfigDict, last: Stage) -> None:
    """Raises UserError for an index by the teacher, of the run's texts or of cfg.dev_retrieval, that the student of a run's last stage could
    not ask."""
    if cfg.index_by == TEACHER and (cfg.index_texts or cfg.dev_retrieval) and not last.aligned:
        raise UserError(
            f"--config.index_by={TEACHER}: a student by --config.method={cfg.method} with these keys does not stand in its teacher's space, so "
            f"its queries cannot ask the teacher's index: {HOW_TO_ALIGN}; or set --config.index_by={STUDENT}"
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
    settings = {key: cfg[key] for key in OF_INDEX if key in cfg}
    if cfg.index_by == TEACHER:
        teacher = document_teacher(cfg)
        vectors = document_answers(cfg, teacher, texts, "vectors of the index", alone=True)
        fingerprint, asked = teacher.fingerprint, (model.fingerprint(), teacher.source)
    else:
        vectors = model.encode(texts, prompt=model.prompt_for("document"), show_progress=True)
        fingerprint, asked = model.fingerprint(), ("", "")
    build_index(vectors, cfg.index, cfg.index_effort).save(folder, texts, fingerprint, asked, **settings)
