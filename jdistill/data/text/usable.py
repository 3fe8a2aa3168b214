"""Which texts of a source can be used, and the count of those that cannot."""

from __future__ import annotations

from dataclasses import dataclass, field

from jdistill.core.errors import UserError
from jdistill.core.progress import log

BYTE_ORDER_MARK = "\ufeff"
MAX_CHARS = 100_000  # a longer text is a broken file, not a sentence


@dataclass(frozen=True)
class FlawedRow:
    """A row that its reader has found fault with. reason: why it cannot be used, in a word or two."""

    reason: str


SURPLUS_CELLS = FlawedRow("with more cells than columns")  # a comma within a text that has no quotes, in a .csv


def usable(row: str | bytes | FlawedRow | None) -> tuple[str, str]:
    """A row's text, stripped, and why it cannot be used, in a word or two: "" for one that can.

    Args:
      row: a string, bytes to be decoded, a fault that is known already, or None: too long for the reader.
    """
    if isinstance(row, FlawedRow):
        return "", row.reason
    if row is None or len(row) > 4 * MAX_CHARS:
        return "", "too long"
    if not row:
        return "", "empty"
    if isinstance(row, bytes):
        try:
            row = row.decode()
        except UnicodeDecodeError:
            return "", "with invalid UTF-8"
    text = row.strip()
    if text[:1] == BYTE_ORDER_MARK:  # of a file that was put behind another
        text = text.lstrip(BYTE_ORDER_MARK).strip()
    return text, flaw_of(text)


def flaw_of(text: str) -> str:
    """Why a stripped text cannot be used, in a word or two; empty for one that can."""
    if not text:
        return "blank"
    if len(text) > MAX_CHARS:
        return "too long"
    if "\0" in text:
        return "with NUL"
    return "with a lone surrogate" if not text.isascii() and has_surrogate(text) else ""


def has_surrogate(text: str) -> bool:
    """Whether a text holds half of a character, as JSON's \\ud800 is one: it cannot be written in UTF-8, and no tokenizer takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@dataclass
class Skipped:
    """Rows left out, by reason, the reason that came first first.

    Args:
      counts: how many.
      first: where the first was.
    """

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    _after: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, where: str, after: int, count: int = 1) -> None:
        """Counts rows.

        Args:
          where: the first of them is.
          after: texts that came before it, by which reasons are ordered.
        """
        if reason in self.counts:
            self.counts[reason] += count
            return
        self._after[reason] = after
        self.counts[reason], self.first[reason] = count, where
        if any(after < other for other in self._after.values()):  # told after all rows were read
            order = sorted(self.counts, key=lambda name: (self._after[name], name == reason))
            self.counts = {name: self.counts[name] for name in order}
            self.first = {name: self.first[name] for name in order}

    def refuse_none(self, source: str, key: str, count: int) -> None:
        """Raises UserError for a source of which no text was kept.

        Args:
          key: the config key or flag that names the source.
          count: texts that were kept.
        """
        if not count:
            fault = f"skipped {self.words()}" if self.counts else "it is empty"
            raise UserError(f"--{key}={source} holds no usable text: {fault}")

    def warn(self, source: str) -> None:
        """Logs what a source's reading left out, if anything."""
        if self.counts:
            log.warning("%s: skipped %s", source, self.words())

    def tell(self, source: str, key: str, count: int) -> None:
        """Both, as refuse_none has them."""
        self.refuse_none(source, key, count)
        self.warn(source)

    def words(self) -> str:
        """How many for which reason, and where each was met first; "" where nothing was left out."""
        return ", ".join(f"{count} {reason} (first: {self.first[reason]})" for reason, count in self.counts.items())
