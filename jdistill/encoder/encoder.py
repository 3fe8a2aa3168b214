"""Encoder: a text-embedding model with everything that decides its vectors, and the one way to run it.

Teachers, students, evaluation and export all speak this contract: architecture, parameters, tokenizer, prompts, maximum
length, pooling, dense projections and normalisation travel together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from transformers import PreTrainedTokenizerFast

from jdistill.core import sharding
from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.progress import progress
from jdistill.encoder.batch_ids import IdsOfTexts, batch_ids, prompt_tokens
from jdistill.encoder.text_encoder import prompt_named
from jdistill.encoder.text_lists import checked_texts
from jdistill.encoder.vectors import at_once, embed_batch, fill_vectors
from jdistill.models.pooling import POOLERS
from jdistill.models.registry import ModelConfig


@dataclass(frozen=True)
class Encoder:
    """A model that turns texts into vectors. Immutable; `replace` gives a changed copy.

    Args:
      config: the sizes, of an architecture of models.registry.
      params: its Flax parameters, float32.
      tokenizer: a fast one of transformers.
      pooling: a name in models.pooling.POOLERS.
      normalize: unit length at the end.
      pooler: parameters of a pooler that has some (models.pma), float32.
      dense: projections after pooling, each {"kernel" [in, out], "bias" [out] (optional)}, float32.
      dense_activations: of each projection, a name in models.dense.DENSE_ACTIVATIONS.
      prompts: name -> text put before the input.
      default_prompt: the name of the one that encode takes by itself; None: none.
      include_prompt: whether the pooler counts the prompt's tokens.
      max_length: of a text, in tokens, special tokens included.
      dtype: of the computation, float32, bfloat16 or float16.
      source: where it was loaded from, for messages.
    """

    config: ModelConfig
    params: dict[str, Any] = field(repr=False)
    tokenizer: PreTrainedTokenizerFast = field(repr=False)
    pooling: str = "mean"
    normalize: bool = False
    pooler: dict[str, Any] = field(default_factory=dict, repr=False)
    dense: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    dense_activations: tuple[str, ...] = ()
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    max_length: int = 512
    dtype: str = "float32"
    source: str = ""

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return int(self.dense[-1]["kernel"].shape[1]) if self.dense else self.pooled_width

    @property
    def pooled_width(self) -> int:
        """Width after pooling, before the dense projections."""
        return POOLERS[self.pooling].width(self.config.hidden_size)

    @property
    def num_params(self) -> int:
        """Numbers in parameters, pooler and projections."""
        return sum(int(np.prod(np.shape(x))) for x in jax.tree.leaves((self.params, self.pooler, self.dense)))

    def prompt_for(self, role: str) -> str:
        """The name of the prompt for a "query" or a "document"; "", which means no prompt, where there is none."""
        return prompt_named(self.prompts, role)

    def in_role(self, role: str) -> Encoder:
        """The encoder with the prompt of a "query" or a "document" as its default, or with none where it has none for it; "": itself."""
        return replace(self, default_prompt=self.prompt_for(role) or None) if role else self

    def prompt_text(self, prompt: str | None = None) -> str:
        """What is put before a text. prompt: as tokenize has it. Raises UserError for a name that is none."""
        name = self.default_prompt if prompt is None else prompt
        if name and name not in self.prompts:
            raise UserError(
                f"prompt {name!r} is not one of this model's prompts: {sorted(self.prompts) or 'it has none'}"
            )
        return self.prompts[name] if name else ""

    def tokenize(self, texts: Iterable[str], prompt: str | None = None) -> list[list[int]]:
        """Token ids of each text, special tokens included, cut at max_length.

        Args:
          texts: N strings.
          prompt: a name in `prompts`; "": none; None: the model's default.

        Returns: N lists of ids.

        Raises: UserError for one string in the place of a list, for a prompt that there is not, and naming the row of a text that is not
          a string or cannot be written in UTF-8.
        """
        ready = self.texts_with_prompt(texts, prompt)
        return batch_ids(self.tokenizer, ready, self.max_length) if ready else []

    def texts_with_prompt(self, texts: Iterable[str], prompt: str | None = None) -> list[str]:
        """What the tokenizer is given of these texts. Args and errors are those of tokenize."""
        prefix = self.prompt_text(prompt)
        return [prefix + text for text in checked_texts(texts)]

    def encode(
        self,
        texts: Iterable[str],
        *,
        batch_size: int = 64,
        prompt: str | None = None,
        normalize: bool | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """The vectors of texts, in the order given.

        Args:
          texts: N strings.
          batch_size: of them at a time, of like length; rounded up to a multiple of the devices.
          prompt: a name in `prompts`; "": none; None: the model's default.
          normalize: as the field; None: the field's own. False gives the vectors before Normalize.
          show_progress: whether a bar, or a log line now and then, is shown.

        Returns: float32 [N, dim].

        Raises: UserError as tokenize and encode_ids do.
        """
        ready = self.texts_with_prompt(texts, prompt)
        ids = IdsOfTexts(self.tokenizer, ready, self.max_length)
        return self.encode_ids(
            ids,
            batch_size=batch_size,
            normalize=normalize,
            show_progress=show_progress,
            passed_over=self.not_counted(prompt),
        )

    def not_counted(self, prompt: str | None) -> int:
        """How many tokens at the beginning of a text with this prompt the pooler leaves out."""
        prefix = "" if self.include_prompt else self.prompt_text(prompt)
        return prompt_tokens(self.tokenizer, prefix, self.max_length) if prefix else 0

    def encode_ids(
        self,
        ids: Sequence[Sequence[int]] | IdsOfTexts,
        *,
        batch_size: int = 64,
        normalize: bool | None = None,
        show_progress: bool = False,
        passed_over: int = 0,
    ) -> np.ndarray:
        """As encode, from N lists of token ids, special tokens included. Lengths are padded to a few fixed buckets.

        passed_over: tokens at the beginning of each that the pooler does not count.

        Raises: UserError for a batch_size below 1.
        """
        out = np.empty((len(ids), self.dim), np.float32)
        if not len(ids):
            return out
        mesh = sharding.local_mesh()
        # Rows that the devices cannot share out would be computed by each of them.
        batch_size = -(-batch_size // mesh.size) * mesh.size
        embed = partial(
            embed_batch,
            *self.on_device(),
            config=self.config,
            pooling=self.pooling,
            dtype=self.dtype,
            activations=self.dense_activations,
            normalize=self.normalize if normalize is None else normalize,
            **({"passed_over": passed_over} if passed_over else {}),
        )
        limits = self.config.pad_token_id, self.max_length, batch_size
        with progress("encoding", len(ids), "texts") if show_progress else nullcontext() as meter:
            fill_vectors(out, ids, limits, lambda batch: embed(*sharding.shard_rows(batch, mesh)), meter, at_once())
        return out

    def on_device(self) -> tuple[Any, Any, Any]:
        """(params, pooler, dense), whole on each of this process's devices."""
        # Moved once and remembered: a copy of 90 MB per call would dwarf the encoding of one sentence.
        if "_device" not in self.__dict__:
            mesh, weights = sharding.local_mesh(), (self.params, self.pooler, self.dense)
            placed = sharding.replicate(weights, mesh) if mesh.size > 1 else jax.device_put(weights)
            object.__setattr__(self, "_device", placed)
        return self.__dict__["_device"]

    def release(self) -> None:
        """Takes the weights off the devices, to which the next call brings them again."""
        self.__dict__.pop("_device", None)

    def fingerprint(self, normalize: bool | None = None) -> str:
        """32 hexadecimal digits of all that decides the vectors: weights, tokenizer, prompt, pooling, dense, length, type, normalize."""
        hashed = hashlib.blake2b(digest_size=16)
        prompt = self.prompts.get(self.default_prompt, "") if self.default_prompt else ""
        of_prompt = prompt if self.include_prompt or not prompt else (prompt, "not counted")
        normalized = self.normalize if normalize is None else normalize
        settings = (self.config, self.pooling, self.dense_activations, normalized, of_prompt)
        hashed.update(repr((*settings, self.max_length, self.dtype)).encode())
        hashed.update(self.tokenizer_fingerprint().encode())
        parts = (self.params, self.dense, self.pooler)
        for path, leaf in sorted(jax.tree_util.tree_leaves_with_path(parts), key=lambda item: str(item[0])):
            hashed.update(jax.tree_util.keystr(path).encode())
            hashed.update(np.ascontiguousarray(leaf).tobytes())
        return hashed.hexdigest()

    def fingerprint_in_roles(self) -> str:
        """As fingerprint, of what decides the vectors of queries and documents too: all prompts."""
        own = self.fingerprint()
        return digest(own, repr((sorted(self.prompts.items()), self.include_prompt))) if self.prompts else own

    def tokenizer_fingerprint(self) -> str:
        """A hash of the tokenizer, 32 hexadecimal digits, the same whatever it was used for before."""
        # Truncation and padding are left out: they are the state of the last call, not of the tokenizer; but for the end that it cuts.
        state = json.loads(self.tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
        state |= {"truncation_side": "left"} if self.tokenizer.truncation_side == "left" else {}
        state |= {"split_special_tokens": True} if self.tokenizer.split_special_tokens else {}
        return hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()

    def weights(self) -> dict[str, Any]:
        """What training changes, float32: {"model": Flax parameters, "pooler": …, "dense": {"0": …}}, the latter two where there are any."""
        dense = {str(i): layer for i, layer in enumerate(self.dense)}
        return (
            {"model": self.params}
            | ({"pooler": self.pooler} if self.pooler else {})
            | ({"dense": dense} if dense else {})
        )

    def with_weights(self, weights: dict[str, Any]) -> Encoder:
        """The same encoder with other weights, as `weights` gives them, taken to the host."""
        host = jax.tree.map(np.asarray, weights)
        layers = host.get("dense", {})
        dense = tuple(layers[str(i)] for i in range(len(layers)))
        return replace(self, params=host["model"], pooler=host.get("pooler", {}), dense=dense)
