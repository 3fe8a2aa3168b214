"""The one exception that means: the user's input, files or flags need a change, and here is which."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable


class UserError(Exception):
    """A mistake the user can mend. The message names the key, file, line or row, what was found and what to do."""


def exits_cleanly(command: Callable[..., int | None]) -> Callable[..., int]:
    """Wraps a command so that a UserError prints as one message, without a traceback, and exits with status 2."""

    @functools.wraps(command)
    def run(*args, **kwargs) -> int:
        try:
            return command(*args, **kwargs) or 0
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2

    return run


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its kind where it says nothing: a library's message within one of ours."""
    return next(iter(str(error).splitlines()), type(error).__name__)
