"""A budget against what it bought: the export's weights on the disk and its time of a text, in the form that the budget is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jdistill.config.budget_keys import budget_form
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.export.folder import CHECKED_FORMS
from jdistill.export.form_size import weight_bytes
from jdistill.export.form_speed import opened_form
from jdistill.export.onnx_forms import INT8_GRAPH
from jdistill.export.targets import add_form
from jdistill.models.registry import ModelConfig
from jdistill.retrieval.index import TEACHER
from jdistill.run.student_candidates import single_text_ms, timing_texts
from jdistill.students.menu import MENU, SHAPE_KEYS, shape_in_words
from jdistill.teachers.embeddings import Teacher

PLACES = {  # of the forms in an export
    "onnx": "onnx/model.onnx",
    "onnx-int8": f"onnx/{INT8_GRAPH}",
    "sentence-transformers": ".",
    "torch-int8": "torch_int8",
}


def write_budget_form(cfg: ConfigDict, student: Encoder, folder: Path) -> None:
    """Adds the form that cfg.budget is about to an export, where it has not got it. One that strays from Flax is told and left out: the
    student is trained by now, and its other forms are right."""
    if "budget" not in cfg or (form := budget_form(cfg)) in CHECKED_FORMS:
        return
    try:
        add_form(student, folder, form)
    except UserError as error:
        log.warning("WARNING: the budget's form is left out: %s", error)


def budget_results(
    cfg: ConfigDict, model: Encoder, whole: ModelConfig, teacher: Teacher, export: Path
) -> dict[str, Any]:
    """What results.json says of a budget.

    Args:
      model: the exported student.
      whole: the sizes of the student's start.
      export: its folder.

    Returns: student (its shape in words), runtime, precision, promised (percent of the teacher's nDCG@10; None: nothing, as
      of a student that is not trained for search), asked and got (mb, ms, dim, where 0 asks for nothing; got None: the form was left
      out), kept: whether got is within asked.
    """
    budget = cfg.budget
    form = export / PLACES[budget_form(cfg)]
    got: dict[str, float | None] = {"mb": None, "ms": None, "dim": model.dim}
    if form.exists():
        got["mb"] = weight_bytes(form) / 1e6
        got["ms"] = single_text_ms(opened_form(model, form), timing_texts(cfg, teacher))
    asked = {"mb": budget.mb, "ms": budget.ms, "dim": budget.dim}
    kept = all(value is not None and value <= asked[key] for key, value in got.items() if key != "dim" and asked[key])
    shape = {key: cfg.student[key] for key in SHAPE_KEYS}
    shapes = MENU if cfg.index_by == TEACHER else ()  # as configs/search.py has it, by which the menu was measured
    promises = (of.promise(whole, cfg.student) for of in shapes if of.student_keys(whole) == shape)
    return {
        "student": shape_in_words(cfg.student),
        "runtime": budget.runtime,
        "precision": budget.precision,
        "promised": next(promises, None),
        "asked": asked,
        "got": got,
        "kept": kept and budget.dim in (0, model.dim),
    }


def budget_line(results: dict[str, Any]) -> str:
    """The budget against its result, as a log line; "" of a run without one."""
    if not (budget := results.get("budget")):
        return ""
    asked, got = budget["asked"], budget["got"]
    parts = [
        f"{'not to be had' if got[key] is None else f'{got[key]:.{digits}f} {unit}'}"
        + (f" of {asked[key]:g}" if asked[key] else "")
        for key, unit, digits in (("mb", "MB", 1), ("ms", "ms a text", 2))
    ]
    verdict = "kept" if budget["kept"] else "NOT kept"
    return f"budget {verdict} in {budget['runtime']} and {budget['precision']}: {', '.join(parts)}, {got['dim']} numbers a vector"
