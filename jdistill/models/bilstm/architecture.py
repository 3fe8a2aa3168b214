"""The architecture of a bidirectional LSTM, as the registry knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Tree
from jdistill.models import conversion
from jdistill.models.architecture import BUILT_IN, Architecture, Body, ReadTensors
from jdistill.models.bilstm import config as files
from jdistill.models.bilstm.config import LSTM, SUFFIX, WORDS, BilstmConfig
from jdistill.models.bilstm.module import Bilstm
from jdistill.models.conversion import Names
from jdistill.models.cutting import Cut

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody


class BilstmArchitecture(Architecture[BilstmConfig]):
    """A bidirectional LSTM over word embeddings, in sentence-transformers' modules WordEmbeddings and LSTM."""

    model_types = ("bilstm",)
    own_modules = ("WordEmbeddings", "LSTM")
    recurrent = True
    table_path = ("word", "embedding")
    length_file = "wordembedding_config.json"

    def module(self, config: BilstmConfig, dtype: jnp.dtype, remat: bool) -> Bilstm:
        return Bilstm(config, dtype)

    def with_dropout(self, config: BilstmConfig, rate: float) -> BilstmConfig:
        return replace(config, dropout=rate)

    def in_older_transformers(self, config: BilstmConfig) -> bool:
        return False  # such servers look for a model of transformers, of which it is none

    def names(self, config: BilstmConfig) -> Names:
        return files.tensor_names()

    def read_config(self, body: Body) -> BilstmConfig:
        return files.read_config(body[1][1])

    def files(self, config: BilstmConfig, max_length: int) -> dict[str, dict[str, Any]]:
        return files.files(config, max_length)

    def modules(self, config: BilstmConfig) -> list[tuple[str, str]]:
        return [(f"{BUILT_IN}WordEmbeddings", WORDS), (f"{BUILT_IN}LSTM", LSTM)]

    def from_tensors(self, config: BilstmConfig, tensors: Mapping[str, np.ndarray], where: str) -> Tree:
        """As Architecture's; torch's two biases are added up, and the table of words may have any number of rows."""
        summed = dict(tensors)
        for suffix in SUFFIX.values():
            first, second = (f"encoder.bias_{kind}_l0{suffix}" for kind in ("ih", "hh"))
            if first in tensors and second in tensors and tensors[first].shape == tensors[second].shape:
                summed[first] = tensors[first] + tensors[second]
        rows = len(np.atleast_1d(tensors.get("emb_layer.weight", ())))
        return conversion.from_tensors(
            self.names(config), self.shapes(replace(config, vocab_size=rows)), summed, where, "lstm_config.json"
        )

    def to_tensors(self, config: BilstmConfig, params: Tree) -> dict[str, np.ndarray]:
        """As Architecture's; the whole bias goes into the first of torch's two."""
        tensors = super().to_tensors(config, params)
        for suffix in SUFFIX.values():
            tensors[f"encoder.bias_hh_l0{suffix}"] = np.zeros_like(tensors[f"encoder.bias_ih_l0{suffix}"])
        return tensors

    def tensor_files(self, config: BilstmConfig, params: Tree) -> dict[str, dict[str, np.ndarray]]:
        tensors = self.to_tensors(config, params)
        table = {"emb_layer.weight": tensors.pop("emb_layer.weight")}
        return {f"{WORDS}/model.safetensors": table, f"{LSTM}/model.safetensors": tensors}

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.bilstm import onnx

        return onnx.onnx_states(graph, body, read)

    def student_config(self, whole: BilstmConfig, student: ConfigDict) -> BilstmConfig:
        raise UserError("a recurrent encoder has no layers that a student could take")

    def student_params(self, cut: Cut[BilstmConfig]) -> Tree:
        raise UserError("a recurrent encoder has no layers that a student could take")
