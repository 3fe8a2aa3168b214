"""The ONNX graph in an exported folder, float32 or int8, run by ONNX Runtime behind what evaluation asks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime

from jdistill.core.errors import UserError
from jdistill.data.batching.padding import batches_by_length
from jdistill.data.text.locations import resolve
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.export.onnx import graph


@dataclass(frozen=True)
class OnnxEncoder:
    """contract: the tokenizer, prompts and length limit of the folder, without its weights. path: the graph."""

    contract: Encoder
    num_params: int
    session: onnxruntime.InferenceSession
    path: Path

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
        contract = self.contract
        for rows, tokens, mask in batches_by_length(ids, contract.config.pad_token_id, contract.max_length, batch_size):
            out[rows] = graph.run(self.session, {"input_ids": tokens, "attention_mask": mask})[: len(rows)]
        return out


def load(source: str, file: str = "onnx/model.onnx", key: str = "model") -> OnnxEncoder:
    """Loads SOURCE/file of an exported folder. Raises UserError where there is no such graph."""
    contract = loading.load(source, key=key)
    path = resolve(source, key) / file
    if not path.is_file():
        raise UserError(
            f"--{key}={source} has no {file}; python -m jdistill.export writes it with --format=onnx or --quantize=int8"
        )
    return OnnxEncoder(replace(contract, params={}), contract.num_params, graph.session(path), path)
