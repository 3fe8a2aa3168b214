"""A text that holds the padding token's own word: RoBERTa's and MPNet's positions are counted by ids, in transformers and here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import save_encoder
from mpnet_setting import make_mpnet
from test_xlm_roberta import make_xlm_roberta

from jdistill.encoder.encoder import Encoder
from jdistill.export import onnx_forms

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
