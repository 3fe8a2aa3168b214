"""The sentences of labelled pairs and triplets as text, one a line: for students that are to know what captions and claims are like.

    python bench/nli_sentences.py --rows snli_pairs.jsonl snli_triplets.jsonl --text sentences.txt.gz --out snli.txt.gz

A row's strings but its labels are its sentences. Left out are those of --text, whatever their letters' case, and those below --shortest
characters. Sorted, so that the same rows give the same file.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

LABELS = ("split", "label")  # columns of strings that are no sentence


def sentences_of(path: Path) -> Iterator[str]:
    """The sentences of a file's rows, as often as they stand there."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield from (
            " ".join(value.split()) for name, value in row.items() if isinstance(value, str) and name not in LABELS
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, nargs="+", required=True, help="files of a JSON object a line")
    parser.add_argument("--text", type=Path, required=True, help="lines that the sentences stand beside, gzip")
    parser.add_argument("--shortest", type=int, default=12, help="characters, as the text's own shortest")
    parser.add_argument("--out", type=Path, required=True, help="a file of lines, gzip")
    flags = parser.parse_args()
    with gzip.open(flags.text, "rt", encoding="utf-8") as lines:
        there = {line.rstrip("\n").lower() for line in lines}
    found = {sentence for path in flags.rows for sentence in sentences_of(path) if len(sentence) >= flags.shortest}
    kept = sorted(sentence for sentence in found if sentence.lower() not in there)
    with gzip.GzipFile(flags.out, "wb", mtime=0) as out:
        out.write("".join(f"{sentence}\n" for sentence in kept).encode())
    print(f"{len(kept)} sentences, {len(found) - len(kept)} more stand in {flags.text.name}")


if __name__ == "__main__":
    main()
