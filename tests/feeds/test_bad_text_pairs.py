"""Parallel text that cannot be used: refused with key and row, or left out and counted."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from pairs_setting import prepared, turned, write_inputs

from jdistill.core.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a teacher, text.txt, and pairs.tsv."""
    return write_inputs(tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "source,target\na,b\n", "needs the columns source and translation (or translation_de, translation_fr …); there are"),
        ("b.csv", "translation\nb\n", "needs the columns source and translation"),
        ("c.tsv", "source\ttranslation\na\t\n\tb\n", "holds no usable text: skipped 1 without a translation (first: "),
        ("d.jsonl", '{"source": "a", "translation": 3}\n', "d.jsonl line 1: translation holds int where a text belongs"),
        ("e.jsonl", '["a", "b"]\n', "e.jsonl line 1: a row must be an object, not list"),
        ("f.txt", "a\tb\n", "f.txt"),
        ("g.tsv", "source\ttranslation\na\ta\n", "1 whose translation is the source itself"),
        ("h.csv", "source,translation\na,b, c\n", "1 with more cells than columns"),
        ("absent.tsv", None, "--config.text_pairs={}: there is no such file"),
        ("i.tsv", "", "i.tsv"),
        ("j.csv", "english,non_english,source\na,b,tatoeba\n", "and there are source and english; rename or drop"),
    ],
)  # fmt: skip
def test_bad_pairs_are_named(folder: Path, name: str, content: str | None, told: str) -> None:
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(UserError) as error:
        prepared(folder, text_pairs=folder / name)
    assert told.format(folder / name) in str(error.value)


def test_what_cannot_be_used_is_left_out_and_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Broken rows, repeats, and pairs of which an evaluation sentence equals either text."""
    texts = (folder / "text.txt").read_text().split()
    good = [(" ".join(texts[i : i + 5]), turned(" ".join(texts[i : i + 5]))) for i in range(0, 100, 5)]
    odd = [
        ("", "b"),
        ("a", ""),
        ("c", "c"),
        good[0],
        ("d\0", "e"),
        ("Of the test.", "f"),
        ("g", "tset eht fo"),
        (good[1][0], "other"),
    ]
    rows = [{"source": source, "translation": translation} for source, translation in [*good, *odd]]
    (folder / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"source": "lacks"}\n')
    (folder / "dev.csv").write_text("sentence1,sentence2,score\nof the test,TSET EHT FO,1\n")
    with caplog.at_level(logging.INFO, "jdistill"):
        _, ready = prepared(
            folder, text_pairs=folder / "odd.jsonl", text="", dev_pairs=folder / "dev.csv", held_out=0, batch_size=8
        )
    log = caplog.text
    for count in (
        "1 without a source",
        "2 without a translation",
        "1 whose translation is the source itself",
        "1 with NUL",
        "1 repeated",
    ):
        assert count in log
    corpus = ready.shared.corpus
    pairs = [(q, t) for t, q in zip(corpus.train, corpus.asked_texts, strict=True) if t != q]
    assert pairs == [*good, (good[1][0], "other")] and corpus.removed == 2
    assert list(corpus.train[: len(good)]) == [source for source, _ in good]
