"""A text that holds the padding token's own word: RoBERTa's and MPNet's positions are counted by ids, in transformers and here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import save_encoder
from mpnet_setting import make_mpnet
from test_xlm_roberta import make_xlm_roberta

from jdistill.encoder.encoder import Encoder
from jdistill.export import onnx_forms
from jdistill.models.bert.module import positions_by_ids

TEXTS = ["pad with <pad> to the river", "<pad>", "the stone <pad><pad> is quiet", "no such word in this text"]
PAD = 1


@pytest.mark.parametrize("make", [make_xlm_roberta, make_mpnet])
def test_vectors_are_those_of_sentence_transformers_and_of_the_graph(
    make: Callable[[], Encoder], tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers")
    model = make()
    assert sum(ids.count(PAD) for ids in model.tokenize(TEXTS)) == 4
    folder = save_encoder(model, tmp_path / "m")
    vectors = model.encode(TEXTS)
    theirs = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(vectors, theirs, atol=1e-5)
    np.testing.assert_allclose(onnx_forms.encode(model, onnx_forms.write(model, folder), TEXTS), vectors, atol=1e-5)


def test_positions_are_counted_text_by_text() -> None:
    rng = np.random.default_rng(0)
    ids, places, expected = (np.zeros((5, 40), np.int32) for _ in range(3))
    for row in range(5):
        start = 0
        while start < 40:
            length = int(rng.integers(1, 12))
            text = rng.choice([PAD, 7, 8], size=length)[: 40 - start]
            seen = 0
            for i, token in enumerate(text):
                ids[row, start + i], places[row, start + i] = token, i
                expected[row, start + i] = -1 if token == PAD else seen
                seen += token != PAD
            start += length
    np.testing.assert_array_equal(positions_by_ids(jnp.asarray(ids), PAD, jnp.asarray(places)), expected)
    alone = np.concatenate([ids[:1, :9], np.full((1, 3), PAD)], axis=1)
    in_one = [-1 if token == PAD else int((alone[0, :i] != PAD).sum()) for i, token in enumerate(alone[0])]
    np.testing.assert_array_equal(positions_by_ids(jnp.asarray(alone), PAD), [in_one])
