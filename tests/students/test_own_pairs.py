"""BiLSTM-SRA's rival on a task's own pairs: which pairs it reads, its loss, a run, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import commands
import jax
import numpy as np
import pytest
from bilstm_setting import config
from conftest import make_encoder, save_encoder, sentences
from parity import assert_close
from simtde_setting import random_tokens
from steps import gradient_of, loss_of

import jdistill
from jdistill.core.errors import UserError
from jdistill.data.text.text_sources import TextSource
from jdistill.feeds.corpus import Corpus, SourceRows
from jdistill.feeds.own_pairs import pair_batches, pair_rows
from jdistill.feeds.stage import Start
from jdistill.methods import METHODS
from jdistill.students.bilstm import make_tokenizer


def rows_file(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(json.dumps({"query": left, "positive": right}) + "\n" for left, right in pairs))
    return path


def corpus_of(queries: list[str], positives: list[str]) -> Corpus:
    parts = {"query": queries, "document": positives}
    sources = tuple(SourceRows(TextSource("p", role=role), len(texts), 0) for role, texts in parts.items())
    return Corpus([*queries, *positives], [], 0, sources)


def test_each_pair_is_found_by_its_texts_in_their_roles(tmp_path: Path) -> None:
    """A text may be on both sides; of a pair that comes twice one is read, and none with a side that the corpus lacks."""
    rows = [("a", "b"), ("b", "c"), (" a ", "b"), ("a", "gone"), ("held out", "b"), ("a", "c"), ("", "c")]
    cfg = config(pairs=str(rows_file(tmp_path / "pairs.jsonl", rows)), batch_size=3)
    found = pair_rows(cfg, corpus_of(["a", "b"], ["b", "c"]))
    assert found.tolist() == [[0, 2], [1, 3], [0, 3]]
    cfg.batch_size = 4
    with pytest.raises(UserError, match="3 distinct pairs, neither side held out, do not fill a batch of 4"):
        pair_rows(cfg, corpus_of(["a", "b"], ["b", "c"]))


def test_a_batch_has_both_texts_of_each_pair_and_the_teachers_vectors_of_them() -> None:
    cfg, tokens = config(batch_size=4, length_buckets=1), random_tokens(50, vocab_size=1000)
    corpus = corpus_of([f"q{i}" for i in range(25)], [f"p{i}" for i in range(25)])
    rows = np.random.default_rng(0).permutation(50)[:24].reshape(12, 2)
    asked: list[np.ndarray | None] = []

    def vectors(of: np.ndarray) -> np.ndarray:
        assert asked == [None]  # all of them, once
        return np.stack([of, -of], 1).astype(np.float32)

    def nobodys(of: np.ndarray) -> np.ndarray:
        return np.ones((len(of), 2), np.float32)

    data = pair_batches(cfg, corpus, rows, tokens, 0, vectors, nobodys, asked.append)
    width, pairs = max(len(row) for row in tokens.lists(np.arange(50))), np.array([7, 0, 3])
    assert data.made_up is not None and data.asked == 50 and data.texts_per_row == 2
    assert (data.made_up(0, width, pairs)["teacher"] == 1).all() and not asked
    for step in range(2):
        batch = data.rows_of(step, width, pairs)
        assert {name: x.shape for name, x in batch.items()} == {
            "ids": (3, 2, width), "mask": (3, 2, width), "teacher": (3, 2, 2),
        }  # fmt: skip
        for i, pair in enumerate(pairs):
            for side in range(2):
                assert batch["ids"][i, side][batch["mask"][i, side]].tolist() == tokens.lists(rows[pair])[side]
                assert batch["teacher"][i, side, 0] == rows[pair, side]
    other = pair_batches(cfg, corpus, rows[:, ::-1], tokens, 0, vectors, nobodys)
    assert data.fingerprint != other.fingerprint


def test_the_loss_is_of_each_pairs_cosine_alone() -> None:
    cfg, start = config(**{"loss.target": "own_pairs", "pairs": "p.jsonl", "text": ""}), make_encoder()
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    tokens, rng = random_tokens(50, vocab_size=1000), np.random.default_rng(0)
    (stage,) = METHODS["bilstm_sra"](cfg)
    method = stage.build(cfg, Start(start, True, 32, tokens, lambda rows: np.zeros((len(rows), 32), np.float32), None))
    ids, mask = tokens.padded(np.arange(12), 20, 0)
    teacher = rng.standard_normal((6, 2, 32)).astype(np.float32)
    data = {"ids": ids.reshape(6, 2, 20), "mask": mask.reshape(6, 2, 20), "teacher": teacher}
    loss, metrics, _ = loss_of(method)(method.params, data)
    vectors = method.student.encode_ids(tokens.lists(np.arange(12))).reshape(6, 2, 32)

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    expected = np.mean([(cosine(*vectors[i]) - cosine(*teacher[i])) ** 2 for i in range(6)])
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(metrics["teacher_cosine"]) == pytest.approx(np.mean([cosine(*teacher[i]) for i in range(6)]), abs=1e-6)
    gradient, _ = gradient_of(method, data, 2)
    whole, _ = gradient_of(method, data)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(whole))
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(whole), strict=True):
        assert_close(one, other, 64, 2 * 20, largest=largest)  # a step of the recurrence for each of 20 tokens


def test_a_run_on_pairs_brings_their_cosines_to_the_teachers(tmp_path: Path) -> None:
    texts = sentences(240)
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    keys: dict[str, Any] = {
        "teacher": save_encoder(make_encoder(), tmp_path / "teacher"), "pairs": rows_file(tmp_path / "pairs.jsonl", pairs),
        "held_out": 10, "student.embedding_size": 12, "student.lstm_size": 8, "batch_size": 16, "max_steps": 60, "checkpoint_every": 30,
        "learning_rate": 0.01, "length_buckets": 1, "index_texts": 0, "latency_texts": 0, "onnx": False, "cache_dir": tmp_path / "cache",
    }  # fmt: skip
    done = commands.run_inside(commands.command("configs/bilstm_sra.py:own_pairs", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    assert (
        "pairs: 110 to train on of the 120 rows" in done.stderr and "; 10 have a side that is held out" in done.stderr
    )
    asked = [line for line in done.stderr.splitlines() if "teacher answers: " in line and "WARNING" not in line]
    assert len(asked) == 4  # in two roles, those to train on and those held out
    student, teacher = (jdistill.load(str(tmp_path / folder)) for folder in ("run/export", "teacher"))

    def cosines(model: jdistill.Encoder) -> np.ndarray:
        left, right = (model.encode([pair[side] for pair in pairs]) for side in range(2))
        norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        return (left * right).sum(1) / norms

    lines = [json.loads(line) for line in (tmp_path / "run" / "distil" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] / 10
    # The export's, by both sides of every pair, those that were left out among them.
    assert np.mean((cosines(student) - cosines(teacher)) ** 2) < losses[0] / 10
    scored = [line for line in lines if "dev/spearman" in line]
    assert [line["step"] for line in scored] == [30, 60]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "learns the cosines of the rows of --config.pairs, which is empty"),
        ({"pairs": "p.jsonl", "text": "a.txt"}, "--config.text=a.txt: .* reads the rows of --config.pairs alone"),
        ({"pairs": "p.jsonl", "augment": "spans:2"}, "--config.augment=spans:2: .*leave the key empty"),
        ({"pairs": "p.jsonl", "topics": 3}, "--config.topics=3"),
        ({"pairs": "p.jsonl", "max_texts": 9}, "--config.max_texts=9"),
        ({"pairs": "p.jsonl", "split_sentences": True}, "--config.split_sentences=True"),
        ({"pairs": "p.jsonl", "text_pairs": "t.tsv"}, "--config.text_pairs=t.tsv"),
        ({"pairs": "p.jsonl*2"}, "reads each row once; leave out \\*"),
    ],
)
def test_texts_beside_the_pairs_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        METHODS["bilstm_sra"](config(**{"loss.target": "own_pairs", "text": ""} | keys))
