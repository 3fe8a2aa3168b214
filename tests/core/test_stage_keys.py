"""What a key of a stage is called, for the messages that say which to change."""

from __future__ import annotations

from configs import bilstm_sra_task, ibkd
from jdistill.core.stage_keys import key_of_stage, own_keys


def test_a_stage_s_own_block_names_its_keys() -> None:
    cfg = ibkd.get_config("mse")
    assert key_of_stage(cfg, "finetune", "learning_rate") == "finetune.learning_rate"
    assert key_of_stage(cfg, "finetune", "loss.temperature") == "finetune.loss.temperature"
    assert key_of_stage(cfg, "distil", "learning_rate") == "learning_rate"


def test_a_key_with_a_stage_s_name_that_is_no_block_is_none() -> None:
    """As --config.task=sst2 beside the stage task."""
    cfg = bilstm_sra_task.get_config()
    cfg.task = "learning_rate"
    assert own_keys(cfg, "task") == {} and key_of_stage(cfg, "task", "learning_rate") == "learning_rate"
