"""What a config and the shape of its start alone decide is refused before a text is read, by the key that is to be changed."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import simtde_setting
from commands import command, run_inside
from conftest import make_decoder, make_encoder, save_encoder
from ml_collections import ConfigDict
from steps import loss_of

from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import check_start
from jdistill.methods import METHODS
from jdistill.models.pma import random_pma
from jdistill.students.transformer import make_student


def config(name: str, changes: dict[str, object]) -> ConfigDict:
    """configs/NAME.py with sizes that fit a teacher of 4 layers, 32 wide, and then these changes."""
    c = importlib.import_module(f"configs.{name}").get_config()
    for small in ("student", "scratch"):
        if isinstance(c.get(small), ConfigDict) and c[small].embedding_size > 0:
            c[small].embedding_size = 12
    if name == "bilstm_sra_task":
        c.task_dir = "given"
    if name == "d2llm":
        c.symmetric = c.asymmetric = "given"
    c.update_from_flattened_dict(changes)
    return c


def check(cfg: ConfigDict, start: Encoder, is_teacher: bool = True, teacher_width: int | None = None) -> None:
    check_start(METHODS[cfg.method](cfg), start, is_teacher, teacher_width or start.dim)


BERT = {
    "simtde": {}, "ibkd": {}, "ibkd:mse": {"method": "mse"}, "ibkd:crd": {"method": "crd"},
    "ibkd:hpd": {"method": "hpd", "output_dim": 8}, "ibkd:supervised": {"method": "supervised"},
    "distilface": {"pooling": "mean"}, "bilstm_sra": {}, "bilstm_sra_task": {}, "bilstm_sra_task:start": {"student": "given"},
}  # fmt: skip


@pytest.mark.parametrize("name", BERT)
def test_what_fits_is_let_through(name: str):
    check(config(name.partition(":")[0], BERT[name]), make_encoder())


def test_what_fits_a_decoder_is_let_through():
    check(config("d2llm", {}), make_decoder())
    check(config("distilface", {"pooling": "mean"}), make_decoder())


def test_a_student_without_a_key_that_makes_it_is_told_which():
    cfg = config("ibkd", {})
    for key in ("intermediate_size", "vocabulary", "attention"):
        del cfg.student[key]
    with pytest.raises(UserError, match=r"lacks student\.intermediate_size, student\.vocabulary, which a student"):
        check(cfg, make_encoder())  # of no decoder, whose attention has two kinds
    with pytest.raises(UserError, match=r"student\.vocabulary, student\.attention, which"):
        decoders = config("distilface", {"pooling": "mean"})
        for key in ("vocabulary", "attention"):
            del decoders.student[key]
        check(decoders, make_decoder())


# config, changed keys, what the start has instead of 4 layers of 32, words of the message.
WRONG = [
    ("simtde", {"student.embedding_size": 128}, {}, "student.embedding_size=128: .* 32 wide; set --config.student.embedding_size=16"),
    ("simtde", {"student.embedding_size": 33}, {}, "student.embedding_size=33: "),
    ("ibkd", {"student.embedding_size": 128}, {}, "student.embedding_size=128: .* 32 wide"),
    ("distilface", {"student.embedding_size": 128, "pooling": "mean"}, {}, "student.embedding_size=128: .* 32 wide"),
    ("simtde", {"student.layers": 5}, {}, "student.layers=5 must lie in 1..4, the start's layers"),
    ("distilface", {"student.layers": 5}, {}, "student.layers=5 must lie in 1..4"),
    ("ibkd", {"student.layers": 5}, {}, "student.layers=5 must lie in 1..4"),
    ("simtde", {"student.hidden_size": 18, "loss.token": "none"}, {}, "student.hidden_size=18 does not divide into the start's 4 heads"),
    ("simtde", {"student.hidden_size": 16}, {}, "student.hidden_size=16: the token term needs the teacher's 32; set --config.loss.token=none"),
    ("simtde", {"loss.alpha": 1.5}, {}, "loss.alpha=1.5 must lie in 0..1"),
    ("simtde", {}, {"pooling": "concat_last4"}, "vectors are 32 wide, .* 128"),
    ("simtde", {"student.layers": 2}, {"pooling": "avg_last4"}, "'avg_last4' takes the 4 last layers.*--config.student.layers leaves 2"),
    ("ibkd", {"student.layers": 3}, {"pooling": "avg_last4"}, "--config.student.layers leaves 3"),
    ("ibkd", {}, {"pooling": "final"}, "pooler 'final' takes the two final states of an LSTM"),
    ("ibkd", {}, {"pooling": "pma"}, "pooler 'pma' has parameters"),
    ("ibkd", {"output_dim": 33}, {}, "output_dim=33 must lie in 1..32, the student's own width"),
    ("ibkd", {"method": "mse", "output_dim": 33}, {}, "output_dim=33 must lie in 1..32"),
    ("ibkd", {"method": "crd", "output_dim": 33}, {}, "output_dim=33 must lie in 1..32"),
    ("ibkd", {"method": "supervised", "output_dim": 33}, {}, "output_dim=33 must lie in 1..32"),
    ("ibkd", {"student.hidden_size": 16, "output_dim": 17}, {}, "output_dim=17 must lie in 1..16"),
    ("ibkd", {"method": "hpd", "output_dim": 33}, {}, "output_dim=33 must lie in 1..32, the teacher's width"),
    ("ibkd", {"method": "hpd"}, {}, "output_dim=0 must lie in 1..32, the teacher's width"),
    ("bilstm_sra", {"student.embedding_size": 33}, {}, "student.embedding_size=33 must lie in 1..32, the width of the start's"),
    ("bilstm_sra_task", {"scratch.embedding_size": 33}, {}, "scratch.embedding_size=33 must lie in 1..32"),
    ("bilstm_sra_task", {"student": "given"}, {"pooling": "pma"}, "pooler 'pma' has parameters"),
    ("bilstm_sra_task", {"student": "given"}, {"pooling": "final"}, "pooler 'final' takes the two final states of an LSTM"),
    ("bilstm_sra_task", {"student": "given"}, {"pooling": "avg_last4", "num_layers": 2}, "'avg_last4' takes the 4 last layers"),
]  # fmt: skip


@pytest.mark.parametrize("name,changes,of_start,message", WRONG)
def test_what_does_not_fit_a_bert_is_refused(name: str, changes: dict, of_start: dict, message: str):
    layers = {key: value for key, value in of_start.items() if key == "num_layers"}
    start = replace(make_encoder(**layers), pooling=of_start.get("pooling", "mean"))
    with pytest.raises(UserError, match=message):
        check(config(name, changes), start, teacher_width=32)


WRONG_OF_DECODERS = [
    ("d2llm", {"student.layers": 5}, "student.layers=5 must lie in 1..2"),
    ("d2llm", {"student.hidden_size": 16}, "set --config.student.embedding_size=-1"),
    ("d2llm", {"student.copy_layers": "none"}, "--config.student.copy_layers=none: a decoder's layers"),
    ("d2llm", {"lora.paths": "attention/(q|k)_proj"}, r"no kernel of the model matches 'attention/\(q|k\)_proj'"),
    ("distilface", {"student.embedding_size": 16, "pooling": "mean"}, "set --config.student.embedding_size=-1"),
    ("simtde", {}, "SimTDE compresses the token embeddings of a BERT-like encoder, and tiny decoder is a llama"),
    ("bilstm_sra", {}, "word pieces start as a BERT-like encoder's; name one in --config.start"),
]


@pytest.mark.parametrize("name,changes,message", WRONG_OF_DECODERS)
def test_what_does_not_fit_a_decoder_is_refused(name: str, changes: dict, message: str):
    with pytest.raises(UserError, match=message):
        check(config(name, changes), make_decoder())


def test_word_vectors_of_another_width_are_refused_by_their_line(tmp_path: Path):
    (tmp_path / "glove.txt").write_text("river 0.1 0.2 0.3\n")
    for name, block in (("bilstm_sra", "student"), ("bilstm_sra_task", "scratch")):
        with pytest.raises(UserError, match="glove.txt, line 1: 3 numbers, not 12, the embedding_size"):
            check(config(name, {f"{block}.glove": str(tmp_path / "glove.txt")}), make_encoder())


def test_a_pooler_with_parameters_keeps_its_width():
    start = replace(make_encoder(), pooling="pma", pooler=random_pma(32, np.random.default_rng(0)))
    check(config("ibkd", {}), start)
    with pytest.raises(UserError, match="student.hidden_size=16: the start's pooler 'pma' has parameters of width 32"):
        check(config("ibkd", {"student.hidden_size": 16}), start)


def test_a_block_that_starts_at_random_may_have_any_width():
    cfg = config("simtde", {"student.embedding_size": 40, "student.start": "random", "loss.token": "none"})
    check(cfg, make_encoder())
    student = make_student(cfg, make_encoder(), simtde_setting.random_tokens(20))
    assert student.params["project"]["kernel"].shape == (40, 32)


@pytest.mark.parametrize("name", ["ibkd", "mse", "crd", "hpd"])
def test_a_pooler_of_several_layers_side_by_side_is_wider_than_they_are(name: str):
    """The projections to the teacher take the pooled width, 4 x 32, not that of a layer."""
    teacher, tokens = replace(simtde_setting.small_teacher(), pooling="concat_last4"), simtde_setting.random_tokens(300)
    given = simtde_setting.start(teacher, tokens, width=128)
    cfg = config("ibkd", {"method": name, "output_dim": 8 if name == "hpd" else 0, "loss.buffer_per_text": 2})
    stage, rows = METHODS[name](cfg)[0], np.arange(8)
    method = stage.build(stage.cfg, given)
    ids, mask = tokens.padded(rows, 20, 0)
    batch = {"ids": ids, "mask": mask, "teacher": given.embeddings(rows), "row": rows.astype(np.int32)}
    batch |= {"others": given.embeddings(np.arange(16)).reshape(8, 2, 128), "other_rows": np.arange(16).reshape(8, 2)}
    loss, _, reps = loss_of(method)(method.params, batch)
    assert reps["sentence"].shape == (8, 128) and np.isfinite(loss)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_teacher_narrower_than_the_students_tokens_ends_a_run_before_its_text(tmp_path: Path, dry_run: bool):
    """A teacher 32 wide and the 128 of configs/simtde.py. The text is not there, which would be told next."""
    teacher = save_encoder(make_encoder(), tmp_path / "teacher")
    arguments = command(
        "configs/simtde.py", tmp_path / "run", {"teacher": teacher, "text": tmp_path / "none.txt", "text_column": ""}
    )
    done = run_inside([*arguments, "--dry_run"] if dry_run else arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "error: --config.student.embedding_size=128: the compact block is fitted to the token embeddings of the start, which are "
        "32 wide; set --config.student.embedding_size=16, another width below 32, or 0 for a table of the layers' own width; with "
        "--config.student.start=random it is not fitted"
    )
