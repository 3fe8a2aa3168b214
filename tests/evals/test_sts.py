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

import jdistill
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.sts import read_scored_pairs, sts_sentences, sts_tasks
from jdistill.evals.sets import SETS, Options
from jdistill.evals.sts import evaluate_pairs, evaluate_sts, spearman

MINILM = {"STS-B": 82.03}


class Angles:
    """An encoder of texts such as "a 30": the vector at that angle, of a length that must not matter."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        self.calls.append(list(texts))
        angles = np.radians([float(text.split()[1]) for text in texts])
        lengths = np.arange(1, len(texts) + 1)[:, None]
        return (np.stack([np.cos(angles), np.sin(angles)], axis=1) * lengths).astype(np.float32)


def naive_spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """By definition: Pearson's correlation of ranks, where a value's rank counts those below it and half its equals."""

    def ranks(values: Sequence[float]) -> list[float]:
        return [sum(b < a for b in values) + (sum(b == a for b in values) + 1) / 2 for a in values]

    return naive_pearson(ranks(x), ranks(y))


def naive_pearson(a: Sequence[float], b: Sequence[float]) -> float:
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    top = sum((p - mean_a) * (q - mean_b) for p, q in zip(a, b, strict=True))
    return 100 * top / math.sqrt(sum((p - mean_a) ** 2 for p in a) * sum((q - mean_b) ** 2 for q in b))


def write_year(folder: Path, year: int, subset: str, pairs: list[str], gold: list[str]) -> None:
    place = folder / "STS" / f"STS{year}-en-test"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"STS.input.{subset}.txt").write_text("".join(f"{pair}\n" for pair in pairs))
    (place / f"STS.gs.{subset}.txt").write_text("".join(f"{score}\n" for score in gold))


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
    assert [line.split()[0] for line in SETS["pairs"].lines(found)] == ["Scored", "pairs", "a.csv", "b.tsv"]
    of_file = SETS["pairs"].evaluate(Angles(), str(tmp_path / "a.csv"), Options())  # type: ignore[arg-type]
    assert of_file == {"scored_pairs": pytest.approx(100)}


class Differences:
    """A module whose logits are the differences of the vectors' first numbers."""

    def of_vectors(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool) -> np.ndarray:
        assert symmetric
        return query_vectors[:, 0] - passage_vectors[:, 0]


def test_a_module_scores_the_same_pairs(tmp_path: Path) -> None:
    write_year(tmp_path, 13, "a", ["x 0\ty 50", "x 0\ty 30", "x 90\ty 90"], ["3", "4", "5"])
    write_year(tmp_path, 13, "b", ["x 60\ty 51", "x 0\ty 5"], ["0", "1"])

    class OfUnitLength(Angles):
        def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
            vectors = super().encode(texts)
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    found = evaluate_sts(OfUnitLength(), tmp_path, Differences())["sts_by_module"]  # type: ignore[arg-type]
    cos = [[math.cos(math.radians(angle)) for angle in pair] for pair in ((0, 50), (0, 30), (90, 90), (60, 51), (0, 5))]
    logits = [left - right for left, right in cos]
    assert found["spearman"]["STS13"] == pytest.approx(naive_spearman(logits, [3, 4, 5, 0, 1]), abs=1e-6)
    assert found["pearson"]["STS13"] == pytest.approx(naive_pearson(logits, [3, 4, 5, 0, 1]), abs=1e-4)


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
