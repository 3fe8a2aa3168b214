"""Checks a run's page: complete, with parts missing or spoilt, escaped, and with the right figures."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_setting import line, make_run

from jdistill.core.errors import UserError
from jdistill.report.command import main
from jdistill.report.run import write_report

PNG = b"\x89PNG\r\n\x1a\n"
RESULTS: dict[str, Any] = {
    "student": {"name": "small", "num_params": 9_493_632, "bytes": 37_974_528},
    "teacher": {"name": "large", "num_params": 22_713_216, "bytes": 90_852_864},
    "sts": {"STS12": 72.0, "Avg": 78.4},
    "teacher_sts": {"STS12": 80.0, "SICK-R": 77.091, "Avg": 78.87},
    "retrieval": {"scifact": {"ndcg@10": 0.6, "index_bytes": 100, "queries_per_s": 90.0}},
    "teacher_retrieval": {"scifact": {"ndcg@10": 0.64, "index_bytes": 300, "queries_per_s": 30.0}},
    "warning": "it gives every text the same vector",
    "scored_pairs": 68.0,
    "scored_pairs_of": {"ours.csv": 60.0, "theirs.csv": 76.0},
    "teacher_scored_pairs": 80.0,
    "teacher_scored_pairs_of": {"ours.csv": 80.0, "theirs.csv": 80.0},
    "agreement": {"mean_cosine": 0.9651, "spearman": 0.97, "pairs": [[0.1, 0.2], [0.5, 0.4], [0.9, float("nan")]]},
    "speed": [
        {
            "model": "large",
            "framework": "flax",
            "num_params": 22_713_216,
            "bytes": 90_852_864,
            "latency_ms": 9.1,
            "ratio": 1.0,
        },
        {
            "model": "small",
            "framework": "flax",
            "num_params": 9_493_632,
            "bytes": 37_974_528,
            "latency_ms": 4.9,
            "ratio": 1.857,
        },
    ],
    "command": "python -m jdistill.main --workdir runs/x --config.teacher=pkg:x",
    "training": {
        "seconds": 2710.0,
        "sentences": 365_012,
        "steps": 2852,
        "devices": "2 x cpu",
        "dev_pairs_in_tests": {"pairs": 1369, "same_pair": 6, "same_sentence": 51},
    },
}


class Cells(HTMLParser):
    """Collects the page's table rows, tags and image attributes."""

    def __init__(self, html: str):
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag in ("td", "th")
        if tag == "tr":
            self.rows.append([])
        if tag == "img":
            self.images.append(dict(attrs))
        if self.inside:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


