"""bench/search_read.py: a student goes on as it is, over every document of a collection."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import numpy as np
from commands import ROOT
from vocabulary_setting import encoder_of, made_up_texts

from configs import search
from jdistill.data.sets.collection import Collection
from jdistill.data.text.sources import read_texts
from jdistill.students.transformer import make_student

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import parts
import search_read

TEXTS = made_up_texts(60)


def test_a_student_that_is_its_own_start_stays_as_it_is() -> None:
    teacher = encoder_of("word pieces", TEXTS)
    cfg = search.get_config()
    cfg.student.update({"embedding_size": 12, "vocabulary": "60"})
    student = make_student(cfg, teacher, parts.tokens_of(teacher, TEXTS))
    assert student.num_params < teacher.num_params
    again = make_student(search.get_config("read"), student, parts.tokens_of(student, TEXTS))
    assert again.config == student.config
    jax.tree.map(np.testing.assert_array_equal, again.params, student.params)
    np.testing.assert_array_equal(again.encode(TEXTS), student.encode(TEXTS))


def test_every_document_is_a_text_to_read_with_its_lines(tmp_path: Path) -> None:
    documents = {"a": "A title its text", "b": "two\nlines", "c": 'a "quote" – and é'}
    path = tmp_path / "made up" / "documents.jsonl"
    search_read.write_documents(Collection("made up", documents, {"q": "which"}, {"q": {"a": 1}}), path)
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == list(documents.values())
    assert read_texts(str(path), "text").texts == list(documents.values())
