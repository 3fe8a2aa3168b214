"""bench/distilface_dev.py: dev pairs that share no sentence with the tests, as files that a config's dev_pairs reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import ROOT

sys.path += [str(ROOT / "bench"), str(ROOT)]
import distilface_dev

from jdistill.data.sets.sts import pair_files, read_scored_pairs


def write_year(folder: Path, year: int, pairs: list[str], gold: list[str]) -> None:
    folder = folder / "STS" / f"STS{year}-en-test"
    folder.mkdir(parents=True)
    (folder / "STS.input.a.txt").write_text("".join(f"{pair}\n" for pair in pairs))
    (folder / "STS.gs.a.txt").write_text("".join(f"{score}\n" for score in gold))


def test_pairs_with_a_tested_sentence_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    senteval = tmp_path / "senteval"
    write_year(senteval, 12, ["A man sings.\tA dog runs.", "Not scored here\tNor this"], ["3", ""])
    write_year(senteval, 16, [
        "a man, sings\tA cat.", "A cat.\tnot scored HERE!", "A cat.\tA mouse.", "Unscored\tA mouse.", "From the benchmark\tA mouse.",
    ], ["1", "2", "4.5", "", "2"])  # fmt: skip
    benchmark = senteval / "STS" / "STSBenchmark"
    benchmark.mkdir()
    (benchmark / "sts-test.csv").write_text("g\tf\ty\t1\t2.0\tfrom the benchmark\tand its other side\n")
    (senteval / "SICK").mkdir()
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    (senteval / "SICK" / "SICK_trial.txt").write_text(
        head + "4\tOne, two\tThree\t3.6\tNEUTRAL\n5\tOne\tAnd its OTHER side\t3.6\tNEUTRAL\n"
    )
    (tmp_path / "mine.csv").write_text("sentence1,sentence2,score\nown,other,1\nA man sings,own,3\n")
    out = tmp_path / "dev"
    arguments = ["--senteval", senteval, "--pairs", tmp_path / "mine.csv", "--out", out]
    monkeypatch.setattr(sys, "argv", ["distilface_dev.py", *map(str, arguments)])
    distilface_dev.main()
    read = {path.name: read_scored_pairs(path) for path in pair_files(out)}
    assert {name: (left, right, gold.tolist()) for name, (left, right, gold) in read.items()} == {
        "mine.csv": (["own"], ["other"], [1.0]),
        "sick-trial.csv": (["One, two"], ["Three"], [3.6]),
        "sts16.csv": (["A cat."], ["A mouse."], [4.5]),
    }
