"""What an architecture is: all that the other rooms ask of BERT, of a decoder, of an LSTM, behind one protocol.

A further architecture is one file that subclasses Architecture, and one line in models/registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.json_files import Settings, read_settings
from jdistill.core.types import Array, Tree
from jdistill.models import conversion
from jdistill.models.conversion import Names

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph, OnnxBody

Body = Sequence[tuple[str, Path]]  # kind and folder of each of sentence-transformers' modules that compute token states
ReadTensors = Callable[[Path], Mapping[str, np.ndarray]]  # folder -> its float32 tensors by name
BUILT_IN = "sentence_transformers.models."


class ModelConfig(Protocol):
    """The sizes of a model: a frozen dataclass, hashable, so that it can be a static argument of jit."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def model_type(self) -> str: ...  # by which the registry finds the architecture

    @property
    def vocab_size(self) -> int: ...  # 0: as many as the token table has rows

    @property
    def embedding_size(self) -> int: ...  # width of the token embeddings

    @property
    def hidden_size(self) -> int: ...  # width of a token's state

    @property
    def num_layers(self) -> int: ...

    @property
    def pad_token_id(self) -> int: ...  # below 0: the tokenizer's

    @property
    def usable_positions(self) -> int: ...  # the longest sequence, in tokens

    @property
    def causal(self) -> bool: ...  # a token sees those before it only


C = TypeVar("C", bound=ModelConfig)


@dataclass(frozen=True)
class Cut(Generic[C]):
    """What a student is made from.

    config: the student's. whole, params: its start's. layers: for each layer of the student the start's layer that it begins as;
    None: at random. block_start: how narrower token embeddings begin, by svd or at random. sample: gives token ids and the places
    in their texts where they stood, int [N] each, of the training text. rng is drawn from in this order: sample, layers.
    """

    config: C
    whole: C
    params: Tree
    layers: Sequence[int | None]
    block_start: str
    sample: Callable[[], tuple[np.ndarray, np.ndarray]]
    rng: np.random.Generator
    seed: int

    def taken(self, random_layer: Callable[[C, np.random.Generator], Tree]) -> Tree:
        """The student's layers, {"layer_0": …}."""
        return {
            f"layer_{k}": self.params[f"layer_{layer}"] if layer is not None else random_layer(self.config, self.rng)
            for k, layer in enumerate(self.layers)
        }


