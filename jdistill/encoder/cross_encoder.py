"""A cross-encoder, which reads two texts as one sequence, run by sentence-transformers on torch (the torch extra)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.encoder.torch_backend import (
    add_files,
    sentence_transformers,
    sentence_transformers_folder,
    telling_what_fails,
)


@dataclass(frozen=True)
class TorchCrossEncoder:
    """A model of sentence-transformers that scores pairs.

    Args:
      model: a CrossEncoder.
      source, key: what error messages call it.
      folder: where its files lie.
    """

    model: Any
    source: str
    key: str
    folder: Path

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its C outputs, in their order."""
        names = self.model.config.id2label
        return tuple(str(names[i]) for i in range(self.model.num_labels))

    def logits(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """What it says of pairs: CrossEncoder.predict without the activation at its end, whose sigmoid of a good pair is 1 and no more.

        Args:
          queries, passages: N strings each.

        Returns: float32 [N, C].
        """
        from torch.nn import Identity

        pairs = [list(pair) for pair in zip(queries, passages, strict=True)]
        with telling_what_fails(self.source, self.key):
            logits = self.model.predict(pairs, batch_size=32, activation_fn=Identity(), show_progress_bar=False)
        return np.asarray(logits, np.float32).reshape(len(pairs), -1)

    def fingerprint(self) -> str:
        """A hash, 32 hexadecimal digits, of all that decides its logits: its length and prompts stand in its files."""
        digest = hashlib.blake2b(digest_size=16)
        add_files(digest, self.folder)
        return digest.hexdigest()


def load_cross_encoder(source: str, key: str = "model") -> TorchCrossEncoder:
    """Loads a cross-encoder by sentence-transformers.

    Args:
      source: a path, a hub id or `pkg:import_name/sub/folder`.
      key: what error messages call it.

    Raises: UserError where the torch extra is missing, for a folder that carries code, and for what cannot be loaded.
    """
    folder, _ = sentence_transformers_folder(source, key)
    library = sentence_transformers()
    with telling_what_fails(source, key):
        model = library.CrossEncoder(str(folder))
    return TorchCrossEncoder(model, source, key, folder)
