"""D2LLM: its loss put together by hand, what has a gradient, the stages end to end, what is refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import commands
import datasets
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_decoder, make_encoder, save_encoder, sentences
from d2llm_setting import COUNTS, config, setting, write_pairs
from parity import assert_close
from steps import gradient_of, hidden_states, loss_of

from jdistill.core.errors import UserError
from jdistill.data.sets.beir import collections, read_collection, write_collection
from jdistill.data.sets.candidates import (
    by_query,
    candidates,
    in_turn,
    passages_of,
)
from jdistill.data.sets.pairs import (
    Pairs,
    read_pairs,
    train_and_test,
    without,
)
from jdistill.encoder.pair_scorer import PairScorer, load_pair_scorer
from jdistill.evals.retrieval import evaluate_retrieval, search
from jdistill.export.command import main as export_command
from jdistill.export.interaction import save_interaction
from jdistill.losses import imitation
from jdistill.methods import METHODS
from jdistill.methods.d2llm import POOLINGS
from jdistill.models import lora
from jdistill.models.interaction import iem, interaction_of, random_iem
from jdistill.models.pma import pma, random_pma
from jdistill.models.pooling import pool, pool_each
from jdistill.search import answer

P, K, I = COUNTS
pair_of = jax.jit(iem, static_argnames="branch")
SUMS = (64, 2 * 6)  # feed-forward width; layers, pooler and head of a tiny decoder, both sides in float32


@pytest.mark.parametrize(
    ("symmetric", "block", "changes"),
    [
        (True, 0, {}),
        (False, 0, {}),
        (True, 2, {}),
        (False, 2, {"student.attention": "bidirectional"}),
        (True, 0, {"loss.delta": 3.0, "loss.random_negatives": "asymmetric"}),
        (False, 2, {"loss.delta": 3.0, "loss.random_negatives": "asymmetric"}),
        (True, 0, {"loss.random_negatives": "symmetric"}),
        (False, 0, {"loss.random_negatives": "symmetric", "loss.delta": 0.5, "loss.temperature": 0.7}),
        (False, 0, {"loss.random_negatives": "none"}),
    ],
)
def test_the_loss_by_hand(symmetric: bool, block: int, changes: dict[str, Any]) -> None:
    method, batch = setting(block_size=block, **changes)
    attention, tau = changes.get("student.attention", "causal"), changes.get("loss.temperature", 1.0)
    assert method.student.config.causal == (attention == "causal")
    batch["symmetric"][:] = symmetric
    params = method.params
    total, metrics, reps = loss_of(method)(params, batch)
    n, T = batch["real"].shape
    base = lora.merge(method.frozen["base"], params["adapters"], 16.0)
    y = np.zeros((n, T, reps["vectors"].shape[-1]))
    for i in range(n):
        ids, mask = np.zeros((T, 20), np.int32), np.zeros((T, 20), bool)  # each text in a row of its own
        for t in range(T):
            text = batch["ids"][i][batch["segments"][i] == t + 1]
            ids[t, : len(text)], mask[t, : len(text)] = text, True
        assert (mask.any(1) == batch["real"][i]).all()
        states = hidden_states(method.student.config, base, ids, mask)[-1]
        y[i] = pma(params["pooler"], states, mask, 32)
    assert_close(reps["vectors"], y, *SUMS)
    branch = "symmetric" if symmetric else "asymmetric"

    def pair(i: int, k: int, j: int) -> tuple[float, np.ndarray]:
        """Query i with passage j of row k."""
        z, f = pair_of(params["iem"], *(x[None].astype(np.float32) for x in (y[i, 0], y[k, j])), branch=branch)
        return float(z[0]), np.asarray(f[0])

    z = np.array([[pair(i, i, j)[0] for j in range(1, T)] for i in range(n)])
    features = np.array([[pair(i, i, j)[1] for j in range(1, 1 + P + K)] for i in range(n)])
    others = np.zeros((n, n * (T - 1)))
    allowed = np.zeros(others.shape, bool)
    for i in range(n):
        own = set(batch["texts"][i, 1:][batch["real"][i, 1:]].tolist())
        for k in range(n):
            for j in range(1, T):
                others[i, k * (T - 1) + j - 1] = pair(i, k, j)[0]
                allowed[i, k * (T - 1) + j - 1] = batch["real"][k, j] and int(batch["texts"][k, j]) not in own
    kind, real = np.repeat([0, 1, 2], COUNTS), batch["real"][:, 1:]
    positive, hard, easy = (real & (kind == which) for which in range(3))
    random = changes.get("loss.random_negatives", "both") in ("both", "symmetric" if symmetric else "asymmetric")
    allowed &= random  # negatives that nobody chose
    s = 1 / (1 + np.exp(-batch["z"]))
    near = (positive | hard)[:, : P + K]
    expected = {
        "ci": imitation.contrastive_imitation(
            *map(jnp.asarray, (z, s, positive, hard, easy & random, others, allowed)), tau
        ),
        "ri_ph": imitation.rank_imitation(jnp.asarray(z[:, : P + K]), batch["z"][:, : P + K], near),
        "ri_hi": imitation.hard_over_easy(*map(jnp.asarray, (z, batch["z"], hard, easy))),
        "fi": imitation.feature_imitation(jnp.asarray(features), jnp.asarray(batch["r"]), near),
    }
    if delta := changes.get("loss.delta"):
        expected["si"] = imitation.score_imitation(jnp.asarray(z[:, : P + K]) / tau, batch["z"][:, : P + K], near)
    assert set(metrics) == {*expected, "loss"}
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(float(value), rel=2e-4), name
    weight = {"ci": 1.0, "ri_ph": 1.0, "ri_hi": 0.3, "fi": 0.1, "si": delta}
    assert float(total) == pytest.approx(sum(weight[name] * float(of) for name, of in expected.items()), rel=2e-4)


def assert_same_gradient(found: Any, expected: Any) -> None:
    """Every number, beside the largest: some tensors have a gradient of zero and hold rounding alone; and all as one vector."""
    one, other = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (expected, found))
    assert_close(other, one, *SUMS, largest=np.abs(one).max())
    assert np.linalg.norm(one - other) < 1e-5 * np.linalg.norm(one)


def test_only_adapters_pooler_and_head_have_a_gradient_and_chunks_change_nothing() -> None:
    method, batch = setting()
    assert set(method.params) == {"adapters", "pooler", "iem"}
    whole, _ = gradient_of(method, batch)
    chunked, _ = gradient_of(method, batch, 2)
    assert_same_gradient(chunked, whole)
    unused = whole["iem"].pop("symmetric")  # the branch of the other task
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(unused))
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(whole))
    again, _ = gradient_of(setting(remat=True)[0], batch)
    again["iem"].pop("symmetric")
    assert_same_gradient(again, whole)


def test_gradient_against_finite_differences() -> None:
    method, batch = setting("calibrated", rows=4)
    gradient, _ = gradient_of(method, batch)
    path = next(iter(method.params["adapters"]))

    rng, of_params = np.random.default_rng(2), loss_of(method)

    def loss(at: float, where: tuple[str, ...], direction: np.ndarray) -> float:
        params = jax.tree.map(np.array, method.params)
        leaf = params
        for name in where:
            leaf = leaf[name]
        leaf += (at * direction).astype(np.float32)
        return float(of_params(params, batch)[0])

    for where in (("adapters", path, "B"), ("pooler", "value", "kernel"), ("iem", "first", "kernel")):
        h, found = 2e-3, gradient
        for name in where:
            found = found[name]
        # Along the gradient, where the kinks of ReLU are a small part of the slope.
        direction = np.asarray(found) / np.linalg.norm(found) + 0.02 * rng.normal(0, 1, found.shape)
        numeric = (
            8 * (loss(h, where, direction) - loss(-h, where, direction))
            - (loss(2 * h, where, direction) - loss(-2 * h, where, direction))
        ) / (12 * h)
        assert float((found * direction).sum()) == pytest.approx(numeric, rel=1e-2), where


@pytest.mark.parametrize("name", POOLINGS)
def test_texts_that_share_a_row_are_pooled_as_alone(name: str) -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(3, 12, 8)).astype(np.float32)
    segments = np.array([[1] * 5 + [3] * 4 + [0] * 3, [2] * 12, [4] + [1] * 3 + [2] * 6 + [0, 0]])  # 0: padding
    params = random_pma(8, rng)
    found = np.asarray(pool_each(name, [states], segments[:, None] == np.arange(1, 5)[:, None], params))
    for row in range(3):
        for text in range(4):
            own = states[row][segments[row] == text + 1][None]
            padded = np.concatenate([own, np.full((1, 2, 8), 9.0, np.float32)], axis=1)
            alone = pool(name, (padded, padded), np.arange(padded.shape[1])[None] < own.shape[1], params)
            assert_close(found[row, text], alone[0], 12, 2, largest=4.0)


@pytest.mark.parametrize("variant", ["contrastive", "mean", "lasttoken", "cosine", "bi_encoder", "no_fi"])
def test_every_variant_has_a_finite_loss(variant: str) -> None:
    method, batch = setting(variant)
    gradient, metrics = gradient_of(method, batch)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves((gradient, metrics)))
    assert ("iem" in method.params) == (variant not in ("cosine", "bi_encoder"))


def test_all_stages_end_to_end_and_again_from_a_folder_that_was_stopped(tmp_path: Path) -> None:
    save_encoder(make_decoder(max_positions=256), tmp_path / "lm")
    write_pairs(tmp_path / "same.jsonl", 48, split=True)
    write_pairs(tmp_path / "answers.jsonl", 48, split=False)
    settings = {
        "teacher": tmp_path / "lm", "symmetric": tmp_path / "same.jsonl", "asymmetric": tmp_path / "answers.jsonl",
        "held_out_queries": 12, "dev_queries": 6, "hard_negatives": 3, "easy_negatives": 2, "positives": 1, "cache_dir": tmp_path / "cache",
        "batch_size": 8, "tune.batch_size": 8, "tune.max_steps": 3, "max_steps": 4, "checkpoint_every": 2, "tune.checkpoint_every": 2,
        "judge.query_tokens": 20, "judge.passage_tokens": 20, "lora.rank": 2, "tune.lora.rank": 2, "iem_size": 8, "onnx": False,
        "query_length": 20, "document_length": 20, "latency_texts": 0, "index_texts": 100, "length_buckets": 1,
    }  # fmt: skip
    arguments = commands.command("configs/d2llm.py", tmp_path / "run", settings)
    planned = commands.run_inside([*arguments, "--dry_run"])
    assert not (tmp_path / "run").exists() and re.search(r"^judge     \d+ pairs to score", planned.stdout, re.MULTILINE)
    run = commands.run_inside(arguments)
    assert run.returncode == 0, run.stderr[-3000:]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [stage["name"] for stage in results["training"]["stages"]] == ["tune", "distil"]
    for name in ("same", "answers"):
        for row in ("student", "teacher"):
            found = results["pairs"][name][row]
            assert {"accuracy", "ap", "precision", "recall", "prior"} <= found.keys() and found["prior"] == 50
    assert results["questions"].keys() == {"answers"} and results["questions"]["answers"].keys() == {
        "cosine",
        "rescored",
    }
    found = answer(tmp_path / "run", "the river", 5)
    assert len(found) == 5 and sorted(found, reverse=True) == found
    about = json.loads((tmp_path / "run" / "tune" / "adapter" / "adapter_config.json").read_text())
    assert about["r"] == 2 and about["lora_alpha"] == 64
    scorer = load_pair_scorer(str(tmp_path / "run" / "export"))
    test = train_and_test(read_pairs(str(tmp_path / "same.jsonl"), "x"), "dev", "test", 0, "x")[1]
    scores = scorer.score(test.queries, test.passages, symmetric=True)
    vectors = [scorer.encoder.encode(side) for side in (test.queries, test.passages)]
    every = scorer.every(*vectors, symmetric=True)
    assert_close(np.diag(every), scores, *SUMS)
    assert len(list((tmp_path / "cache" / "judge").iterdir())) == 2  # by instruction
    export_command(["--workdir", str(tmp_path / "run"), "--out", str(tmp_path / "again")])
    exported = load_pair_scorer(str(tmp_path / "again"))
    assert_close(exported.score(test.queries, test.passages, symmetric=True), scores, *SUMS)
    # Another run with the first one's judge: nothing is tuned, and every score is at hand.
    more = settings | {"tune.max_steps": 0, "tune.epochs": 0, "judge.adapter": tmp_path / "run" / "tune" / "adapter"}
    second = commands.run_inside(commands.command("configs/d2llm.py:no_fi", tmp_path / "second", more))
    assert second.returncode == 0 and "judged pairs" not in second.stderr
    assert (
        json.loads((tmp_path / "second" / "results.json").read_text())["pairs"]["same"]["teacher"]
        == results["pairs"]["same"]["teacher"]
    )
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert "PMA" in card and "model[-1].score(" in card and "Labelled pairs: same" in card
    again = commands.run_inside(commands.command("configs/d2llm.py", tmp_path / "run", settings))
    assert again.returncode == 0 and "is complete" in again.stderr


def test_two_processes_ask_the_judge_together_and_end(tmp_path: Path) -> None:
    save_encoder(make_decoder(max_positions=256), tmp_path / "lm")
    write_pairs(tmp_path / "same.jsonl", 40, split=True)
    settings = {
        "teacher": tmp_path / "lm", "symmetric": tmp_path / "same.jsonl", "dev_queries": 6, "hard_negatives": 3, "easy_negatives": 2,
        "positives": 1, "batch_size": 8, "tune.epochs": 0.0, "max_steps": 2, "checkpoint_every": 2, "judge.query_tokens": 20,
        "judge.passage_tokens": 20, "lora.rank": 2, "iem_size": 8, "onnx": False, "query_length": 20, "document_length": 20,
        "latency_texts": 0, "index_texts": 0, "length_buckets": 1, "teacher_dtype": "float32",
    }  # fmt: skip
    script = commands.command("configs/d2llm.py", tmp_path / "two", settings | {"cache_dir": tmp_path / "cache-two"})
    two = commands.run(
        ["bash", "launch/one_host.sh", *script[3:]],
        PROCESSES="2",
        PYTHON=sys.executable,
        PORT=str(commands.free_port()),
    )
    assert two.returncode == 0, two.stderr[-3000:]
    (scores,) = (tmp_path / "cache-two" / "judge").iterdir()
    assert (scores / "part-00000.keys").stat().st_size > 0
    alone = commands.run_inside(
        commands.command("configs/d2llm.py", tmp_path / "one", settings | {"cache_dir": tmp_path / "cache-one"})
    )
    assert alone.returncode == 0, alone.stderr[-3000:]
    of_two, of_one = (json.loads((tmp_path / name / "results.json").read_text())["pairs"] for name in ("two", "one"))
    assert of_two["same"]["teacher"] == pytest.approx(of_one["same"]["teacher"], abs=1e-3)
    assert of_two["same"]["student"]["ap"] == pytest.approx(of_one["same"]["student"]["ap"], abs=1)


def test_a_student_that_is_no_decoder_is_refused_before_anything_is_mined(tmp_path: Path) -> None:
    save_encoder(make_decoder(), tmp_path / "lm")
    save_encoder(make_encoder(num_layers=1), tmp_path / "bert")
    write_pairs(tmp_path / "same.jsonl", 20, split=True)
    keys = {
        "teacher": tmp_path / "lm",
        "start": tmp_path / "bert",
        "symmetric": tmp_path / "same.jsonl",
        "cache_dir": tmp_path / "cache",
    }
    done = commands.run_inside(commands.command("configs/d2llm.py", tmp_path / "run", keys))
    assert done.returncode == 2 and "bert: the student of a judge is a decoder" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_candidates_are_what_they_should_be() -> None:
    pairs = Pairs(
        ["a", "a", "a", "b", "b", "c"],
        ["a1", "a2", "no a", "b1", "a1", "c no"],
        [True, True, False, True, False, False],
        [""] * 6,
    )
    queries = by_query(pairs)
    assert queries.texts == ["a", "b"]  # c has no positive
    assert queries.positives == [["a1", "a2"], ["b1"]] and queries.negatives == [["no a"], ["a1"]]
    passages = passages_of(queries) + [f"other {i}" for i in range(20)] + ["A2."]
    found = candidates(queries, [["b1", "a2", "other 3"], ["no a"]], passages, (1, 3, 4), seed=1)
    texts = [[passages[j] if j >= 0 else "" for j in row] for row in found.columns]
    assert texts[0][:4] == ["a1", "no a", "b1", "other 3"]  # a2 is right for it
    assert texts[1][:4] == ["b1", "a1", "no a", ""]
    for row, near in zip(texts, ({"a1", "a2", "A2.", "no a", "b1", "other 3"}, {"b1", "a1", "no a"}), strict=True):
        assert len(set(row[4:])) == 4 and not near & set(row[4:])
    again = candidates(queries, [["b1", "a2", "other 3"], ["no a"]], passages, (1, 3, 4), seed=1)
    np.testing.assert_array_equal(found.columns, again.columns)
    assert found.pairs()[0].count("b") == int((found.columns[1] >= 0).sum())
    assert list(in_turn(["x", "y", "z"], ["y", "w"])) == ["x", "y", "w", "z"]
    with pytest.raises(UserError, match="3 hard and 4 easy negatives a query are asked of a collection of 4 passages"):
        candidates(queries, [[], []], passages[:4], (1, 3, 4), seed=1)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sentence1": "a", "label": 1}, "sentence2"),
        ({"sentence1": "a", "sentence2": "b", "label": "perhaps"}, "the label 'perhaps' is none of"),
        ({"sentence1": "a", "sentence2": "", "label": 1}, "no usable row"),
        ({"sentence1": "a", "sentence2": "b", "label": -1}, "no usable row"),
        ({"sentence1": "a", "sentence2": "b", "label": float("nan")}, "no usable row"),
        ({"sentence1": 3, "sentence2": "b", "label": 1}, "holds int where a text belongs"),
    ],
)
def test_broken_pairs_are_named(row: dict, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match=message):
        read_pairs(str(tmp_path / "pairs.jsonl"), "config.symmetric")


def test_with_one_kind_of_pairs_both_questions_have_the_branch_that_was_trained() -> None:
    method, batch = setting(symmetric="")
    gradient, _ = gradient_of(method, batch)
    trained = [name for name in ("symmetric", "asymmetric") if np.asarray(gradient["iem"][name]["kernel"]).any()]
    kind = interaction_of(config(symmetric=""))
    vectors = np.random.default_rng(1).normal(0, 1, (4, 32)).astype(np.float32)
    scorer = PairScorer(make_decoder(), method.params["iem"], kind)
    assert trained == ["symmetric"] and kind == "single"
    np.testing.assert_array_equal(scorer.every(vectors, vectors, True), scorer.every(vectors, vectors, False))
    assert interaction_of(config()) == "dual" and interaction_of(config(interaction="cosine", symmetric="")) == "cosine"


def test_pairs_with_an_evaluation_text_or_a_test_query_leave_the_training_rows() -> None:
    pairs = Pairs(["a", "B .", "c", "d"], ["x", "y", "Z", "w"], [True] * 4, [""] * 4)
    kept, removed = without(pairs, {"z"}, {"b"})
    assert kept.queries == ["a", "d"] and removed == 2


def test_a_datasets_classes_count_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    features = datasets.Features(
        {
            "question": datasets.Value("string"),
            "sentence": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["entailment", "not_entailment"]),
        }
    )
    rows = {"question": ["a", "b", "c"], "sentence": ["x", "y", "z"], "label": [0, 1, -1]}
    table = datasets.Dataset.from_dict(rows, features)
    monkeypatch.setattr("jdistill.data.text.records.dataset_splits", lambda source, key: {"train": table})
    found = read_pairs("owner/glue:qnli", "config.asymmetric")
    assert found.positive == [True, False] and found.skipped["without a label"] == 1


def test_splits_and_held_out_queries(tmp_path: Path) -> None:
    write_pairs(tmp_path / "split.jsonl", 20, split=True)
    pairs = read_pairs(str(tmp_path / "split.jsonl"), "config.symmetric")
    train, test = train_and_test(pairs, "dev", "test", 0, "config.symmetric")
    assert len(train) == 30 and len(test) == 10 and not set(train.queries) & set(test.queries)
    with pytest.raises(UserError, match="config.symmetric: there is no split 'train'; there are dev, test"):
        train_and_test(pairs, "train", "test", 0, "config.symmetric")
    write_pairs(tmp_path / "whole.jsonl", 20, split=False)
    whole = read_pairs(str(tmp_path / "whole.jsonl"), "config.asymmetric")
    train, test = train_and_test(whole, "dev", "test", 5, "config.asymmetric")
    assert len(set(test.queries)) == 5 and len(set(train.queries)) == 15
    with pytest.raises(UserError, match="train and test are the same split 'dev'"):
        train_and_test(pairs, "dev", "dev", 0, "config.symmetric")
    with pytest.raises(UserError, match="holding out 20 of 20 queries leaves none to train on"):
        train_and_test(whole, "dev", "test", 20, "config.asymmetric")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symmetric": "", "asymmetric": ""}, "symmetric or --config.asymmetric is needed"),
        ({"loss.form": "printed"}, "loss.form='printed' is not one of joint, paper, code"),
        (
            {"loss.random_negatives": "all"},
            "loss.random_negatives='all' is not one of both, symmetric, asymmetric, none",
        ),
        ({"interaction": "triple"}, "interaction='triple' is not one of"),
        ({"pooling": "cls"}, "pooling='cls' is not one of pma"),
        ({"heads_start": "zero"}, "heads_start='zero' is not one of similarity, random"),
        ({"iem_size": 0}, "iem_size=0: the interaction module needs a width of 1 or more"),
        ({"iem_size": 3, "heads_start": "similarity"}, "iem_size=3: .* needs a width of 4 or more"),
        ({"loss.temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"judge.adapter": "runs/a/tune/adapter"}, "is a tuned judge: --config.tune.epochs=0 takes it as it is"),
    ],
)
def test_keys_that_do_not_fit_are_named(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        METHODS["d2llm"](config(**changes))


def test_without_an_interaction_module_pairs_are_scored_by_cosine(tmp_path: Path) -> None:
    save_encoder(make_decoder(), tmp_path / "plain")
    scorer = load_pair_scorer(str(tmp_path / "plain"))
    a, b = (scorer.encoder.encode([text]) for text in ("the river", "a stone"))
    assert scorer.score(["the river"], ["a stone"], True)[0] == pytest.approx(float((a * b).sum()), abs=1e-5)
    with pytest.raises(UserError, match="2 queries and 1 passages"):
        PairScorer(make_decoder(), None, "cosine").score(["a", "b"], ["c"], True)


def test_an_interaction_module_that_was_not_checked_has_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = PairScorer(make_decoder(), random_iem(32, np.random.default_rng(0), 8))
    save_encoder(scorer.encoder, tmp_path / "student")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    assert save_interaction(scorer, tmp_path / "student") is None
    again = load_pair_scorer(str(tmp_path / "student"))
    np.testing.assert_array_equal(again.score(["a"], ["b"], True), scorer.score(["a"], ["b"], True))
    assert save_interaction(PairScorer(scorer.encoder, None, "cosine"), tmp_path / "student") is None


def test_a_module_that_torch_computes_otherwise_is_not_left_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = PairScorer(make_decoder(), random_iem(32, np.random.default_rng(0), 8))
    save_encoder(scorer.encoder, tmp_path / "student")
    monkeypatch.setattr("jdistill.export.interaction.TOLERANCE", -1.0)  # which no difference is within
    with pytest.raises(UserError, match="differ from Flax's by"):
        save_interaction(scorer, tmp_path / "student")
    assert load_pair_scorer(str(tmp_path / "student")).interaction == "cosine"
    assert not list((tmp_path / "student").rglob("*nteraction*"))


def test_search_with_the_interaction_module(tmp_path: Path) -> None:
    texts = sentences(40, seed=9)
    documents = {f"d{i}": text for i, text in enumerate(texts[:30])}
    queries = {f"q{i}": text for i, text in enumerate(texts[30:])}
    write_collection(tmp_path / "beir" / "small", documents, queries, {q: {"d3": 1} for q in queries})
    scorer = PairScorer(make_decoder(), random_iem(32, np.random.default_rng(0), 8))
    (collection,) = (read_collection(path) for path in collections(tmp_path / "beir"))
    every = search(scorer.encoder, collection, scorer.encoder, scorer=scorer).ranking
    pairs = [(q, d) for q in queries for d in documents]
    logits = scorer.score([queries[q] for q, _ in pairs], [documents[d] for _, d in pairs], symmetric=False)
    largest = np.abs(logits).max()
    for (q, d), logit in zip(pairs, logits, strict=True):
        assert_close(every[q][d], logit, *SUMS, largest=largest)
    proposed = search(scorer.encoder, collection, scorer.encoder, scorer=scorer, rescore=5).ranking
    by_cosine = search(scorer.encoder, collection, scorer.encoder).ranking
    for q, found in proposed.items():
        assert set(found) == set(sorted(by_cosine[q], key=lambda d, q=q: -by_cosine[q][d])[:5])
        assert list(found) == sorted(found, key=lambda d, q=q: -every[q][d])
    figures = evaluate_retrieval(scorer.encoder, tmp_path / "beir", scorer=scorer, rescore=5)
    assert figures["small"]["recall@10"] <= 1
