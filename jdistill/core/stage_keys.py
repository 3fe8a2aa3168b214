"""Keys that a stage has in a block of its own name, such as finetune.learning_rate, which stand there in the place of the run's own."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from jdistill.core.files import flat


def own_keys(cfg: ConfigDict, stage: str) -> dict[str, Any]:
    """Dotted keys of the stage's block with their values; empty for a stage without one.

    Args:
      cfg: of the run or of the stage: either holds the block.
      stage: its name.
    """
    block = cfg.get(stage)
    return flat(block.to_dict()) if isinstance(block, ConfigDict) else {}


def key_of_stage(cfg: ConfigDict, stage: str, key: str) -> str:
    """What sets a stage's `key`, for a message: finetune.learning_rate, or learning_rate of a stage that goes by the run's own."""
    return f"{stage}.{key}" if key in own_keys(cfg, stage) else key
