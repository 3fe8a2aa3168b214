"""The architecture of NomicBERT, as the registry knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.json_files import Settings
from jdistill.core.types import Array, Tree
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.conversion import Names
from jdistill.models.cutting import Cut, check_whole_layers, checked_layers
from jdistill.models.gguf_layout import GgufModel
from jdistill.models.nomicbert import config as files
from jdistill.models.nomicbert import gguf
from jdistill.models.nomicbert.config import NomicBertConfig
from jdistill.models.nomicbert.module import NomicBert, embedded
from jdistill.models.transformer_files import Transformer

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody

# A published tensor's name as that of transformers' module, part by part; Wqkv is three of them.
_MODULES = {
    "encoder.layers.": "layers.",
    "emb_ln.": "embeddings.LayerNorm.",
    ".attn.out_proj.": ".self_attn.o_proj.",
    ".mlp.fc11.": ".mlp.up_proj.",
    ".mlp.fc12.": ".mlp.gate_proj.",
    ".mlp.fc2.": ".mlp.down_proj.",
    ".norm1.": ".post_attention_layernorm.",
    ".norm2.": ".post_mlp_layernorm.",
}


class NomicBertArchitecture(Transformer[NomicBertConfig]):
    """NomicBERT: BERT with rotary positions and a gated feed-forward block."""

    model_types = ("nomic_bert",)
    packs = True
    position_table = False
    gguf_kinds = (gguf.GGUF_NOMIC_BERT,)

    def module(self, config: NomicBertConfig, dtype: jnp.dtype, remat: bool) -> NomicBert:
        return NomicBert(config, dtype)

    def embed(
        self,
        config: NomicBertConfig,
        params: Tree,
        ids_BxL: Array,
        dtype: jnp.dtype,
        positions_BxL: Array | None = None,
    ) -> Array:
        return embedded(config, params["embeddings"], ids_BxL, dtype)

    def names(self, config: NomicBertConfig) -> Names:
        return files.tensor_names(config)

    def config_of(self, settings: Settings) -> NomicBertConfig:
        return files.read_config(settings)

    def in_older_transformers(self, config: NomicBertConfig) -> bool:
        return False

    def config_keys(self, config: NomicBertConfig) -> dict[str, Any]:
        return files.write_config(config)

    def module_tensors(self, config: NomicBertConfig, params: Tree) -> dict[str, np.ndarray]:
        """As Architecture's: transformers' class has other names than its files."""
        tensors: dict[str, np.ndarray] = {}
        for name, tensor in self.to_tensors(config, params).items():
            for part, renamed in _MODULES.items():
                name = name.replace(part, renamed)
            if ".attn.Wqkv." not in name:
                tensors[name] = tensor
                continue
            for kind, rows in zip("qkv", np.split(tensor, 3), strict=True):
                tensors[name.replace(".attn.Wqkv.", f".self_attn.{kind}_proj.")] = np.ascontiguousarray(rows)
        return tensors

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.nomicbert import onnx

        return onnx.onnx_states(graph, self.read_config(body), body[0][1], read)

    def gguf_model(self, config: NomicBertConfig, params: Tree, max_length: int) -> GgufModel:
        return gguf.to_gguf(config, params)

    def student_config(self, whole: NomicBertConfig, student: ConfigDict) -> NomicBertConfig:
        """Some layers of a NomicBERT, as wide as it is: ELECTRA's compact form has no rotary positions."""
        check_whole_layers(student, whole, "a NomicBERT")
        return self.with_dropout(replace(whole, num_layers=checked_layers(student, whole)), student.dropout)

    def student_params(self, cut: Cut[NomicBertConfig]) -> Tree:
        """The layers of the cut with the start's embeddings."""
        return {"embeddings": cut.params["embeddings"]} | cut.taken(gated_layer)


def gated_layer(config: NomicBertConfig, rng: np.random.Generator) -> Tree:
    """One layer, normal(0.02) as BERT starts."""
    D, F = config.hidden_size, config.intermediate_size

    def dense(rows: int, columns: int) -> Tree:
        return {"kernel": (0.02 * rng.standard_normal((rows, columns))).astype(np.float32)}

    def norm() -> Tree:
        return {"scale": np.ones(D, np.float32), "bias": np.zeros(D, np.float32)}

    return {
        "attention": {"qkv": dense(D, 3 * D), "out": dense(D, D)},
        "attention_norm": norm(),
        "up": dense(D, F),
        "gate": dense(D, F),
        "down": dense(F, D),
        "output_norm": norm(),
    }