def test_full_run(tmp_path: Path) -> None:
    metrics = (
        "".join(line(s) for s in range(10, 500, 10)) + '{"step": 100, "dev/spearman": 0.8}\n'
        '{"step": 200, "dev/spearman": 0.84}\n{"step": 300, "dev/spearman": 0.83}\n'
    )
    run = make_run(tmp_path / "my run", metrics, RESULTS)
    assert write_report(run) == run / "report.html"
    html = (run / "report.html").read_text("utf-8")
    page = Cells(html)
    assert "<h1>Run my run</h1>" in html
    assert (
        "small has 9,493,632 parameters (41.8 % of its teacher&#39;s 22,713,216), scores 78.40 on average on STS "
        "(99.4 % of its teacher&#39;s 78.87) and is 1.86 (flax) times as fast."
    ) in html
    assert ["STS12", "80.00", "72.00", "90.0 %"] in page.rows
    assert ["SICK-R", "77.09", "–", "–"] in page.rows
    assert ["Avg", "78.87", "78.40", "99.4 %"] in page.rows
    assert '<p class="note">Warning: it gives every text the same vector</p>' in html
    assert "Of the 1,369 dev pairs 6 are pairs of the test sets, and 51 others hold a sentence of theirs." in html
    assert ["ours.csv", "80.00", "60.00", "75.0 %"] in page.rows and ["Avg", "80.00", "68.00", "85.0 %"] in page.rows
    assert ["scifact ndcg@10", "0.6400", "0.6000", "93.8 %"] in page.rows
    assert ["scifact index_bytes", "300.0000", "100.0000", "–"] in page.rows  # a cost is no quality that is kept
    assert ["scifact queries_per_s", "30.0000", "90.0000", "–"] in page.rows
    assert ["Size in float32", "90.9 MB", "38.0 MB", "41.8 %"] in page.rows
    assert ["small", "flax", "4.90 ms", "1.86 x", "38.0 MB", "9,493,632"] in page.rows
    assert (
        ["Time", "45 min 10 s"] in page.rows
        and ["Sentences", "365,012"] in page.rows
        and ["Devices", "2 x cpu"] in page.rows
    )
    assert "best 0.84 at step 200" in html and "2 pairs of texts" in html
    assert "python -m jdistill.main" in html and "--config.teacher=pkg:x" in html
    names = {path.name for path in (run / "report").iterdir()}
    assert names == {
        "agreement.png",
        "distil-loss.png",
        "distil-token_mse.png",
        "distil-lr.png",
        "distil-sentences_per_s.png",
        "distil-dev_spearman.png",
    }
    assert all((run / "report" / name).read_bytes().startswith(PNG) for name in names)
    assert len(page.images) == len(names)
    assert all(image["alt"] and str(image["src"]).startswith("data:image/png;base64,") for image in page.images)
    assert "script" not in page.tags and "link" not in page.tags and "http" not in html.replace("base64,", "")[:6000]


def test_a_run_without_a_teacher_stands_beside_its_start(tmp_path: Path) -> None:
    results = RESULTS | {"teacher": RESULTS["teacher"] | {"name": ""}}
    run = make_run(tmp_path / "run", None, results)
    (run / "config.json").write_text(json.dumps({"teacher": "", "start": "its/start"}))
    html = write_report(run).read_text("utf-8")
    assert "(41.8 % of its start&#39;s 22,713,216)" in html and "Start: its/start. Student: small." in html
    rows = Cells(html).rows
    assert ["Summary", "Start", "Student", "Student / start"] in rows
    assert rows.count(["Task", "Start", "Student", "Retention"]) == 3
    assert "teacher" not in html.partition("<h2>Configuration")[0].lower()


def test_a_student_that_was_timed_alone_is_not_said_to_be_as_fast_as_itself(tmp_path: Path) -> None:
    alone = RESULTS["speed"][1] | {"ratio": 1.0}
    html = write_report(make_run(tmp_path / "run", None, RESULTS | {"speed": [alone]})).read_text("utf-8")
    assert "times as fast" not in html and "78.40 on average" in html
    assert ["small", "flax", "4.90 ms", "–", "38.0 MB", "9,493,632"] in Cells(html).rows


