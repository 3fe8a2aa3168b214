"""STS: the readers of SentEval's layout, the figures, and MiniLM's known ones on real data."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_stsb
from sts_setting import Angles, naive_pearson, naive_spearman, write_year

import jdistill
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.sts import read_scored_pairs, sts_sentences, sts_tasks
from jdistill.evals.sets import SETS, Options
from jdistill.evals.sts import evaluate_pairs, evaluate_sts, pearson, spearman

MINILM = {"STS-B": 82.03}


def write_sick(folder: Path, rows: list[str]) -> None:
    (folder / "SICK").mkdir()
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    lines = [header, *(f"1\t{row}\tNEUTRAL" for row in rows)]
    (folder / "SICK" / "SICK_test_annotated.txt").write_bytes("".join(f"{line}\r\n" for line in lines).encode())


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """The log's text, which a logger that does not propagate keeps from pytest."""
    log.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, logger=log.name)
    yield lambda: caplog.text
    log.removeHandler(caplog.handler)


def test_spearman_is_that_of_a_rank_loop() -> None:
    rng = np.random.default_rng(0)
    for ties in (3, 1000):
        x, y = rng.integers(0, ties, (2, 60)).astype(float)
        assert spearman(x, y) == pytest.approx(naive_spearman(list(x), list(y)), abs=1e-9)
    assert spearman(np.array([1.0, 2, 3]), np.array([2.0, 4, 9])) == pytest.approx(100)
    assert spearman(np.ones(3), np.arange(3)) == 0.0


def test_blank_gold_lines_are_unscored_pairs(tmp_path: Path) -> None:
    write_year(tmp_path, 16, "a", ["x 0\ty 1", "x 2\ty 3\tsource", "x 4\ty 5", "x 6\ty 7"], ["", "4.5", "  ", "0"])
    (task,) = sts_tasks(tmp_path)
    (subset,) = task.subsets
    assert (task.name, subset.name) == ("STS16", "a")
    assert (subset.left, subset.right) == (["x 2", "x 6"], ["y 3", "y 7"])
    assert subset.gold.dtype == np.float64 and subset.gold.tolist() == [4.5, 0.0]
    assert list(sts_sentences(tmp_path)) == [f"{'xy'[i % 2]} {i}" for i in range(8)]


def test_odd_characters_do_not_shift_lines(tmp_path: Path) -> None:
    write_year(tmp_path, 12, "a", ['he said "no 1\tx\u2028y 1', "p\x0bq 2\tr\x85s 2"], ["1", "2"])
    subset = sts_tasks(tmp_path)[0].subsets[0]
    assert subset.left == ['he said "no 1', "p\x0bq 2"] and subset.right == ["x\u2028y 1", "r\x85s 2"]


def test_concatenated_figure_and_means_over_subsets(tmp_path: Path) -> None:
    # Within each subset the order is right, but b's scores are lower at the same cosines: only concatenation sees it.
    write_year(tmp_path, 13, "a", ["x 0\ty 50", "x 0\ty 30", "x 0\ty 10"], ["3", "4", "5"])
    write_year(tmp_path, 13, "b", ["x 0\ty 51", "x 0\ty 5"], ["0", "1"])
    write_year(tmp_path, 13, "c", ["x 0\ty 52", "x 0\ty 6"], ["1", "0"])
    (tmp_path / "STS" / "STS13-en-test" / "STS.gs.SMT.txt").write_text("1\n")  # its sentences are not distributed
    found = evaluate_sts(Angles(), tmp_path)  # type: ignore[arg-type]
    by = found["sts_by_subset"]["STS13"]
    assert by["subsets"] == pytest.approx({"a": 100.0, "b": 100.0, "c": -100.0})
    assert by["mean"] == pytest.approx(100 / 3) and by["wmean"] == pytest.approx(100 * (3 + 2 - 2) / 7)
    cosines = [math.cos(math.radians(angle)) for angle in (50, 30, 10, 51, 5, 52, 6)]
    assert found["sts"] == {"STS13": pytest.approx(naive_spearman(cosines, [3, 4, 5, 0, 1, 1, 0]), abs=1e-6)}
    assert found["sts_pearson"] == {"STS13": pytest.approx(naive_pearson(cosines, [3, 4, 5, 0, 1, 1, 0]), abs=1e-4)}


