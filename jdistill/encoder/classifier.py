"""A classifier of texts or pairs: an encoder, a head on its vectors, and the labels. Saved beside the exported encoder.

head.safetensors holds hidden.weight [256, in], hidden.bias, out.weight [C, 256], out.bias; head.json the labels, in order, and
whether a row is a pair. With v the vector that the exported folder gives a text, and v' the other's:

    logits = out.weight relu(hidden.weight f + hidden.bias) + out.bias,  f = v, or [v, v', |v - v'|, v * v']
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.core.json_files import read_settings, said
from jdistill.data.text.locations import resolve
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.tensors import float_tensor, load_tensors, write_tensors
from jdistill.encoder.text_lists import checked_texts, distinct_texts
from jdistill.models import classifier_head


@dataclass(frozen=True)
class Classifier:
    """A classifier of texts or pairs.

    Args:
      encoder: gives each text a vector.
      head: models.classifier_head's parameters, float32.
      labels: their names, C of them, in the order of the logits.
      pairs: whether it takes two texts.
    """

    encoder: Encoder
    head: dict[str, Any] = field(repr=False)
    labels: tuple[str, ...]
    pairs: bool

    def logits(self, texts: Iterable[str], others: Iterable[str] | None = None, batch_size: int = 64) -> np.ndarray:
        """The logits of each text or pair.

        Args:
          texts: N strings.
          others: the second text of each pair; None for a classifier of single texts.
          batch_size: texts encoded at a time.

        Returns: float32 [N, C].

        Raises: UserError for one side too few or too many, for sides of different lengths, and for one string in the place of a side.
        """
        if (others is not None) != self.pairs:
            raise UserError(
                "this classifier takes pairs of texts" if self.pairs else "this classifier takes single texts"
            )
        sides = [checked_texts(texts)] + ([] if others is None else [checked_texts(others, "others")])
        if len(sides[-1]) != len(sides[0]):
            raise UserError(f"{len(sides[0])} texts and {len(sides[-1])} others are no pairs")
        vectors = [self._vectors(side, batch_size) for side in sides]
        return np.asarray(classifier_head.classifier_logits(self.head, jnp.asarray(np.stack(vectors, axis=1))))

    def _vectors(self, texts: Sequence[str], batch_size: int) -> np.ndarray:
        """float32 [N, D]; each distinct text is encoded once, as a query is that stands in many pairs."""
        distinct, rows = distinct_texts(texts)
        return self.encoder.encode(distinct, batch_size=batch_size)[rows]

    def predict(self, texts: Iterable[str], others: Iterable[str] | None = None) -> list[str]:
        """The likeliest label of each text or pair, by its name; arguments and errors as of logits."""
        return [self.labels[i] for i in self.logits(texts, others).argmax(1)]

    def fingerprint(self) -> str:
        """A hash of all that decides its logits, 32 hexadecimal digits."""
        digest = hashlib.blake2b(self.encoder.fingerprint().encode(), digest_size=16)
        digest.update(repr((self.labels, self.pairs)).encode())
        for layer in ("hidden", "out"):
            for part in ("kernel", "bias"):
                digest.update(np.ascontiguousarray(self.head[layer][part]).tobytes())
        return digest.hexdigest()


def save_head(model: Classifier, folder: Path) -> None:
    """head.safetensors and head.json, beside the files of the exported encoder."""
    tensors = {}
    for layer in ("hidden", "out"):
        tensors[f"{layer}.weight"] = np.ascontiguousarray(np.asarray(model.head[layer]["kernel"], np.float32).T)
        tensors[f"{layer}.bias"] = np.asarray(model.head[layer]["bias"], np.float32)
    write_tensors(tensors, folder / "head.safetensors")
    write_json(folder / "head.json", {"labels": model.labels, "pairs": model.pairs})


def load_classifier(source: str | os.PathLike[str], key: str = "model") -> Classifier:
    """A classifier from an exported folder.

    Args:
      source: a path, a hub id or `pkg:import_name/sub/folder`.
      key: what error messages call it.

    Raises: UserError where it has no head, or one that is damaged or does not fit its encoder.
    """
    source = os.fspath(source)
    folder = resolve(source, key)
    path, about = folder / "head.safetensors", folder / "head.json"
    if not path.is_file() or not about.is_file():
        raise UserError(f"--{key}={source} holds no head.safetensors and head.json: it is no classifier")
    settings = read_settings(about)
    labels, pairs = settings.raw("labels"), settings.flag("pairs", False)
    if not isinstance(labels, list) or len(labels) < 2 or not all(isinstance(label, str) for label in labels):
        raise settings.fault("labels", f"is {said(labels)}; a list of two strings or more is needed")
    encoder = loading.load(source, key=key)
    return Classifier(encoder, _read_head(path, encoder.dim * (4 if pairs else 1), len(labels)), tuple(labels), pairs)


def _read_head(path: Path, width: int, labels: int) -> dict[str, Any]:
    """models.classifier_head's parameters. width: of its features."""
    tensors = load_tensors(path)
    hidden = float_tensor(tensors, "hidden.weight", [None, width], path)
    out = float_tensor(tensors, "out.weight", [labels, len(hidden)], path)
    return {
        name: {
            "kernel": np.ascontiguousarray(weight.T),
            "bias": float_tensor(tensors, f"{name}.bias", [len(weight)], path),
        }
        for name, weight in (("hidden", hidden), ("out", out))
    }
