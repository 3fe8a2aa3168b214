"""jdistill.mine's jobs: what is mined once, whose part file is whose, and what is not to be replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cross_encoder_setting import save_cross_encoder

from jdistill.data.sets.triplets import read_triplets
from jdistill.mine import main
from jdistill.retrieval import mining

PAIRS = [
    ("how to copy a folder", "copytree copies a whole folder"),
    ("what is a list", "a list is a sequence of items"),
    ("how to remove a list of items", "del removes items of a list"),
]


def mined(folder: Path, name: str, *flags: str, rows: list[tuple[str, str]] = PAIRS) -> int:
    (folder / "pairs.jsonl").write_text("".join(json.dumps({"query": q, "positive": p}) + "\n" for q, p in rows))
    common = ["--by", "bm25", "--count", "2", "--cache_dir", str(folder / "cache"), "--out", str(folder / name)]
    return main(["--pairs", str(folder / "pairs.jsonl"), *common, *flags])


def test_a_query_of_many_positives_is_mined_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a label", f"text {i} that has it") for i in range(700)] + PAIRS  # more than a block of queries
    asked: list[str] = []
    real = mining.pick
    monkeypatch.setattr(mining, "pick", lambda *given: asked.append(given[4]) or real(*given))
    assert mined(tmp_path, "t.jsonl", rows=rows) == 0
    found = read_triplets(str(tmp_path / "t.jsonl"))
    assert list(zip(found.anchors, found.positives, strict=True)) == rows
    assert all(negatives == found.negatives[0] for negatives in found.negatives[:700])
    assert asked.count("a label") == 2 and len(asked) == 2 + len(PAIRS)  # a block ends within them


def test_two_jobs_of_other_scorers_do_not_share_what_they_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(mining, "try_lock", lambda _: None)  # and none waits for another
    real = mining.read_mined
    monkeypatch.setattr(mining, "read_mined", lambda path, *of: names.append(path.name) or real(path, *of))
    save_cross_encoder(tmp_path / "judge")
    assert mined(tmp_path, "t.jsonl") == 0
    assert mined(tmp_path, "t.jsonl", "--overwrite", "--score_by", str(tmp_path / "judge")) == 0
    assert len(set(names)) == 2


def test_a_part_that_another_process_wrote_into_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, real = tmp_path / "t.jsonl", mining.read_mined
    out.write_text("older\n")

    def written_into(path: Path, *of: object) -> object:
        path.write_text(path.read_text() * 2)
        return real(path, *of)

    monkeypatch.setattr(mining, "read_mined", written_into)
    assert mined(tmp_path, "t.jsonl", "--overwrite") == 2
    assert "was changed by another process or its disk" in capsys.readouterr().err and out.read_text() == "older\n"
    monkeypatch.setattr(mining, "read_mined", real)
    assert mined(tmp_path, "t.jsonl", "--overwrite") == 0 and len(read_triplets(str(out))) == len(PAIRS)
