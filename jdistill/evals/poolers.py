"""All poolers of a model by one forward pass a text (DistilFACE, Table 7)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log, progress
from jdistill.data.batching.padding import batches_by_length
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.encoder.vectors import after
from jdistill.models.pooling import DISTILFACE, POOLERS, pool, resolve_pooler
from jdistill.models.registry import ModelConfig, hidden_states

POOLERS_BATCH = 64


def pooler_names(asked: str, num_layers: int) -> tuple[str, ...]:
    """The names in "all" (the paper's 14, those left out and told of that the model has too few layers for) or "a,b,c".

    Raises UserError for a name that is not a pooler's, one named itself that the model has too few layers for, and one that a
    transformer's states alone do not give: pma has parameters, final is of an LSTM.
    """
    if asked != "all":
        names = tuple(resolve_pooler(name.strip()) for name in asked.split(","))
        for name in names:
            if name in ("pma", "final"):
                raise UserError(f"pooler {name!r} cannot be put on a model that was not trained with it")
            POOLERS[name].states(num_layers)
        return names
    names = tuple(name for name, pooler in DISTILFACE.items() if pooler.fewest_layers <= num_layers)
    for name in DISTILFACE.keys() - set(names):
        log.warning("pooler %s is left out: the model has only %d layers", name, num_layers)
    return names


class EveryPooler:
    """views(): an encoder for each pooler's name. The first that is asked for texts encodes them for all."""

    def __init__(self, model: Encoder, names: Sequence[str]):
        if model.dense:
            raise UserError(
                "the model projects what one pooler gives (a Dense module), so others do not fit; poolers are compared before that"
            )
        self.model, self.names = model, tuple(names)
        self._of: tuple[list[str], str | None] = ([], None)
        self._vectors: dict[str, np.ndarray] = {}

    def views(self) -> dict[str, TextEncoder]:
        """An encoder for each pooler's name."""
        return {name: _View(self, name) for name in self.names}

    def encode(self, texts: Sequence[str], name: str, prompt: str | None) -> np.ndarray:
        """The vectors of texts by a pooler, float32 [N, D], in the order given."""
        if (list(texts), prompt) != self._of:
            self._vectors = self._encode(self.model.tokenize(texts, prompt), self.model.not_counted(prompt) or None)
            self._of = (list(texts), prompt)
        return self._vectors[name]

    def _encode(self, ids: list[list[int]], passed_over: int | None) -> dict[str, np.ndarray]:
        config = self.model.config
        out = {name: np.empty((len(ids), POOLERS[name].width(config.hidden_size)), np.float32) for name in self.names}
        params = jax.device_put(self.model.params)
        with progress("encoding", len(ids), "texts") as meter:
            for rows, tokens, mask in batches_by_length(ids, config.pad_token_id, self.model.max_length, POOLERS_BATCH):
                by_pooler = _embed(
                    params, tokens, mask, passed_over, config=config, names=self.names, dtype=self.model.dtype
                )
                for name, vectors in by_pooler.items():
                    out[name][rows] = np.asarray(vectors)[: len(rows)]
                meter.advance(len(rows))
        return out


@partial(jax.jit, static_argnames=("config", "names", "dtype"))
def _embed(
    params: Any,
    ids_BxL: jax.Array,
    mask_BxL: jax.Array,
    passed_over: jax.Array | int | None,
    *,
    config: ModelConfig,
    names: tuple[str, ...],
    dtype: str,
) -> dict[str, jax.Array]:
    states = hidden_states(config, params, ids_BxL, mask_BxL, jnp.dtype(dtype))
    states, mask_BxL = after(passed_over, states, mask_BxL)
    return {name: pool(name, states, mask_BxL) for name in names}


class _View:
    """One pooler of an EveryPooler, as evaluation asks for it. Cosines do not need Normalize, so it is left out."""

    def __init__(self, every: EveryPooler, name: str):
        self.every, self.name = every, name

    @property
    def num_params(self) -> int:
        return self.every.model.num_params

    @property
    def dim(self) -> int:
        return POOLERS[self.name].width(self.every.model.config.hidden_size)

    @property
    def prompts(self) -> dict[str, str]:
        return self.every.model.prompts

    def prompt_for(self, role: str) -> str:
        return self.every.model.prompt_for(role)

    def encode(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = POOLERS_BATCH,
        prompt: str | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        del batch_size, show_progress
        return self.every.encode(texts, self.name, prompt)
