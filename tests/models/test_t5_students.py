"""Students of a T5: which layers they take, which they cannot be, and a run from a teacher as hubs hold it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import commands
import numpy as np
import pytest
from conftest import save_encoder, sentences
from ml_collections import ConfigDict
from simtde_setting import random_tokens
from t5_setting import make_sentence_t5, make_t5, torch_t5
from unigram_setting import FOREIGN

import jdistill
from configs import ibkd
from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.students.transformer import make_student

TEXTS = [*sentences(6), *FOREIGN, "", " ".join(sentences(30))]


def student_keys(**changes: object) -> ConfigDict:
    cfg = ibkd.get_config()
    cfg.student.update(changes)
    return cfg


@pytest.mark.parametrize(("which", "taken"), [("last", (2, 3)), ("first", (0, 1)), ("spread", (1, 3))])
def test_a_student_takes_whole_layers_and_the_first_ones_table(which: str, taken: tuple[int, int]) -> None:
    start = make_sentence_t5()
    student = make_student(student_keys(layers=2, copy_layers=which), start, random_tokens(20))
    assert student.config == dataclasses.replace(start.config, num_layers=2, hidden_dropout=0.0, attention_dropout=0.0)
    for k, layer in enumerate(taken):
        np.testing.assert_array_equal(
            student.params[f"layer_{k}"]["up"]["kernel"], start.params[f"layer_{layer}"]["up"]["kernel"]
        )
    for name in ("relative", "word"):
        np.testing.assert_array_equal(student.params[name]["embedding"], start.params[name]["embedding"])
    assert not student.dense and np.isfinite(student.encode(TEXTS)).all()


@pytest.mark.parametrize("gated", [False, True])
def test_layers_that_start_at_random(gated: bool) -> None:
    start = make_t5(gated=gated)
    random = make_student(student_keys(copy_layers="none", layers=2), start, random_tokens(20))
    assert random.params["layer_1"]["down"]["kernel"].std() == pytest.approx(64**-0.5, rel=0.1)
    assert set(random.params["layer_1"]) == set(start.params["layer_1"]) and np.isfinite(random.encode(TEXTS)).all()


@pytest.mark.parametrize("keys", [{"embedding_size": 12}, {"hidden_size": 16}])
def test_a_compact_student_is_refused_and_told_why(keys: dict) -> None:
    with pytest.raises(
        UserError, match="the start is a T5, of which a student takes whole layers: set --config.student"
    ):
        make_student(student_keys(**keys), make_t5(), random_tokens(20))


def write_hub_folder(folder: Path) -> None:
    """As hubs hold a sentence-t5: modules, a tokenizer, and the tensors of a whole T5, decoder and output layer included."""
    save_encoder(make_sentence_t5(), folder)
    (folder / "model.safetensors").unlink()
    torch_t5(folder, decoder=True, vocab_size=106, d_model=32, feed_forward_proj="gated-gelu", n_positions=512)


def test_from_a_teacher_of_a_hub_to_a_student_that_others_load(tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    write_hub_folder(tmp_path / "teacher")
    teacher = jdistill.load(str(tmp_path / "teacher"))
    assert isinstance(teacher, Encoder) and teacher.config.gated and teacher.dense[0].keys() == {"kernel"}
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "teacher"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), teacher.encode(TEXTS), atol=1e-5)
    (tmp_path / "text.txt").write_text("\n".join([*sentences(300), *FOREIGN]))
    settings: dict[str, object] = {
        "teacher": tmp_path / "teacher", "start": "", "text": tmp_path / "text.txt", "text_column": "", "triplets": "",
        "senteval": "", "student.layers": 2, "batch_size": 32, "max_steps": 30, "checkpoint_every": 15, "log_every": 1,
        "learning_rate": 1e-3, "length_buckets": 1, "index_texts": 0, "latency_texts": 0, "cache_dir": tmp_path / "cache",
    }  # fmt: skip
    done = commands.run_inside(commands.command("configs/ibkd.py", tmp_path / "run", settings))
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in (tmp_path / "run/distil/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 30 and np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5]), losses
    student = jdistill.load(str(tmp_path / "run/export"))
    assert student.config.model_type == "t5" and student.config.num_layers == 2
    assert student.tokenize(FOREIGN) == teacher.tokenize(FOREIGN)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "run" / "export"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), student.encode(TEXTS), atol=1e-5)


def test_simtde_says_that_there_is_no_compact_t5(tmp_path: Path) -> None:
    teacher = save_encoder(make_t5(), tmp_path / "teacher")
    done = commands.run_inside(
        commands.command("configs/simtde.py", tmp_path / "run", {"teacher": teacher, "text": "none.txt"})
    )
    assert done.returncode == 2 and "is a t5, which has no form with narrower ones" in done.stderr
