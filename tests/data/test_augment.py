"""Augmented text: synonyms from files in WordNet's own format, which words are replaced, paraphrase columns, bad input, a task's rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.data.sets.task_augment import WordsByTag, task_variants, variant
from jdistill.data.text.augment import (
    substituted,
    text_variants,
    variants_identity,
)
from jdistill.data.text.sources import read_texts
from jdistill.data.text.wordnet import find_wordnet, read_wordnet
from jdistill.feeds.variants import with_variants

LICENCE = "  1 This software and database is being provided to you under a license.  \n"
# part -> senses, each its words, the first being the index's lemma with its attested senses
SENSES: dict[str, list[tuple[list[str], int]]] = {
    "noun": [
        (["quick", "live_flesh"], 0),
        (["woods", "forest", "timber", "Woods"], 2),
        (["table", "tabular_array"], 1),
    ],
    "verb": [(["table", "postpone", "put_off"], 0)],
    "adj": [(["quick", "fast", "speedy(a)"], 1)],
    "adv": [(["alone"], 0)],
}


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    folder = tmp_path / "dict"
    folder.mkdir()
    for part, senses in SENSES.items():
        data, index = LICENCE, LICENCE
        for words, attested in senses:
            offset = f"{len(data):08d}"
            data += (
                f"{offset} 05 {part[0]} {len(words):02x} {' '.join(f'{word} 0' for word in words)} 000 | a gloss  \n"
            )
            index += f"{words[0]} {part[0]} 1 1 @ 1 {attested} {offset}  \n"
        (folder / f"data.{part}").write_text(data, "latin-1")
        (folder / f"index.{part}").write_text(index, "latin-1")
    return folder


def test_synonyms_are_of_the_part_of_speech_that_is_attested_most(wordnet: Path) -> None:
    assert read_wordnet(wordnet) == {
        "quick": ("fast", "speedy"),
        "woods": ("forest", "timber"),
        "table": ("tabular array",),
    }


def test_its_meanings_are_a_source_of_text(wordnet: Path, tmp_path: Path) -> None:
    texts = read_texts(f"wordnet:{wordnet}", "text").texts  # the column is that of tables beside it
    assert texts[:3] == [
        "quick, live flesh: a gloss",
        "woods, forest, timber, Woods: a gloss",
        "table, tabular array: a gloss",
    ]
    assert texts[4:] == ["quick, fast, speedy: a gloss", "alone: a gloss"]
    with pytest.raises(UserError, match="--config.text: there is no WordNet .* in .*nowhere"):
        read_texts(f"wordnet:{tmp_path / 'nowhere'}", key="config.text")
    (wordnet / "data.adj").write_text(LICENCE + "00000001 05 a zz quick 0 000 | a gloss\n")
    with pytest.raises(UserError, match="data.adj is damaged: '00000001 05 a zz quick 0 000 | a gloss' is no meaning"):
        read_texts(f"wordnet:{wordnet}")


def test_an_installed_wordnet_knows_a_dog() -> None:
    try:
        folder = find_wordnet("", "config.augment")
    except UserError as error:
        pytest.skip(str(error))
    synonyms = read_wordnet(folder)
    assert "domestic dog" in synonyms["dog"] and len(synonyms) > 30_000
    texts = read_texts("wordnet").texts
    assert 100_000 < len(texts) < 130_000 and any(text.startswith("aeromechanics, aerodynamics: ") for text in texts)


def test_a_third_of_the_words_is_replaced_and_always_the_same() -> None:
    words = {"quick": ("fast",), "woods": ("forest",), "table": ("desk",), "will": ("testament",), "river": ("stream",)}

    def known(word: str) -> tuple[str, ...]:
        return words.get(word, ())

    text = "Quick foxes will cross woods, a table and the River at night"
    found = substituted(text, known)
    assert found == substituted(text, known) != text
    changed = [(a, b) for a, b in zip(text.split(), found.split(), strict=True) if a != b]
    assert len(changed) == 1 and changed[0] in [("Quick", "Fast"), ("woods,", "forest,"), ("table", "desk")]
    assert substituted("nothing known", known) == "nothing known"
    assert substituted("Quick", known) == "Fast"
    assert len({substituted(f"{'quick woods table ' * 4}{i}", known) for i in range(9)}) == 9


def test_variants_are_new_and_distinct(wordnet: Path, tmp_path: Path) -> None:
    texts = [f"{i} woods" for i in range(20)] + [f"{i} forest" for i in range(20)] + ["no such words"]
    cfg = ConfigDict(
        {"augment": f"wordnet:{wordnet}", "text": "", "text_column": "", "cache_dir": str(tmp_path / "cache")}
    )
    apart = [f"{i} Timber." for i in range(10)]
    for _ in range(2):  # as they are made, and as they are made again
        every = list(with_variants(cfg, texts, apart))
        further = every[len(texts) :]
        # By the draw some would be a forest, which is there already.
        assert every[: len(texts)] == texts and len(set(further)) == len(further) > 3
        assert set(further) < {f"{i} timber" for i in range(10, 20)}
    assert next(text_variants(["quick"], f"wordnet:{wordnet}", "", "")) in ("fast", "speedy")


def test_a_column_of_paraphrases(tmp_path: Path) -> None:
    rows = [
        {"text": "a ", "other": "b"},
        {"text": "c", "other": ""},
        {"text": "d", "other": "a"},
        {"text": "e", "other": "f"},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = str(tmp_path / "t.jsonl")
    assert list(text_variants(["a", "c", "d"], "column:other", source, "text")) == ["b", "a"]  # "e" is not asked for
    with pytest.raises(
        UserError, match="there is no column 'none'; set --config.augment=column to one of: text, other"
    ):
        text_variants(["a"], "column:none", source, "text")
    (tmp_path / "t.txt").write_text("a\n")
    with pytest.raises(UserError, match=r"column:other: --config.text=.*t.txt has no columns"):
        text_variants(["a"], "column:other", str(tmp_path / "t.txt"), "")


def test_what_variants_go_by_is_told_apart(wordnet: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "a", "other": "b"}\n')
    of_column, of_files = ("column:other", str(tmp_path / "t.jsonl"), "text"), (f"wordnet:{wordnet}", "", "")
    before = [variants_identity(*of) for of in (of_column, of_files, ("spans:2", "", ""), ("spans:3", "", ""))]
    assert len({json.dumps(of) for of in before}) == 4 and json.loads(json.dumps(before)) == before
    (tmp_path / "t.jsonl").write_text('{"text": "a", "other": "cc"}\n')
    (wordnet / "data.verb").write_text(LICENCE)
    assert variants_identity(*of_column) != before[0] and variants_identity(*of_files) != before[1]
    assert variants_identity("column:other", "python-docs", "text") is None


def test_what_cannot_be_read_is_named(wordnet: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="augment='synonyms': it is wordnet"):
        text_variants(["a"], "synonyms", "", "")
    with pytest.raises(UserError, match="no WordNet .* in .*nowhere"):
        text_variants(["a"], f"wordnet:{tmp_path / 'nowhere'}", "", "")
    (wordnet / "data.noun").write_text(LICENCE)
    with pytest.raises(UserError, match="data.noun and index.noun are damaged"):
        read_wordnet(wordnet)


def test_variants_of_a_task_s_rows() -> None:
    texts = ["the quick fox jumps over a lazy dog", "a quiet river runs over the old stone", "one"]
    words = WordsByTag(texts)
    rng = np.random.default_rng(0)
    assert words.tag_of["quick"] == words.tag_of["lazy"] != words.tag_of["fox"]
    drawn = {words.draw("fox", rng) for _ in range(200)}
    assert drawn <= {word for word in words.tag_of if words.tag_of[word] == words.tag_of["fox"]} and len(drawn) > 1
    many = [variant(texts[0], words, rng).split() for _ in range(3000)]
    whole = [tokens for tokens in many if len(tokens) == 8]
    cells = np.array(whole)
    assert (cells == "[MASK]").mean() == pytest.approx(0.1, abs=0.02)
    assert len(whole) / len(many) == pytest.approx(0.75, abs=0.03)
    assert {len(tokens) for tokens in many} == {1, 2, 3, 4, 5, 8}
    rows = task_variants(texts, None, seed=0)
    assert rows == task_variants(texts, None, seed=0) and len(set(rows)) == len(rows) <= 60
    assert all(other is None for _, other in rows) and not {(text, None) for text in texts} & set(rows)
    pairs = task_variants(texts[:2], ["an old dog", "the lazy stone"], seed=0)
    first, second = {texts[0], texts[1]}, {"an old dog", "the lazy stone"}
    assert any(a not in first and b in second for a, b in pairs) and any(
        a in first and b not in second for a, b in pairs
    )
    assert any(a not in first and b not in second for a, b in pairs)


def test_spans_are_runs_of_words_of_their_text_and_depend_on_it_alone() -> None:
    texts = [" ".join(f"w{text}x{k}" for k in range(200)) for text in range(400)]
    spans = list(text_variants(texts, "spans:3", "", ""))
    assert len(spans) == 1200 and spans == list(text_variants(texts, "spans:3", "", ""))
    firsts, lengths = [], []
    for text, span in zip([text for text in texts for _ in range(3)], spans, strict=True):
        assert f" {span} " in f" {text} "
        firsts.append(text.split().index(span.split()[0]))
        lengths.append(len(span.split()))
    # 1 + floor of an exponential of mean 6.5: mean 1 + 1/(e^(1/6.5) - 1) = 7.0, deviation 6.5 of one, 0.19 of 1,200.
    assert min(lengths) == 1 and abs(np.mean(lengths) - 7.0) < 0.8
    assert min(firsts) < 10 and max(firsts) > 180
    assert len(list(text_variants(texts[:5], "spans", "", ""))) == 5


def test_spans_of_short_texts_and_of_punctuation() -> None:
    assert list(text_variants(["word", "(word).", "...", "", " "], "spans", "", "")) == ["word", "word"]


@pytest.mark.parametrize("count", ["", "0", "101", "-1", "two", "1.5", "99999"])
def test_a_number_of_spans_that_is_none_is_named(count: str) -> None:
    with pytest.raises(UserError, match="spans a text gives is a whole number from 1 to 100"):
        text_variants(["a text"], f"spans:{count}", "", "")
