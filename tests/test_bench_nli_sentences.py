"""bench/nli_sentences.py: which sentences of labelled rows become text, and that the same rows give the same file."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
from commands import ROOT

sys.path += [str(ROOT / "bench"), str(ROOT)]
import nli_sentences


def test_sentences_of_rows_once_without_labels_and_those_that_the_text_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"split": "dev of this file", "sentence1": "A man  plays a guitar . ", "sentence2": "He sleeps soundly.", "label": "contradiction"},
        {"anchor": "A man plays a guitar .", "positive": "Someone makes music.", "negative": "Short."},
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with gzip.open(tmp_path / "text.txt.gz", "wt") as file:
        file.write("HE SLEEPS soundly.\nanother line\n")
    written = []
    for name in ("one.gz", "two.gz"):
        arguments = ["--rows", tmp_path / "rows.jsonl", "--text", tmp_path / "text.txt.gz", "--out", tmp_path / name]
        monkeypatch.setattr(sys, "argv", ["nli_sentences.py", *map(str, arguments)])
        nli_sentences.main()
        written.append((tmp_path / name).read_bytes())
    assert gzip.decompress(written[0]).decode() == "A man plays a guitar .\nSomeone makes music.\n"
    assert gzip.decompress(written[1]) == gzip.decompress(written[0])
