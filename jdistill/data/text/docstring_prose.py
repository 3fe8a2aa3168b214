"""Sentences of prose out of docstrings, whose other text is reST, doctests, tables and code."""

from __future__ import annotations

import re
from collections.abc import Iterator

SHORTEST_SENTENCE, LONGEST_SENTENCE = 15, 300  # of a sentence

DIRECTIVE = re.compile(r"\.\. ")
KEPT_DIRECTIVE = re.compile(r"\.\. (note|warning|seealso|tip|important|caution|impl-detail)::\s*")
BULLET = re.compile(r"(?:[*+•-]|\(?(?:\d{1,2}|[a-zA-Z])[.)])\s+(?=\S)")
CELL = re.compile(r"\S+(?: \S+){0,2}(?<![.,:;!?])(?:\s{2,}|\s+--+\s+)(?=\S)")
RULE = re.compile(r"[-=~*#^+_|.: ]{3,}$")
CODE = re.compile(r">>>|::|->|==|[{}<>|\\]|\w\(.*=.*\)|\w = |^@|^\w[\w.]*\(.*\)$|\$\w|^Source code:")
MARKUP = (
    (re.compile(r":[a-zA-Z:]+:`~?!?([^`<]+?)(\s*<[^>`]*>)?`"), r"\1"),  # :func:`name`, :ref:`title <target>`
    (re.compile(r"`([^`<>]+?)\s*<[^>`]*>`_{1,2}"), r"\1"),
    (re.compile(r"``([^`]+)``"), r"\1"),
    (re.compile(r"`([^`']+)[`']_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*])\*{1,2}(?=[^\s*])([^*]*?[^\s*])\*{1,2}(?![\w*])"), r"\1"),  # *argument*, **strong**
    (re.compile(r'""(?! )([^"]+)""'), r'"\1"'),
    (re.compile(r"\s*\[\d+\]_?"), ""),
    (re.compile(r"[“”]"), '"'),
    (re.compile(r"[‘’]"), "'"),
)
# A full stop ends a sentence where a capital, a quote or an identifier follows, but not after these.
BOUNDARY = re.compile(r"""(?<=[.!?])(?:["')\]]{0,2})\s+(?=["'(\[]?[A-Z0-9_]|["'][a-z]|[a-z_]+(?:\(\)|\.\w|_\w)|--)""")
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|viz|approx|resp|incl|Mr|Mrs|Dr|St|No|no|Fig|Sec|sec|Vol|vol|"
    r"pp|ed|al|Inc|Jr|[A-Z])|\.\.)\.[)\"']?$"
)


def prose_sentences(text: str) -> list[str]:
    """The sentences of a docstring: lines unwrapped, without code, tables, signatures, headings and reST markup."""
    kept = []
    for first, paragraph in enumerate(_paragraphs(text)):
        sentences = list(_split(_plain(paragraph)))
        kept += [sentence for sentence in sentences if _reads_well(sentence, whole=first == 0 and len(sentences) == 1)]
    return kept


def _paragraphs(text: str) -> Iterator[str]:
    """Runs of prose lines, joined, without doctests, directives and what lies deeper than a line ending in ::"""
    hidden: int | None = None  # what lies deeper than this indent is code
    for block in re.split(r"\n[ \t]*\n", text.expandtabs()):
        lines = [(len(line) - len(line.lstrip()), line.strip()) for line in block.split("\n") if line.strip()]
        run = _Run()
        for i, (depth, line) in enumerate(lines):
            if hidden is not None and depth > hidden:
                continue
            hidden = None
            if line.startswith((">>>", "$ ")) or "::=" in line:
                break  # a doctest or grammar goes on to the blank line
            if DIRECTIVE.match(line):
                yield from run.ended()
                kept = KEPT_DIRECTIVE.match(line)
                if not kept:
                    hidden = depth
                    continue
                line = line[kept.end() :]
            heading = i + 1 < len(lines) and RULE.match(lines[i + 1][1]) and lines[i + 1][0] == depth
            if heading or RULE.match(line):
                yield from run.ended()
                continue
            marker = BULLET.match(line)
            cell = None if marker else CELL.match(line)
            if cell and not run.holds(depth):  # a row of a list in two columns: the right one says something
                marker = cell
            if marker or not run.continues(depth):
                yield from run.ended()
                run = _Run(depth + marker.end() if marker else depth)
                line = line[marker.end() :] if marker else line
            if line.endswith("::"):
                hidden, line = depth, line[:-1]
            run.add(depth, line)
        yield from run.ended()


class _Run:
    """Lines of one paragraph so far. depth: the indent that its next lines are expected to have."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.lines: list[str] = []

    def holds(self, depth: int) -> bool:
        return len(self.lines) > 1 and depth == self.depth

    def continues(self, depth: int) -> bool:
        if not self.lines or depth == self.depth:
            return bool(self.lines)
        # A hanging indent after one full line; a short line is a term with its explanation below.
        first = self.lines[0]
        return len(self.lines) == 1 and depth > self.depth and len(first) > 45 and not first.endswith((".", ":"))

    def add(self, depth: int, line: str) -> None:
        if len(self.lines) == 1 and depth > self.depth:
            self.depth = depth
        self.lines.append(line)

    def ended(self) -> Iterator[str]:
        if self.lines:
            yield re.sub(r"(?<=\w-)\n(?=\w)", "", "\n".join(self.lines))  # a compound word broken at its hyphen
        self.lines = []


def _plain(paragraph: str) -> str:
    for pattern, text in MARKUP:
        paragraph = pattern.sub(text, paragraph)
    return " ".join(paragraph.split())


def _split(paragraph: str) -> Iterator[str]:
    start = 0
    for match in BOUNDARY.finditer(paragraph):
        if not ABBREVIATION.search(paragraph, start, match.start()):
            yield paragraph[start : match.start()]
            start = match.end()
    yield paragraph[start:]


def _reads_well(sentence: str, whole: bool) -> bool:
    """Whether this reads like a sentence: begun with a capital, ended, mostly letters, four words or more.

    whole: it is all of a docstring's first paragraph; only such a summary may lack its full stop.
    """
    if (
        not SHORTEST_SENTENCE <= len(sentence) <= LONGEST_SENTENCE
        or CODE.search(sentence)
        or sentence.endswith(("e.g.", "i.e."))
    ):
        return False
    words = re.findall(r"[A-Za-z][a-z']+", sentence)
    letters = len(re.sub(r"[^A-Za-z ]", "", sentence))
    ended = sentence.rstrip("\"')]").endswith((".", "!", "?"))
    prose = len(words) >= 4 and letters >= 0.85 * len(sentence) and sentence[0].isupper()
    return prose and (ended or (whole and sentence[-1].isalnum()))
