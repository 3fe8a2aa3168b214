"""Text feeds that pack: whose answer is whose, and how many groups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from simtde_setting import config, random_tokens

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.data.text.text_sources import TextSource
from jdistill.feeds import tokens as feed_tokens
from jdistill.feeds.corpus import Corpus, SourceRows
from jdistill.feeds.texts import text_batches
from jdistill.feeds.tokens import may_pack, number_of_groups
from jdistill.models.token_batch import by_text


def test_each_packed_text_has_its_own_answer_and_others() -> None:
    tokens, cfg = random_tokens(300), config(batch_size=32, chunk_size=8)
    answers = np.arange(300, dtype=np.float32)[:, None] * [1, -1]
    data = text_batches(
        cfg, Corpus([str(i) for i in range(300)], [], 0), tokens, lambda rows: answers[rows], 0, 3, True
    )
    for step in (0, 4, 20):
        rows, batch = data.batches.at(step)[1], data.batch(step)
        assert batch["place"].shape == (4, 8)
        read = by_text(batch, batch)
        np.testing.assert_array_equal(read["teacher"], answers[rows])
        np.testing.assert_array_equal(read["row"], rows)
        np.testing.assert_array_equal(read["others"], answers[read["other_rows"]])
        assert (
            sum(int((batch[name] > 0).sum()) for name in batch if name.startswith("ids_")) == tokens.lengths[rows].sum()
        )


def test_one_text_has_no_others() -> None:
    with pytest.raises(UserError, match="there is one text to train on"):
        text_batches(config(batch_size=1), Corpus(["a"], [], 0), random_tokens(1), None, 0, 3)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("weight", [2.0, 1.0, 0.5])
def test_texts_of_a_weighted_source_come_with_their_rows(packed: bool, weight: float) -> None:
    """By which losses tell that a text stands twice in a batch, as no text of a source of weight 1 does."""
    tokens, cfg = random_tokens(40), config(batch_size=24)
    sources = (SourceRows(TextSource("a", "", weight), 20, 0), SourceRows(TextSource("b", "", 1.0), 20, 0))
    corpus = Corpus([str(i) for i in range(40)], [], 0, sources)
    data = text_batches(cfg, corpus, tokens, None, 0, packed=packed)
    rows, batch = data.batches.at(0)[1], data.batch(0)
    assert ("row" in batch) == (weight > 1)
    if weight > 1:
        np.testing.assert_array_equal(batch["row"].ravel(), rows)
        assert len(set(rows)) < len(rows)


def test_a_text_in_two_roles_is_one_text() -> None:
    """Which losses take for no negative of itself; the same texts in one role alone stand in a corpus once."""
    tokens, cfg = random_tokens(40), config(batch_size=24)
    texts = [str(i % 20) for i in range(40)]
    for roles, told in ((("query", "document"), True), (("query", "query"), False)):
        sources = tuple(SourceRows(TextSource(role, role, 1.0), 20, 0) for role in roles)
        data = text_batches(cfg, Corpus(texts, [], 0, sources), tokens, None, 0)
        rows, batch = data.batches.at(0)[1], data.batch(0)
        assert ("row" in batch) == told
        if told:
            same = rows[:, None] % 20 == rows % 20
            np.testing.assert_array_equal(batch["row"][:, None] == batch["row"], same)
            assert same.sum() > len(rows)


@pytest.mark.parametrize("packed", [True, False])
def test_translations_have_the_number_of_their_source(packed: bool) -> None:
    tokens, cfg = random_tokens(40), config(batch_size=24, chunk_size=8 * packed)
    asked, answers = [str(i // 4) for i in range(40)], np.repeat(np.arange(10, dtype=np.float32), 4)[:, None]
    corpus = Corpus([str(i) for i in range(40)], [], 0, asked=asked)
    data = text_batches(cfg, corpus, tokens, lambda rows: answers[rows], 0, 3, packed)
    rows, batch = data.batches.at(0)[1], data.batch(0)
    read = by_text(batch, batch) if packed else batch
    source = rows // 4
    np.testing.assert_array_equal(read["row"][:, None] == read["row"], source[:, None] == source)
    others = read["others"].reshape(-1).astype(np.int64)
    np.testing.assert_array_equal(read["row"][:, None] == read["other_rows"].reshape(-1), source[:, None] == others)
    assert read["row"].dtype == read["other_rows"].dtype == np.int32 and len(set(source)) < len(rows)


class Mesh:
    def __init__(self, size: int):
        self.size = size


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    count = {"devices": 1}
    assert feed_tokens.sharding is sharding
    monkeypatch.setattr(sharding, "global_mesh", lambda: Mesh(count["devices"]))
    yield count


@pytest.mark.parametrize(
    "batch_size, chunk_size, on, dropout, groups",
    [
        (64, 0, 1, 0.0, 1),
        (64, 16, 1, 0.0, 4),
        (64, 0, 8, 0.0, 8),
        (64, 16, 2, 0.0, 8),
        (4096, 0, 1, 0.0, 16),
        (256, 0, 1, 0.1, 8),
        (256, 0, 8, 0.1, 8),
        (48, 32, 3, 0.0, 6),
    ],
)
def test_devices_and_chunks_share_a_batch_by_groups(
    devices: dict[str, int], batch_size: int, chunk_size: int, on: int, dropout: float, groups: int
) -> None:
    devices["devices"] = on
    cfg = config(batch_size=batch_size, chunk_size=chunk_size, **{"student.dropout": dropout})
    assert number_of_groups(cfg) == groups and may_pack(cfg)


@pytest.mark.parametrize(
    ("batch_size", "chunk_size", "packs"),
    [(5, 0, True), (250, 0, True), (257, 0, False), (514, 0, False), (512, 0, True), (64, 8, True), (127, 64, False)],
)
def test_a_batch_that_falls_into_groups_of_hardly_any_text_is_padded(
    devices: dict[str, int], batch_size: int, chunk_size: int, packs: bool
) -> None:
    cfg = config(batch_size=batch_size, chunk_size=chunk_size, **{"student.dropout": 0.0})
    for devices["devices"] in (1, 8):
        assert may_pack(cfg) == packs


@pytest.mark.parametrize("on", [1, 2, 8])
def test_with_dropout_few_texts_are_padded_on_any_number_of_devices(devices: dict[str, int], on: int) -> None:
    devices["devices"] = on
    of_sizes = {size: config(batch_size=size, **{"student.dropout": 0.1}) for size in (64, 128, 250, 256, 512)}
    assert [size for size, cfg in of_sizes.items() if may_pack(cfg)] == [256, 512]
    assert all(number_of_groups(of_sizes[size]) == 8 for size in (256, 512))


@pytest.mark.parametrize(
    "batch_size, chunk_size, groups",
    [(768, 0, 8), (1536, 0, 8), (2304, 0, 16), (512, 128, None), (1024, 512, 16), (2048, 256, 64), (8192, 256, 256)],
)
def test_with_dropout_there_are_as_many_groups_on_any_devices(
    devices: dict[str, int], batch_size: int, chunk_size: int, groups: int | None
) -> None:
    cfg = config(batch_size=batch_size, chunk_size=chunk_size, **{"student.dropout": 0.1})
    for devices["devices"] in (1, 2, 4, 8):
        assert may_pack(cfg) == (groups is not None)  # else they are padded
        assert groups is None or number_of_groups(cfg) == groups


def test_chunks_without_a_text_for_each_device_are_refused(devices: dict[str, int]) -> None:
    cfg = config(batch_size=64, chunk_size=4, **{"student.dropout": 0.0})
    assert number_of_groups(cfg) == 16
    devices["devices"] = 8
    with pytest.raises(UserError, match="--config.chunk_size=4: a batch of 64 .* each of 8 devices; raise it"):
        number_of_groups(cfg)
