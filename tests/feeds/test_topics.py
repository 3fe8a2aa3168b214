"""Topics: what texts are sorted by, that a batch holds one, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import make_encoder

from configs import distilface
from jdistill.core.errors import UserError
from jdistill.data.batching.batches import TokenTable
from jdistill.feeds import topics
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.texts import TextFeed, text_batches


def table_of(texts: list[list[int]]) -> TokenTable:
    return TokenTable(np.concatenate(texts).astype(np.int32), np.cumsum([0, *map(len, texts)]))


def planted(count: int, kinds: int) -> tuple[TokenTable, np.ndarray]:
    """Texts of 3 to 9 tokens, each of a kind with five tokens of its own, and one that all have."""
    rng = np.random.default_rng(0)
    kind = rng.permutation(np.arange(count) % kinds)
    texts = [[4, *(5 + 5 * of + rng.integers(0, 5, rng.integers(2, 9)))] for of in kind]
    return table_of(texts), kind


def config(folder: Path, **changes: Any) -> Any:
    cfg = distilface.get_config()
    cfg.batch_size, cfg.cache_dir, cfg.max_steps = 8, str(folder), 10
    cfg.update_from_flattened_dict({"topics": 3} | changes)
    return cfg


def test_vectors_are_weighted_means_of_tokens_less_what_all_share() -> None:
    table = np.random.default_rng(1).standard_normal((30, 6)).astype(np.float32)
    texts = [[4, 7, 7], [4, 9], [], [4, 4, 12, 13]]
    every = [token for text in texts for token in text]
    share = {token: every.count(token) / len(every) for token in every}
    sums = [sum((table[t] * 1e-3 / (1e-3 + share[t]) for t in text), np.zeros(6)) for text in texts]
    naive = np.array([of_text / max(len(text), 1) for of_text, text in zip(sums, texts, strict=True)])
    naive -= naive.mean(0)
    naive /= np.linalg.norm(naive, axis=1, keepdims=True)
    np.testing.assert_allclose(topics.text_vectors(table, table_of(texts)), naive, atol=1e-5)


def test_a_texts_length_is_no_topic() -> None:
    """Of a table whose tokens share a direction, as those of language models do: the same words twice are the same text."""
    rng = np.random.default_rng(2)
    table = (rng.standard_normal((40, 8)) + 5).astype(np.float32)
    texts = [list(rng.integers(4, 40, length)) for length in (3, 4, 20, 25, 6, 30)]
    vectors = topics.text_vectors(table, table_of([*texts, *([*text, *text] for text in texts)]))
    np.testing.assert_allclose(vectors[:6], vectors[6:], atol=1e-5)


def test_texts_of_like_words_are_one_topic_and_a_batch_holds_one(tmp_path: Path) -> None:
    tokens, kind = planted(90, 3)
    student = make_encoder()
    found = topics.topics_of(config(tmp_path), student, tokens)
    pairs = {(int(a), int(b)) for a, b in zip(found, kind, strict=True)}
    assert len(pairs) == 3 and {a for a, _ in pairs} == {b for _, b in pairs} == {0, 1, 2}
    assert len(list((tmp_path / "topics").iterdir())) == 1
    np.testing.assert_array_equal(topics.topics_of(config(tmp_path), student, tokens), found)
    corpus = Corpus([str(i) for i in range(90)], [], 0)
    data = text_batches(config(tmp_path), corpus, tokens, None, 0, topics=found)
    order = data.batches
    assert order.steps_per_epoch == sum(np.bincount(found) // 8)
    for step in range(2 * order.steps_per_epoch):
        _, rows = order.at(step)
        assert len(set(found[rows])) == 1 and len(set(rows)) == 8
    assert data.fingerprint != text_batches(config(tmp_path), corpus, tokens, None, 0).fingerprint


def test_a_topic_that_fills_no_batch_is_given_to_the_nearest() -> None:
    """Else its texts would be read in no epoch."""
    rows = np.random.default_rng(0).standard_normal((120, 5)).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    all_of_them, found = topics.clusters(unit, 12, 1), topics.clusters(unit, 12, 9)
    large = {k for k in range(12) if (all_of_them == k).sum() >= 9}
    assert 0 < len(large) < len(set(all_of_them)) and set(found) == large
    kept = np.isin(all_of_them, list(large))
    np.testing.assert_array_equal(found[kept], all_of_them[kept])
    centres = {k: unit[all_of_them == k].mean(0) for k in large}
    for row in np.flatnonzero(~kept):  # by the means of what they hold, which k-means ends within a step of
        cosines = {k: unit[row] @ of / np.linalg.norm(of) for k, of in centres.items()}
        assert cosines[found[row]] > max(cosines.values()) - 0.1


def test_what_cannot_be_sorted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, _ = planted(90, 3)
    with pytest.raises(UserError, match="topics=12: 90 texts do not fill a batch of 8 for each; lower it"):
        topics.topics_of(config(tmp_path, topics=12), make_encoder(), tokens)
    monkeypatch.setattr(topics, "LARGE", 50)
    with pytest.raises(UserError, match="topics=3 sorts up to 50 texts, and there are 90"):
        topics.topics_of(config(tmp_path), make_encoder(), tokens)
    weighted: Any = SimpleNamespace(corpus=SimpleNamespace(weights=lambda seed: object()))
    with pytest.raises(UserError, match="topics=3 does not go with weights of sources"):
        TextFeed(weighted, 0, False).topics(config(tmp_path), make_encoder(), tokens)
    assert not (tmp_path / "topics").exists()  # nothing was sorted for it
