"""How texts are put into padded batches: each once, few shapes, and a long one not beside dozens that are padded to it."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import make_encoder, sentences
from parity import assert_close

from jdistill.data.batching.padding import TOKENS_OF_A_TEXT, batches_by_length
from jdistill.encoder import vectors
from jdistill.encoder.encoder import Encoder


def rows_of(lengths: list[int], batch_size: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    ids = [[1 + i % 7] * length for i, length in enumerate(lengths)]
    found = list(batches_by_length(ids, 0, 8192, batch_size))
    assert sorted(row for rows, _, _ in found for row in rows) == list(range(len(lengths)))
    for rows, tokens, mask in found:
        assert mask.sum(1)[: len(rows)].tolist() == [lengths[row] for row in rows] and not mask[len(rows) :].any()
        assert all((tokens[r][mask[r]] == 1 + row % 7).all() for r, row in enumerate(rows))
    return found


def test_a_long_text_stands_beside_few() -> None:
    found = rows_of([100] * 63 + [8192] + [700] * 40, 64)
    assert all(tokens.size <= 64 * TOKENS_OF_A_TEXT for _, tokens, _ in found)
    assert found[0][1].shape == (4, 8192) and found[-1][1].shape[1] == 112
    assert len({tokens.shape for _, tokens, _ in found}) <= 4
    (alone,) = rows_of([8192], 1)  # there is no smaller batch
    assert alone[1].shape == (1, 8192)


@pytest.mark.parametrize("longest", [16, 512])
def test_of_texts_that_are_not_long_a_batch_is_full(longest: int) -> None:
    rng = np.random.default_rng(0)
    found = rows_of([longest, *rng.integers(1, longest + 1, 199).tolist()], 64)
    assert [len(rows) for rows, _, _ in found] == [64, 64, 64, 8]


def test_the_vectors_are_the_same_however_many_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_encoder(num_layers=1, max_positions=1024)
    texts = [*sentences(20), " ".join(sentences(90))]
    found, read = model.encode(texts, batch_size=8), []
    assert max(map(len, model.tokenize(texts))) > TOKENS_OF_A_TEXT
    alone = np.concatenate([model.encode([text]) for text in texts])
    assert_close(found, alone, 64, 2)
    batch_ids = Encoder.tokenize.__globals__["batch_ids"]
    monkeypatch.setattr(vectors, "TOKENISED_AT_ONCE", 6)
    monkeypatch.setattr(
        "jdistill.encoder.batch_ids.batch_ids",
        lambda of, some, limit: read.append(len(some)) or batch_ids(of, some, limit),
    )
    assert_close(model.encode(texts, batch_size=8), alone, 64, 2)
    assert read == [6, 6, 6, 3]
