"""What the value of a config key may be: a rule has its words and its test, and says what is wrong with a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from jdistill.core.json_files import INT32_LARGEST

FLOAT32_LARGEST, FLOAT32_SMALLEST = 3.4028234e38, 1.1754944e-38  # what lies beyond is infinite or 0 in a step


@dataclass(frozen=True)
class Rule:
    """says: what a value is to be, in words that follow "must be", or what gives them, where a registry may grow. kinds: its types.
    fits: whether a value of such a type is allowed."""

    says: str | Callable[[], str]
    kinds: tuple[type, ...]
    fits: Callable[[Any], bool]

    @property
    def must(self) -> str:
        """The words."""
        return self.says if isinstance(self.says, str) else self.says()

    def fault(self, value: Any) -> str:
        """ "must be …" for a value that is not allowed, "" for one that is. A bool is no number."""
        if type(value) not in self.kinds:
            return f"must be {self.must}, and is of type {type(value).__name__}"
        if self.fits(value):
            return ""
        return f"must be {self.must}{_in_float32(value) if float in self.kinds else ''}"


def _in_float32(value: float) -> str:
    if 0 < abs(value) < FLOAT32_SMALLEST:
        return ", and is 0 in float32"
    return ", and is infinite in float32" if FLOAT32_LARGEST < abs(value) < float("inf") else ""


def _number(must: str, fits: Callable[[float], bool]) -> Rule:
    """Of float keys; whole numbers will do. NaN, infinity and what float32 cannot hold are refused."""

    def held(value: float) -> bool:
        return value == 0 or FLOAT32_SMALLEST <= abs(value) <= FLOAT32_LARGEST

    return Rule(must, (float, int), lambda value: held(value) and fits(value))


def at_least(low: float) -> Rule:
    """A number, `low` or more."""
    return _number(f"a number, {low:g} or more", lambda value: value >= low)


def above(low: float) -> Rule:
    """A number above `low`."""
    return _number(f"a number above {low:g}", lambda value: value > low)


def between(low: float, high: float) -> Rule:
    """A number from `low` to `high`, both ends allowed."""
    return _number(f"a number from {low:g} to {high:g}", lambda value: low <= value <= high)


def below(low: float, high: float) -> Rule:
    """A number from `low`, which is allowed, to below `high`."""
    return _number(f"a number from {low:g} to below {high:g}", lambda value: low <= value < high)


def share() -> Rule:
    """A number above 0, up to 1."""
    return _number("a number above 0, up to 1", lambda value: 0 < value <= 1)


def whole_number(low: int, high: int = INT32_LARGEST) -> Rule:
    """A whole number from `low` to `high`."""
    bounds = f", {low} or more" if high == INT32_LARGEST else f" from {low} to {high}"
    return Rule(f"a whole number{bounds}", (int,), lambda value: low <= value <= high)


def zero_or_whole(low: int) -> Rule:
    """For keys whose 0 stands for something else."""
    return Rule(
        f"0, or a whole number of {low} or more", (int,), lambda value: value == 0 or low <= value <= INT32_LARGEST
    )


def size_or_own() -> Rule:
    """A width, where -1 and 0 stand for the start's own and the layers'."""
    return Rule("-1 (the start's own), 0 (the layers') or a width", (int,), lambda value: -1 <= value <= INT32_LARGEST)


def neurons_or_width() -> Rule:
    """A number of inner neurons, where -1, -2 and 0 stand for the layers' width, half as many again and the start's own number."""
    return Rule(
        "-2 (one and a half times the layers' width), -1 (their width), 0 (the start's own) or a number",
        (int,),
        lambda value: -2 <= value <= INT32_LARGEST,
    )


def vocabulary_size() -> Rule:
    """Empty, "text", or a whole number above 0, written out."""

    def fits(value: str) -> bool:
        return value in ("", "text") or (value.isascii() and value.isdecimal() and 0 < int(value) <= INT32_LARGEST)

    return Rule("empty (the start's own), text (what the text uses) or a whole number of pieces", (str,), fits)


def flag() -> Rule:
    """True or False."""
    return Rule("True or False", (bool,), lambda value: True)


def text() -> Rule:
    """Empty is allowed; what no file name may hold is not."""
    return Rule("text without a null character", (str,), lambda value: "\0" not in value)


def commit() -> Rule:
    """Empty, a commit of git, or a digest of files."""
    must = "empty, a commit (40 hexadecimal digits) or a digest of code (32)"
    return Rule(must, (str,), lambda value: re.fullmatch("|[0-9a-f]{40}|[0-9a-f]{32}", value) is not None)


def named() -> Rule:
    """A text that is not blank."""
    return Rule("a name, not empty", (str,), lambda value: bool(value.strip()) and "\0" not in value)


def pattern() -> Rule:
    """A regular expression."""

    def compiles(value: str) -> bool:
        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError):
            return False
        return bool(value)

    return Rule("a regular expression that Python reads, not empty", (str,), compiles)


def template(*placeholders: str) -> Rule:
    """A text with each of the places once."""
    must = f"text that holds {' and '.join(placeholders)} once each"
    return Rule(must, (str,), lambda value: all(value.count(placeholder) == 1 for placeholder in placeholders))


def one_of(names: Iterable[str], or_empty: bool = False) -> Rule:
    """One of these names, of a registry with those that it has by then; or_empty: or ""."""
    allowed: Collection[str] = names if isinstance(names, dict) else tuple(names)

    def must() -> str:
        return f"one of {', '.join(allowed)}{', or empty' if or_empty else ''}"

    return Rule(must, (str,), lambda value: value in allowed or (or_empty and not value))
