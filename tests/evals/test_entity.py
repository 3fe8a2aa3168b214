"""Entity resolution: Recall@1 among the listed and among all entities, ties, and rows that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jdistill.core.errors import UserError
from jdistill.evals import entity
from jdistill.evals.entity import evaluate_entity, read_entities

HEAD = "query,entity,label\n"


class Angles:
    """Encodes by the number that ends a text, as an angle."""

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        angles = np.radians([float(text.split()[-1]) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def evaluate(folder: Path, rows: str, encoder: Any = None) -> dict[str, float]:
    (folder / "e.csv").write_text(HEAD + rows)
    return evaluate_entity(encoder or Angles(), folder / "e.csv")


def test_listed_candidates_and_the_whole_catalogue(tmp_path: Path) -> None:
    rows = (
        '"play, 0",e 10,1\n"play, 0",e 30,0\n'  # nearest of the listed, but e 2 of the catalogue is nearer
        "play 60,e 61,1\nplay 60,e 90,0\nplay 60,e 90,0\n"  # right in both
        "play 1,e 2,0\nplay 1,e 30,1\n"  # wrong in both
        "play 5,e 2,0\n"
    )  # no right entity: left out
    assert evaluate(tmp_path, rows) == {
        "recall@1": pytest.approx(2 / 3),
        "recall@1_catalogue": pytest.approx(1 / 3),
        "queries": 3,
        "entities": 5,
    }


def test_blocks_do_not_change_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = "".join(
        f"q {3 * i},e{j} {rng.normal(3 * i, 30 if j else 3):.3f},{int(j == 0)}\n" for i in range(30) for j in range(4)
    )
    whole = evaluate(tmp_path, rows)
    monkeypatch.setattr(entity, "COSINES_AT_ONCE", 7 * 120)
    assert evaluate(tmp_path, rows) == whole and 0 < whole["recall@1_catalogue"] < whole["recall@1"] < 1


@pytest.mark.parametrize("rows", ["q 0,a 10,1\nq 0,b 10,0\n", "q 0,b 10,0\nq 0,a 10,1\n", "q 0,a 10,1\nq 0,b -10,0\n"])
def test_ties_do_not_favour_the_model(tmp_path: Path, rows: str) -> None:
    found = evaluate(tmp_path, rows)
    assert found["recall@1"] == 0 and found["recall@1_catalogue"] == 0


def test_rounding_noise_is_a_tie(tmp_path: Path) -> None:
    class Collapsed:
        def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
            noise = np.random.default_rng(len(texts)).uniform(-1e-7, 1e-7, (len(texts), 8))
            return (1 + noise).astype(np.float32)

    found = evaluate(tmp_path, "".join(f"q{i},right{i},1\nq{i},wrong{i},0\n" for i in range(50)), Collapsed())
    assert found["recall@1"] == 0 and found["recall@1_catalogue"] == 0


def test_two_right_entities_tie_with_each_other_only(tmp_path: Path) -> None:
    assert evaluate(tmp_path, "q 0,a 10,1\nq 0,b 10,1\nq 0,c 20,0\n")["recall@1"] == 1


def test_other_columns_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("\ufefflabel,lang,entity,query\r\n1,de,e 1,q 1\r\n", encoding="utf-8")
    found = read_entities(tmp_path / "e.csv")
    assert (found.queries, found.entities, found.listed, found.right) == (["q 1"], ["e 1"], [[0]], [[0]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD + "q 1,e 1,1\nq 1,e 2,yes\n", "e.csv, line 3: the label is 'yes'"),
        (HEAD + "q 1,e 1,\n", "e.csv, line 2: the label is ''"),
        (HEAD + "q 1,,1\n", "e.csv, line 2: the entity is empty"),
        (HEAD + " ,e 1,1\n", "e.csv, line 2: the query is empty"),
        (HEAD + "q 1,e 1\n", "e.csv, line 2: 2 cells under 3 columns"),
        (HEAD + "q 1,e 1,1\n\nq 1,e 1,0\n", "e.csv, line 4: 'q 1' with 'e 1' has label 0, but 1 in line 2"),
        (HEAD + "q 1,e 1,0\n", "no query has an entity labelled 1"),
        (HEAD + '"q 1,e 1,1\n', "not a well-formed row"),
        (
            "query,name,label\nq 1,e 1,1\n",
            "line 1: columns query, entity, label are needed; found is query, name, label",
        ),
        ("", "line 1: columns query, entity, label are needed; found is nothing"),
    ],
)
def test_bad_rows_are_named_by_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "e.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        evaluate_entity(Angles(), tmp_path / "e.csv")  # type: ignore[arg-type]


def test_missing_file_and_broken_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="e.csv cannot be read"):
        read_entities(tmp_path / "e.csv")
    (tmp_path / "e.csv").write_bytes(HEAD.encode() + b"q\xff,e,1\n")
    with pytest.raises(UserError, match="e.csv is not UTF-8"):
        read_entities(tmp_path / "e.csv")
