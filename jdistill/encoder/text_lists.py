"""Texts as callers from Python give them, held as a list; what is no text is refused by its row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from jdistill.core.errors import UserError


def text_list(texts: Iterable[str], name: str = "texts") -> list[str]:
    """The texts as a list, also those of a generator, which can be read once.

    Args:
      name: of the argument, for messages.

    Raises: UserError for one string, whose letters would be the texts.
    """
    if isinstance(texts, str):
        raise UserError(f"{name} is one string, {texts[:60]!r}: give a list of them, [text]")
    return list(texts)


def distinct_texts(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The texts without their repetitions, in the order given, and of each of the N the row of it there, int64 [N]."""
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    return list(row_of), np.array([row_of[text] for text in texts], np.int64)


def checked_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """As text_list. Raises UserError, too, naming the row of a text that is not a string or cannot be written in UTF-8."""
    listed, of = text_list(texts, name), "" if name == "texts" else f" of {name}"
    for row, text in enumerate(listed):
        if not isinstance(text, str):
            raise UserError(f"text {row}{of} is {type(text).__name__}, not a string")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise UserError(f"text {row}{of} holds a lone surrogate (broken Unicode): {text[:60]!r}") from None
    return listed
