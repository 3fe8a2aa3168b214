"""Texts that augment makes are trained on, and in no search index; a text of one's own is never taken for another's variant."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import sentences

from configs import search
from jdistill.core.digest import digest
from jdistill.data.text.text_sources import TextSource
from jdistill.feeds import variants
from jdistill.feeds.corpus import Corpus, SourceRows, read_corpus
from jdistill.feeds.parallel import read_text_and_pairs
from jdistill.teachers.embeddings import Teacher


def corpus_of(place: Path, text: str, **changes: object) -> Corpus:
    cfg = search.get_config()
    cfg.update({"cache_dir": str(place / "cache"), "text": text, "held_out": 5} | changes)
    return read_corpus(cfg, Teacher("t", 4, "0" * 32, lambda asked: None, texts=None), ())


def test_an_index_holds_ones_own_texts_alone(tmp_path: Path) -> None:
    texts = sentences(60)
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    for role in ("", "document"):  # a source without a role, and one of several
        corpus = corpus_of(tmp_path, str(tmp_path / "a.txt"), text_role=role)
        assert len(corpus.train) > 100 and len(corpus.held_out) == 5
        assert sorted(corpus.indexed()) == sorted(texts)
        own = list(corpus.train[:55])
        assert set(own) < set(texts) and not set(corpus.train[55:]) & set(texts)


def test_a_column_of_paraphrases_of_a_source_in_another_spelling(tmp_path: Path) -> None:
    rows = [f"{text},{text} indeed" for text in sentences(40)]
    (tmp_path / "a.csv").write_text("text,other\n" + "\n".join(rows) + "\n")
    path = str(tmp_path / "a.csv")
    whole = [
        list(corpus_of(tmp_path, text, text_role=role, text_column="text", augment="column:other").train)
        for text, role in ((path, ""), (f"{path}@none", "document"))
    ]
    assert whole[0] == whole[1] and any(text.endswith(" indeed") for text in whole[0])


def test_variants_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("\n".join(f"{text} and {text}" for text in sentences(40)) + "\n")
    corpus = corpus_of(tmp_path, str(tmp_path / "a.txt"), text_role="")
    with monkeypatch.context() as patch:
        patch.setattr(variants, "text_variants", None)
        assert list(corpus_of(tmp_path, str(tmp_path / "a.txt"), text_role="").train) == list(corpus.train)
    own = len(corpus.train) - corpus.variants
    cfg = search.get_config()
    cfg.update({"cache_dir": str(tmp_path / "cache"), "text": str(tmp_path / "a.txt")})
    apart = [corpus.train[own]]  # an evaluation text
    again = list(variants.with_variants(cfg, corpus.train[:own], apart))
    assert set(corpus.train) - set(again) == set(apart) and len(again) == len(corpus.train) - 1
    assert again == list(variants.with_variants(cfg, corpus.train[:own], apart))


def test_what_equals_another_sources_variant_stays_its_own(tmp_path: Path) -> None:
    long = [f"{text} and {text}" for text in sentences(40)]
    (tmp_path / "a.txt").write_text("\n".join(long) + "\n")
    spans = [text for text in corpus_of(tmp_path, str(tmp_path / "a.txt"), held_out=0).train if text not in long]
    assert len(spans) > 50
    (tmp_path / "b.txt").write_text("\n".join(spans) + "\n")  # each of which is a variant of a.txt too
    corpus = corpus_of(tmp_path, f"{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}", held_out=0)
    assert sorted(corpus.indexed()) == sorted(long + spans)
    first, second = corpus.sources
    assert (first.train, first.variants) == (len(long), 0) and second.train == len(spans) + second.variants
    assert len(set(corpus.train)) == len(corpus.train)
    other = corpus_of(tmp_path, f"{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}@query", held_out=0)
    assert other.sources[0].variants == len(spans)  # in another role it is asked otherwise, and read as both
    assert sorted(other.indexed()) == sorted(long)


def test_so_it_is_beside_translations(tmp_path: Path) -> None:
    texts = sentences(60)
    (tmp_path / "a.txt").write_text("\n".join(texts[:40]) + "\n")
    rows = [f"{text}\tx{i} y{i}" for i, text in enumerate(texts[40:])]
    (tmp_path / "pairs.tsv").write_text("source\ttranslation\n" + "\n".join(rows) + "\n")
    cfg = search.get_config()
    cfg.update({"cache_dir": str(tmp_path / "cache"), "text": str(tmp_path / "a.txt"), "held_out": 2})
    cfg.text_pairs = str(tmp_path / "pairs.tsv")
    cfg.text_role = ""
    corpus = read_text_and_pairs(cfg, Teacher("t", 4, "0" * 32, lambda asked: None, texts=None), ())
    made = sum(of.variants for of in corpus.sources)
    assert made > 20 and len(corpus.indexed()) == len(corpus.train) + len(corpus.held_out) - made


def test_several_sources_and_pairs_are_known_by_their_texts(tmp_path: Path) -> None:
    """As runs that have begun know them."""
    texts = sentences(60)
    for name, some in (("a", texts[:20]), ("b", texts[20:40])):
        (tmp_path / f"{name}.txt").write_text("\n".join(some) + "\n")
    rows = [f"{text}\tx{i} y{i}" for i, text in enumerate(texts[40:])]
    (tmp_path / "pairs.tsv").write_text("source\ttranslation\n" + "\n".join(rows) + "\n")
    cfg = search.get_config()
    cfg.update(
        {"cache_dir": str(tmp_path / "cache"), "text": f"{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}", "held_out": 2}
    )
    cfg.update({"text_pairs": str(tmp_path / "pairs.tsv"), "text_role": "", "augment": ""})
    corpus = read_text_and_pairs(cfg, Teacher("t", 4, "0" * 32, lambda asked: None, texts=None), ())
    roles = [f"{of.source.role} {of.source.weight} {of.train}" for of in corpus.sources]
    assert len(roles) == 4 and corpus.fingerprint == digest(digest(list(corpus.train)), roles)


def test_a_teachers_index_holds_no_translations() -> None:
    of = [
        SourceRows(TextSource("a.txt", "", 1.0), 2, 1),
        SourceRows(TextSource("b.tsv", "", 1.0), 2, 1, translated=True),
    ]
    corpus = Corpus(["a", "b", "ein", "zwei"], ["c", "drei"], 0, tuple(of), ["a", "b", "one", "two"])
    assert sorted(corpus.indexed()) == ["a", "b", "c", "drei", "ein", "zwei"]
    assert sorted(corpus.indexed(by_teacher=True)) == ["a", "b", "c"]
