"""The architecture of T5's encoder, as the registry knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.json_files import Settings
from jdistill.core.types import Tree
from jdistill.models import conversion
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.conversion import Names
from jdistill.models.cutting import Cut, check_whole_layers, checked_layers
from jdistill.models.t5 import config as files
from jdistill.models.t5.config import T5Config
from jdistill.models.t5.module import T5Encoder
from jdistill.models.transformer_files import Transformer

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody


class T5Architecture(Transformer[T5Config]):
    """T5's encoder; of a file that has the decoder too, that is left out."""

    model_types = ("t5",)
    packs = True
    table_path = ("word", "embedding")

    def module(self, config: T5Config, dtype: jnp.dtype, remat: bool) -> T5Encoder:
        return T5Encoder(config, dtype)

    def names(self, config: T5Config) -> Names:
        return files.tensor_names(config)

    def from_tensors(self, config: T5Config, tensors: Mapping[str, np.ndarray], where: str) -> Tree:
        own = files.encoder_tensors(tensors)
        conversion.check_layers(own, config.num_layers, where, files.T5_BLOCK)
        return conversion.from_tensors(self.names(config), self.shapes(config), own, where)

    def config_of(self, settings: Settings) -> T5Config:
        return files.read_config(settings)

    def config_keys(self, config: T5Config) -> dict[str, Any]:
        return files.write_config(config)

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        from jdistill.models.t5 import onnx

        return onnx.onnx_states(graph, body, read)

    def student_config(self, whole: T5Config, student: ConfigDict) -> T5Config:
        """Some layers of a T5, as wide as it is: no projection follows its token table, which narrower embeddings would need."""
        check_whole_layers(student, whole, "a T5")
        return self.with_dropout(replace(whole, num_layers=checked_layers(student, whole)), student.dropout)

    def student_params(self, cut: Cut[T5Config]) -> Tree:
        """The layers of the cut with the start's token table, its table of distances, whichever layers are taken, and its final norm."""
        return {name: cut.params[name] for name in ("word", "relative", "final_norm")} | cut.taken(_random_layer)


def _random_layer(config: T5Config, rng: np.random.Generator) -> Tree:
    """One layer, as T5 starts: the query's weights make up for the scale that the scores lack."""
    D, F, K = config.hidden_size, config.intermediate_size, config.head_size
    HK = config.num_heads * K

    def dense(rows: int, columns: int, scale: float) -> Tree:
        return {"kernel": (scale * rng.standard_normal((rows, columns))).astype(np.float32)}

    def norm() -> Tree:
        return {"scale": np.ones(D, np.float32)}

    return {
        "attention_norm": norm(),
        "attention": {
            "query": dense(D, HK, (D * K) ** -0.5),
            "key": dense(D, HK, D**-0.5),
            "value": dense(D, HK, D**-0.5),
            "out": dense(HK, D, HK**-0.5),
        },
        "output_norm": norm(),
        **({"gate": dense(D, F, D**-0.5)} if config.gated else {}),
        "up": dense(D, F, D**-0.5),
        "down": dense(F, D, F**-0.5),
    }
