"""Word vectors in GloVe's text format: a word and its numbers on a line, apart by single spaces; also gzipped."""

from __future__ import annotations

import gzip
import zlib
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.data.text.readers import is_number, regular

LONGEST_LINE = 1 << 20  # characters, far more than a word and thousands of numbers


@lru_cache(maxsize=1)  # a student's tokenizer and its table both need the file, of gigabytes
def read_glove(path: Path, width: int) -> tuple[list[str], np.ndarray]:
    """(distinct words, vectors float32 [words, width]). A first line with a count and a width, word2vec's, is skipped; of a word
    that comes again the first line counts. Raises UserError naming the line that is broken or of another width."""
    words: dict[str, int] = {}
    rows: list[np.ndarray] = []
    regular(path)
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8") as lines:
            for number, line in enumerate(iter(partial(lines.readline, LONGEST_LINE), ""), 1):
                if len(line) == LONGEST_LINE:
                    raise UserError(
                        f"{path}, line {number}: {LONGEST_LINE:,} characters and more are no word and its vector"
                    )
                *front, last = line.rstrip("\n").removesuffix(" ").split(" ")  # word2vec's end in a space
                if number == 1 and len(front) == 1 and front[0].isdigit() and last.isdigit():
                    continue
                # From the right: a few of GloVe's own "words" have spaces in them.
                cells = [*front, last]
                word, numbers = " ".join(cells[:-width]), cells[-width:]
                if not word:
                    raise UserError(f"{path}, line {number}: {len(cells) - 1} numbers, not {width}, the embedding_size")
                try:
                    vector = np.array(numbers, np.float32)
                except ValueError:
                    raise UserError(f"{path}, line {number}: not a word and {width} numbers: {line[:60]!r}") from None
                if not np.isfinite(vector).all():
                    raise UserError(f"{path}, line {number}: a number is not finite")
                if " " in word and is_number(word.split(" ")[-1]):
                    raise UserError(f"{path}, line {number}: more than {width} numbers, the embedding_size")
                if words.setdefault(word, len(rows)) == len(rows):
                    rows.append(vector)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error})") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error})") from None
    if not rows:
        raise UserError(f"{path} holds no word vectors")
    return list(words), np.stack(rows)
