"""The data of D2LLM's stages: every column of a batch against the texts and the judge that it comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import make_decoder
from d2llm_setting import LOGIT, SUMS
from judged_setting import I, K, P, asked, judged_files, judged_model
from parity import assert_close

from configs import d2llm
from jdistill.data.sets.candidates import Queries
from jdistill.data.sets.pairs import Pairs, sample_pairs
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.pair_labels import pair_scores
from jdistill.feeds.candidates import CandidateFeed, candidate_batches
from jdistill.feeds.judged import JudgedPairs, changed_judge_keys, pairs_to_judge
from jdistill.feeds.judged_results import evaluate_judged
from jdistill.feeds.negatives import mined_negatives
from jdistill.teachers.judge import Judge
from jdistill.train.origins import OF_DEV_SETS


@pytest.fixture(scope="module")
def model() -> Encoder:
    return judged_model()


@pytest.fixture(scope="module")
def given(model: Encoder, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    return judged_files(tmp_path_factory.mktemp("pairs"), model)


def test_who_judges_is_among_what_a_resumed_stage_must_share(given: tuple, model: Encoder) -> None:
    judged, shared = given[1], SimpleNamespace(teacher=SimpleNamespace(encoder=None))
    other = replace(
        judged,
        judges={
            branch: replace(judge, model=make_decoder(1, max_positions=256)) for branch, judge in judged.judges.items()
        },
    )
    mine, again, others = (CandidateFeed(shared, files).origins() for files in (judged, judged, other))  # type: ignore[arg-type]
    assert mine == again and list(mine) == [OF_DEV_SETS, "the judge"]
    assert [name for name in mine if mine[name] != others[name]] == ["the judge"]


def test_a_batch_for_the_student_has_its_texts_and_what_the_judge_says(given: tuple, model: Encoder) -> None:
    cfg, judged = given
    _, data = candidate_batches(cfg, judged, model)
    assert len(data) == sum(len(one.candidates.queries) for one in judged.sets) and data.texts_per_row == 1 + P + K + I
    starts, seen = np.cumsum([0, *(len(one.candidates.queries) for one in judged.sets)]), set()
    for step in range(data.batches.steps_per_epoch):
        batch, (_, rows) = data.batch(step), data.batches.at(step)
        which = int(np.searchsorted(starts, rows[0], side="right") - 1)
        one, judge = judged.sets[which], judged.judges[judged.sets[which].branch]
        seen.add(one.branch)
        assert (batch["symmetric"] == (one.branch == "symmetric")).all()
        for r in (0, len(rows) - 1):
            place = rows[r] - starts[which]
            there = [j for j in one.candidates.columns[place] if j >= 0]
            query, texts = one.candidates.queries[place], [one.candidates.passages[j] for j in there]
            assert batch["real"][r].tolist() == [True, *(one.candidates.columns[place] >= 0)]
            tokens = [batch["ids"][r][batch["segments"][r] == t + 1].tolist() for t in range(1 + P + K + I)]
            short = replace(model, max_length=20)
            assert [ids for ids, real in zip(tokens, batch["real"][r], strict=True) if real] == short.tokenize(
                [query, *texts]
            )
            z, y = asked(judge, query, texts)
            assert_close(batch["z"][r][batch["real"][r, 1:]], z, *SUMS, largest=LOGIT)
            # Positives and hard negatives stand first; y is kept in float16.
            near = sum(one.candidates.columns[place][: P + K] >= 0)
            unit = y[:near] / np.linalg.norm(y[:near], axis=1, keepdims=True)
            real = np.flatnonzero(batch["real"][r, 1 : 1 + P + K])
            np.testing.assert_allclose(batch["r"][r][np.ix_(real, real)], unit @ unit.T, atol=2e-3)
    assert seen == {"symmetric", "asymmetric"}


def test_without_a_term_that_imitates_the_judge_is_not_asked(
    given: tuple, model: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg, judged = given
    plain = cfg.copy_and_resolve_references()
    plain.loss.update({"imitate": False, "alpha": 0.0, "beta": 0.0, "gamma": 0.0})
    monkeypatch.setattr(Judge, "score", lambda *_: pytest.fail("the judge was asked"))
    batch = candidate_batches(plain, judged, model)[1].batch(0)
    assert not batch["z"].any() and not batch["r"].any() and batch["real"].any()


def test_a_plan_counts_all_that_the_judge_is_asked(given: tuple) -> None:
    cfg, judged = given
    (same, answers), plain = judged.sets, cfg.copy_and_resolve_references()
    asked = pairs_to_judge(cfg, judged)
    assert asked.keys() == {"symmetric", "asymmetric"}
    assert len(asked["symmetric"][0]) == int((same.candidates.columns >= 0).sum()) + 20 + len(same.test)
    plain.loss.update({"imitate": False, "alpha": 0.0, "beta": 0.0, "gamma": 0.0})
    assert pairs_to_judge(plain, judged)["asymmetric"][1][-len(answers.test) :] == answers.test.passages
    assert len(pairs_to_judge(plain, judged)["asymmetric"][0]) == 20 + len(answers.test)
    # Each alone reads what the judge says; SI alone reads labels.
    for term in ("alpha", "beta", "gamma", "listed"):
        one = plain.copy_and_resolve_references()
        one.loss[term] = 0.5
        assert pairs_to_judge(one, judged) == asked


def test_rows_take_few_places_and_every_width_holds_them(given: tuple, model: Encoder) -> None:
    cfg, judged = given
    _, data = candidate_batches(cfg, judged, model, made_up=True)
    places = tokens = 0
    for step in range(data.batches.steps_per_epoch):
        batch, (width, rows) = data.batch(step), data.batches.at(step)
        assert batch["ids"].shape[2] % cfg.length_multiple == 0 and batch["ids"][0].size <= width
        assert int((batch["segments"] > 0).sum()) == int(data.batches.real_tokens[rows].sum())
        places, tokens = places + batch["ids"].size, tokens + int((batch["segments"] > 0).sum())
    assert data.batches.padding == pytest.approx(1 - tokens / places, abs=0.05) and tokens / places > 0.7


def test_a_student_and_its_judge_are_measured_on_the_same_pairs(given: tuple) -> None:
    cfg, judged = given
    scorer = PairScorer(make_decoder(1), None, "cosine")
    found = evaluate_judged(cfg, judged, scorer)

    def of_judge(judged: JudgedPairs, branch: str, pairs: Pairs) -> np.ndarray:
        return judged.judges[branch].score(pairs.queries, pairs.passages)[0]

    for one in judged.sets:
        train = sample_pairs(one.train, 20, seed=0)
        assert len(train) == 20 and set(train.queries).isdisjoint(one.test.queries)
        by_student = [scorer.score(pairs.queries, pairs.passages, True) for pairs in (train, one.test)]
        by_judge = [of_judge(judged, one.branch, pairs) for pairs in (train, one.test)]
        for name, (of_train, of_test) in (("student", by_student), ("teacher", by_judge)):
            expected = pair_scores(of_train, train.labels, of_test, one.test.labels)
            assert found[one.name][name] == pytest.approx(expected, abs=1e-3)


def test_a_bi_encoder_clears_what_words_find(tmp_path: Path, real_teacher: str) -> None:
    passages = [
        "a cat sits on a mat",
        "the cat is sitting on the mat",
        "a dog runs in a park",
        "a cat eats a fish on a mat",
    ]
    queries = Queries(["a cat on the mat"], [passages[:1]], [[]])
    cfg = d2llm.get_config()
    cfg.cache_dir = str(tmp_path)
    assert mined_negatives(cfg, queries, passages) == [
        [passages[1], passages[3]]
    ]  # the first of them says what the positive says
    cfg.mining.encoder, cfg.mining.relative_margin = real_teacher, 0.9
    assert mined_negatives(cfg, queries, passages) == [[passages[3], passages[2]]]


def test_an_adapter_that_was_tuned_by_other_words_is_told(tmp_path: Path) -> None:
    theirs = d2llm.get_config()
    theirs.judge.yes, theirs.judge.asymmetric = "right", "Question: {query} Passage: {passage} Is it answered?"
    (tmp_path / "tune" / "adapter").mkdir(parents=True)
    cfg = d2llm.get_config()
    cfg.judge.adapter = str(tmp_path / "tune" / "adapter")
    cfg.symmetric = "pairs.jsonl"
    assert changed_judge_keys(cfg) == [], "no run is beside it"
    (tmp_path / "config.json").write_text(theirs.to_json())
    assert changed_judge_keys(cfg) == ["yes"], "of the kinds of pairs that there are"
    cfg.asymmetric = "questions.jsonl"
    assert changed_judge_keys(cfg) == ["yes", "asymmetric"]
    cfg.judge.adapter = ""
    assert changed_judge_keys(cfg) == []
