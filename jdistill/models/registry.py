"""The architectures that there are, in one list, and what is asked of a model whatever its architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.errors import UserError
from jdistill.models.albert import AlbertArchitecture
from jdistill.models.architecture import Architecture, ModelConfig
from jdistill.models.beginnings import Beginnings
from jdistill.models.bert import BertArchitecture
from jdistill.models.bilstm import BilstmArchitecture
from jdistill.models.conversion import Names
from jdistill.models.decoder import DecoderArchitecture
from jdistill.models.modernbert import ModernBertArchitecture
from jdistill.models.mpnet import MpnetArchitecture
from jdistill.models.nomicbert import NomicBertArchitecture
from jdistill.models.segments import Segments
from jdistill.models.t5 import T5Architecture

ARCHITECTURES: tuple[Architecture[Any], ...] = (
    BertArchitecture(),
    DecoderArchitecture(),
    BilstmArchitecture(),
    MpnetArchitecture(),
    ModernBertArchitecture(),
    NomicBertArchitecture(),
    AlbertArchitecture(),
    T5Architecture(),
)
_BY_TYPE = {model_type: architecture for architecture in ARCHITECTURES for model_type in architecture.model_types}

OWN_MODULES = tuple(architecture.own_modules for architecture in ARCHITECTURES if architecture.own_modules)
GGUF_KINDS = {kind.name: kind for architecture in ARCHITECTURES for kind in architecture.gguf_kinds}


def architecture_of(config: ModelConfig) -> Architecture[Any]:
    """The architecture of a model's config."""
    return _BY_TYPE[config.model_type]


def transformer_named(model_type: object, where: object) -> Architecture[Any]:
    """The transformer of a config.json's model_type.

    Args:
      model_type: as config.json has it, whatever that is.
      where: for messages.

    Raises: UserError that lists what there is.
    """
    there = {name: architecture for name, architecture in _BY_TYPE.items() if not architecture.own_modules}
    if not isinstance(model_type, str) or model_type not in there:
        raise UserError(
            f"{where}: model_type is {str(model_type)[:60]!r}; jdistill reads {', '.join(sorted(there))}. "
            "Any other model can teach through st:SOURCE (torch extra) or vectors:FILE"
        )
    return there[model_type]


def with_modules(kinds: Sequence[str]) -> Architecture[Any] | None:
    """The architecture whose own modules stand first in modules.json; None: a transformer, which its config.json names."""
    for architecture in ARCHITECTURES:
        if architecture.own_modules and tuple(kinds[: len(architecture.own_modules)]) == architecture.own_modules:
            return architecture
    return None


def hidden_states(
    config: ModelConfig,
    params: Any,
    ids_BxL: jax.Array,
    mask_BxL: jax.Array,
    dtype: jnp.dtype = jnp.float32,
    dropout_rng: jax.Array | None = None,
    remat: bool = False,
    segments: Segments | None = None,
    before: Beginnings | None = None,
) -> tuple[jax.Array, ...]:
    """All hidden states of a model, as transformers counts them, the embeddings' first.

    Args:
      config, params: the model's sizes, and its Flax parameters, float32.
      ids_BxL: int32 token ids.
      mask_BxL: bool or int, true for tokens.
      dtype: of the computation.
      dropout_rng: a key; None: no dropout.
      remat: a decoder's layers keep no activations for the backward pass, which computes them anew.
      segments: of several texts in one row, of an architecture that packs.
      before: what each row goes on from, of a decoder.

    Returns: num_layers + 1 arrays [B, L, D]; a recurrent model's embeddings are of another width.
    """
    rngs = {} if dropout_rng is None else {"dropout": dropout_rng}
    model = architecture_of(config).module(config, dtype, remat)
    more: dict[str, Any] = {name: x for name, x in (("segments", segments), ("before", before)) if x is not None}
    states = model.apply({"params": params}, ids_BxL, mask_BxL, dropout_rng is None, rngs=rngs, **more)
    return cast(tuple[jax.Array, ...], states)


def names_of(config: ModelConfig) -> Names:
    """Flax path -> (name on disk, whether to transpose), for every parameter."""
    return architecture_of(config).names(config)


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Flax path -> shape, for every parameter."""
    return architecture_of(config).shapes(config)


def count_parameters(config: ModelConfig, pooler: bool = False) -> int:
    """Parameters of the architecture.

    Args:
      pooler: count BERT's D x D pooler layer too, as the papers' sizes do.
    """
    extra = config.hidden_size * (config.hidden_size + 1) if pooler else 0
    return sum(int(np.prod(shape)) for shape in parameter_shapes(config).values()) + extra
