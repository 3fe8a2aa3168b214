"""The architecture of ModernBERT, as the registry knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from jdistill.core.json_files import Settings
from jdistill.core.types import Array, Tree
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.conversion import Names
from jdistill.models.cutting import Cut, check_whole_layers, checked_layers, copied_layers
from jdistill.models.gguf_layout import GgufModel
from jdistill.models.modernbert import config as files
from jdistill.models.modernbert import gguf
from jdistill.models.modernbert.config import ModernBertConfig
from jdistill.models.modernbert.module import ModernBert, embedding_state
from jdistill.models.modernbert.student import as_first, random_block
from jdistill.models.transformer_files import Transformer

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody


class ModernBertArchitecture(Transformer[ModernBertConfig]):
    """ModernBERT: rotary, pre-norm, local and global layers by turns."""

    model_types = ("modernbert",)
    packs = True
    position_table = False
    special_ids = ("bos", "eos", "cls", "sep")
    gguf_kinds = (gguf.GGUF_MODERN_BERT,)

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
        return replace(config, embedding_dropout=rate, attention_dropout=rate, mlp_dropout=rate)

    def prefix(self, config: ModernBertConfig) -> str:
        return "model."

    def names(self, config: ModernBertConfig) -> Names:
        return files.tensor_names(config)

    def config_of(self, settings: Settings) -> ModernBertConfig:
        return files.read_config(settings)

    def in_older_transformers(self, config: ModernBertConfig) -> bool:
        return bool(files.turns_of(config.layer_types))

    def config_keys(self, config: ModernBertConfig) -> dict[str, Any]:
        return files.write_config(config)

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.modernbert import onnx

        return onnx.onnx_states(graph, self.read_config(body), body[0][1], read)

    def gguf_model(self, config: ModernBertConfig, params: Tree, max_length: int) -> GgufModel:
        return gguf.to_gguf(config, params)

    def student_config(self, whole: ModernBertConfig, student: ConfigDict) -> ModernBertConfig:
        """Some layers, each as local or global as it was; ELECTRA's compact form has no rotary positions."""
        check_whole_layers(student, whole, "a ModernBERT")
        config = replace(self.with_dropout(whole, student.dropout), num_layers=checked_layers(student, whole))
        layers = copied_layers(student.copy_layers, config, whole)
        kinds = [whole.layer_types[k if layer is None else layer] for k, layer in enumerate(layers)]
        return replace(config, layer_types=tuple(kinds))

    def student_params(self, cut: Cut[ModernBertConfig]) -> Tree:
        """The layers of the cut with the start's embeddings and its final norm."""
        layers = cut.taken(random_block)
        layers["layer_0"] = as_first(layers["layer_0"])
        return {name: cut.params[name] for name in ("embeddings", "final_norm")} | layers
