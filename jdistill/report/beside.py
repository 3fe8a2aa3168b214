"""What a page, a card and a log call the model that stands beside a student."""

from __future__ import annotations


def model_beside(teacher: str | None) -> str:
    """ "teacher", or of a run without one "start", what its student began as.

    teacher: config.teacher; None: there is no config to tell by.
    """
    return "start" if teacher == "" else "teacher"
