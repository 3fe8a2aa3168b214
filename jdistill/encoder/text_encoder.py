"""What evaluation asks of a model, whatever computes it, and the names of prompts by their role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

# What models call the prompt of a text by its role in search: the names of sentence-transformers' encode_query and encode_document, which
# since release 6 have an empty "document" of every model, and so ask one with a "passage" or a "corpus" alone without it.
PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


class TextEncoder(Protocol):
    """What evaluation asks of a model: an Encoder, or another framework's behind the same questions."""

    @property
    def num_params(self) -> int:
        """How many numbers are trained in it."""

    @property
    def dim(self) -> int:
        """Width of its vectors."""

    @property
    def prompts(self) -> Mapping[str, str]:
        """Name -> text put before the input."""

    def prompt_for(self, role: str) -> str | None:
        """The name of the prompt for a "query" or a "document"; where there is none "", which means no prompt, or None, the default."""

    def encode(
        self, texts: Sequence[str], *, batch_size: int = 64, prompt: str | None = None, show_progress: bool = False
    ) -> np.ndarray:
        """The vectors of texts, float32 [N, dim], in the order given.

        Args:
          texts: N strings.
          batch_size: of them at a time.
          prompt: its name; "": none; None: the model's default.
          show_progress: whether a bar, or a log line now and then, is shown.
        """


def prompt_named(prompts: Mapping[str, str], role: str) -> str:
    """The name under which `prompts` keeps the prompt for a "query" or a "document", the first of PROMPT_NAMES that has a text; "": nothing is
    put before a text of this role, whatever the model's default is."""
    return next((name for name in PROMPT_NAMES[role] if prompts.get(name)), "")
