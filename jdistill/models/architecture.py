"""What an architecture is: all that the other rooms ask of BERT, of a decoder, of an LSTM, behind one protocol.

A further architecture is one file that subclasses Architecture, and one line in models/registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.models import conversion
from jdistill.models.conversion import Names
from jdistill.models.gguf_layout import GgufKind, GgufModel

if TYPE_CHECKING:
    from jdistill.models.cutting import Cut
    from jdistill.models.onnx_nodes import Graph, OnnxBody

Body = Sequence[tuple[str, Path]]  # kind and folder of each of sentence-transformers' modules that compute token states
ReadTensors = Callable[[Path], Mapping[str, np.ndarray]]  # folder -> its float32 tensors by name
BUILT_IN = "sentence_transformers.models."


class ModelConfig(Protocol):
    """The sizes of a model: a frozen dataclass, hashable, so that it can be a static argument of jit."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def model_type(self) -> str:
        """The name by which the registry finds the architecture, as config.json has it."""

    @property
    def vocab_size(self) -> int:
        """Rows of the token table, V; 0: not told by the files, and read off the table."""

    @property
    def embedding_size(self) -> int:
        """Width of the token embeddings, E."""

    @property
    def hidden_size(self) -> int:
        """Width of a token's state, D."""

    @property
    def num_layers(self) -> int:
        """Layers, the embedding layer not counted."""

    @property
    def pad_token_id(self) -> int:
        """The token that padding is made of; below 0: the tokenizer's."""

    @property
    def usable_positions(self) -> int:
        """The longest sequence, in tokens."""

    @property
    def causal(self) -> bool:
        """Whether a token sees those before it only."""


C = TypeVar("C", bound=ModelConfig)


