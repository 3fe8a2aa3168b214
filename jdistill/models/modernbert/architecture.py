"""The architecture of ModernBERT, as the registry knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from jdistill.core.json_files import Settings
from jdistill.core.types import Array, Tree
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.conversion import Names
from jdistill.models.cutting import Cut
from jdistill.models.modernbert import config as files
from jdistill.models.modernbert import student
from jdistill.models.modernbert.config import ModernBertConfig
from jdistill.models.modernbert.module import ModernBert, embedding_state
from jdistill.models.transformer_files import Transformer

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody


class ModernBertArchitecture(Transformer[ModernBertConfig]):
    """ModernBERT: rotary, pre-norm, local and global layers by turns."""

    model_types = ("modernbert",)
    packs = True

    def module(self, config: ModernBertConfig, dtype: jnp.dtype, remat: bool) -> ModernBert:
        return ModernBert(config, dtype)

    def embed(
        self,
        config: ModernBertConfig,
        params: Tree,
        ids_BxL: Array,
        dtype: jnp.dtype,
        positions_BxL: Array | None = None,
    ) -> Array:
        return embedding_state(config, params["embeddings"], ids_BxL, dtype)

    def with_dropout(self, config: ModernBertConfig, rate: float) -> ModernBertConfig:
        return student.with_dropout(config, rate)

    def prefix(self, config: ModernBertConfig) -> str:
        return "model."

    def names(self, config: ModernBertConfig) -> Names:
        return files.tensor_names(config)

    def config_of(self, settings: Settings) -> ModernBertConfig:
        return files.read_config(settings)

    def config_keys(self, config: ModernBertConfig) -> dict[str, Any]:
        return files.write_config(config)

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.modernbert import onnx

        return onnx.onnx_states(graph, self.read_config(body), body[0][1], read)

    def student_config(self, whole: ModernBertConfig, student_keys: ConfigDict) -> ModernBertConfig:
        return student.student_config(whole, student_keys)

    def student_params(self, cut: Cut[ModernBertConfig]) -> Tree:
        return student.student_params(cut)
