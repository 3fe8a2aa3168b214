"""The ONNX graph in an exported folder, float32 or int8, run by ONNX Runtime behind what evaluation asks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from jdistill import encoder, onnx_graph
from jdistill.encoder import Encoder
from jdistill.errors import UserError


@dataclass(frozen=True)
class OnnxEncoder:
    """contract: the tokenizer, prompts and length limit of the folder. path: the graph."""

    contract: Encoder
    session: onnxruntime.InferenceSession
    path: Path

    @property
    def num_params(self) -> int:
        graph = onnx.load(self.path, load_external_data=False).graph
        return sum(int(np.prod(tensor.dims)) for tensor in graph.initializer)

    @property
    def num_bytes(self) -> int:
        return self.path.stat().st_size

    @property
    def dim(self) -> int:
        return self.contract.dim

    def prompt_for(self, role: str) -> str | None:
        return self.contract.prompt_for(role)

    def encode(
        self, texts: Sequence[str], *, batch_size: int = 64, prompt: str | None = None, show_progress: bool = False
    ) -> np.ndarray:
        """As Encoder.encode: float32 [N, dim], in the order given."""
        ids = self.contract.tokenize(texts, prompt)
        out = np.empty((len(ids), self.dim), np.float32)
        order = np.argsort([-len(row) for row in ids], kind="stable")
        for start in range(0, len(ids), batch_size):
            rows = order[start : start + batch_size]
            width = len(ids[rows[0]])
            tokens = np.full((len(rows), width), self.contract.config.pad_token_id, np.int64)
            mask = np.zeros((len(rows), width), np.int64)
            for r, i in enumerate(rows):
                tokens[r, : len(ids[i])], mask[r, : len(ids[i])] = ids[i], 1
            out[rows] = onnx_graph.run(self.session, {"input_ids": tokens, "attention_mask": mask})
        return out


def load(source: str, file: str = "onnx/model.onnx", key: str = "model") -> OnnxEncoder:
    """Loads SOURCE/file of an exported folder. Raises UserError where there is no such graph."""
    contract = encoder.load(source, key=key)
    path = Path(source).expanduser() / file
    if not path.is_file():
        raise UserError(
            f"--{key}={source} has no {file}; python -m jdistill.export writes it with --format=onnx or --quantize=int8"
        )
    return OnnxEncoder(replace(contract, params={}, dense=contract.dense), onnx_graph.session(path), path)