class Architecture(Protocol[C]):
    """One family of models. B texts, L tokens, V rows of the token table, E and D as in ModelConfig.

    Args:
      model_types: as config.json has them.
      own_modules: kinds in modules.json that are this architecture; (): it is a transformer, which config.json names.
      length_file: that holds max_seq_length, in the first module's folder.
      tolerance: max abs, float32, between Flax's and another framework's vectors of length one.
      decoder: a language model, which can judge pairs.
      compresses: there is a form with token embeddings narrower than the layers.
      narrows: a layer of a student may have fewer inner neurons than its start's.
      packs: its module takes several texts in one row (models.segments).
      position_table: whether no text may have more tokens than usable_positions; else that is how many it was trained on, and a
        folder's own limit may be more.
      recurrent: no transformer; it has no layers that a student could take, and a vocabulary of its own.
      table_path: where the token embeddings stand in its parameters.
      gguf_kinds: llama.cpp's architectures that are read as it.
      special_ids: the tokens whose ids stand in config.json, since text-embeddings-inference loads no model without them.
    """

    model_types: tuple[str, ...]
    own_modules: tuple[str, ...] = ()
    length_file: str = "sentence_bert_config.json"
    tolerance: float = 1e-4
    decoder: bool = False
    compresses: bool = False
    narrows: bool = False
    packs: bool = False
    position_table: bool = True
    recurrent: bool = False
    table_path: tuple[str, ...] = ("embeddings", "word", "embedding")
    gguf_kinds: tuple[GgufKind, ...] = ()
    special_ids: tuple[str, ...] = ()

    def module(self, config: C, dtype: jnp.dtype, remat: bool) -> nn.Module:
        """The Flax module: (ids int32 [B, L], mask [B, L], deterministic) -> num_layers + 1 states [B, L, D].

        The embeddings' state is the first; in a recurrent model it is E wide. One that packs also takes segments=Segments.

        Args:
          config: the sizes.
          dtype: of the computation; parameters are float32.
          remat: layers keep no activations for the backward pass, where the module can do without.
        """

    def embed(
        self, config: C, params: Tree, ids_BxL: Array, dtype: jnp.dtype, positions_BxL: Array | None = None
    ) -> Array:
        """The embedding layer's output, without dropout.

        Args:
          params: Flax parameters, of which the embedding layer's alone are needed.
          ids_BxL: int32.
          dtype: of the result.
          positions_BxL: of each token in its text, where the embeddings know positions; None: its column.

        Returns: [B, L, E], or [B, L, D] where a projection follows the table.
        """
        return jnp.asarray(self.token_table(params))[ids_BxL].astype(dtype)

    def token_table(self, params: Tree) -> np.ndarray:
        """The token embeddings of Flax parameters, float32 [V, E]."""
        return reduce(getitem, self.table_path, params)

    def with_token_table(self, params: Tree, table: np.ndarray) -> Tree:
        """The same Flax parameters with other token embeddings, float32 [V', E]."""
        flat = flatten_dict(params)
        return unflatten_dict(flat | {self.table_path: table})

    def output_layer(self, config: C) -> str | None:
        """The tensor of the layer that predicts tokens, by its name on disk. None: it is the token table, or there is none."""
        return None

    def in_older_transformers(self, config: C) -> bool:
        """Whether transformers 4, with which some servers come, has the model and reads all of its layers as they are."""
        return True

    def with_dropout(self, config: C, rate: float) -> C:
        """The same sizes, with `rate`, from 0 to below 1, of the activations left out while training."""
        changes: dict[str, Any] = {"hidden_dropout": rate, "attention_dropout": rate}
        return replace(config, **changes)

    # Files of Hugging Face and sentence-transformers

    def names(self, config: C) -> Names:
        """Flax path -> (name of the tensor on disk, whether to transpose), for every parameter."""

    def read_config(self, body: Body) -> C:
        """The sizes of a folder's model, from its JSON files.

        Args:
          body: kind and folder of each module that computes token states.

        Raises: UserError for a key that is missing, of another type, or not computed here.
        """

    def files(self, config: C, max_length: int) -> dict[str, dict[str, Any]]:
        """JSON files of an export, by their path in it; the inverse of read_config.

        Args:
          max_length: of a text, in tokens.
        """

    def modules(self, config: C) -> list[tuple[str, str]]:
        """(type, path) in modules.json of what computes token states; the tokenizer lies with the first."""

    def from_tensors(self, config: C, tensors: Mapping[str, np.ndarray], where: str) -> Tree:
        """Flax parameters from the tensors on disk; an output layer that predicts words is left out.

        Args:
          tensors: by their names on disk, float32.
          where: for messages.

        Raises: UserError naming the tensor that is missing or has another shape than config.json says.
        """

    def to_tensors(self, config: C, params: Tree) -> dict[str, np.ndarray]:
        """Tensors on disk, float32 by name, from Flax parameters; the inverse of from_tensors, exactly."""
        return conversion.to_tensors(self.names(config), params)

    def module_tensors(self, config: C, params: Tree) -> dict[str, np.ndarray]:
        """Tensors, float32, by the names of transformers' modules, where these are not the names on disk."""
        return self.to_tensors(config, params)

    def tensor_files(self, config: C, params: Tree) -> dict[str, dict[str, np.ndarray]]:
        """The safetensors files of an export, by their path in it: each the tensors by name, float32."""
        return {"model.safetensors": self.to_tensors(config, params)}

    def shapes(self, config: C) -> dict[str, tuple[int, ...]]:
        """Flax path -> shape of every parameter, in the order of names."""
        shapes = conversion.module_shapes(self.module, config)
        return {path: shapes[path] for path in self.names(config)}

    def onnx_states(self, graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
        """Adds the model to an ONNX graph, from the files alone, and the values "mask", float32 [batch, sequence], and "shape".

        Args:
          graph: that it is added to.
          body: kind and folder of each module that computes token states.
          read: a folder -> its float32 tensors by name.

        Returns: where pooling begins: the names of the hidden states, [batch * sequence, width] each, with their width.

        Raises: UserError for whatever has no graph.
        """

    def gguf_model(self, config: C, params: Tree, max_length: int) -> GgufModel:
        """The model as llama.cpp computes it.

        Args:
          max_length: of a text, in tokens.

        Raises: UserError for whatever llama.cpp does not compute.
        """
        raise UserError(
            f"GGUF: llama.cpp has no architecture for this student ({config.model_type}), or none that is written here; serve it by "
            "ONNX Runtime or sentence-transformers, or train a student of BERT's or a decoder's layers"
        )

    # Students

    def student_config(self, whole: C, student: ConfigDict) -> C:
        """The sizes of the student that cfg.student asks for.

        Args:
          whole: of the student's start.
          student: cfg.student.

        Raises: UserError for keys that do not fit the start.
        """

    def student_params(self, cut: Cut[C]) -> Tree:
        """The student's parameters before training: what is no layer as it is, and the layers of the cut. float32."""
