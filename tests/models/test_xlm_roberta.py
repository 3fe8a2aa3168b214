"""XLM-RoBERTa, the body of bge-m3 and multilingual-e5: its pieces by a Unigram model, a head's names, a run, an export that others load."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import command, run_inside
from conftest import random_params, save_encoder, sentences, tiny_config
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import XLMRobertaTokenizer

import jdistill
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.models.registry import architecture_of

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
FOREIGN = ["Wo steht das Haus am Fluss?", "Où est la maison ?", "Дом стоит у реки."]


def unigram_tokenizer(texts: list[str]) -> XLMRobertaTokenizer:
    """A tokenizer of XLM-RoBERTa's class, its pieces learnt from some texts, the mask behind them all as in the published ones."""
    learnt = Tokenizer(models.Unigram())
    learnt.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    learnt.train_from_iterator(texts, trainer)
    pieces = json.loads(learnt.to_str())["model"]["vocab"]
    return XLMRobertaTokenizer(vocab=[*map(tuple, pieces), ("<mask>", 0.0)], model_max_length=60)


def make_xlm_roberta() -> Encoder:
    tokenizer = unigram_tokenizer([*sentences(300), *FOREIGN])
    kind = {"model_type": "xlm-roberta", "type_vocab_size": 1, "pad_token_id": 1}
    config = tiny_config(**kind, vocab_size=len(tokenizer), num_layers=3, max_positions=62)
    return Encoder(config, random_params(config), tokenizer, normalize=True, max_length=60, source="tiny")


def test_a_head_and_its_prefix_are_left_out(tmp_path: Path) -> None:
    """XLMRobertaForMaskedLM calls its body roberta, not xlm-roberta."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 90,
    }
    torch.manual_seed(0)
    whole = transformers.XLMRobertaForMaskedLM(
        transformers.XLMRobertaConfig(**sizes, max_position_embeddings=40, type_vocab_size=1)
    ).eval()
    whole.save_pretrained(tmp_path)
    assert any(name.startswith("roberta.") for name in read_tensors(tmp_path))
    config = tiny_config(
        model_type="xlm-roberta", vocab_size=90, num_layers=2, max_positions=40, type_vocab_size=1, pad_token_id=1
    )
    params = architecture_of(config).from_tensors(config, read_tensors(tmp_path), "head")
    word = whole.roberta.embeddings.word_embeddings.weight.detach().numpy()
    np.testing.assert_array_equal(params["embeddings"]["word"]["embedding"], word)


def test_from_a_teacher_of_a_hub_to_a_student_that_others_load(tmp_path: Path) -> None:
    """A run of SimTDE, whose export is checked by ONNX Runtime and sentence-transformers, on text of several scripts."""
    teacher = make_xlm_roberta()
    save_encoder(teacher, tmp_path / "teacher")
    again = jdistill.load(str(tmp_path / "teacher"))
    assert again.config == teacher.config and again.tokenizer("")["input_ids"] == [0, 2]
    np.testing.assert_array_equal(again.encode(FOREIGN), teacher.encode(FOREIGN))
    (tmp_path / "text.txt").write_text("\n".join([*sentences(120), *FOREIGN]) + "\n")
    keys = {
        "teacher": tmp_path / "teacher", "text": tmp_path / "text.txt", "text_column": "", "cache_dir": tmp_path / "cache",
        "student.layers": 2, "student.embedding_size": 12, "held_out": 10, "batch_size": 8, "max_steps": 4, "checkpoint_every": 4,
        "latency_texts": 0, "index_texts": 0,
    }  # fmt: skip
    done = run_inside(command("configs/simtde.py", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    checks = json.loads((tmp_path / "run" / "results.json").read_text())["export_max_abs_difference"]
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    student = jdistill.load(str(tmp_path / "run" / "export"))
    assert student.config.embedding_size == 12 and student.tokenize(FOREIGN) == teacher.tokenize(FOREIGN)
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(tmp_path / "run" / "export"), device="cpu"
    )
    np.testing.assert_allclose(theirs.encode(FOREIGN), student.encode(FOREIGN), atol=1e-5)
