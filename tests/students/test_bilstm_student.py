"""The recurrent student: its size, its loss, its files in other stacks, a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import commands
import jax
import numpy as np
import pytest
from bilstm_setting import config, student
from commands import in_a_process_without_jdistill
from conftest import make_encoder, save_encoder, sentences
from parity import assert_close
from simtde_setting import random_tokens
from steps import gradient_of, loss_of

import jdistill
from jdistill.core.errors import UserError
from jdistill.export.folder import export
from jdistill.feeds.stage import Start
from jdistill.methods import METHODS
from jdistill.models.bilstm import BilstmConfig
from jdistill.students.bilstm import make_bilstm, make_tokenizer


def test_parameters_are_those_of_the_paper() -> None:
    """Table 2 counts without embeddings: the LSTM 300 to 2 x 512, the dense layer to BERT's 768."""
    cfg = config(**{"student.embedding_size": 300, "student.lstm_size": 512})
    start = make_encoder(hidden_size=384, embedding_size=384, num_heads=12)
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    model = make_bilstm(cfg, start, random_tokens(50, vocab_size=1000), 768)
    lstm, dense = 2 * 4 * 512 * (300 + 512 + 1), 1024 * 768
    assert model.num_params == 30522 * 300 + lstm + dense and lstm + dense == 4_116_480
    assert model.dim == 768 and model.pooled_width == 1024


@pytest.mark.parametrize("over_time", ["max", "final"])
def test_the_export_equals_flax_without_jdistill(tmp_path: Path, over_time: str) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = student(**{"student.over_time": over_time, "max_length": 16})
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    texts = [*sentences(20), "a long text " * 60, "", "x"]
    again = jdistill.load(str(tmp_path / "out"))
    np.testing.assert_array_equal(again.encode(texts), model.encode(texts))
    assert again.pooling == over_time and again.max_length == model.max_length
    (tmp_path / "out" / "texts.json").write_text(json.dumps(texts))
    trust = ", trust_remote_code=True" if over_time == "final" else ""
    in_a_process_without_jdistill(
        "import json, numpy as np\nfrom sentence_transformers import SentenceTransformer\n"
        f"m = SentenceTransformer(sys.argv[1], device='cpu'{trust})\n"
        "np.save(sys.argv[1] + '/theirs.npy', m.encode(json.load(open(sys.argv[1] + '/texts.json'))))\n",
        tmp_path / "out",
    )
    assert np.abs(np.load(tmp_path / "out" / "theirs.npy") - model.encode(texts)).max() < 1e-4


@pytest.mark.parametrize("target", ["vectors", "pairs"])
def test_the_loss_is_half_of_one_minus_cosine_and_its_rivals_that_of_pairs(target: str) -> None:
    cfg, start = config(**{"loss.target": target}), make_encoder()
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    tokens, rng = random_tokens(50, vocab_size=1000), np.random.default_rng(0)
    (stage,) = METHODS["bilstm_sra"](cfg)
    method = stage.build(cfg, Start(start, True, 32, tokens, lambda rows: np.zeros((len(rows), 32), np.float32), None))
    ids, mask = tokens.padded(np.arange(6), 20, 0)
    data = {"ids": ids, "mask": mask, "teacher": rng.standard_normal((6, 32)).astype(np.float32)}
    loss, _, _ = loss_of(method)(method.params, data)
    vectors = method.student.encode_ids(tokens.lists(np.arange(6)))

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    of_teacher = data["teacher"]
    if target == "vectors":
        expected = 0.5 * (1 - np.mean([cosine(*both) for both in zip(of_teacher, vectors, strict=True)]))
    else:
        pairs = [(i, j) for i in range(6) for j in range(6)]
        differences = [cosine(of_teacher[i], of_teacher[j]) - cosine(vectors[i], vectors[j]) for i, j in pairs]
        expected = np.mean(np.square(differences))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    gradient, _ = gradient_of(method, data, 2)
    whole, _ = gradient_of(method, data)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(whole))
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(whole), strict=True):
        assert_close(one, other, 64, 2 * 20, largest=largest)  # a step of the recurrence for each of 20 tokens


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="over_time='mean' is not one of max, final"):
        student(**{"student.over_time": "mean"})
    with pytest.raises(UserError, match="target='labels' is not one of vectors, pairs"):
        METHODS["bilstm_sra"](config(**{"loss.target": "labels"}))
    with pytest.raises(UserError, match="batch_size=1: cosines of a batch's pairs need at least 2"):
        METHODS["bilstm_sra"](config(**{"loss.target": "pairs", "batch_size": 1}))
    with pytest.raises(
        UserError, match="pooling=cls: a recurrent student pools its states by --config.student.over_time"
    ):
        METHODS["bilstm_sra"](config(pooling="cls"))
    with pytest.raises(UserError, match="embedding_size=40 must lie in 1..32"):
        student(**{"student.embedding_size": 40})


def test_a_run_ends_with_a_student_closer_to_its_teacher(tmp_path: Path) -> None:
    teacher = save_encoder(make_encoder(normalize=False), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(300)))
    settings: dict[str, object] = {
        "teacher": teacher,
        "teacher_pooling": "cls",
        "text": tmp_path / "text.txt",
        "text_column": "",
        "student.embedding_size": 12,
        "student.lstm_size": 8,
        "student.dropout": 0.1,
        "batch_size": 32,
        "max_steps": 40,
        "checkpoint_every": 20,
        "learning_rate": 0.01,
        "length_buckets": 1,
        "index_texts": 0,
        "latency_texts": 0,
        "onnx": False,
        "cache_dir": tmp_path / "cache",
    }
    done = commands.run_inside(commands.command("configs/bilstm_sra.py", tmp_path / "run", settings))
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "run" / "distil" / "metrics.jsonl").read_text().splitlines()]
    scores = [line["dev/mean_cosine"] for line in lines if "dev/mean_cosine" in line]
    assert scores == sorted(scores) and len(scores) == 2 and results["agreement"]["mean_cosine"] > 0.5
    assert results["student"]["unknown_tokens"] == 0
    model = jdistill.load(str(tmp_path / "run" / "export"))
    assert isinstance(model.config, BilstmConfig) and model.dim == 32
    of_cls = jdistill.load(str(teacher))
    assert of_cls.pooling == "mean"  # the teacher's own, which the run replaced
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert "AutoModel" not in card and "the maximum over its tokens" in card
