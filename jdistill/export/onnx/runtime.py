"""The ONNX graph in an exported folder, float32 or int8, run by ONNX Runtime behind what evaluation asks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from jdistill.core.errors import UserError, first_line
from jdistill.data.text.locations import resolve
from jdistill.encoder import loading
from jdistill.encoder.batch_ids import IdsOfTexts
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.vectors import fill_vectors
from jdistill.export.onnx import graph, storage

UNREADABLE = (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.InvalidProtobuf, errors.NotImplemented)


@dataclass(frozen=True)
class OnnxEncoder:
    """An exported folder's graph behind what evaluation asks of a model.

    Args:
      contract: the tokenizer, prompts and length limit of the folder, without its weights.
      num_params: of the float32 model.
      session: ONNX Runtime's.
      path: of the graph.
    """

    contract: Encoder
    num_params: int
    session: onnxruntime.InferenceSession
    path: Path

    @property
    def num_bytes(self) -> int:
        """Size of the graph's file and of its data file, where it has one."""
        return sum(path.stat().st_size for path in storage.graph_files(self.path))

    @property
    def dim(self) -> int:
        """As Encoder's."""
        return self.contract.dim

    @property
    def prompts(self) -> dict[str, str]:
        """As Encoder's."""
        return self.contract.prompts

    def prompt_for(self, role: str) -> str:
        """As Encoder's."""
        return self.contract.prompt_for(role)

    def encode(
        self, texts: Sequence[str], *, batch_size: int = 64, prompt: str | None = None, show_progress: bool = False
    ) -> np.ndarray:
        """As Encoder.encode: float32 [N, dim], in the order given."""
        contract = self.contract
        ids = IdsOfTexts(contract.tokenizer, contract.texts_with_prompt(texts, prompt), contract.max_length)
        out = np.empty((len(ids), self.dim), np.float32)
        limits = contract.config.pad_token_id, contract.max_length, batch_size

        def embed(batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
            return graph.run_graph(self.session, dict(zip(("input_ids", "attention_mask"), batch, strict=True)))

        fill_vectors(out, ids, limits, embed)
        return out


INT8_NAMES = ("model_quint8_avx2", "model_int8")  # what the file of an int8 graph begins with, now and before


def _by_other_name(path: Path) -> Path:
    now, before = INT8_NAMES
    other = path.name.replace(now, before) if now in path.name else path.name.replace(before, now)
    return path.with_name(other)


def load_onnx_encoder(source: str, file: str = "onnx/model.onnx", key: str = "model") -> OnnxEncoder:
    """The graph SOURCE/file of an exported folder.

    Args:
      source: a path, a hub id or `pkg:import_name/sub/folder`.
      file: the graph's path in it; of int8 also by the name that exports gave it before, or give it now.
      key: what error messages call the source.

    Raises: UserError where there is no such graph, or not its data file, and for one that gives no vectors of texts' tokens.
    """
    contract = loading.load(source, key=key)
    if contract.prompts and not contract.include_prompt:
        raise UserError(
            f"--{key}={source}: its pooler leaves the prompt's tokens out, which a graph that pools cannot; leave --backend=onnx out"
        )
    path = resolve(source, key) / file
    if not path.is_file():
        path = _by_other_name(path)
    if not path.is_file():
        raise UserError(
            f"--{key}={source} has no {file}; python -m jdistill.export writes it with --format=onnx or --quantize=int8"
        )
    try:
        session = graph.session(path)
    except UNREADABLE as error:
        raise UserError(
            f"--{key}={source}: {file} is no graph that ONNX Runtime reads: {first_line(error)[:300]}"
        ) from error
    _check_graph(session, contract.dim, f"--{key}={source}: {file}")
    return OnnxEncoder(replace(contract, params={}), contract.num_params, session, path)


def _check_graph(session: onnxruntime.InferenceSession, dim: int, name: str) -> None:
    """Raises UserError for a graph that is asked for other than tokens, or gives other than vectors of dim numbers."""
    outputs = {output.name: output.shape for output in session.get_outputs()}
    if graph.OF_TEXTS not in outputs:
        raise UserError(
            f"{name} gives {', '.join(outputs)}, not {graph.OF_TEXTS}; python -m jdistill.export writes one that does"
        )
    if isinstance(width := outputs[graph.OF_TEXTS][-1], int) and width != dim:
        raise UserError(f"{name} gives vectors of {width} numbers, and the model beside it of {dim}")
    if unknown := [item.name for item in session.get_inputs() if item.name not in graph.INPUTS]:
        raise UserError(f"{name} asks for {', '.join(unknown)}; what is known are {', '.join(graph.INPUTS)}")