def test_of_a_folder_of_pairs_every_file_counts_alike(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\nx 0,y 50,1\nx 0,y 30,2\nx 0,y 10,3\n")
    (tmp_path / "b.tsv").write_text("sentence1\tsentence2\tscore\nx 0\ty 50\t90\nx 0\ty 10\t80\n")
    found = SETS["pairs"].evaluate(Angles(), str(tmp_path), Options())  # type: ignore[arg-type]
    assert found["scored_pairs_of"] == pytest.approx({"a.csv": 100, "b.tsv": -100}) and found[
        "scored_pairs"
    ] == pytest.approx(0, abs=1e-9)
    assert evaluate_pairs(Angles(), tmp_path) == pytest.approx(0, abs=1e-9)  # type: ignore[arg-type]
    assert [line.split()[0] for line in SETS["pairs"].lines(found)] == ["Scored", "pairs", "a.csv", "b.tsv", "by"]
    of_file = SETS["pairs"].evaluate(Angles(), str(tmp_path / "a.csv"), Options())  # type: ignore[arg-type]
    assert of_file == {"scored_pairs": pytest.approx(100), "words_scored_pairs": 0.0}  # no word in common


def test_a_model_with_one_vector_for_all_has_no_correlation(tmp_path: Path, told: Any) -> None:
    """However float32 rounds its cosines, which a run would else choose a checkpoint by."""
    gold = np.arange(60.0)
    rounded = np.float32(1) - np.random.default_rng(0).integers(0, 3, 60) * np.float32(6e-8)
    assert np.ptp(rounded) > 0 and spearman(rounded, gold) == pearson(rounded, gold) == 0
    assert spearman(np.linspace(0.99999, 1, 60, dtype=np.float32), gold) > 99
    write_year(tmp_path, 13, "a", [f"x 0\ty {i}" for i in range(3)], ["3", "4", "5"])

    class Dead(Angles):
        def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
            return np.ones((len(texts), 8), np.float32) + np.arange(len(texts), dtype=np.float32)[:, None] * 1e-7

    assert evaluate_sts(Dead(), tmp_path)["sts"]["STS13"] == 0  # type: ignore[arg-type]
    assert "the same cosine" in told()


def test_all_seven_give_an_average_and_each_sentence_is_encoded_once(tmp_path: Path, told: Any) -> None:
    for year in range(12, 17):
        write_year(tmp_path, year, "a", ["x 0\ty 50", "x 0\ty 30", "x 0\ty 10"], ["3", "4", "5"])
    write_stsb(tmp_path, ["1\tx 0\ty 50", "2\tx 0\ty 30", "0\tx 0\ty 10\tsome source"])
    write_sick(tmp_path, ["x 0\ty 50\t5", "x 0\ty 30\t3", "x 0\ty 10\t1"])
    encoder = Angles()
    sts = evaluate_sts(encoder, tmp_path)["sts"]  # type: ignore[arg-type]
    assert list(sts) == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg"]
    years = dict.fromkeys(list(sts)[:5], 100.0)
    assert sts == pytest.approx(years | {"STS-B": -50.0, "SICK-R": -100.0, "Avg": 350 / 7})
    assert sorted(encoder.calls[0]) == ["x 0", "y 10", "y 30", "y 50"] and len(encoder.calls) == 1
    assert "STS14" in told() and "3 scored pairs, not 3750" in told()


def test_missing_tasks_are_told_and_leave_no_average(tmp_path: Path, told: Any) -> None:
    write_stsb(tmp_path, ["1\tx 0\ty 50", "2\tx 0\ty 30"])
    assert evaluate_sts(Angles(), tmp_path)["sts"] == pytest.approx({"STS-B": 100.0})  # type: ignore[arg-type]
    for name in ("STS12", "STS16", "SICK-R"):
        assert f"has no {name}: no average" in told()
    with pytest.raises(UserError, match="senteval: no STS task in .*STSBenchmark"):
        sts_tasks(tmp_path / "STS")


def test_malformed_senteval_files_are_named(tmp_path: Path) -> None:
    write_year(tmp_path, 12, "a", ["x 0\ty 1", "x 2\ty 3"], ["1", "none"])
    with pytest.raises(UserError, match=r"STS\.gs\.a\.txt, line 2: the score is 'none'"):
        sts_tasks(tmp_path)
    write_year(tmp_path, 12, "a", ["x 0\ty 1", "x 2"], ["1", "2"])
    with pytest.raises(UserError, match=r"STS\.input\.a\.txt, line 2: sentence 2 is empty"):
        sts_tasks(tmp_path)
    write_year(tmp_path, 12, "a", ["x 0\ty 1", "x 2\ty 3"], ["1"])
    with pytest.raises(UserError, match=r"has 2 lines, STS\.gs\.a\.txt 1"):
        sts_tasks(tmp_path)


def test_pairs_need_a_file_and_different_scores(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="p.csv cannot be read"):
        read_scored_pairs(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text("sentence1,sentence2,score\nx 0,y 1,3\nx 0,y 2,3\n")
    with pytest.raises(UserError, match="all 2 pairs have the score 3"):
        evaluate_pairs(Angles(), tmp_path / "p.csv")  # type: ignore[arg-type]
    (tmp_path / "p.csv").write_text("sentence1,sentence2,score\nx 0,y 1,3\nx 0,y 2,5\nx 0,y 3,4\n")
    assert evaluate_pairs(Angles(), tmp_path / "p.csv") == pytest.approx(-50.0)  # type: ignore[arg-type]


def test_the_shared_data_are_read_whole(shared_data: Path) -> None:
    senteval = shared_data / "senteval"
    sizes = {task.name: sum(len(subset.gold) for subset in task.subsets) for task in sts_tasks(senteval)}
    assert list(sizes.values()) == [3108, 1500, 3750, 3000, 1186, 1379, 4927]
    assert len(read_scored_pairs(shared_data / "dev" / "sts-dev-clean.csv")[0]) == 369
    assert len(read_scored_pairs(senteval / "SICK" / "SICK_trial.txt")[0]) == 500


def test_minilm_reaches_its_known_figures(shared_data: Path, real_teacher: str, tmp_path: Path) -> None:
    (tmp_path / "STS").mkdir()  # one of the seven tasks; all of them take minutes
    (tmp_path / "STS" / "STSBenchmark").symlink_to(shared_data / "senteval" / "STS" / "STSBenchmark")
    sts = evaluate_sts(jdistill.load(real_teacher), tmp_path)["sts"]
    assert sts == {name: pytest.approx(figure, abs=0.02) for name, figure in MINILM.items()}
