"""How far a run's student agrees with its teacher on text that it has read, beside the text held out."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict
from untrained import config_of

from jdistill.encoder.encoder import Encoder
from jdistill.evals.agreement import agreement
from jdistill.run.stages import prepare


def agreement_read(workdir: Path, defaults: ConfigDict, model: Encoder) -> float:
    """Spearman x 100 of student's and teacher's pair cosines on texts of the first stage, as many as the run holds out.

    Args:
      workdir: of a run; its teacher's answers are cached.
      defaults: of its method's config file, for keys that have been added since.
      model: the student of one of its stages.
    """
    shared = prepare(config_of(workdir, defaults)).shared
    texts, vectors = shared.embeddings.first(len(shared.corpus.held_out), held_out=False)
    return float(agreement(model.encode(texts, show_progress=True), vectors)["spearman"])