class Architecture(Protocol[C]):
    """One family of models.

    model_types: as config.json has them. own_modules: kinds in modules.json that are this architecture; (): it is a transformer,
    which config.json names. length_file: that holds max_seq_length, in the first module's folder. tolerance: max abs, float32,
    between Flax's and another framework's vectors of length one. decoder: a language model, which can judge pairs. compresses:
    there is a form with token embeddings narrower than the layers. recurrent: no transformer; it has no layers that a student
    could take, and a vocabulary of its own.
    """

    model_types: tuple[str, ...]
    own_modules: tuple[str, ...] = ()
    length_file: str = "sentence_bert_config.json"
    tolerance: float = 1e-4
    decoder: bool = False
    compresses: bool = False
    recurrent: bool = False

    def module(self, config: C, dtype: jnp.dtype, remat: bool) -> nn.Module:
        """The Flax module: (ids int32 [B, L], mask [B, L], deterministic) -> num_layers + 1 states [B, L, D]. remat: layers keep no
        activations for the backward pass, where the module can do without."""
        ...

    def embed(self, config: C, params: Tree, ids_BxL: Array, dtype: jnp.dtype) -> Array:
        """The embedding layer's output [B, L, D], without dropout; its parameters alone are needed."""
        return jnp.asarray(self.token_table(params))[ids_BxL].astype(dtype)

    def token_table(self, params: Tree) -> np.ndarray:
        """The token embeddings, float32 [V, E]."""
        return params["embeddings"]["word"]["embedding"]

    def output_layer(self, config: C) -> str | None:
        """The tensor of the layer that predicts tokens, by its name on disk. None: it is the token table, or there is none."""
        return None

    def with_dropout(self, config: C, rate: float) -> C:
        """The same sizes, with this share left out while training."""
        changes: dict[str, Any] = {"hidden_dropout": rate, "attention_dropout": rate}
        return replace(config, **changes)

    # Files of Hugging Face and sentence-transformers

    def names(self, config: C) -> Names:
        """Flax path -> (name of the tensor on disk, whether to transpose), for every parameter."""
        ...

    def read_config(self, body: Body) -> C:
        """The sizes of a folder's model, from its JSON files. Raises UserError for a key that is missing, of another type, or not
        computed here."""
        ...

    def files(self, config: C, max_length: int) -> dict[str, dict[str, Any]]:
        """JSON files of an export, by their path in it; the inverse of read_config."""
        ...

    def modules(self, config: C) -> list[tuple[str, str]]:
        """(type, path) in modules.json of what computes token states; the tokenizer lies with the first."""
        ...

    def from_tensors(self, config: C, tensors: Mapping[str, np.ndarray], where: str) -> Tree:
        """Flax parameters from the tensors on disk; an output layer that predicts words is left out. `where` is for messages.

        Raises UserError naming the tensor that is missing or has another shape than config.json says.
        """
        ...

    def to_tensors(self, config: C, params: Tree) -> dict[str, np.ndarray]:
        """Tensors on disk from Flax parameters; the inverse of from_tensors, exactly."""
        return conversion.to_tensors(self.names(config), params)

    def tensor_files(self, config: C, params: Tree) -> dict[str, dict[str, np.ndarray]]:
        """The safetensors files of an export, by their path in it."""
        return {"model.safetensors": self.to_tensors(config, params)}

    def shapes(self, config: C) -> dict[str, tuple[int, ...]]:
        """Flax path -> shape for every parameter, in the order of names."""
        shapes = conversion.module_shapes(self.module, config)
        return {path: shapes[path] for path in self.names(config)}

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        """Adds the model to an ONNX graph, from the files alone. Adds the values "mask", float32 [batch, sequence], and "shape".

        Raises UserError for whatever has no graph.
        """
        ...

    # Students

    def student_config(self, whole: C, student: ConfigDict) -> C:
        """The sizes of the student that cfg.student asks for of this start. Raises UserError for keys that do not fit it."""
        ...

    def student_params(self, cut: Cut[C]) -> Tree:
        """The student's parameters before training: what is no layer as it is, and the layers of the cut."""
        ...


class Transformer(Architecture[C], Protocol[C]):
    """A transformer in Hugging Face's layout: config.json and model.safetensors."""

    def config_of(self, settings: Settings) -> C:
        """The sizes of a config.json. Raises UserError for a key that is missing, of another type, or not computed here."""
        ...

    def config_keys(self, config: C) -> dict[str, Any]:
        """The content of config.json for transformers; the inverse of config_of."""
        ...

    def prefix(self, config: C) -> str:
        """What may stand before every tensor's name, as the models with an output layer have it."""
        return f"{config.model_type}."

    def read_config(self, body: Body) -> C:
        return self.config_of(read_settings(body[0][1] / "config.json"))

    def files(self, config: C, max_length: int) -> dict[str, dict[str, Any]]:
        return {
            "config.json": self.config_keys(config),
            self.length_file: {"max_seq_length": max_length, "do_lower_case": False},
        }

    def modules(self, config: C) -> list[tuple[str, str]]:
        return [(f"{BUILT_IN}Transformer", "")]

    def from_tensors(self, config: C, tensors: Mapping[str, np.ndarray], where: str) -> Tree:
        clean = conversion.plain_names(tensors, self.prefix(config))
        conversion.check_layers(clean, config.num_layers, where)
        return conversion.from_tensors(self.names(config), self.shapes(config), clean, where)
