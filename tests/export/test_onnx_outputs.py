"""What a graph's outputs are called: by the names that other libraries ask for, one tensor where they mean the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from conftest import make_encoder, save_encoder

from jdistill.export.onnx import graph


def test_token_vectors_have_the_name_that_optimum_reads(tmp_path: Path) -> None:
    """optimum, and with it the ONNX and OpenVINO backends of sentence-transformers, reads last_hidden_state and nothing else."""
    save_encoder(make_encoder(num_layers=1), tmp_path)
    runtime = graph.session(graph.save_graph(tmp_path))
    assert [output.name for output in runtime.get_outputs()] == [
        "token_embeddings",
        "last_hidden_state",
        "sentence_embedding",
    ]
    tokens = {"input_ids": [[101, 7592, 102]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}
    ours, theirs = runtime.run(["token_embeddings", "last_hidden_state"], tokens)
    assert ours.shape == (1, 3, 32) and np.array_equal(ours, theirs) and np.ptp(ours) > 0
