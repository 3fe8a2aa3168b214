"""What config.text names: sources with roles and weights, paths as they are, and what is refused."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from naive import remove_evaluation_texts

from jdistill.core import sorted_keys
from jdistill.core.errors import UserError
from jdistill.data.batching import order
from jdistill.data.batching.batches import Batches
from jdistill.data.batching.packing import PackedBatches
from jdistill.data.batching.weights import SourceWeights
from jdistill.data.text import repeats
from jdistill.data.text.holdout import split_hash
from jdistill.data.text.kept_split import split_together
from jdistill.data.text.kept_texts import keep_source, keep_texts
from jdistill.data.text.pair_sources import pair_sources
from jdistill.data.text.sources import read_texts
from jdistill.data.text.stored_texts import JoinedTexts, PromptedTexts
from jdistill.data.text.text_sources import TextSource, text_sources

THERE = ("a.txt", "b.txt", "with, comma.txt", "at@query", "stars*2", "both,@x*3")


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("", []),
        ("a.txt", [("a.txt", "", 1)]),
        ("absent.txt", [("absent.txt", "", 1)]),
        ("a.txt,b.txt@document,c.txt@query*2", [("a.txt", "", 1), ("b.txt", "document", 1), ("c.txt", "query", 2)]),
        ("a.txt*0.5, b.txt@none", [("a.txt", "", 0.5), ("b.txt", "", 1)]),
        ("with, comma.txt", [("with, comma.txt", "", 1)]),
        ("a.txt,with, comma.txt@query*3,b.txt", [("a.txt", "", 1), ("with, comma.txt", "query", 3), ("b.txt", "", 1)]),
        ("at@query", [("at@query", "", 1)]),
        ("at@query@query", [("at@query", "query", 1)]),
        ("at@query*2", [("at@query", "", 2)]),
        ("stars*2*2", [("stars*2", "", 2)]),
        ("stars*2@query", [("stars*2", "query", 1)]),
        ("both,@x*3,a.txt", [("both,@x*3", "", 1), ("a.txt", "", 1)]),
        ("a.txt@query,a.txt@document", [("a.txt", "query", 1), ("a.txt", "document", 1)]),
        ("python-docs@document*0.1", [("python-docs", "document", 0.1)]),
        ("owner/name:subset@query,a.txt", [("owner/name:subset", "query", 1), ("a.txt", "", 1)]),
        ("wordnet:at@query", [("wordnet:at@query", "", 1)]),
        ("wordnet:stars*2@query*2", [("wordnet:stars*2", "query", 2)]),
        ("wordnet:at@query,absent.txt", [("wordnet:at@query", "", 1), ("absent.txt", "", 1)]),
        ("beir:a.txt@document*2,absent.txt", [("beir:a.txt", "document", 2), ("absent.txt", "", 1)]),
        ("beir:absent, folder,a.txt", [("beir:absent, folder", "", 1), ("a.txt", "", 1)]),
        ("s3://bucket/a,b@c.txt", [("s3://bucket/a,b@c.txt", "", 1)]),
        ("https://me@host/a,2.txt@query*2,a.txt", [("https://me@host/a,2.txt", "query", 2), ("a.txt", "", 1)]),
        ("s3://b/x,s3://b/y*4", [("s3://b/x", "", 1), ("s3://b/y", "", 4)]),
    ],
)
def test_sources_are_read(
    text: str, sources: list[tuple[str, str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in THERE:
        (tmp_path / name).write_text("text\n")
    assert list(text_sources(text)) == [TextSource(*of) for of in sources]


def test_a_role_of_its_own_stands_before_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    named = text_sources("a.txt,b.txt@query,c.txt@none,d.txt*2", role="document")
    assert [(of.path, of.role, of.weight) for of in named] == [
        ("a.txt", "document", 1), ("b.txt", "query", 1), ("c.txt", "", 1), ("d.txt", "document", 2),
    ]  # fmt: skip


def test_pairs_are_two_sources_in_their_roles() -> None:
    named = pair_sources("p.jsonl*2,q.csv")
    assert [(of.path, of.role, of.weight, of.column, of.key) for of in named] == [
        ("p.jsonl", "query", 2, "query", "config.pairs"), ("q.csv", "query", 1, "query", "config.pairs"),
        ("p.jsonl", "document", 2, "positive", "config.pairs"), ("q.csv", "document", 1, "positive", "config.pairs"),
    ]  # fmt: skip
    assert pair_sources("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.txt@title", "--config.text=a.txt@title: the role 'title' of a.txt is not one of query, document, none"),
        ("a.txt@", "the role '' of a.txt is not one of"),
        ("s3://b/a.txt@title", "the role 'title' of s3://b/a.txt"),
        *(
            (f"b.txt@query*{w}", f"the weight '{w}' of b.txt@query is no positive")
            for w in ("0", "-1", "nan", "inf", "x", "")
        ),
        ("a.txt,,b.txt", "--config.text=a.txt,,b.txt: a source is empty"),
        ("a.txt,", "a source is empty"),
        ("@query", "a source is empty"),
        ("a.txt*2,a.txt", "a.txt comes twice in the same role"),
    ],
)
def test_what_names_no_sources_is_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        text_sources(text)
    assert message in str(error.value)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 4)), min_size=1, max_size=4), st.integers(0, 3))
def test_an_epoch_has_each_row_as_often_as_its_weight_says(sources: list[tuple[int, float]], epoch: int) -> None:
    sizes, weights = zip(*sources, strict=True)
    of_epoch = SourceWeights(sizes, weights, 7)
    rows = of_epoch.rows_at(np.arange(of_epoch.count), epoch)
    counts = np.split(np.bincount(rows, minlength=sum(sizes)), np.cumsum(sizes)[:-1])
    for size, weight, count in zip(sizes, weights, counts, strict=True):
        assert count.sum() == max(1, round(size * weight))
        assert set(count) <= {int(weight), int(weight) + 1}
    lengths = np.arange(sum(sizes))
    of_source = [part.mean() for part in np.split(lengths, np.cumsum(sizes)[:-1])]
    times = [max(1, round(size * weight)) for size, weight in sources]
    assert of_epoch.mean(lengths) == pytest.approx(np.dot(of_source, times) / of_epoch.count)


@pytest.mark.parametrize("large", [10**6, 100])
@pytest.mark.parametrize("packed", [True, False])
def test_batches_mix_sources_by_their_weights(large: int, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of windows too; a batch is found by its number, and another epoch has another part."""
    monkeypatch.setattr(order, "LARGE", large)
    monkeypatch.setattr(order, "WINDOW", 64)
    lengths, of_epoch = np.random.default_rng(0).integers(3, 12, 200), SourceWeights((100, 60, 40), (1, 2, 0.5), 3)

    def make() -> Batches | PackedBatches:
        return (
            PackedBatches(lengths, 8, 2, 3, 4, of_epoch) if packed else Batches(lengths, 8, (12,), 3, of_epoch=of_epoch)
        )

    batches = make()
    assert batches.steps_per_epoch == 240 // 8
    epochs = [np.concatenate([batches.at(30 * e + i)[1] for i in range(30)]) for e in range(3)]
    for rows in epochs:
        counts = np.bincount(rows, minlength=200)
        assert (counts[:100] == 1).all() and (counts[100:160] == 2).all() and counts[160:].sum() == 20
        assert counts[160:].max() == 1
    assert len({tuple(np.unique(rows[rows >= 160])) for rows in epochs}) == 3
    assert (
        sum(
            len({int(np.searchsorted((100, 160), row, "right")) for row in rows}) > 1
            for rows in epochs[0].reshape(30, 8)
        )
        > 25
    )
    np.testing.assert_array_equal(make().at(77)[1], batches.at(77)[1])


