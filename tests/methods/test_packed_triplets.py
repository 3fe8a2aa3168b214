"""Stage 2 on packed triplets: each text read back, and the loss and gradient of the padded batch, whole and in chunks."""

from __future__ import annotations

import ibkd_setting
import jax
import numpy as np
import pytest
from conftest import make_encoder, sentences
from steps import gradient_of

from jdistill.data.batching.layout import Layout
from jdistill.data.batching.packing import PackedBatches, deal
from jdistill.data.sets.triplets import Triplets, TripletTokens
from jdistill.feeds.tokens import may_pack, number_of_groups
from jdistill.feeds.triplets import triplet_batches
from jdistill.models.token_batch import by_text

ROWS, GROUPS = 8, 2
LAYOUT = Layout((4, 8), (20, 16), (3, 4))  # of a group of four triplets, four texts each


def packed_batch(tokens: TripletTokens, rows: np.ndarray) -> dict[str, np.ndarray]:
    return tokens.packed(rows.reshape(GROUPS, -1), LAYOUT, 0)


@pytest.mark.parametrize("name", ["finetune", "finetune_own", "finetune_kl", "finetune_margins", "supervised"])
def test_packed_triplets_have_the_gradient_of_padded_ones(name: str) -> None:
    method, padded = ibkd_setting.setting(name, ROWS)
    rows = np.random.default_rng(0).permutation(ROWS)  # in another order than the padded ones
    about = {
        key: padded[key][rows].reshape(GROUPS, -1, padded[key].shape[1])
        for key in ("real", "texts", "scores")
        if key in padded
    }
    packed = packed_batch(ibkd_setting.triplet_tokens(ROWS), rows) | about
    assert not padded["real"].all()  # some negatives are not there
    one, metrics = gradient_of(method, padded)
    for chunk_size in (0, ROWS // GROUPS):
        found, same = gradient_of(method, packed, chunk_size)
        for key in metrics.keys() - {"cka", "hsic"}:  # what larger sums leave; the loss has HSIC in it
            np.testing.assert_allclose(same[key], metrics[key], rtol=1e-5, err_msg=key)
        flat, expected = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (found, one))
        assert np.linalg.norm(flat - expected) <= 1e-5 * np.linalg.norm(expected)


def test_each_text_of_a_triplet_is_read_back_at_its_place() -> None:
    tokens, rows = ibkd_setting.triplet_tokens(ROWS), np.arange(ROWS)[::-1]
    batch, padded = packed_batch(tokens, rows), tokens.padded(rows, 20, 0)
    for group in range(GROUPS):
        texts = [
            row[end - length : end].tolist()
            for k in range(2)
            for row, of_row in zip(batch[f"ids_{k}"][group], batch[f"lengths_{k}"][group], strict=True)
            for end, length in zip(np.cumsum(of_row), of_row, strict=True)
        ]
        for number, places in enumerate(batch["place"][group]):
            i = group * ROWS // GROUPS + number
            for column, place in enumerate(places):
                if padded["real"][i, column]:
                    assert texts[place] == padded["ids"][i, column][padded["mask"][i, column]].tolist()
    read = by_text(batch, batch)
    for key in ("real", "texts"):
        np.testing.assert_array_equal(read[key], padded[key])


def test_the_median_is_of_the_same_texts_however_many_groups_there_are() -> None:
    """Of more than 256 texts the bandwidth looks at some, which their order does not choose."""
    rows, (method, _) = 128, ibkd_setting.setting("finetune", ROWS, **{"hsic.gamma": 0.0, "finetune.loss.beta": 20.0})
    tokens, found = ibkd_setting.triplet_tokens(rows), []
    for groups in (1, 8):
        dealt = deal(np.maximum(tokens.text_lengths, 0).sum(1), groups)
        layout = Layout((4 * rows // groups,), (20,), (3,))
        grads, _ = gradient_of(method, tokens.packed(dealt, layout, 0))
        found.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(grads)]))
    assert np.linalg.norm(found[1] - found[0]) <= 1e-5 * np.linalg.norm(found[0])


def triplets_of(count: int) -> Triplets:
    """Triplets with one to three negatives, some texts of which are long."""
    texts = sentences(5 * count)
    rows = [texts[5 * i : 5 * i + 5] for i in range(count)]
    return Triplets(
        [row[0] for row in rows], [row[1] for row in rows], [row[2 : 3 + i % 3] for i, row in enumerate(rows)]
    )


def test_the_feed_packs_an_epoch_with_every_triplet_once_and_little_padding() -> None:
    cfg = ibkd_setting.config(batch_size=32, length_multiple=1)
    tokens, data = triplet_batches(cfg, triplets_of(300), make_encoder(num_layers=1), packs=True)
    assert isinstance(data.batches, PackedBatches) and data.texts_per_row == 5
    seen = []
    for step in range(data.batches.steps_per_epoch):
        rows, batch = data.batches.at(step)[1], data.batch(step)
        assert batch["place"].shape == (1, 32, 5) and batch["real"].shape == (1, 32, 5)
        np.testing.assert_array_equal(batch["real"].reshape(32, 5).sum(1), (tokens.text_lengths[rows] > 0).sum(1))
        read = sum(int(batch[name].sum()) for name in batch if name.startswith("lengths_"))
        assert read == np.maximum(tokens.text_lengths[rows], 0).sum()
        seen += rows.tolist()
    assert len(set(seen)) == len(seen) == 288
    _, other = triplet_batches(
        ibkd_setting.config(batch_size=32, packed=False), triplets_of(300), make_encoder(num_layers=1), packs=True
    )
    padded = np.mean([32 * 5 * other.batches.at(step)[0] for step in range(other.batches.steps_per_epoch)])
    assert data.batches.capacity(data.batches.layout) < 0.7 * padded
    assert max(data.batches.layout.most) <= 6  # a negative that is not there takes no place


@pytest.mark.parametrize(
    ("batch_size", "dropout", "groups", "packs"),
    [
        (256, 0.0, 4, True),
        (64, 0.0, 1, True),
        (256, 0.1, 8, True),
        (64, 0.1, 8, False),
        (96, 0.1, 8, True),
        (127, 0.0, 127, False),
        (10, 0.0, 1, False),
    ],  # fmt: skip
)
def test_the_texts_of_a_triplet_count_where_groups_are_made(
    batch_size: int, dropout: float, groups: int, packs: bool
) -> None:
    """At most 256 texts of three each in a group, hence 85 triplets, and 32 at least; with dropout in 8 groups."""
    cfg = ibkd_setting.config(batch_size=batch_size, **{"student.dropout": dropout})
    assert may_pack(cfg, 3) == packs
    if packs:
        assert number_of_groups(cfg, 3) == groups
