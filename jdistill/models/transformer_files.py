"""What the transformers of Hugging Face have in common: one config.json, one model.safetensors, one module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from jdistill.core.json_files import Settings, read_settings, said
from jdistill.core.types import Tree
from jdistill.models import conversion
from jdistill.models.architecture import BUILT_IN, Architecture, Body, C


class Transformer(Architecture[C], Protocol[C]):
    """A transformer in Hugging Face's layout: config.json and model.safetensors."""

    def config_of(self, settings: Settings) -> C:
        """The sizes of a config.json.

        Raises: UserError for a key that is missing, of another type, or not computed here.
        """

    def config_keys(self, config: C) -> dict[str, Any]:
        """The content of config.json for transformers; the inverse of config_of."""

    def prefix(self, config: C) -> str:
        """What may stand before every tensor's name on disk, as the models with an output layer have it."""
        return f"{config.model_type}."

    def read_config(self, body: Body) -> C:
        """As Architecture's, by config_of. Raises UserError for weights of 4 or 8 bits, and for a file of weights by a name of its own."""
        settings = read_settings(body[0][1] / "config.json")
        if (weights := settings.raw("transformers_weights", None)) not in (None, "model.safetensors"):
            raise settings.fault(
                "transformers_weights",
                f"is {said(weights)}, which transformers reads in the place of model.safetensors or its index; give it that name, and take "
                "the key out",
            )
        if how := settings.part("quantization_config").values:
            kind = how.get("quant_method", "of an unnamed kind")
            raise settings.fault(
                "quantization_config",
                f"tells of quantised weights ({kind}), which are not read; name the unquantised model, or its .gguf",
            )
        return self.config_of(settings)

    def files(self, config: C, max_length: int) -> dict[str, dict[str, Any]]:
        """As Architecture's: config.json, and the maximum length in length_file."""
        return {
            "config.json": self.config_keys(config),
            self.length_file: {"max_seq_length": max_length, "do_lower_case": False},
        }

    def modules(self, config: C) -> list[tuple[str, str]]:
        """As Architecture's: one module, of sentence-transformers' own kind Transformer."""
        return [(f"{BUILT_IN}Transformer", "")]

    def from_tensors(self, config: C, tensors: Mapping[str, np.ndarray], where: str) -> Tree:
        """As Architecture's; names may have the prefix, and LayerNorm's the old gamma and beta."""
        clean = conversion.plain_names(tensors, self.prefix(config))
        conversion.check_layers(clean, config.num_layers, where)
        return conversion.from_tensors(self.names(config), self.shapes(config), clean, where)
