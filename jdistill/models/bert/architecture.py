"""The architecture of BERT and its relatives, as the registry knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from jdistill.core.json_files import Settings
from jdistill.core.types import Array, Tree
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.bert import config as files
from jdistill.models.bert import gguf, student
from jdistill.models.bert.config import TABLES, BertConfig
from jdistill.models.bert.module import Bert, embedding_output
from jdistill.models.conversion import Names
from jdistill.models.cutting import Cut
from jdistill.models.gguf_layout import GgufModel
from jdistill.models.transformer_files import Transformer

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody


class BertArchitecture(Transformer[BertConfig]):
    """BERT, RoBERTa, XLM-RoBERTa, DistilBERT and ELECTRA; a student of theirs may have narrower token embeddings, in ELECTRA's layout."""

    model_types = tuple(TABLES)
    compresses = True
    narrows = True
    packs = True
    gguf_kinds = (gguf.GGUF_BERT,)

    def module(self, config: BertConfig, dtype: jnp.dtype, remat: bool) -> Bert:
        return Bert(config, dtype)

    def embed(
        self,
        config: BertConfig,
        params: Tree,
        ids_BxL: Array,
        dtype: jnp.dtype,
        positions_BxL: Array | None = None,
    ) -> Array:
        """The embedding block's output, projected where it is narrower than the layers. Reads "embeddings" and "project" alone."""
        x_BxLxE = embedding_output(config, params["embeddings"], ids_BxL, dtype, positions_BxL)
        project = params.get("project")
        return x_BxLxE if project is None else x_BxLxE @ project["kernel"].astype(dtype) + project["bias"].astype(dtype)

    def prefix(self, config: BertConfig) -> str:
        return files.prefix_of(config.model_type)

    def names(self, config: BertConfig) -> Names:
        return files.tensor_names(config)

    def config_of(self, settings: Settings) -> BertConfig:
        return files.read_config(settings)

    def config_keys(self, config: BertConfig) -> dict[str, Any]:
        return files.write_config(config)

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.bert import onnx

        return onnx.onnx_states(graph, body, read)

    def gguf_model(self, config: BertConfig, params: Tree, max_length: int) -> GgufModel:
        return gguf.to_gguf(config, params)

    def student_config(self, whole: BertConfig, student_keys: ConfigDict) -> BertConfig:
        return student.student_config(whole, student_keys)

    def student_params(self, cut: Cut[BertConfig]) -> Tree:
        return student.student_params(cut)
