"""MPNet (Song et al. 2020), of sentence-transformers/all-mpnet-base-v2: BERT's layers, with one table of relative positions for all.

Source: transformers' MPNetModel, which the tests hold this against. Shapes: B texts, L tokens, H heads, D width of the layers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax.numpy as jnp
from ml_collections import ConfigDict

from jdistill.core.json_files import Settings
from jdistill.core.types import Array, Tree
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.bert.config import BertConfig, config_keys_of, numbers_of
from jdistill.models.bert.module import EmbeddingBlock, Layer, attention_bias, embedding_output
from jdistill.models.bert.student import random_layer
from jdistill.models.conversion import Names, names_by_table
from jdistill.models.cutting import Cut, check_whole_layers, checked_layers
from jdistill.models.relative import BUCKETS, onnx_distances, with_distances
from jdistill.models.segments import Segments, token_positions
from jdistill.models.transformer_files import Transformer

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody, Weights

PADDING = 1  # whatever the config says: transformers counts positions from the one after it
# Flax path -> name on disk, as conversion.names_by_table reads them.
LAYER = {
    "attention/query": "attention.attn.q",
    "attention/key": "attention.attn.k",
    "attention/value": "attention.attn.v",
    "attention/out": "attention.attn.o",
    "attention_norm": "attention.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
TABLE = {
    "embeddings/word/embedding": "embeddings.word_embeddings",
    "embeddings/position/embedding": "embeddings.position_embeddings",
    "embeddings/norm": "embeddings.LayerNorm",
    "relative/embedding": "encoder.relative_attention_bias",
    **{f"layer_{{i}}/{path}": f"encoder.layer.{{i}}.{name}" for path, name in LAYER.items()},
}


@dataclass(frozen=True)
class MpnetConfig(BertConfig):
    """The architecture of an MPNet: BERT's sizes, without token types."""

    buckets: int  # rows of the table of relative positions

    @property
    def position_offset(self) -> int:
        return PADDING + 1


class Mpnet(nn.Module):
    """The encoder. Parameters are float32; `dtype` is the compute type (float32 or bfloat16)."""

    config: MpnetConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, ids_BxL: Array, mask_BxL: Array, deterministic: bool = True, segments: Segments | None = None
    ) -> tuple[Array, ...]:
        """All hidden states, num_layers + 1 arrays [B, L, D], the embeddings' first; arguments as of models.bert.Bert."""
        c = self.config
        positions = token_positions(c, ids_BxL, segments)
        x_BxLxD = EmbeddingBlock(c, self.dtype, name="embeddings")(ids_BxL, deterministic, positions)
        unseen, blocks = attention_bias(mask_BxL.astype(bool), segments)
        normal = nn.initializers.normal(0.02)
        relative = nn.Embed(c.buckets, c.num_heads, embedding_init=normal, name="relative")
        bias = with_distances(unseen, relative)
        states = [x_BxLxD]
        for i in range(c.num_layers):
            layer = Layer(c, self.dtype, name=f"layer_{i}")
            states.append(layer(states[-1], bias, deterministic, blocks))
        return tuple(states)


class MpnetArchitecture(Transformer[MpnetConfig]):
    """MPNet: BERT's layers, with one table of relative positions for all."""

    model_types = ("mpnet",)
    packs = True

    def module(self, config: MpnetConfig, dtype: jnp.dtype, remat: bool) -> Mpnet:
        return Mpnet(config, dtype)

    def embed(
        self,
        config: MpnetConfig,
        params: Tree,
        ids_BxL: Array,
        dtype: jnp.dtype,
        positions_BxL: Array | None = None,
    ) -> Array:
        return embedding_output(config, params["embeddings"], ids_BxL, dtype, positions_BxL)

    def names(self, config: MpnetConfig) -> Names:
        return names_by_table(TABLE, config.num_layers)

    def config_of(self, settings: Settings) -> MpnetConfig:
        if (pad := settings.integer("pad_token_id", 0, default=PADDING)) != PADDING:
            raise settings.fault(
                "pad_token_id", f"is {pad}; an MPNet counts positions from the padding token {PADDING}"
            )
        numbers = dataclasses.asdict(numbers_of(settings, "mpnet")) | {"type_vocab_size": 0, "pad_token_id": PADDING}
        config = MpnetConfig(
            **numbers, buckets=settings.integer("relative_attention_num_buckets", BUCKETS, default=BUCKETS)
        )
        if config.usable_positions < 1:
            raise settings.fault(
                "max_position_embeddings", f"is {config.max_positions}, of which an MPNet uses two for none"
            )
        return config

    def config_keys(self, config: MpnetConfig) -> dict[str, Any]:
        keys = config_keys_of(config, "MPNetModel") | {"relative_attention_num_buckets": config.buckets}
        del keys["type_vocab_size"]
        return keys

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.bert import onnx
        from jdistill.models.onnx_nodes import OnnxBody, Weights

        root = body[0][1]
        config = onnx.read_encoder_config(root)
        parts = {path.rpartition("/")[2]: name for path, name in LAYER.items()}
        names = onnx.TensorNames([f"encoder.layer.{i}" for i in range(config.num_hidden_layers)], parts)
        weights = Weights(root, read(root), "mpnet.")
        states = onnx.encoder_nodes(graph, config, weights, names, _onnx_embeddings, _onnx_bias)
        return OnnxBody(states, int(config.hidden_size), "mpnet")

    def student_config(self, whole: MpnetConfig, student: ConfigDict) -> MpnetConfig:
        """Some layers of an MPNet, as wide as it is: ELECTRA's compact form has no relative positions."""
        check_whole_layers(student, whole, "an MPNet")
        return self.with_dropout(dataclasses.replace(whole, num_layers=checked_layers(student, whole)), student.dropout)

    def student_params(self, cut: Cut[MpnetConfig]) -> Tree:
        """The layers of the cut with the start's embeddings and its table of relative positions."""
        return {name: cut.params[name] for name in ("embeddings", "relative")} | cut.taken(random_layer)


def _onnx_embeddings(graph: Graph, config: Any, weights: Weights) -> str:
    """The sum of token and position embeddings, before its norm: [batch, sequence, width]."""
    from jdistill.models.bert.onnx import counted_positions

    width = config.hidden_size
    word_table = weights.take("embeddings.word_embeddings.weight", config.vocab_size, width)
    position_table = weights.take("embeddings.position_embeddings.weight", config.max_position_embeddings, width)
    x = graph.op("Gather", word_table, "input_ids")
    return graph.op("Add", x, graph.op("Gather", position_table, counted_positions(graph, PADDING)))


def _onnx_bias(graph: Graph, config: Any, weights: Weights) -> str:
    """What the scores of each head are raised by: [1, heads, sequence, sequence]."""
    rows, heads = config.relative_attention_num_buckets, config.num_attention_heads
    return onnx_distances(graph, weights.take("encoder.relative_attention_bias.weight", rows, heads))
