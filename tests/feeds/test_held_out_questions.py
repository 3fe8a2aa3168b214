"""Held-out questions of a pair file: none is trained on, and as a retrieval task what they look among and what counts as found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from conftest import make_encoder, sentences

from configs import d2llm
from jdistill.data.sets.candidates import Candidates
from jdistill.data.sets.pairs import Pairs
from jdistill.data.text.holdout import comparable
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.pair_labels import average_precision
from jdistill.feeds.judged import JudgedPairs, JudgedSet
from jdistill.feeds.judged_results import average_precisions, evaluate_questions, held_out_collection
from jdistill.feeds.judged_splits import split_pairs
from jdistill.models.interaction import BRANCHES, random_iem


def test_held_out_questions_look_among_all_passages() -> None:
    def pairs(*rows: tuple[str, str, bool]) -> Pairs:
        queries, passages, positive = map(list, zip(*rows, strict=True))
        return Pairs(queries, passages, positive, [""] * len(rows))

    texts = sentences(8)
    train = pairs((texts[0], "its own", True), (texts[1], texts[2], False))
    test = pairs(
        (texts[2], texts[2], True), (texts[2], texts[3], False), (texts[3], texts[4], False), (texts[5], "far", True)
    )
    nothing = Candidates([], [], np.zeros((0, 1), np.int64), (1, 0, 0))
    dev_pairs = pairs((texts[6], texts[7], True), (texts[2], texts[2], False))
    one = JudgedSet("asked", BRANCHES[1], nothing, train, dev_pairs, test)
    collection = held_out_collection(one)
    assert list(collection.queries.values()) == [texts[2], texts[5]]  # the third asks for what is not there
    assert set(collection.documents.values()) == {texts[2], texts[3], texts[4], "far", texts[7], "its own"}
    assert [[collection.documents[d] for d in of] for of in collection.relevant.values()] == [[texts[2]], ["far"]]
    judged = JudgedPairs((one, replace(one, name="same", branch=BRANCHES[0])), {})
    found = evaluate_questions(judged, PairScorer(make_encoder(), None, "cosine"), 0)["test"]
    assert found.keys() == {"asked"} and found["asked"].keys() == {"cosine"}
    assert found["asked"]["cosine"]["mrr@10"] >= 0.5 and found["asked"]["cosine"]["recall@10"] == 1  # of six passages
    params = random_iem(32, np.random.default_rng(0), 8)
    rescored = evaluate_questions(judged, PairScorer(make_encoder(), params), 3)["test"]["asked"]["rescored"]
    assert rescored["recall@10"] >= 0.5 and not rescored.keys() & {"recall@100", "recall@1000"}  # of three
    dev = held_out_collection(one, "dev")  # among the same passages
    assert list(dev.queries.values()) == [texts[6]] and dev.documents == collection.documents
    of_dev = evaluate_questions(judged, PairScorer(make_encoder(), None, "cosine"), 0)["dev"]
    assert of_dev.keys() == {"asked"} and 0 < of_dev["asked"]["cosine"]["mrr@10"] <= 1
    scorer = PairScorer(make_encoder(), params)  # whose two branches say different things
    by_hand = {
        name: average_precision(scorer.score(dev_pairs.queries, dev_pairs.passages, symmetric), dev_pairs.labels)
        for name, symmetric in (("asked", False), ("same", True))
    }
    assert average_precisions(judged, scorer) == by_hand
    by_cosine = average_precisions(judged, PairScorer(make_encoder(), None, "cosine"))
    assert by_cosine == {"asked": 50.0, "same": 50.0}  # the wrong pair is one text twice


def test_a_held_out_question_is_trained_on_in_no_other_spelling(tmp_path: Path) -> None:
    rows = [
        {"question": question, "sentence": f"{text} {label}", "label": label}
        for text in sentences(40)
        for question in (text, text.upper().replace(" ", "  "))
        for label in (0, 1)
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cfg = d2llm.get_config()
    cfg.asymmetric, cfg.held_out_queries, cfg.dev_queries = str(tmp_path / "answers.jsonl"), 10, 10
    train, dev, test, removed = split_pairs(cfg, BRANCHES[1], set())
    asked = [{comparable(query) for query in pairs.queries} for pairs in (train, dev, test)]
    assert len(dev) == len(test) == 20 and not asked[0] & (asked[1] | asked[2]) and not asked[1] & asked[2]
    assert len(train) + len(dev) + len(test) + removed == len(rows)
