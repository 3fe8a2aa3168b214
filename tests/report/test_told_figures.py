"""What a page says of its own figures: results that were edited, a machine that was busy, a sweep that has not ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jdistill.core.files import file_digest, write_seal
from jdistill.core.run_folder import RUN
from jdistill.report.run import write_report
from jdistill.report.run_tables import headline_sentence, times_as_fast
from jdistill.report.sweep import over_seeds, write_sweep_page
from jdistill.report.sweep_charts import curves_chart


def test_a_page_of_results_that_were_edited_says_so(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"sts": {"Avg": 66.5}, "student": {"name": "student"}}))
    write_seal(tmp_path, RUN, {"results.json": file_digest(path)}, settings={})
    page = write_report(tmp_path).read_text()
    assert "66.50" in page and "has changed since the run wrote it" not in page
    path.write_text(path.read_text().replace("66.5", "99.9"))
    page = write_report(tmp_path).read_text()
    assert "results.json has changed since the run wrote it, and these figures are not the run" in page
    path.unlink()
    assert "has changed" not in write_report(tmp_path).read_text()


@pytest.mark.parametrize(
    ("ratio", "of_pass", "told"),
    [
        (17.354, 6.284, "6.28 to 17.35"),
        (2.0, 2.5, "2.00"),
        (2.0, 2.7, "2.00 to 2.70"),
        (2.0, None, "2.00"),
        (2.0, 0.0, "2.00"),
    ],
)
def test_two_ratios_that_lie_apart_are_both_told(ratio: float, of_pass: float | None, told: str) -> None:
    row = {"model": "student", "framework": "flax", "ratio": ratio, "pass_ratio": of_pass}
    assert times_as_fast(row) == told
    said = headline_sentence(
        {"student": {"name": "student"}, "teacher": {}, "sts": {}, "teacher_sts": {}},
        [row | {"model": "teacher"}, row],
        "teacher",
    )
    assert f"is {told} (flax) times as fast" in said


def test_a_sweep_that_has_not_ended_says_so_and_ranks_a_setting_with_fewer_seeds_behind(tmp_path: Path) -> None:
    rows = [
        {"params": {"learning_rate": rate, "seed": seed}, "score": score, "state": "complete", "curve": {"1": score}}
        for rate, seed, score in ((1e-3, 0, 74.4), (1e-4, 0, 66.1), (1e-4, 1, 66.2))
    ]
    page = write_sweep_page(tmp_path, rows, [{"learning_rate": 1e-3, "seed": 1}]).read_text()
    assert "3 of 4 trials have ended." in page and "1 of 2" in page and "Best dev score 66.15" in page
    assert over_seeds(rows)[0]["params"] == {"learning_rate": 1e-3}  # as before the page knew of what is to come
    whole = write_sweep_page(tmp_path, [*rows, rows[0] | {"params": {"learning_rate": 1e-3, "seed": 1}}]).read_text()
    assert "trials have ended" not in whole and "Best dev score 74.40" in whole


def test_the_curves_of_a_sweep_count_no_trial_that_ended_early_among_the_best() -> None:
    ended = [{"params": {"tau": tau}, "score": 60 - tau, "curve": {"1": 50.0, "2": 60 - tau}} for tau in (1, 2)]
    pruned = {"params": {"tau": 3}, "score": None, "curve": {"1": 40.0, "2": 41.0}}
    one_score = {"params": {"tau": 4}, "score": None, "curve": {"1": 30.0}}
    caption = curves_chart([*ended, pruned, one_score]).caption
    assert "of the 2 best trials; dashed, of 1 that ended early; red is tau 1." in caption
    assert "of the 2 best trials; red is tau 1." in curves_chart(ended).caption
