"""How many negatives a row of triplets has, and what is told where there are fewer."""

from __future__ import annotations

import logging

import pytest
from conftest import make_encoder, sentences
from ibkd_setting import config

from jdistill.core.progress import log
from jdistill.data.sets.triplets import Triplets
from jdistill.feeds.triplets import triplet_batches


@pytest.mark.parametrize(("asked", "taken"), [(8, 2), (1, 1), (2, 2), (0, 2)])
def test_fewer_negatives_than_were_asked_for_are_told(asked: int, taken: int, caplog: pytest.LogCaptureFixture) -> None:
    texts = sentences(40)
    triplets = Triplets(texts[:10], texts[10:20], [[a, b] for a, b in zip(texts[20:30], texts[30:], strict=True)])
    log.addHandler(caplog.handler)
    _, data = triplet_batches(config(negatives=asked), triplets, make_encoder(num_layers=1))
    log.removeHandler(caplog.handler)
    assert data.batch(0)["real"].shape == (8, taken + 2)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert set(told) == (
        {"WARNING: --config.negatives=8: no row of --config.triplets=given has more than 2, and so many are used"}
        if asked > 2
        else set()
    )
