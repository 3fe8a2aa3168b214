"""What a run's page shows of what it was given: no secrets, no JSON that cannot be read, and a module's search beside that by cosines."""

from __future__ import annotations

import json
import re
from pathlib import Path

from report_setting import line, make_run

from jdistill.report.run import write_report


def test_json_too_deep_to_read_is_said(tmp_path: Path) -> None:
    deep = "[" * 100_000
    run = make_run(tmp_path / "run", deep + "\n" + line(10))
    (run / "results.json").write_text(deep)
    html = write_report(run).read_text("utf-8")
    assert "results.json is not valid JSON" in html and "Unreadable lines skipped in distil/metrics.jsonl: 1." in html


def test_stores_show_no_secrets(tmp_path: Path) -> None:
    """A page is mailed as it is."""
    run = make_run(tmp_path / "run", "", {"teacher": {"name": "https://me:secret@hub/t?sig=abc"}})
    text = "s3://key:secret@bucket/more.gz@query*2,https://store/t.gz?X-Sig=abc"
    (run / "config.json").write_text(json.dumps({"teacher": "https://me:secret@hub/t?sig=abc", "text": text}))
    html = write_report(run).read_text("utf-8")
    assert "https://hub/t" in html and "s3://bucket/more.gz@query*2" in html
    assert "secret" not in html and "abc" not in html


def test_what_a_module_ranks_anew_stands_beside_the_search_by_cosines(tmp_path: Path) -> None:
    results = {
        "retrieval": {"scifact": {"ndcg@10": 0.6}},
        "teacher_retrieval": {"scifact": {"ndcg@10": 0.64}},
        "retrieval_rescored": {"scifact": {"ndcg@10": 0.625}},
    }
    run = make_run(tmp_path / "run", "", results)
    html = re.sub(r"\s+", "", write_report(run).read_text("utf-8"))
    cells = "".join(f"<td>{cell}</td>" for cell in ("0.6400", "0.6000", "93.8%", "0.6250"))
    assert "Rankedanewbyitsmodule" in html and cells in re.sub(r"<td[^>]*>", "<td>", html)
