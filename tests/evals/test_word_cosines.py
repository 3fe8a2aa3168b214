"""Cosines of sentences by words alone: against scikit-learn's, what a word is, and where the figures stand beside a model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, sentences, write_stsb
from sklearn.feature_extraction.text import TfidfVectorizer
from sts_setting import naive_spearman

from jdistill.evals import sets, sts
from jdistill.evals.word_cosines import word_cosines
from jdistill.export.card_text import figure_sections
from jdistill.report.facts import scored_pairs
from jdistill.report.run import write_report
from jdistill.run.headline import headline_lines

LEFT, RIGHT = sentences(40), [f"{a} {b}" for a, b in zip(sentences(40), reversed(sentences(40)), strict=True)]


def sklearns(left: list[str], right: list[str], of: list[str]) -> np.ndarray:
    weights = TfidfVectorizer().fit(list(dict.fromkeys(of)))  # of smoothed idf and unit length, by its own
    return np.asarray(weights.transform(left).multiply(weights.transform(right)).sum(1)).ravel()


def test_cosines_are_scikit_learns() -> None:
    found = word_cosines([(LEFT[:30], RIGHT[:30]), (LEFT[30:], RIGHT[30:])])
    whole = sklearns(LEFT, RIGHT, [*LEFT, *RIGHT])
    assert np.ptp(whole) > 0.1
    np.testing.assert_allclose(np.concatenate(found), whole, rtol=1e-12)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("The Cat", "the cat", 1.0),  # case
        ("the cat", "cat the the the", 2 / np.sqrt(5)),  # counts: (1, 1) and (1, 3), each word in both sentences
        ("", "the cat", 0.0),
        ("...", "?", 0.0),
        ("caf\u00e9 noir", "cafe\u0301 noir", 1.0),  # an accent written apart
        ("\u732b\u304c", "\u732b", 1 / np.sqrt(1 + (1 + np.log(1.5)) ** 2)),  # no space between words: a letter is one
    ],
)
def test_what_a_word_is(left: str, right: str, expected: float) -> None:
    np.testing.assert_allclose(word_cosines([([left], [right])]), [[expected]], rtol=1e-12)


def test_they_stand_beside_a_models_figures_on_sts_and_on_pairs_of_ones_own(tmp_path: Path) -> None:
    gold = np.round(np.random.default_rng(0).uniform(0, 5, 40), 1)
    write_stsb(tmp_path, [f"{score}\t{a}\t{b}" for score, a, b in zip(gold, LEFT, RIGHT, strict=True)])
    for name, half in (("a.tsv", slice(20)), ("b.tsv", slice(20, 40))):
        (tmp_path / "pairs").mkdir(exist_ok=True)
        rows = [f"{a}\t{b}\t{score}" for a, b, score in zip(LEFT[half], RIGHT[half], gold[half], strict=True)]
        (tmp_path / "pairs" / name).write_text("\n".join(["sentence1\tsentence2\tscore", *rows]))
    expected = naive_spearman(sklearns(LEFT, RIGHT, [*LEFT, *RIGHT]), gold)
    encoder, options = make_encoder(), sets.Options()
    of_sts = sets.of_sts(encoder, str(tmp_path), options)
    assert of_sts["words_sts"] == {"STS-B": pytest.approx(expected)} and of_sts["sts"] != of_sts["words_sts"]
    of_pairs = sets.of_pairs(encoder, str(tmp_path / "pairs"), options)
    by_file = {
        name: naive_spearman(sklearns(LEFT[half], RIGHT[half], [*LEFT[half], *RIGHT[half]]), gold[half])
        for name, half in (("a.tsv", slice(20)), ("b.tsv", slice(20, 40)))
    }
    mean = pytest.approx(np.mean(list(by_file.values())))
    assert scored_pairs(of_pairs, "words_") == {name: pytest.approx(of) for name, of in by_file.items()} | {"Avg": mean}
    alone = sets.Options(words=False)
    assert not [key for key in sets.of_sts(encoder, str(tmp_path), alone) if "words" in key]
    assert not [key for key in sets.of_pairs(encoder, str(tmp_path / "pairs"), alone) if "words" in key]
    assert f"  {'by words alone':<24}{of_pairs['words_scored_pairs']:8.2f}" in sets.pairs_lines(of_pairs)
    (line,) = headline_lines(of_pairs | {"teacher_scored_pairs": 80.0}, "teacher")
    words = of_pairs["words_scored_pairs"]
    assert (
        line == f"dev pairs, Spearman {of_pairs['scored_pairs']:.2f} of the teacher's 80.00 (words alone: {words:.2f})"
    )


def test_the_average_is_over_all_seven_tasks_as_a_models_is() -> None:
    results = {"sts": {"Avg": 70.0}, "words_sts": {"Avg": 60.0}}
    assert headline_lines(results, "teacher") == ["STS average 70.00 (words alone: 60.00)"]
    assert sets.sts_lines(results)[-1].split() == ["Avg", "60.00"]
    assert sts.spearman(np.array([0.0, 0.0]), np.array([1.0, 2.0])) == 0.0  # no word in common anywhere


def test_a_card_and_a_page_show_them(tmp_path: Path) -> None:
    results = {
        "sts": {"STS12": 70.0, "Avg": 71.0},
        "teacher_sts": {"STS12": 80.0, "Avg": 80.0},
        "words_sts": {"STS12": 60.25},
    }
    results |= {"scored_pairs": 75.0, "words_scored_pairs": 61.5}  # type: ignore[dict-item]
    card = figure_sections(results, {"teacher": "t"}).splitlines()
    assert "| task | this model | teacher | of it | words alone |" in card
    assert "| STS12 | 70.00 | 80.00 | 87.5 % | 60.25 |" in card and "| Avg | 71.00 | 80.00 | 88.8 % |  |" in card
    assert "| pairs | 75.00 |  |  | 61.50 |" in card
    assert "words" not in figure_sections({"sts": {"STS12": 70.0}}, {"teacher": "t"})
    (tmp_path / "config.json").write_text('{"teacher": "t"}')
    page = write_report(tmp_path, results).read_text()
    assert page.count("Words alone") == 2 and "60.25" in page and "61.50" in page
