"""A form of an export, opened once, so that the time of a text in it can be taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.encoder.encoder import Encoder
from jdistill.export import onnx_forms
from jdistill.export.onnx import graph as onnx_graph
from jdistill.export.written_folder import load_written


@dataclass(frozen=True)
class OpenedForm:
    """What evals.speed measures of a form.

    Args:
      model: that the form is of.
      embed: N texts -> float32 [N, D], by the form.
    """

    model: Encoder
    embed: Callable[[Sequence[str]], np.ndarray]

    @property
    def num_params(self) -> int:
        """Of the model."""
        return self.model.num_params

    def encode(self, texts: Sequence[str], *, batch_size: int) -> np.ndarray:
        """The vectors of texts, all of them at once."""
        return self.embed(texts)


def opened_form(model: Encoder, path: Path) -> OpenedForm:
    """The form in ONNX Runtime or sentence-transformers, on the CPU, with as many threads as each takes by itself.

    Args:
      path: as Target.write returns it: a graph, or a folder of sentence-transformers.
    """
    if path.is_file():
        session = onnx_graph.session(path)
        return OpenedForm(model, lambda texts: onnx_graph.run_graph(session, onnx_forms.graph_inputs(model, texts)))
    loaded = load_written(path)
    return OpenedForm(model, lambda texts: loaded.encode(list(texts), show_progress_bar=False))
