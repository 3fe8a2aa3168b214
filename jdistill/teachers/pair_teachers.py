"""Who scores pairs of a query and a passage for a student to imitate: a classifier of pairs, a judge, a cross-encoder, an encoder's
cosine; asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.json_files import read_settings
from jdistill.core.mapped import slices_of
from jdistill.data.sets.pairs import POSITIVE_LABELS
from jdistill.encoder import loading
from jdistill.encoder.classifier import load_classifier
from jdistill.encoder.cross_encoder import load_cross_encoder
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.interaction import read_interaction
from jdistill.encoder.formats.peft import with_adapter
from jdistill.encoder.text_lists import distinct_texts
from jdistill.models.interaction import INTERACTIONS
from jdistill.teachers.cache import AnswerCache, in_one_piece
from jdistill.teachers.fill import ask
from jdistill.teachers.judge import ASYMMETRIC, judge_of
from jdistill.teachers.judge_scores import Scores, logits_at
from jdistill.teachers.pair_keys import pair_keys, pairs_of_keys

PAIRS_AT_ONCE = 512  # that are asked for together; what a killed scoring loses at most
# What a folder of a cross-encoder calls itself in config.json.
CROSS_ENCODER = "ForSequenceClassification"
COSINE = "cosine:"  # before an encoder, whose cosine of query and passage is the score

# queries, passages (N each), the cache folder -> scores float32 [N], higher where they belong together
PairScores = Callable[[Sequence[str], Sequence[str], Path], np.ndarray]


@dataclass(frozen=True)
class PairTeacher:
    """Whatever scores pairs.

    Args:
      source: as the command names it.
      scores: its scores, from the cache where that has them.
      is_judge: whether it is a decoder that answers in words.
    """

    source: str
    scores: PairScores
    is_judge: bool = False


def open_pair_teacher(source: str, key: str = "score_by", adapter: str = "") -> PairTeacher:
    """A scorer of pairs by its source.

    Args:
      source: a folder of a classifier of pairs as jdistill exports it; a cross-encoder, ...ForSequenceClassification by its config.json, or
        `st:SOURCE` for whatever sentence-transformers' CrossEncoder loads (torch extra); `cosine:SOURCE`, an encoder of texts; a decoder,
        which is asked as D2LLM's judge of questions is.
      key: what error messages call it.
      adapter: a LoRA folder that tuned the decoder; "": none.

    Raises: UserError for what cannot be read, and what scores no pairs.
    """
    if source.startswith("st:"):
        return _cross_encoder(source, source.removeprefix("st:"), key)
    if source.startswith(COSINE):
        return _cosine(source, key)
    folder = loading.folder_of(source, key)
    if (folder / "head.json").is_file():
        return _classifier(source, key)
    if folder.is_dir() and _calls_itself_cross_encoder(folder):
        return _cross_encoder(source, source, key)
    if folder.is_dir() and read_interaction(folder, INTERACTIONS) is not None:
        raise UserError(
            f"--{key}={source} is a student with an interaction module, made of a judge's scores: name the judge"
        )
    return _judge(source, key, adapter)


def open_pair_teachers(sources: Sequence[str], key: str = "score_by", adapter: str = "") -> list[PairTeacher]:
    """Several scorers of pairs; arguments and errors as of open_pair_teacher. Raises UserError too for an adapter that fits none of them."""
    teachers = [open_pair_teacher(source, key, adapter) for source in sources]
    if adapter and not any(teacher.is_judge for teacher in teachers):
        raise UserError(f"--judge_adapter={adapter} tunes a decoder, and --{key}={' '.join(sources)} names none")
    return teachers


def _calls_itself_cross_encoder(folder: Path) -> bool:
    architectures = read_settings(folder / "config.json", optional=True).raw("architectures", [])
    return isinstance(architectures, list) and any(str(name).endswith(CROSS_ENCODER) for name in architectures)


def _classifier(source: str, key: str) -> PairTeacher:
    model = load_classifier(source, key)
    if not model.pairs:
        raise UserError(f"--{key}={source} classifies single texts; pairs of a query and a passage are to be scored")
    positive = _positive_label(model.labels, source, key)

    def score(queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        return log_odds(model.logits(queries, passages), positive)

    return PairTeacher(source, partial(_once, source, model.fingerprint(), score))


def _cross_encoder(source: str, place: str, key: str) -> PairTeacher:
    model = load_cross_encoder(place, key)
    positive = _positive_label(model.labels, source, key) if len(model.labels) > 1 else 0

    def score(queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        return log_odds(model.logits(queries, passages), positive)

    return PairTeacher(source, partial(_once, source, model.fingerprint(), score))


def _cosine(source: str, key: str) -> PairTeacher:
    model = loading.load(source.removeprefix(COSINE), key=key)
    sides = [replace(model.in_role(role), normalize=True) for role in ("query", "document")]

    def scores(queries: Sequence[str], passages: Sequence[str], folder: Path) -> np.ndarray:
        asked = zip(sides, (queries, passages), strict=True)
        vectors = [_vectors(source, encoder, texts, folder) for encoder, texts in asked]
        cosines = np.zeros(len(queries), np.float32)
        for block in slices_of(len(queries), PAIRS_AT_ONCE):
            cosines[block] = np.einsum("nd,nd->n", *(of_side(block) for of_side in vectors))
        return cosines

    return PairTeacher(source, scores)


def _vectors(source: str, encoder: Encoder, texts: Sequence[str], folder: Path) -> Callable[[slice], np.ndarray]:
    """What gives the vectors of some of the texts, float32 [n, dim]. They are kept by text, and a text that comes again is asked once."""
    distinct, rows = distinct_texts(texts)
    place = folder / "teacher" / encoder.fingerprint()
    cache = AnswerCache(place, encoder.dim, about={"teacher": source}, writer=sharding.process_index())
    answered = ask(cache, distinct, in_one_piece(encoder.encode), "vectors of pairs", alone=True)
    return lambda block: answered.read(rows[block])


def _judge(source: str, key: str, adapter: str) -> PairTeacher:
    model = loading.load(source, key=key)
    if not model.config.causal:
        raise UserError(
            f"--{key}={source} is a {model.config.model_type} that reads one text: what scores pairs is a classifier of pairs (head.json), a "
            f"cross-encoder ({CROSS_ENCODER}, or st:SOURCE) or a decoder; {COSINE}{source} takes the cosine of its vectors"
        )
    judge = judge_of(with_adapter(model, adapter), key, template=ASYMMETRIC)

    def scores(queries: Sequence[str], passages: Sequence[str], folder: Path) -> np.ndarray:
        return logits_at(Scores(judge, folder).ask(queries, passages, alone=True))

    return PairTeacher(source, scores, is_judge=True)


def _once(
    source: str,
    fingerprint: str,
    score: Callable[[Sequence[str], Sequence[str]], np.ndarray],
    queries: Sequence[str],
    passages: Sequence[str],
    folder: Path,
) -> np.ndarray:
    """What `score` says of pairs, kept by content; what is not in the cache is asked."""
    about: dict[str, object] = {"scored by": source}
    cache = AnswerCache(folder / "pairs" / fingerprint, 1, about=about, writer=sharding.process_index())
    answer = in_one_piece(lambda asked: score(*pairs_of_keys(asked))[:, None])
    return ask(cache, pair_keys(queries, passages), answer, "scored pairs", PAIRS_AT_ONCE, alone=True).read()[:, 0]


def _positive_label(labels: Sequence[str], source: str, key: str) -> int:
    """Which label says that two texts belong together. Raises UserError where none does, or several."""
    which = [i for i, label in enumerate(labels) if label.lower() in POSITIVE_LABELS]
    if len(which) != 1:
        raise UserError(
            f"--{key}={source} tells {', '.join(labels)} apart, of which {'several' if which else 'none'} says that a passage belongs to a "
            f"query; that are {', '.join(POSITIVE_LABELS)}"
        )
    return which[0]


def log_odds(logits: np.ndarray, positive: int) -> np.ndarray:
    """The logarithm of a label's odds against all others; of a single output that itself.

    Args:
      logits: float32 [N, C].
      positive: the label's column.

    Returns: float32 [N].
    """
    others = np.delete(logits, positive, axis=1)
    return logits[:, positive] - (np.logaddexp.reduce(others, axis=1) if others.shape[1] else 0.0)


def averaged_scores(
    teachers: Sequence[PairTeacher], queries: Sequence[str], passages: Sequence[str], folder: Path
) -> np.ndarray:
    """The scores of pairs by one teacher as it gives them, or by several: the mean of theirs, each standardised over all its scores.

    Args:
      teachers: one or more.
      queries, passages: N strings each.
      folder: of the cache.

    Returns: float32 [N].

    Raises: UserError for one of several teachers that gives all pairs the same score.
    """
    scores = [teacher.scores(queries, passages, folder).astype(np.float64) for teacher in teachers]
    if len(scores) > 1:
        for i, (teacher, of_teacher) in enumerate(zip(teachers, scores, strict=True)):
            deviation = of_teacher.std()
            if not deviation > 0:
                raise UserError(
                    f"{teacher.source} gives all {len(queries)} pairs the score {of_teacher[0]:g}: it tells nothing apart"
                )
            scores[i] = (of_teacher - of_teacher.mean()) / deviation
    return np.mean(scores, axis=0).astype(np.float32)
