"""Roles: what a teacher is asked as, and a student reads as, where the sources of the text say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.batching.batches import TokenTable
from jdistill.data.text.stored_texts import JoinedTexts, PromptedTexts, take_texts
from jdistill.data.text.text_sources import TextSource, text_sources
from jdistill.encoder.batch_ids import room_beside
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.corpus import Corpus, named_sources
from jdistill.feeds.tokens import tokens_of
from jdistill.teachers.embeddings import Teacher


def check_roles(cfg: ConfigDict, teacher: Teacher, start: Encoder) -> Encoder:
    """Looks whether teacher and start can read the roles of config.text, config.pairs and config.text_pairs, before a text is read.

    Returns: the start, whose prompts of these roles have the roles' own names, by which sentence-transformers chooses them.

    Raises: UserError for sources that named_sources and text_sources refuse, a teacher that answers texts as they are, a role of texts
      that are that teacher's own and would be read without its prompt, and a prompt that leaves a text no token.
    """
    sources = [of for of in (*named_sources(cfg), *text_sources(cfg.text_pairs, "config.text_pairs")) if of.role]
    for role in dict.fromkeys(of.role for of in sources):
        of_role = next(of for of in sources if of.role == role)
        asked, read = teacher.in_role(role), start.in_role(role)
        room = room_beside(read.tokenizer, read.prompt_text(), read.max_length)
        _check(cfg, of_role, f"the teacher {teacher.source}", asked.prompt, asked.room, teacher.has_prompts)
        _check(cfg, of_role, "the student", read.prompt_text(), room, bool(start.prompts))
        if read.default_prompt is not None:
            start = replace(start, prompts=start.prompts | {role: read.prompt_text()})
    own_texts = teacher.texts is not None and not named_sources(cfg)
    prompt = start.in_role(cfg.text_role).prompt_text() if cfg.text_role and own_texts else ""
    if prompt and prompt != start.prompt_text():
        raise UserError(
            f"--config.text_role={cfg.text_role}: the texts are those of {teacher.source}, which have no role, so the student would read them "
            f"without its prompt {prompt[:60]!r}; leave the key empty to train so"
        )
    return start


def _check(cfg: ConfigDict, source: TextSource, who: str, prompt: str, room: int | None, has_prompts: bool) -> None:
    if not prompt and has_prompts:
        log.warning(
            "--%s=%s: %s has prompts, but none for a %s: read without one", source.key, source, who, source.role
        )
    if prompt and room is not None and room < 1:
        raise UserError(
            f"--{source.key}={source}: the {source.role} prompt of {who}, {prompt[:60]!r}, leaves no token of --config.max_length="
            f"{cfg.max_length} to a text; raise it"
        )


def corpus_tokens(cfg: ConfigDict, student: Encoder, corpus: Corpus, rows: np.ndarray | None = None) -> TokenTable:
    """The training texts as the student reads them, each by the prompt of its role. rows: of them, int64 [n]; None: all."""
    texts: Sequence[str] = corpus.train
    if any(role for role, _, _ in corpus.role_rows()):
        parts = [
            PromptedTexts(texts[start:stop], student.in_role(role).prompt_text())
            for role, start, stop in corpus.role_rows()
        ]
        texts, student = JoinedTexts(parts), replace(student, default_prompt=None)
    return tokens_of(cfg, student, texts if rows is None else take_texts(texts, rows))


def held_out_vectors(model: Encoder, corpus: Corpus) -> np.ndarray:
    """The vectors of the held-out texts, each by the prompt of its role: float32 [N, dim]."""
    parts = [
        model.in_role(role).encode(corpus.held_out[start:stop]) for role, start, stop in corpus.role_rows(held_out=True)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
