"""The architecture of Llama's family, as the registry knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings
from jdistill.core.types import Array, Tree
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.conversion import Names
from jdistill.models.cutting import Cut, check_whole_layers, checked_layers, copied_layers
from jdistill.models.decoder import config as files
from jdistill.models.decoder import gguf
from jdistill.models.decoder.config import TYPES, DecoderConfig
from jdistill.models.decoder.layer_types import GEMMA
from jdistill.models.decoder.module import Decoder, first_state
from jdistill.models.gguf_layout import GgufModel
from jdistill.models.transformer_files import Transformer

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody

ATTENTIONS = ("causal", "bidirectional")
BIDIRECTIONAL_MODULE = (
    "BidirectionalTransformer"  # the module of ours that runs a decoder whose tokens see the whole text
)
NEWER_TYPES = ("qwen3", GEMMA)  # of transformers 4.50 and 4.51, after the last that servers of transformers 4 take


class DecoderArchitecture(Transformer[DecoderConfig]):
    """The decoders of TYPES, causal, or reading both ways: a Gemma by its config, others as BIDIRECTIONAL_MODULE."""

    model_types = tuple(TYPES)
    tolerance = 1e-3  # large activations round more
    decoder = True
    packs = True
    position_table = False
    special_ids = ("eos",)
    gguf_kinds = gguf.GGUF_DECODERS
    table_path = ("word", "embedding")

    def module(self, config: DecoderConfig, dtype: jnp.dtype, remat: bool) -> Decoder:
        return Decoder(config, dtype, remat)

    def embed(
        self, config: DecoderConfig, params: Tree, ids_BxL: Array, dtype: jnp.dtype, positions_BxL: Array | None = None
    ) -> Array:
        return first_state(config, jnp.asarray(self.token_table(params))[ids_BxL], dtype)

    def output_layer(self, config: DecoderConfig) -> str | None:
        return None if config.tied else "lm_head.weight"

    def names(self, config: DecoderConfig) -> Names:
        return files.tensor_names(config)

    def prefix(self, config: DecoderConfig) -> str:
        return "model."

    def config_of(self, settings: Settings) -> DecoderConfig:
        return files.read_config(settings)

    def read_config(self, body: Body) -> DecoderConfig:
        config = super().read_config(body)
        return replace(config, causal=config.causal and body[0][0] != BIDIRECTIONAL_MODULE)

    def in_older_transformers(self, config: DecoderConfig) -> bool:
        return config.model_type not in NEWER_TYPES

    def config_keys(self, config: DecoderConfig) -> dict[str, Any]:
        return files.write_config(config)

    def modules(self, config: DecoderConfig) -> list[tuple[str, str]]:
        if config.causal or config.gemma:
            return super().modules(config)
        return [(f"bidirectional_transformer.{BIDIRECTIONAL_MODULE}", "")]

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.decoder import onnx

        return onnx.onnx_states(graph, body, read)

    def gguf_model(self, config: DecoderConfig, params: Tree, max_length: int) -> GgufModel:
        return gguf.to_gguf(config, params, max_length)

    def student_config(self, whole: DecoderConfig, student: ConfigDict) -> DecoderConfig:
        """Some layers of a decoder, each seeing as far as in the start, both ways if student.attention says so."""
        check_whole_layers(student, whole, "a decoder")
        if student.attention not in ATTENTIONS:
            raise UserError(f"--config.student.attention={student.attention!r} is not one of {', '.join(ATTENTIONS)}")
        if student.copy_layers == "none":
            raise UserError("--config.student.copy_layers=none: a decoder's layers start as its own")
        if student.attention == "causal" and not whole.causal:
            raise UserError(
                "--config.student.attention=causal: the start's tokens see those behind them too, and its layers "
                "are of no use without; set --config.student.attention=bidirectional"
            )
        config = replace(whole, num_layers=checked_layers(student, whole), causal=student.attention == "causal")
        layers = copied_layers(student.copy_layers, config, whole)
        sliding = tuple(whole.window(layer) is not None for layer in layers if layer is not None)
        window = whole.sliding_window if any(sliding) else 0
        config = replace(config, sliding=sliding if any(sliding) else (), sliding_window=window)
        return self.with_dropout(config, student.dropout)

    def student_params(self, cut: Cut[DecoderConfig]) -> Tree:
        """The copied layers with the start's token table and its final norm."""
        layers = {f"layer_{k}": cut.params[f"layer_{layer}"] for k, layer in enumerate(cut.layers)}
        return {name: cut.params[name] for name in ("word", "final_norm")} | layers
