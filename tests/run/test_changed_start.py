"""A run whose start's folder has changed since: what would be exported is not what was trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from commands import run_inside
from conftest import make_encoder, save_encoder, sentences
from finished_setting import assert_same, command


def test_an_export_is_not_made_again_by_a_start_that_pools_otherwise(tmp_path: Path) -> None:
    for name, seed in (("teacher", 0), ("start", 1)):
        save_encoder(make_encoder(seed=seed, num_layers=1), tmp_path / name)
    (tmp_path / "text.txt").write_text("\n".join(sentences(150)) + "\n")
    arguments = command(
        tmp_path, "run", **{"start": tmp_path / "start", "student.layers": 1, "loss.token": "none", "max_steps": 1}
    )
    done = run_inside(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    shutil.copytree(tmp_path / "run", tmp_path / "as it was")
    shutil.rmtree(tmp_path / "run" / "export")
    pooling = tmp_path / "start" / "1_Pooling" / "config.json"
    before = pooling.read_text()
    changed = json.loads(before) | {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    pooling.write_text(json.dumps(changed))
    refused = run_inside(arguments)
    assert refused.returncode == 2 and not (tmp_path / "run" / "export").exists()
    assert "how the student reads a text has changed since" in refused.stderr and "pooling" in refused.stderr
    for path in (tmp_path / "as it was" / "distil" / "student").rglob("*.json"):
        assert path.read_bytes() == (tmp_path / "run" / path.relative_to(tmp_path / "as it was")).read_bytes(), path
    pooling.write_text(before)
    assert run_inside(arguments).returncode == 0
    assert_same(tmp_path / "run", tmp_path / "as it was")
