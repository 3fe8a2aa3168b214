"""A sweep's trials are ranked by scores of one dev set and one text: what changed amid it is refused, and what may change is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import make_encoder, save_encoder, sentences, write_senseless_pairs
from ml_collections import ConfigDict

from configs import simtde
from jdistill.core.json_files import read_json
from jdistill.sweep.command import sweep
from jdistill.sweep.space import parse_space
from jdistill.sweep.trial_data import DATA


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a teacher, text, dev pairs, and a sweep of two rates."""
    folder = tmp_path_factory.mktemp("same")
    save_encoder(make_encoder(num_layers=2), folder / "teacher")
    (folder / "text.txt").write_text("\n".join(sentences(60)) + "\n")
    write_senseless_pairs(folder / "dev.csv", 20)
    assert scores(folder, "learning_rate=1e-3,2e-3").keys() == {0.001, 0.002}
    return folder


def config(folder: Path) -> ConfigDict:
    cfg = simtde.get_config()
    cfg.update_from_flattened_dict(
        {
            "teacher": str(folder / "teacher"), "text": str(folder / "text.txt"), "dev_pairs": str(folder / "dev.csv"),
            "cache_dir": str(folder / "cache"), "text_column": "", "max_steps": 2, "batch_size": 8, "held_out": 8, "length_buckets": 1,
            "student.layers": 1, "student.embedding_size": 12, "warmup": 0.0, "dtype": "float32", "teacher_dtype": "float32",
        }
    )  # fmt: skip
    return cfg


def rows_of(folder: Path, *grid: str) -> list[dict]:
    cfg = config(folder)
    return sweep(cfg, folder / "sweep", parse_space(list(grid), cfg, "grid"))


def scores(folder: Path, *grid: str) -> dict:
    return {row["params"]["learning_rate"]: row["score"] for row in rows_of(folder, *grid)}


def refusals(rows: list[dict]) -> list[str]:
    return [row["error"] for row in rows if "error" in row]


def test_another_dev_set_or_text_under_the_old_name_is_refused_and_the_old_one_back_is_taken(begun: Path) -> None:
    noted = read_json(begun / "sweep" / DATA)
    assert {"what the dev sets hold", "the training text", "the teacher"} <= noted.keys()
    assert all(len(kept) == 1 for kept in noted.values())  # two rates have it in common
    grid = "learning_rate=1e-3,2e-3,3e-3"
    for name, what in (("dev.csv", "what the dev sets hold"), ("text.txt", "the training text")):
        path = begun / name
        before = path.read_bytes()
        path.write_bytes(b"\n".join(before.split(b"\n")[:-9]) + b"\n")
        rows = rows_of(begun, grid)
        assert len(rows) == 3 and rows[-1]["params"] == {"learning_rate": 0.003}
        (said,) = refusals(rows)
        assert said.startswith(f"{what} has changed since {begun / 'sweep'} began")
        path.write_bytes(before)
    rows = rows_of(begun, grid)
    assert not refusals(rows) and all(row["score"] is not None for row in rows)


def test_before_a_trial_has_a_score_the_files_may_change(begun: Path, tmp_path: Path) -> None:
    """As who is refused for too little text does."""
    (tmp_path / "text.txt").write_text("\n".join(sentences(14)) + "\n")
    cfg = config(begun)
    cfg.text, cfg.batch_size, cfg.packed = str(tmp_path / "text.txt"), 32, False
    space = parse_space(["learning_rate=1e-3,2e-3"], cfg, "grid")
    said = refusals(sweep(cfg, tmp_path / "sweep", space))
    assert len(said) == 2 and all("fill one batch" in line for line in said), said
    (tmp_path / "text.txt").write_text("\n".join(sentences(60)) + "\n")
    rows = sweep(cfg, tmp_path / "sweep", space)
    assert len(rows) == 2 and not refusals(rows)


def test_values_that_decide_the_data_have_each_their_own(begun: Path, tmp_path: Path) -> None:
    cfg = config(begun)
    cfg.learning_rate = 1e-3
    space = parse_space(["held_out=8,12", "student.layers=1,2"], cfg, "grid")
    rows = sweep(cfg, tmp_path / "sweep", space)
    assert not refusals(rows) and len(rows) == 4
    assert len(read_json(tmp_path / "sweep" / DATA)["the training text"]) == 2


def test_seeds_are_compared_on_the_same_text(begun: Path, tmp_path: Path) -> None:
    shutil.copy(begun / "text.txt", tmp_path / "text.txt")
    cfg = config(begun)
    cfg.text = str(tmp_path / "text.txt")
    assert not refusals(sweep(cfg, tmp_path / "sweep", parse_space(["seed=0"], cfg, "grid")))
    (tmp_path / "text.txt").write_text("\n".join(sentences(50)) + "\n")
    (said,) = refusals(sweep(cfg, tmp_path / "sweep", parse_space(["seed=0,1"], cfg, "grid")))
    assert said.startswith("the training text has changed since")