words = st.integers(0, 30).map(lambda i: f"text {i}")


@settings(derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "query", "document"]), st.lists(words, min_size=1, max_size=25)),
        min_size=1,
        max_size=4,
    ),
    st.lists(words, max_size=3),
    st.integers(0, 6),
    st.integers(0, 20),
)
def test_sources_are_split_as_one_corpus(
    tmp_path: Path, sources: list[tuple[str, list[str]]], evaluation: list[str], held_out: int, max_texts: int
) -> None:
    roles = [role for role, _ in sources]
    kept = [keep_texts(texts, "texts", str(i), None, tmp_path) for i, (_, texts) in enumerate(sources)]
    parts = split_together(kept, roles, evaluation, held_out, max_texts, seed=0)
    seen: set[tuple[str, str]] = set()
    rows: list[list[str]] = []
    for role, texts in sources:
        new = [text for text in dict.fromkeys(texts) if (role, text) not in seen]
        seen |= {(role, text) for text in new}
        rows.append(new)
    cleared = [remove_evaluation_texts(texts, evaluation)[0] for texts in rows]
    assert [part.removed for part in parts] == [len(a) - len(b) for a, b in zip(rows, cleared, strict=True)]
    most = min(held_out, sum(map(len, cleared)) // 10)
    by_hash = sorted((text for texts in cleared for text in texts), key=lambda text: split_hash(text, 0))
    apart = set(by_hash[:most]) - set(by_hash[most:])
    assert [part.held_out for part in parts] == [[text for text in texts if text in apart] for texts in cleared]
    left = [[text for text in texts if text not in apart] for texts in cleared]
    total = sum(map(len, left))
    for part, texts in zip(parts, left, strict=True):
        assert list(part.train) == texts[: len(part.train)]
    assert sum(len(part.train) for part in parts) == min(max_texts or total, total)
    if not max_texts or max_texts >= sum(map(bool, left)):
        assert [bool(len(part.train)) for part in parts] == [bool(texts) for texts in left]  # a small source too
    again = split_together(kept, roles, evaluation, held_out, max_texts, seed=0)
    assert [list(part.train) for part in again] == [list(part.train) for part in parts]
    assert [part.train.fingerprint for part in again] == [part.train.fingerprint for part in parts]


def test_repeats_of_many_texts_are_found_by_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "BUCKET_ROWS", 8)
    monkeypatch.setattr(sorted_keys, "BUCKET_ROWS", 8)
    sources = [[f"{i}" for i in range(50)], [f"{i}" for i in range(0, 90, 3)], [f"{i}" for i in range(40, 60)]]
    rows = repeats.repeated_rows(sources, ["", "query", ""], tmp_path)
    assert [r.tolist() for r in rows] == [[], [], list(range(10))]
    assert not list(tmp_path.iterdir())


def test_prompted_texts_are_a_view(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"text {i}\n" for i in range(30)))
    kept = keep_source(str(tmp_path / "a.txt"), "", "config.text", tmp_path / "kept").texts
    texts = JoinedTexts([PromptedTexts(kept, "find: "), PromptedTexts(kept.part(3, 9), "")])
    plain = [f"find: text {i}" for i in range(30)] + [f"text {i}" for i in range(3, 9)]
    assert list(texts) == plain and texts[28:32] == plain[28:32] and texts[-1] == plain[-1]
    assert texts.take(np.array([33, 2])) == [plain[33], plain[2]]
    np.testing.assert_array_equal(texts.text_keys(), sorted_keys.keys_of_texts(plain))
    np.testing.assert_array_equal(texts.text_keys(np.array([5, 31])), sorted_keys.keys_of_texts([plain[5], plain[31]]))


def test_a_packed_parquet_is_of_no_kind_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.parquet.gz").write_bytes(b"")
    with pytest.raises(UserError, match=r"a.parquet.gz is not one of .* \(all but .parquet also .gz\)"):
        read_texts(str(tmp_path / "a.parquet.gz"))
