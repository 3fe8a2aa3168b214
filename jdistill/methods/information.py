"""The HSIC(X, S) term as configs name it: for both stages of IBKD."""

from __future__ import annotations

import jax
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array
from jdistill.losses.hsic import (
    ESTIMATORS,
    FEWEST_ROWS,
    KERNELS,
    ROWS_OF_MEDIAN,
    hsic,
)


def check_hsic(cfg: ConfigDict, rows: int) -> None:
    """Raises UserError for a kernel or estimator that is not listed, and for a batch of fewer rows than it needs."""
    if cfg.kernel not in KERNELS:
        raise UserError(f"--config.kernel={cfg.kernel!r} is not one of {', '.join(KERNELS)}")
    if cfg.hsic.estimator not in ESTIMATORS:
        raise UserError(f"--config.hsic.estimator={cfg.hsic.estimator!r} is not one of {', '.join(ESTIMATORS)}")
    if cfg.loss.beta and rows < (fewest := max(2, FEWEST_ROWS[cfg.hsic.estimator])):
        raise UserError(
            f"--config.batch_size={cfg.batch_size}: HSIC by the {cfg.hsic.estimator} estimator needs at least {fewest} texts in a batch"
        )
    if rows < 2:
        raise UserError(f"--config.batch_size={cfg.batch_size}: a contrastive loss needs at least 2 texts in a batch")


def samples_rows(cfg: ConfigDict) -> bool:
    """Whether the term looks at some rows of a batch apart (the median heuristic), which are then chosen by their texts' numbers."""
    return bool(cfg.loss.beta) and not cfg.hsic.gamma and cfg.kernel != "linear" and cfg.batch_size > ROWS_OF_MEDIAN


def term(
    cfg: ConfigDict, x_nxD: Array, s_nxD: Array, mask_n: Array | None = None, numbers_n: Array | None = None
) -> tuple[Array, dict[str, Array]]:
    """HSIC(X, S), and the metrics that tell whether its kernels are alive (hsic.Hsic). mask_n, numbers_n: as hsic has them."""
    result = hsic(
        jax.lax.stop_gradient(x_nxD) if cfg.hsic.stop_input else x_nxD,
        s_nxD,
        kernel=cfg.kernel,
        gamma=cfg.hsic.gamma,
        estimator=cfg.hsic.estimator,
        unit_rows=cfg.hsic.unit_rows,
        mask_n=mask_n,
        numbers_n=numbers_n,
        block=cfg.block_size,
    )
    return result.value, {
        "hsic": result.value,
        "gram_input_mean": result.off_diagonal_x,
        "gram_sentence_mean": result.off_diagonal_s,
        "gram_input_rank": result.rank_x,
        "gram_sentence_rank": result.rank_s,
        "cka": result.cka,
    }
