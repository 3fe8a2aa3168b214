"""The way in: mteb, whose import takes seconds and needs the extra, is imported when something here is called."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jdistill.core.errors import UserError
from jdistill.core.remote import local_only
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.shared_space import check_one_width

if TYPE_CHECKING:
    from jdistill.evals.mteb.run import TaskGroup


def read_mteb(names: Sequence[str], folder: str) -> list[TaskGroup]:
    """The tasks of --mteb, and a look at the folder of --mteb_results, before a model is loaded.

    Raises: UserError without the mteb extra, and as evals.mteb.run does.
    """
    if find_spec("mteb") is None:
        raise UserError("--mteb needs the mteb extra: pip install -e '.[mteb]'")
    from jdistill.evals.mteb import run

    run.check_results_folder(local_only(folder), "mteb_results")
    return run.task_groups(names)


def mteb_scores(
    groups: Sequence[TaskGroup],
    folder: str,
    encoder: TextEncoder,
    source: str,
    *,
    backend: str = "flax",
    corpus_model: TextEncoder | None = None,
    corpus_source: str = "",
) -> dict[str, dict[str, float]]:
    """The figures of evals.mteb.run.evaluate_mteb.

    Args:
      groups: of read_mteb.
      folder: that mteb writes to.
      encoder, source, backend, corpus_model, corpus_source: as evals.mteb.adapter.model_meta has them.

    Raises: UserError where the two models' widths differ, and as evaluate_mteb does.
    """
    from jdistill.evals.mteb import adapter, run

    if corpus_model is not None:
        check_one_width(encoder, corpus_model)
    meta = adapter.model_meta(encoder, source, backend, corpus_model, corpus_source)
    return run.evaluate_mteb(adapter.MtebEncoder(encoder, meta, corpus_model), groups, local_only(folder))
