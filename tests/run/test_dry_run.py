"""A plan refuses what the run would refuse, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import command, run_inside
from conftest import make_encoder, save_encoder, sentences


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher, text, a folder that is no run, and a run that has begun."""
    place = tmp_path_factory.mktemp("plans")
    save_encoder(make_encoder(), place / "teacher")
    (place / "text.txt").write_text("\n".join(sentences(60)) + "\n")
    (place / "letters").mkdir()
    (place / "letters" / "to-a-friend.txt").write_text("dear")
    done = run_inside(arguments(place, "begun"))
    assert done.returncode == 0, done.stderr[-2000:]
    return place


def arguments(place: Path, workdir: str, **keys: object) -> list[str]:
    short = {
        "teacher": place / "teacher", "text": place / "text.txt", "text_column": "", "cache_dir": place / "cache", "held_out": 0,
        "student.layers": 1, "student.embedding_size": 12, "batch_size": 8, "max_steps": 1, "checkpoint_every": 1, "onnx": False,
        "latency_texts": 0, "index_texts": 40,
    }  # fmt: skip
    return command("configs/simtde.py", place / workdir, short | keys)


@pytest.mark.parametrize(
    ("workdir", "keys", "says"),
    [
        ("letters", {}, "is not empty and holds no run"),
        ("begun", {"max_steps": 7}, "max_steps: 1 there, 7 now"),
        ("new", {"index": "Flatt"}, "--config.index=Flatt"),
        ("new", {"index": "PQ7"}, "--config.index=PQ7"),
        ("new", {"attention": "cudnn"}, "--config.attention=cudnn needs a GPU"),
        ("new", {"augment": "wordnets"}, "--config.augment='wordnets'"),
    ],
)
def test_what_the_run_refuses(place: Path, workdir: str, keys: dict[str, object], says: str) -> None:
    before = sorted(path for path in place.rglob("*") if "cache" not in path.parts)
    done = run_inside([*arguments(place, workdir, **keys), "--dry_run"])
    assert done.returncode == 2 and says in done.stderr, done.stderr[-2000:]
    if "index" not in keys:  # which is held against the texts
        assert "text: " not in done.stderr, "refused before the text is read"
    assert sorted(path for path in place.rglob("*") if "cache" not in path.parts) == before


def test_a_plan_of_a_run_that_has_begun_is_given(place: Path) -> None:
    before = (place / "begun" / "config.json").stat().st_mtime_ns
    done = run_inside([*arguments(place, "begun", log_every=3), "--dry_run"])
    assert done.returncode == 0 and "1 of 8 texts" in done.stdout, done.stdout
    assert (place / "begun" / "config.json").stat().st_mtime_ns == before


def test_a_plan_counts_all_texts_where_the_run_asks_for_all(place: Path) -> None:
    """4 of an epoch's 7 steps: more than half."""
    done = run_inside([*arguments(place, "more", max_steps=4, cache_dir=place / "no cache"), "--dry_run"])
    assert done.returncode == 0 and " 60 texts to answer" in done.stdout, done.stdout
