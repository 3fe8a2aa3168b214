"""Word vectors of a file: how words are cut, which lines are refused, and a student that starts with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bilstm_setting import student

import jdistill
from jdistill.core.errors import UserError
from jdistill.data.text.glove import read_glove
from jdistill.export.folder import export
from jdistill.run.finish import unknown_tokens

GLOVE = "the 0.1 0.2 0.3\nRiver 1 2 3\n, -1 -2 -3\n. . 4 5 6\nthe 9 9 9\n"
CUT = {  # as the text of GloVe's vectors was cut
    "Don't, it's 3.5 café's!": ["do", "n't", ",", "it", "'s", "3.5", "café", "'s", "!"],
    "does n't can't 'quoted' o'clock": ["does", "n't", "ca", "n't", "'", "quoted", "'", "o", "'", "clock"],
    "a [MASK] isn'tx n't": ["a", "[MASK]", "isn", "'", "tx", "n't"],
}


def test_words_are_cut_as_glove_has_them(tmp_path: Path) -> None:
    words = dict.fromkeys(word for cut in CUT.values() for word in cut if word != "[MASK]")
    (tmp_path / "glove.txt").write_text("".join(f"{word} {i} 0 1\n" for i, word in enumerate(words)))
    tokenizer = student(**{"student.glove": str(tmp_path / "glove.txt"), "student.embedding_size": 3}).tokenizer
    for text, cut in CUT.items():
        assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == ["[CLS]", *cut]


def test_words_and_their_vectors_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("4 3\n" + GLOVE)
    words, vectors = read_glove(tmp_path / "glove.txt", 3)
    (tmp_path / "word2vec.txt").write_text("4 3\n" + GLOVE.replace("\n", " \n"))
    assert read_glove(tmp_path / "word2vec.txt", 3)[0] == words
    assert words == ["the", "River", ",", ". ."] and vectors[0].tolist() == pytest.approx([0.1, 0.2, 0.3])
    model = student(**{"student.glove": str(tmp_path / "glove.txt"), "student.embedding_size": 3})
    assert model.tokenize(["The River, the Stone"]) == [[2, 1, 5, 6, 4, 1]]  # cased words: The is unknown
    np.testing.assert_allclose(model.params["word"]["embedding"][1], vectors.mean(0), rtol=1e-6)
    assert unknown_tokens(model, ["the River", "the Stone"]) == 25
    export(model, tmp_path / "out")
    again = jdistill.load(str(tmp_path / "out"))
    np.testing.assert_array_equal(again.encode(["the River ."]), model.encode(["the River ."]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 0.1 0.2 0.3\nriver 1 2\n", "line 2: 2 numbers, not 3"),
        ("the 0.1 0.2 0.3 0.4\n", "line 1: more than 3 numbers"),
        ("the 0.1 zero 0.3\n", "line 1: not a word and 3 numbers"),
        ("the 0.1 nan 0.3\n", "line 1: a number is not finite"),
        ("", "holds no word vectors"),
        ("x" * (1 << 20), "line 1: 1,048,576 characters and more are no word"),
    ],
)
def test_a_broken_file_of_word_vectors_is_named_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "glove.txt").write_text(content)
    with pytest.raises(UserError, match=message):
        read_glove(tmp_path / "glove.txt", 3)
