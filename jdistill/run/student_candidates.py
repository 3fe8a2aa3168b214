"""The students of the menu that a start can become: their sizes by shapes alone, their speed by untrained weights."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.text.stored_texts import LongTexts
from jdistill.data.text.text_pairs import PairSide, keep_pairs
from jdistill.data.text.text_sources import text_sources
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.evals.speed import Timed, pass_medians_ms
from jdistill.export.form_size import expected_bytes
from jdistill.export.form_speed import opened_form
from jdistill.export.targets import TARGETS
from jdistill.feeds.corpus import kept_texts_of, named_sources
from jdistill.feeds.parallel import PAIRS_KEY
from jdistill.feeds.tokens import cache_folder
from jdistill.models.registry import ModelConfig, count_parameters, parameter_shapes
from jdistill.students.menu import MENU, shape_in_words
from jdistill.students.shape import check_student
from jdistill.students.vocabulary import OF_TEXT, vocabulary_asked
from jdistill.teachers.embeddings import Teacher

TIMED_SINGLE_TEXTS, TIMED_PASSES = 100, 3
UNSTEADY = 2.0  # times as long as the fastest pass: what a machine without other work does not take


@dataclass(frozen=True)
class Candidate:
    """A student that a budget may choose.

    Args:
      keys: SHAPE_KEYS of cfg.student.
      config: its sizes, with its start's whole vocabulary.
      num_params: of it, with the vocabulary that it will have.
      mb: megabytes of its weights in the budget's form.
      retention: what the menu promises, Shape.promise.
    """

    keys: dict[str, int]
    config: ModelConfig
    num_params: int
    mb: float
    retention: float | None

    def __str__(self) -> str:
        return shape_in_words(ConfigDict(self.keys))


def menu_candidates(cfg: ConfigDict, start: Encoder, form: str) -> list[Candidate]:
    """The students of the menu that the start can become, each architecture once: the largest first or, where all have a measured quality,
    the best. Raises the UserError of the last where there is none."""
    refused: UserError | None = None
    by_config: dict[ModelConfig, Candidate] = {}
    for shape in MENU:
        changed, keys = cfg.copy_and_resolve_references(), shape.student_keys(start.config)
        changed.student.update(keys)
        try:
            config = check_student(changed, start)
        except UserError as error:
            refused = error
            continue
        by_config.setdefault(config, _candidate(cfg, shape.promise(start.config, cfg.student), keys, config, form))
    if not by_config:
        raise refused or UserError("the menu of budgets is empty")
    menu = list(by_config.values())
    measured = all(candidate.retention is not None for candidate in menu)
    return sorted(menu, key=lambda it: (it.retention if measured else 0.0, it.num_params), reverse=True)


def _candidate(
    cfg: ConfigDict, promise: float | None, keys: dict[str, int], config: ModelConfig, form: str
) -> Candidate:
    asked, cut = vocabulary_asked(cfg), config
    if asked and asked != OF_TEXT:  # what the text uses is known when it has been read: at most the whole
        changes: dict[str, Any] = {"vocab_size": min(config.vocab_size, int(asked))}
        cut = replace(config, **changes)
    return Candidate(keys, config, count_parameters(cut), expected_bytes(form, cut) / 1e6, promise)


def timing_texts(cfg: ConfigDict, teacher: Teacher) -> list[str]:
    """Texts that a form's speed is measured on, spread over a source: of the queries, which are what a search waits for, if there are any; of
    a run of parallel text alone its sources. Raises UserError where there is no text."""
    sources = sorted(named_sources(cfg), key=lambda source: source.role != "query")
    if sources:
        return _spread(kept_texts_of(cfg, sources[0]).texts)
    if teacher.texts is not None and (texts := list(islice(teacher.texts, TIMED_SINGLE_TEXTS))):
        return texts
    if cfg.text_pairs:
        pairs = text_sources(cfg.text_pairs, PAIRS_KEY)[0]
        return _spread(PairSide(keep_pairs(pairs.path, PAIRS_KEY, cache_folder(cfg) / "texts").texts, "source"))
    raise UserError(
        "a budget times students on the run's own text, and there is none: name --config.text, --config.pairs or --config.text_pairs"
    )


def _spread(texts: LongTexts) -> list[str]:
    """TIMED_SINGLE_TEXTS of them, from the first to the last."""
    return list(texts.take(np.unique(np.linspace(0, len(texts) - 1, TIMED_SINGLE_TEXTS).astype(np.int64))))


def timed_ms(start: Encoder, config: ModelConfig, form: str, texts: Sequence[str]) -> float:
    """Median milliseconds of a text in a form of an untrained model.

    Args:
      start: whose tokenizer, pooling and length it has.
      config: its sizes.
      form: of export.targets.
    """
    model = untrained(start, config)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_files(model, folder)
        write_weights(model, folder)
        return single_text_ms(opened_form(model, TARGETS[form].write(model, folder, ())), texts)


def single_text_ms(encoder: Timed, texts: Sequence[str]) -> float:
    """Milliseconds of one text, the median over passes of the median over texts; told where the passes differ much."""
    passes = pass_medians_ms(encoder, texts, TIMED_PASSES)
    if max(passes) > UNSTEADY * min(passes):
        log.warning(
            "WARNING: the same texts took %.2f to %.2f ms each: other work is going on here, and a budget's time is told on a quiet machine",
            min(passes),
            max(passes),
        )
    return float(np.median(passes))


def untrained(start: Encoder, config: ModelConfig) -> Encoder:
    """A model of these sizes with random weights, which reads and pools as the start does."""
    rng = np.random.default_rng(0)
    params = {
        path: np.ones(shape, np.float32) if path.endswith("scale") else 0.02 * rng.standard_normal(shape, np.float32)
        for path, shape in parameter_shapes(config).items()
    }
    return replace(
        start, config=config, params=unflatten_dict(params, sep="/"), dense=(), dense_activations=(), source=""
    )
