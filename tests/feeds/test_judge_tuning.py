"""What a judge is tuned on: the prompts of labelled pairs, each behind an instruction that is read once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest
from d2llm_setting import LOGIT, SUMS
from judged_setting import K, P, judged_files, judged_model
from ml_collections import ConfigDict
from parity import assert_close

from jdistill.core.errors import UserError
from jdistill.feeds.judge_tuning import TuningFeed, padded_beginnings, prompt_batches
from jdistill.feeds.judged import JudgedPairs, JudgedSet, read_judged
from jdistill.feeds.stage import Start
from jdistill.methods.d2llm_judge import build_judge


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple:
    return judged_files(tmp_path_factory.mktemp("pairs"), judged_model())


def test_a_step_sees_the_logits_that_the_judge_answers_with(given: tuple) -> None:
    cfg, judged = given
    cfg = cfg.copy_and_resolve_references()
    cfg.lora.update(cfg.tune.lora)
    tokens, data = prompt_batches(cfg, judged)
    feed = TuningFeed(cast(Any, None), judged)
    method = build_judge(cfg, Start(feed.judge.model, True, feed.judge.model.dim, tokens, cast(Any, None), feed))
    pairs = [
        (one.branch, *pair) for one in judged.sets for pair in zip(one.train.queries, one.train.passages, strict=True)
    ]
    (_, rows), batch = data.batches.at(0), data.batch(0)
    assert set(batch["beginning"]) == {0, 1}
    found = jax.jit(method.represent)(method.params, method.frozen, batch, None)["logit"]
    expected = [judged.judges[pairs[row][0]].score([pairs[row][1]], [pairs[row][2]])[0][0] for row in rows]
    assert_close(found, expected, *SUMS, largest=LOGIT)


def test_prompts_of_all_labelled_pairs(given: tuple) -> None:
    cfg, judged = given
    assert cfg.tune.prompts == "labelled"
    for max_queries in (0, 5):
        some = replace(judged, sets=tuple(first_queries(one, max_queries) for one in judged.sets))
        changed = cfg.copy_and_resolve_references()
        changed.max_queries = max_queries
        _, data = prompt_batches(changed, some)
        batch = data.rows_of(0, data.batches.widths[-1], np.arange(len(data)))
        expected = []
        for one in some.sets:
            pairs = zip(one.train.queries, one.train.passages, one.train.labels, strict=True)
            kept = [pair for pair in pairs if not max_queries or pair[0] in one.candidates.queries]
            queries, passages, labels = zip(*kept, strict=True)
            prompts = judged.judges[one.branch].prompts(list(queries), list(passages))
            expected += [(tuple(ids), float(label)) for ids, label in zip(prompts, labels, strict=True)]
        found = [
            (ids, float(label)) for ids, label in zip(whole_prompts(changed, some, batch), batch["label"], strict=True)
        ]
        assert found == expected and 0 < batch["label"].mean() < 1
    assert len(expected) < sum(len(one.train) for one in judged.sets)
    changed.batch_size = len(expected) + 1  # of the stage: tune.batch_size
    with pytest.raises(
        UserError, match=f"{len(expected)} prompts .* tune.batch_size={len(expected) + 1}; lower --config.tune"
    ):
        prompt_batches(changed, some)


def whole_prompts(cfg: ConfigDict, judged: JudgedPairs, batch: dict[str, np.ndarray]) -> list[tuple[int, ...]]:
    """The prompts of a batch: their beginnings, which it has by number, and what follows."""
    ids, mask = padded_beginnings(cfg, judged)
    rows = zip(batch["beginning"], batch["ids"], batch["mask"], strict=True)
    return [(*ids[i][mask[i]].tolist(), *rest[real].tolist()) for i, rest, real in rows]


def test_the_instruction_is_no_part_of_a_row(given: tuple) -> None:
    cfg, judged = given
    _, data = prompt_batches(cfg, judged)
    ids, mask = padded_beginnings(cfg, judged)
    assert [ids[i][mask[i]].tolist() for i in range(2)] == [judge.pieces[0] for judge in judged.judges.values()]
    assert ids.shape[1] % cfg.length_multiple == 0
    for step in range(data.batches.steps_per_epoch):
        (width, _), batch = data.batches.at(step), data.batch(step)
        assert batch["ids"].shape[1] % cfg.length_multiple == 0
        assert 0 <= batch["ids"].shape[1] - (width - mask.sum(1).min()) < cfg.length_multiple


def test_a_question_that_begins_with_the_text_has_nothing_before_it(tmp_path: Path) -> None:
    cfg, _ = judged_files(tmp_path, model := judged_model())
    cfg.judge.symmetric = cfg.judge.asymmetric = "{query} is said by {passage}"
    cfg.lora.update(cfg.tune.lora)
    judged = read_judged(cfg, model)
    assert not any(judge.pieces[0] for judge in judged.judges.values())
    tokens, data = prompt_batches(cfg, judged)
    feed = TuningFeed(cast(Any, None), judged)
    method = build_judge(cfg, Start(feed.judge.model, True, feed.judge.model.dim, tokens, cast(Any, None), feed))
    (_, rows), batch = data.batches.at(0), data.batch(0)
    pairs = [
        (one.branch, *pair) for one in judged.sets for pair in zip(one.train.queries, one.train.passages, strict=True)
    ]
    found = jax.jit(method.represent)(method.params, method.frozen, batch, None)["logit"]
    expected = [judged.judges[pairs[row][0]].score([pairs[row][1]], [pairs[row][2]])[0][0] for row in rows]
    assert_close(found, expected, *SUMS, largest=LOGIT)


def first_queries(judged_set: JudgedSet, count: int) -> JudgedSet:
    """With candidates of the first queries alone, as max_queries has it; 0: of all."""
    of_set = judged_set.candidates
    some = replace(of_set, queries=of_set.queries[:count], columns=of_set.columns[:count]) if count else of_set
    return replace(judged_set, candidates=some)


def test_prompts_have_as_many_wrong_passages_as_right_ones(given: tuple) -> None:
    cfg, judged = given
    cfg = cfg.copy_and_resolve_references()
    cfg.tune.prompts = "drawn"
    _, data = prompt_batches(cfg, judged)
    rows = np.arange(len(data))
    batch = data.rows_of(0, data.batches.widths[-1], rows)
    expected = {}
    for one in judged.sets:
        for query, columns in zip(one.candidates.queries, one.candidates.columns, strict=True):
            right, wrong = columns[:P], columns[P : P + K][:P]
            for label, chosen in ((1.0, right), (0.0, wrong)):
                passages = [one.candidates.passages[j] for j in chosen if j >= 0]
                for ids in judged.judges[one.branch].prompts([query] * len(passages), passages):
                    expected[tuple(ids)] = label
    found = dict(zip(whole_prompts(cfg, judged, batch), batch["label"], strict=True))
    assert found == expected and batch["label"].mean() == 0.5


def test_each_file_is_tuned_by_the_answers_of_its_own_template(given: tuple) -> None:
    """Behind a template that ends with a line feed the token is yes, behind another one that begins with a space."""
    cfg, judged = given
    judges = judged.judges | {"asymmetric": replace(judged.judges["asymmetric"], yes="stone", no="bridge")}
    changed = replace(judged, judges=judges)
    answers = [judge.answer_rows for judge in judges.values()]
    assert (answers[0] != answers[1]).any()
    tokens, data = prompt_batches(cfg, changed)
    feed = TuningFeed(cast(Any, None), changed)
    cfg = cfg.copy_and_resolve_references()
    cfg.lora.update(cfg.tune.lora)
    method = build_judge(cfg, Start(feed.judge.model, True, feed.judge.model.dim, tokens, cast(Any, None), feed))
    (_, rows), batch = data.batches.at(0), data.batch(0)
    pairs = [
        (one.branch, *pair) for one in changed.sets for pair in zip(one.train.queries, one.train.passages, strict=True)
    ]
    found = jax.jit(method.represent)(method.params, method.frozen, batch, None)["logit"]
    expected = [judges[pairs[row][0]].score([pairs[row][1]], [pairs[row][2]])[0][0] for row in rows]
    assert set(batch["beginning"]) == {0, 1}
    assert_close(found, expected, *SUMS, largest=LOGIT)
