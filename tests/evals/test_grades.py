"""Grades of a collection: what a document is judged twice, and numbers that are no grades."""

from __future__ import annotations

from pathlib import Path

import pytest

from jdistill.core.errors import UserError
from jdistill.data.sets.beir import read_collection, write_collection


def judged(folder: Path, rows: str) -> Path:
    write_collection(folder, {"d1": "a river", "d2": "a stone"}, {"q1": "water"}, {"q1": {"d1": 1}})
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


def test_of_two_grades_the_last_counts_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "q1\td1\t1\nq1\td2\t2\nq1\td1\t0\nq1\td2\t2\n"
    assert read_collection(judged(tmp_path / "c", rows)).relevant == {"q1": {"d1": 0, "d2": 2}}
    assert "1 rows judge a document otherwise than an earlier row" in caplog.text


@pytest.mark.parametrize("grade", [3_000_000_000, 10**20, -10_001])
def test_a_number_that_is_no_grade_is_refused_by_its_line(tmp_path: Path, grade: int) -> None:
    with pytest.raises(UserError, match=rf"test.tsv, line 3: a score of {grade}; grades go up to 10,000"):
        read_collection(judged(tmp_path / "c", f"q1\td1\t1\nq1\td2\t{grade}\n"))
