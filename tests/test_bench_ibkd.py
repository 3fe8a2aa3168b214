"""bench/ibkd_table.py and ibkd_beta.py: what a row's name changes, and what is read of a stage's log."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import ROOT

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import ibkd_beta
import ibkd_table


def test_a_rows_betas() -> None:
    both = ["--config.loss.beta=10.0", "--config.finetune.loss.beta=10.0"]
    assert ibkd_table.settings_of("ckd") == ("ckd", [])
    assert ibkd_table.settings_of("ibkd@10") == ("", both)
    assert ibkd_table.settings_of("ibkd-imq@10,0.5") == (
        "", ["--config.kernel=imq", both[0], "--config.finetune.loss.beta=0.5"]
    )  # fmt: skip
    assert ibkd_table.row_name("ibkd-raw@1e-9,0") == "ibkd-raw@1e-9,0"
    for wrong in ("ibkd2", "ckd@1", "ibkd@-1", "ibkd@", "ibkd@1,2,3", "ibkd@nan"):
        with pytest.raises(ValueError):
            ibkd_table.row_name(wrong)


def test_one_beta_moves_and_the_other_is_the_papers() -> None:
    assert [ibkd_beta.betas_of(3.0, of) for of in ("both", "1", "2")] == ["3", "3,0.5", "1,3"]
    assert ibkd_beta.betas_of(0.5, "1") == "0.5"


def test_figure_3_takes_a_measure_of_each_stage_and_draws_it_alike_twice(tmp_path: Path) -> None:
    of_stages = {"distil": {"dev pairs": 72.0, "agreement": 50.0, "cka": 0.3}, "finetune": {"dev pairs": 73.0}}
    assert ibkd_beta.row_of(of_stages, "dev pairs") == {
        "after stage 1": 72.0, "after stage 2": 73.0, "cka after stage 1": 0.3
    }  # fmt: skip
    with pytest.raises(KeyError):
        ibkd_beta.row_of(of_stages, "Avg")
    averages = {"distil": [72.0, 72.5], "finetune": [73.0, 73.1]}
    for name in ("a.svg", "b.svg"):
        ibkd_beta.draw(tmp_path / name, "2", "dev pairs", [0.0, 10.0], averages)
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn == (tmp_path / "b.svg").read_text() and "beta of stage 2" in drawn and "dev pairs" in drawn


def test_a_stages_last_dev_figures_and_first_and_last_alignment(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "loss": 2.0, "cka": 0.7},
        {"step": 2, "dev/pairs": 80.0, "dev/spearman": 70.0},
        {"step": 3, "loss": 1.0, "cka": 0.4},
        {"step": 4, "dev/pairs": 81.0, "dev/spearman": 69.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert ibkd_table.dev_figures(tmp_path) == {"dev pairs": 81.0, "agreement": 69.0, "cka": 0.4, "cka at start": 0.7}
    dead = [{"step": 0, "cka": 0.0}, *rows]  # at its start it cannot be told
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in dead))
    assert ibkd_table.dev_figures(tmp_path) == {"dev pairs": 81.0, "agreement": 69.0, "cka": 0.4}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(rows[1]) + "\n")
    assert ibkd_table.dev_figures(tmp_path) == {"dev pairs": 80.0, "agreement": 70.0}
