"""ALBERT (Lan et al. 2020): BERT's layers, of which groups of them have their parameters in common, behind a narrow token table.

Source: transformers' AlbertModel, which the tests hold this against. Shapes: B texts, L tokens, E width of the token embeddings, D of
the layers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings
from jdistill.core.progress import log
from jdistill.core.types import Array, Tree
from jdistill.models import conversion
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.bert.compact import random_start
from jdistill.models.bert.config import ACTIVATIONS, BertConfig, config_keys_of, numbers_of
from jdistill.models.bert.module import EmbeddingBlock, Layer, attention_bias, embedding_output
from jdistill.models.bert.student import (
    SENSITIVE_STARTS,
    check_block_start,
    check_block_width,
    fitted_block,
    random_layer,
    resized,
)
from jdistill.models.conversion import MOST_LAYERS, Names, names_by_table
from jdistill.models.cutting import Cut, copied_layers
from jdistill.models.matmul import Dense
from jdistill.models.segments import Segments
from jdistill.models.transformer_files import Transformer

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody

PROJECT = "encoder.embedding_hidden_mapping_in"
OWN_LAYER = re.compile(r"(?:^|\.)albert_layer_groups\.(\d{1,9})\.albert_layers\.(\d{1,9})\.")
# Flax path -> name on disk, as conversion.names_by_table reads them; of a layer, within it.
EMBEDDINGS = {
    "embeddings/word/embedding": "embeddings.word_embeddings",
    "embeddings/position/embedding": "embeddings.position_embeddings",
    "embeddings/type/embedding": "embeddings.token_type_embeddings",
    "embeddings/norm": "embeddings.LayerNorm",
    "project": PROJECT,
}
LAYER_PARTS = {
    "attention/query": "attention.query",
    "attention/key": "attention.key",
    "attention/value": "attention.value",
    "attention/out": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "up": "ffn",
    "down": "ffn_output",
    "output_norm": "full_layer_layer_norm",
}


@dataclass(frozen=True)
class AlbertConfig(BertConfig):
    """The architecture of an ALBERT: BERT's sizes, num_layers being the layers that a token passes.

    Args:
      num_groups: groups of layers that have parameters of their own, G.
      group_layers: layers of a group, one after another, I. A token passes all of them num_layers / I times.
    """

    num_groups: int
    group_layers: int

    @property
    def own_layers(self) -> int:
        """Layers with parameters of their own, G x I."""
        return self.num_groups * self.group_layers

    @property
    def order(self) -> tuple[int, ...]:
        """For each layer that a token passes, which of the own ones it is: those of a group run several times, then the next group's."""
        times = self.num_layers // self.group_layers
        groups = [int(i / (times / self.num_groups)) for i in range(times)]  # as transformers rounds it
        return tuple(group * self.group_layers + k for group in groups for k in range(self.group_layers))


class Albert(nn.Module):
    """The encoder. Parameters are float32; `dtype` is the compute type (float32 or bfloat16)."""

    config: AlbertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, ids_BxL: Array, mask_BxL: Array, deterministic: bool = True, segments: Segments | None = None
    ) -> tuple[Array, ...]:
        """All hidden states, num_layers + 1 arrays [B, L, D], the projected embeddings' first; arguments as of models.bert.Bert."""
        c = self.config
        positions = None if segments is None else segments.positions_BxL
        x_BxLxE = EmbeddingBlock(c, self.dtype, name="embeddings")(ids_BxL, deterministic, positions)
        states = [Dense(c.hidden_size, dtype=self.dtype, name="project")(x_BxLxE)]
        bias, blocks = attention_bias(mask_BxL.astype(bool), segments)
        layers = {k: Layer(c, self.dtype, name=f"layer_{k}") for k in dict.fromkeys(c.order)}
        for k in c.order:
            states.append(layers[k](states[-1], bias, deterministic, blocks))
        return tuple(states)


