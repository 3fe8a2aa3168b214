"""Queries without labels: what they are judged with, what is left out, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from d2llm_setting import LOGIT, SUMS, config
from judged_setting import I, K, P, asked, judged_files, judged_model
from parity import assert_close

from jdistill.core.errors import UserError
from jdistill.data.sets.candidates import Candidates
from jdistill.feeds.candidates import candidate_batches
from jdistill.feeds.judged import read_judged
from jdistill.methods import METHODS


def test_queries_without_labels_have_passages_that_the_judge_alone_scores(tmp_path: Path) -> None:
    model = judged_model()
    cfg, judged = judged_files(tmp_path, model)
    (answers,) = (one for one in judged.sets if one.branch == "asymmetric")
    new, wordless = ["where do river and ocean meet a market", "window of violin music, silver lemon"], "qqq zzz"
    known = [answers.candidates.queries[0].upper(), answers.test.queries[0], answers.dev.queries[0]]
    known += [answers.test.passages[0], answers.dev.passages[0]]
    (tmp_path / "questions.txt").write_text("\n".join([*known, wordless, *new]) + "\n")
    changed = cfg.copy_and_resolve_references()
    changed.unlabelled_asymmetric = str(tmp_path / "questions.txt")
    again = read_judged(changed, model)
    (more,) = (one for one in again.sets if one.branch == "asymmetric")
    before = len(answers.candidates.queries)
    assert more.candidates.queries == [*answers.candidates.queries, *new]
    np.testing.assert_array_equal(more.candidates.columns[:before], answers.candidates.columns)
    behind = more.candidates.columns[before:]
    assert (behind[:, :P] == -1).all() and (behind[:, P:] >= 0).all()
    assert all(len(set(row[P:])) == K + I for row in behind)
    _, data = candidate_batches(changed, again, model)
    starts = len(data) - len(new) if again.sets[-1] is more else before
    rows = np.array([starts, starts + 1])
    batch = data.rows_of(0, data.batches.widths[-1], rows)
    for i, query in enumerate(new):
        passages = [more.candidates.passages[j] for j in behind[i, P:]]
        z, _ = asked(judged.judges["asymmetric"], query, passages)
        assert_close(batch["z"][i, P:], z, *SUMS, largest=LOGIT)
    changed.unlabelled_queries = 2  # the wordless one, which has nothing to be judged with, and the first
    assert read_judged(changed, model).sets[-1 if again.sets[-1] is more else 0].candidates.queries[before:] == new[:1]
    (tmp_path / "questions.txt").write_text("\n".join(known) + "\n")
    with pytest.raises(UserError, match="unlabelled_asymmetric=.*: no query is left"):
        read_judged(changed, model)


def test_queries_with_wrong_passages_alone_take_part_behind_the_others(tmp_path: Path) -> None:
    """Their labelled passages first, then BM25's; not where the key or the loss leaves them out, nor within max_queries of the others."""
    model = judged_model()
    cfg, before = judged_files(tmp_path, model)
    (answers,) = (one for one in before.sets if one.branch == "asymmetric")
    wrong = {"where do river and ocean meet a market": "a silver lemon", "which violin music": "the old stone bridge"}
    rows = [{"question": query, "sentence": passage, "label": "neutral"} for query, passage in wrong.items()]
    with (tmp_path / "answers.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)

    def candidates(**changes: object) -> Candidates:
        changed = cfg.copy_and_resolve_references()
        changed.held_out_queries, changed.dev_queries = 4, 2  # of another draw
        changed.update_from_flattened_dict(changes)
        (answers,) = (one for one in read_judged(changed, model).sets if one.branch == "asymmetric")
        assert set(wrong) <= set(answers.train.queries)
        return answers.candidates

    found, without = candidates(), candidates(queries_without_positive=False)
    count = len(without.queries)
    assert len(without.queries) == len(found.queries) - 2 and found.queries[:count] == without.queries
    assert set(found.queries[count:]) == set(wrong)
    for query, row in zip(found.queries[count:], found.columns[count:], strict=True):
        passages = [found.passages[j] for j in row[P:]]
        assert (row[:P] == -1).all() and passages[0] == wrong[query] and len(set(passages)) == K + I
        words = [len(set(query.split()) & set(text.split())) for text in passages[1:]]
        assert min(words[: K - 1]) >= max(1, *words[K - 1 :]), "the mined ones share more words than the drawn"
    no_terms = {f"loss.{name}": 0.0 for name in ("alpha", "beta", "gamma")}
    by_labels = candidates(**no_terms, **{"loss.delta": 1.0, "loss.imitate": False})
    assert by_labels.queries == found.queries
    for query, row in zip(by_labels.queries[count:], by_labels.columns[count:], strict=True):
        near = [by_labels.passages[j] for j in row[P : P + K] if j >= 0]
        assert near == [wrong[query]], "no judge says whether what is mined is wrong"
    assert candidates(**no_terms).queries == candidates(max_queries=count).queries == without.queries
    assert len(answers.candidates.queries) > 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unlabelled_symmetric": "q", "symmetric": ""}, "unlabelled_symmetric=q needs --config.symmetric"),
        (
            {
                "unlabelled_asymmetric": "q",
                "loss.imitate": False,
                "loss.alpha": 0.0,
                "loss.beta": 0.0,
                "loss.gamma": 0.0,
            },
            "unlabelled_asymmetric=q: no term of the loss but CI imitates the judge",
        ),
        (
            {"unlabelled_asymmetric": "q", "loss.alpha": 0.0, "loss.beta": 0.0, "loss.gamma": 0.0},
            "unlabelled_asymmetric=q: no term of the loss but CI imitates the judge",
        ),
        (
            {"unlabelled_asymmetric": "q", "hard_negatives": 0},
            "unlabelled_asymmetric=q needs --config.hard_negatives above 0",
        ),
    ],
)
def test_queries_that_nothing_would_be_learnt_from_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        METHODS["d2llm"](config(**changes))
