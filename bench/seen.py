"""What the dev figures of a run do not tell: its student on text that it has read, and seen through W, which the export drops."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict
from untrained import config_of

from jdistill.encoder.encoder import Encoder
from jdistill.evals.agreement import agreement
from jdistill.export.trained import load_trained
from jdistill.feeds.dev_score import encoder_score
from jdistill.run.stages import prepare
from jdistill.students.transformer import projected

READ = ("agreement read",)
THROUGH_W = ("agreement by W", "dev pairs by W")


def figures_beside(workdir: Path, defaults: ConfigDict, stage: str, model: Encoder) -> dict[str, float]:
    """READ: Spearman x 100 of student's and teacher's pair cosines on the first texts of training, as many as are held out.
    THROUGH_W, of a stage that has a W beside its student: what its log has of the student alone, of W s.

    Args:
      workdir: of a run; its teacher's answers are cached.
      defaults: of its method's config file, for keys that have been added since.
      model: the student of the stage's exported checkpoint.
    """
    cfg = config_of(workdir, defaults)
    shared = prepare(cfg).shared
    texts, vectors = shared.embeddings.first(len(shared.corpus.held_out), held_out=False)
    figures = {READ[0]: float(agreement(model.encode(texts, show_progress=True), vectors)["spearman"])}
    _, params, _ = load_trained(workdir, stage)
    if "W" in params:
        in_space = projected(model, params["W"])
        scored = encoder_score(cfg, shared.corpus, shared.embeddings, by_agreement=True)(in_space)
        named = dict(zip(("spearman", "pairs"), THROUGH_W, strict=True))
        figures |= {name: scored[key] for key, name in named.items() if key in scored}
    return figures
