"""What a stage says that it began with, so that a run which resumes is told what has changed: of its student, its text, its teacher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from conftest import make_encoder

from configs import ibkd
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.parallel import read_text_and_pairs
from jdistill.feeds.stage import reading_digest
from jdistill.feeds.texts import TextFeed
from jdistill.teachers.embeddings import Teacher
from jdistill.train.origins import HELD_OUT, TRANSLATED_OF


def test_the_type_and_the_weights_of_a_student_are_no_part_of_how_it_reads() -> None:
    student = make_encoder(num_layers=1)
    trained = student.with_weights({"model": {"none": np.zeros(1)}})
    assert reading_digest(student) == reading_digest(replace(trained, dtype="bfloat16", source="elsewhere"))


@pytest.mark.parametrize(
    "changes",
    [
        {"pooling": "cls"},
        {"normalize": False},
        {"max_length": 17},
        {"include_prompt": False},
        {"prompts": {"query": "ask: "}},
        {"prompts": {"query": "find: "}, "default_prompt": "query"},
        {"dense_activations": ("Tanh",)},
    ],
)
def test_a_student_that_reads_otherwise_is_another(changes: dict[str, Any]) -> None:
    student = replace(make_encoder(num_layers=1), prompts={"query": "find: "})
    assert reading_digest(replace(student, **changes)) != reading_digest(student)


def test_a_tokenizer_of_other_rules_and_the_same_pieces_is_another() -> None:
    student, other = make_encoder(num_layers=1), make_encoder(num_layers=1)
    before = reading_digest(other)
    other.tokenizer.backend_tokenizer.normalizer = None
    assert other.tokenizer.get_vocab() == student.tokenizer.get_vocab()
    assert before == reading_digest(student) != reading_digest(other)


def feed_of(corpus: Corpus | None, encoder: Encoder | None = None) -> TextFeed:
    teacher = SimpleNamespace(fingerprint="t", encoder=encoder)
    return TextFeed(cast(Any, SimpleNamespace(teacher=teacher, corpus=corpus)), 0, True)


def read(folder: Path, texts: Sequence[str], pairs: Sequence[tuple[str, str]] = (), max_texts: int = 0) -> Corpus:
    """A corpus of two files of text, and of pairs where there are any."""
    cfg = ibkd.get_config("mse")
    (folder / "a.txt").write_text("".join(f"{text}\n" for text in texts))
    (folder / "b.txt").write_text("".join(f"more {i}\n" for i in range(30)))
    (folder / "p.tsv").write_text("source\ttranslation\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    both = f"{folder / 'a.txt'},{folder / 'b.txt'}"
    cfg.update({"cache_dir": str(folder / "cache"), "triplets": "", "text": both if pairs else str(folder / "a.txt")})
    cfg.update(
        {"text_pairs": str(folder / "p.tsv") if pairs else "", "max_texts": max_texts, "held_out": 0 if pairs else 20}
    )
    teacher = Teacher("none", 8, "t", lambda texts: np.zeros((len(texts), 8), np.float32), roles=lambda role: teacher)
    return read_text_and_pairs(cfg, teacher, [])


def test_pairs_that_were_put_right_ask_the_teacher_of_others(tmp_path: Path) -> None:
    """Beside two files of text the training texts are the same, whose vectors are not."""
    texts = [f"sentence {i}" for i in range(60)]
    right, shifted = (read(tmp_path, texts, [(texts[(i + by) % 60], f"satz {i}") for i in range(60)]) for by in (0, 1))
    assert right.fingerprint == shifted.fingerprint
    of_right, of_shifted = feed_of(right).origins(), feed_of(shifted).origins()
    assert of_right[TRANSLATED_OF] != of_shifted[TRANSLATED_OF] and of_right["the teacher"] == of_shifted["the teacher"]
    assert feed_of(read(tmp_path, texts, [(text, f"satz {i}") for i, text in enumerate(texts)])).origins() == of_right


def test_held_out_text_that_lines_at_the_end_displaced_is_other_text(tmp_path: Path) -> None:
    texts = [f"sentence {i}" for i in range(2000)]
    before = read(tmp_path, texts, max_texts=50)
    later = read(tmp_path, [*texts, *(f"later {i}" for i in range(1000))], max_texts=50)
    assert before.fingerprint == later.fingerprint and set(before.held_out) != set(later.held_out)
    assert feed_of(before).origins()[HELD_OUT] != feed_of(later).origins()[HELD_OUT]


def test_a_teacher_whose_prompts_count_no_longer_is_another() -> None:
    corpus, encoder = Corpus(["a"], [], 0), make_encoder(num_layers=1)
    for prompts, same in (({}, True), ({"query": "find: "}, False)):
        counted, left_out = (replace(encoder, prompts=prompts, include_prompt=counts) for counts in (True, False))
        of_counted, of_left_out = feed_of(corpus, counted).origins(), feed_of(corpus, left_out).origins()
        assert (of_counted == of_left_out) == same
        assert HELD_OUT not in of_counted and TRANSLATED_OF not in of_counted