class AlbertArchitecture(Transformer[AlbertConfig]):
    """ALBERT. A student of one passes fewer of its shared layers, behind token embeddings that may be narrower still."""

    model_types = ("albert",)
    compresses = True
    packs = True

    def module(self, config: AlbertConfig, dtype: jnp.dtype, remat: bool) -> Albert:
        return Albert(config, dtype)

    def embed(
        self,
        config: AlbertConfig,
        params: Tree,
        ids_BxL: Array,
        dtype: jnp.dtype,
        positions_BxL: Array | None = None,
    ) -> Array:
        """The embedding block's output, projected. Reads "embeddings" and "project" alone."""
        x_BxLxE = embedding_output(config, params["embeddings"], ids_BxL, dtype, positions_BxL)
        return x_BxLxE @ params["project"]["kernel"].astype(dtype) + params["project"]["bias"].astype(dtype)

    def names(self, config: AlbertConfig) -> Names:
        layers = {
            f"layer_{k}/{path}": f"{_layer_name(config, k)}.{name}"
            for k in range(config.own_layers)
            for path, name in LAYER_PARTS.items()
        }
        return names_by_table(EMBEDDINGS | layers, 1)

    def shapes(self, config: AlbertConfig) -> dict[str, tuple[int, ...]]:
        single = dataclasses.replace(config, num_layers=1, num_groups=1, group_layers=1)  # all layers are alike
        shapes = conversion.module_shapes(self.module, single)
        return {path: shapes[re.sub(r"^layer_\d+/", "layer_0/", path)] for path in self.names(config)}

    def from_tensors(self, config: AlbertConfig, tensors: Mapping[str, np.ndarray], where: str) -> Tree:
        clean = conversion.plain_names(tensors, self.prefix(config))
        what = "layers with parameters of their own (num_hidden_groups times inner_group_num)"
        conversion.check_layers(clean, config.own_layers, where, OWN_LAYER, what)
        return conversion.from_tensors(self.names(config), self.shapes(config), clean, where)

    def config_of(self, settings: Settings) -> AlbertConfig:
        times = settings.integer("num_hidden_layers", 1, MOST_LAYERS)
        inner = settings.integer("inner_group_num", 1, MOST_LAYERS // times, default=1)
        numbers = dataclasses.asdict(numbers_of(settings, "albert")) | {
            "embedding_size": settings.integer("embedding_size", 1, default=128),
            "num_layers": times * inner,
            "type_vocab_size": settings.integer("type_vocab_size", 1, default=2),
            "activation": settings.text("hidden_act", "gelu_new", among=tuple(ACTIVATIONS)),
            "hidden_dropout": settings.number("hidden_dropout_prob", 0.0, 1.0, default=0.0),
            "attention_dropout": settings.number("attention_probs_dropout_prob", 0.0, 1.0, default=0.0),
        }
        groups = settings.integer("num_hidden_groups", 1, times, default=1)
        return AlbertConfig(**numbers, num_groups=groups, group_layers=inner)

    def config_keys(self, config: AlbertConfig) -> dict[str, Any]:
        return config_keys_of(config, "AlbertModel") | {
            "embedding_size": config.embedding_size,
            "num_hidden_layers": config.num_layers // config.group_layers,
            "num_hidden_groups": config.num_groups,
            "inner_group_num": config.group_layers,
        }

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.bert import onnx
        from jdistill.models.onnx_nodes import OnnxBody, Weights

        root = body[0][1]
        config, own = onnx.read_encoder_config(root), self.read_config(body)
        layers = [_layer_name(own, k) for k in own.order]
        parts = {path.rpartition("/")[2]: name for path, name in LAYER_PARTS.items()}
        names = onnx.TensorNames(layers, parts, PROJECT)
        weights = Weights(root, read(root), self.prefix(own))
        states = onnx.encoder_nodes(graph, config, weights, names, onnx.embedding_sum)
        return OnnxBody(states, own.hidden_size, "albert")

    def student_config(self, whole: AlbertConfig, student: ConfigDict) -> AlbertConfig:
        """Fewer layers to pass, and, if asked for, narrower ones or narrower token embeddings. Layers that were one remain one."""
        config = resized(whole, student)
        check_block_start(student)
        if student.start in SENSITIVE_STARTS:
            raise UserError(
                f"--config.student.start={student.start} is not computed for an ALBERT; set --config.student.start=svd"
            )
        if student.start == "svd" and config.hidden_size == whole.hidden_size:
            check_block_width(config.embedding_size, whole)
        which = "spread" if student.copy_layers == "none" else student.copy_layers
        layers = copied_layers(which, dataclasses.replace(whole, num_layers=config.num_layers), whole)
        return _shared(config, [whole.order[k] for k in layers if k is not None])

    def student_params(self, cut: Cut[AlbertConfig]) -> Tree:
        """The layers of the cut, those that are one once, and the embedding block with its projection."""
        embeddings, project = _block(cut)
        order = cut.config.order
        of_own = [cut.layers[order.index(k)] for k in range(cut.config.own_layers)]
        taken = dataclasses.replace(cut, layers=[k if k is None else cut.whole.order[k] for k in of_own])
        return {"embeddings": embeddings, "project": project} | taken.taken(random_layer)


def _layer_name(config: AlbertConfig, own: int) -> str:
    """A layer's name on disk, by its number among the own ones."""
    group, k = divmod(own, config.group_layers)
    return f"encoder.albert_layer_groups.{group}.albert_layers.{k}"


def _shared(config: AlbertConfig, taken: list[int]) -> AlbertConfig:
    """The config with the fewest own layers that can be those taken; a layer that groups of one size cannot hold once becomes two.

    Args:
      taken: for each layer that a token passes which of the start's own it is.
    """
    count = len(taken)
    sizes = [size for size in {1, config.group_layers} if count % size == 0]
    ways = sorted((groups * size, groups, size) for size in sizes for groups in range(1, count // size + 1))
    configs = (dataclasses.replace(config, num_groups=groups, group_layers=size) for _, groups, size in ways)
    # Each own layer stands for one of the start's; with as many as are passed it always does.
    return next(c for c in configs if len(set(zip(c.order, taken, strict=True))) == len(set(c.order)))


def _block(cut: Cut[AlbertConfig]) -> tuple[Tree, Tree]:
    """The embedding block and its projection: the start's own, or one fitted to its block and projected on as the start does, or random."""
    config, whole, block, project = cut.config, cut.whole, cut.params["embeddings"], cut.params["project"]
    if (config.embedding_size, config.hidden_size) == (whole.embedding_size, whole.hidden_size):
        return block, project
    if cut.block_start == "svd" and config.hidden_size == whole.hidden_size:
        return fitted_block(cut, block)
    if cut.block_start == "svd":
        log.warning("the token embeddings start at random: svd needs the start's own width in every layer")
    return random_start(block, config.embedding_size, config.hidden_size, cut.seed)