def test_only_a_config(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    html = write_report(run).read_text("utf-8")
    for said in (
        "This run has no result yet.",
        "No results.json",
        "No stage has written metrics.jsonl",
        "Not measured",
    ):
        assert said in html
    assert not Cells(html).rows and "batch_size" in html and "recorded in results.json when the run ends" in html


def test_an_empty_folder_and_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No config.json" in write_report(tmp_path).read_text("utf-8")
    with pytest.raises(UserError, match="no such folder"):
        write_report(tmp_path / "absent")
    assert main(["--workdir", str(tmp_path / "absent")]) == 2
    assert "absent" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    assert main(["--workdir", str(tmp_path / "other")]) == 2
    assert "no run's folder: it holds none of config.json" in capsys.readouterr().err
    assert not any((tmp_path / "other").iterdir())  # whose page would stop an export into it
    (tmp_path / "other" / "config.json").write_text("{ damaged")
    for _ in range(2):  # its own page is no stranger's
        assert main(["--workdir", str(tmp_path / "other")]) == 0
    (tmp_path / "other" / "report.html").write_text("<html>a user's</html>")
    assert main(["--workdir", str(tmp_path / "other")]) == 2
    assert "holds a report.html that is not jdistill's" in capsys.readouterr().err


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    bad = '<script>alert("1")</script>'
    run = make_run(tmp_path / "a<b>&", line(10, **{bad: 1.0, "a$b_{": 2.0, "../../up": 3.0, "\ud800": 4.0}))
    (run / "config.json").write_text(json.dumps({"method": bad, "teacher": bad, "note": {bad: [bad, "\ud800"]}}))
    results = {
        "student": {"name": bad, "num_params": 5},
        "sts": {bad: 1.0},
        "retrieval": {bad: {bad: 0.5}},
        "speed": [{"model": bad, "framework": bad}],
        "agreement": {bad: 0.1},
        "training": {bad: 3},
    }
    (run / "results.json").write_text(json.dumps(results))
    html = write_report(run).read_bytes().decode("utf-8")
    page = Cells(html)
    assert "script" not in page.tags and "b" not in page.tags and html.count("&lt;script&gt;") >= 10
    assert any(str(image["alt"]).startswith(bad) for image in page.images)
    assert not (tmp_path / "up.png").exists() and len(list((run / "report").glob("*.png"))) == len(page.images)


def test_nan_everywhere_does_not_break_the_page(tmp_path: Path) -> None:
    nan = float("nan")
    metrics = line(10, loss=nan) + line(20) + line(30, loss=float("inf")) + line(40) + '{"step": 40, "dev/s": NaN}\n'
    results = {
        "sts": {"STS12": nan, "Avg": 70.0},
        "teacher_sts": {"Avg": nan},
        "training": {"seconds": nan},
        "speed": [{"model": None, "ratio": nan}, 3],
        "student": [],
        "agreement": {"pairs": [["x", 1], 4]},
        "retrieval": None,
    }
    run = make_run(tmp_path / "run", metrics, results)
    html = write_report(run).read_text("utf-8")
    assert "loss: 0.05 at first, 0.025 at last. NaN or infinite, not drawn: 2." in html
    assert "dev/s: no finite value." in html and ["Avg", "–", "70.00", "–"] in Cells(html).rows
    assert "nan" not in "".join(cell for row in Cells(html).rows for cell in row)


def test_spoilt_results_and_config_are_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "results.json").write_text('{"sts": {"Avg": 7')
    (run / "config.json").write_text("[1]")
    html = write_report(run).read_text("utf-8")
    assert "results.json is not valid JSON" in html and "config.json holds no JSON object" in html


def test_a_run_on_labels(tmp_path: Path) -> None:
    of = {"accuracy": 81.25, "f1": 70.0, "ap": 64.0, "precision": 61.5, "recall": 80.0, "prior": 33.3, "threshold": 0.2}
    results = {
        "task": {"sst2": {"accuracy": 90.5, "split": "test", "dev": {"accuracy": 91.0}, "rows": {"train": 10}}},
        "pairs": {"snli_pairs": {"student": of, "teacher": of | {"ap": None}, "odd": 3}, "odd": "x"},
    }
    html = write_report(make_run(tmp_path / "run", None, results)).read_text("utf-8")
    page = Cells(html)
    assert ["sst2", "test", "accuracy", "90.50"] in page.rows and ["sst2", "dev", "accuracy", "91.00"] in page.rows
    assert ["snli_pairs", "student", "81.25", "70.00", "64.00", "61.50", "80.00", "33.30"] in page.rows
    assert ["snli_pairs", "teacher", "81.25", "70.00", "–", "61.50", "80.00", "33.30"] in page.rows
    empty = write_report(make_run(tmp_path / "none", None, {})).read_text("utf-8")
    assert "Labelled pairs" not in empty and "<h2>Task</h2>" not in empty
