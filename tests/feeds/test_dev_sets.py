"""Which dev sets choose checkpoints: one that a method's own dev rows choose in the place of is told of before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs import bilstm_sra_task as task_file
from configs import d2llm as d2llm_file
from configs import ibkd as ibkd_file
from jdistill.core.errors import UserError
from jdistill.run.stages import prepare


@pytest.mark.parametrize(
    ("config_file", "keys", "told"),
    [
        (d2llm_file, {"symmetric": "pairs.jsonl"}, "--config.method=d2llm is that of --config.dev_queries"),
        (
            task_file,
            {"student": "scratch", "task": "sst2", "task_dir": "tasks"},
            "--config.method=classify is that of --config.task",
        ),
        (ibkd_file, {"triplets": "triplets.jsonl"}, ""),
        (ibkd_file, {"triplets": ""}, ""),
    ],
    ids=["judged", "task", "triplets", "texts"],
)
def test_a_dev_set_that_chooses_no_checkpoint_is_told(
    config_file: object, keys: dict[str, str], told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = config_file.get_config()  # type: ignore[attr-defined]
    cfg.update(keys | {"dev_pairs": "dev.csv", "dev_retrieval": "mine"})
    cfg.teacher = cfg.start = str(tmp_path / "none")
    with pytest.raises(UserError, match="none"):
        prepare(cfg)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == (2 if told else 0) and all(told in line for line in lines)
    if told:
        assert lines[0].startswith("WARNING: --config.dev_pairs=dev.csv chooses no checkpoint: the dev score of")
        assert (
            "scored on its pairs" in lines[0]
            and "--config.dev_retrieval=mine" in lines[1]
            and "--config.beir" in lines[1]
        )
