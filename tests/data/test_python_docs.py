"""python-docs: what comes out of real docstrings, and how a docstring is cut into sentences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jdistill.data.text.docstring_prose import prose_sentences
from jdistill.data.text.python_docs import python_docs


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    return python_docs()


def test_about_twelve_thousand_distinct_sentences(sentences: list[str]) -> None:
    assert 10_000 < len(sentences) < 16_000
    assert len(set(sentences)) == len(sentences)
    assert all(15 <= len(sentence) <= 300 and sentence == " ".join(sentence.split()) for sentence in sentences)


def test_what_a_user_would_ask_for_is_there(sentences: list[str]) -> None:
    found = set(sentences)
    assert "Recursively copy a directory tree and return the destination directory." in found  # shutil.copytree
    assert (
        "An assignment statement evaluates the expression list (remember that this can be a single expression or a "
        "comma-separated list, the latter yielding a tuple) and assigns the single resulting object to each of the "
        "target lists, from left to right."
    ) in found  # pydoc_data.topics
    assert "Return the cosine of x (measured in radians)." in found  # math, written in C


def test_they_read_like_sentences(sentences: list[str]) -> None:
    assert sum(sentence.endswith((".", "!", "?", ")", '"')) for sentence in sentences) > 0.95 * len(sentences)
    for left_over in (">>>", "``", ":func:", "::", "\n", "  "):
        assert sum(left_over in sentence for sentence in sentences) <= 3, left_over


def test_the_same_in_another_process(sentences: list[str]) -> None:
    # With the log as commands have it, which puts a function of ours into the sys module, where this process may have none.
    code = (
        "from jdistill.core.progress import setup_logging; setup_logging()\n"
        "from jdistill.data.text.python_docs import python_docs; print(*python_docs(), sep='\\n')"
    )
    env = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONIOENCODING": "utf-8"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env=env,
        cwd=Path(__file__).parents[2],
    )
    assert ran.stdout.splitlines() == sentences


def test_code_markup_and_signatures_are_left_out() -> None:
    assert prose_sentences("""copy(src, dst, *, follow=True) -> path

Copy :func:`~shutil.copy` files, i.e. their *data* and ``mode`` bits,
from one place to another. If `dst` exists
it is over-
written. See also
e.g. the topic of links.

Options
-------
follow   The links are followed where this is true.
broken -- What is done about broken links is said here.

* The first item of a list runs on
  over a second line.
* The second item of it is shorter.

    >>> copy("a", "b")
    This is output and no sentence.

The code below is an example of it::

    This Would Be Code and is never seen.

        Nor Is This Deeper Block.

.. versionadded:: 3.3
   This was new in that version.

.. note:: A note says something worth knowing.

   assignment ::= target "=" value
""") == [
        "Copy shutil.copy files, i.e. their data and mode bits, from one place to another.",
        "If dst exists it is over-written.",
        "See also e.g. the topic of links.",
        "The links are followed where this is true.",
        "What is done about broken links is said here.",
        "The first item of a list runs on over a second line.",
        "The second item of it is shorter.",
        "A note says something worth knowing.",
    ]


def test_a_summary_may_lack_its_full_stop_but_a_cut_line_may_not() -> None:
    assert prose_sentences("Return a list of the names\n\nThe heading of a section\n") == ["Return a list of the names"]
