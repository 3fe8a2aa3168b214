"""A run's folder: nobody else's is taken, what a finished one lacks is made again the same, and what can be known is known before training."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import commands
import numpy as np
import pytest
from commands import run_inside
from conftest import make_encoder, save_encoder, sentences
from finished_setting import assert_same, command, flip, leaves, results

from jdistill.core import files
from jdistill.encoder import loading
from jdistill.export import command as export
from jdistill.run import preflight
from jdistill.run.workdir import only_run
from jdistill.train.checkpoint import Checkpoints


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a tiny teacher and a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    save_encoder(make_encoder(), folder / "teacher")
    (folder / "text.txt").write_text("\n".join(sentences(150)) + "\n")
    done = run_inside(command(folder, "run"))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture
def finished(place: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(place / "run", place / f"copy-{len(list(place.iterdir()))}"))


# One alone or several at once, each in a part of its own, of which all are told.
DAMAGE: list[list[tuple[str, Callable[[Path], object], str]]] = [
    [("results.json", Path.unlink, "")],
    [("results.json", lambda path: path.write_text("{"), "results.json cannot be read")],
    [("report.html", Path.unlink, "report.html is missing")],
    [("export", shutil.rmtree, "export/ is missing")],
    [("export/model.safetensors", flip, "export/model.safetensors has changed")],
    [(f"export/{files.SEAL}", flip, "export/ is missing or its")],
    [("index", shutil.rmtree, "index/ is missing")],
    [("distil/student", shutil.rmtree, "distil/student is missing")],
    [
        ("results.json", flip, "results.json"),
        ("report.html", flip, "report.html is missing or has changed"),
        ("export/tokenizer.json", flip, "export/tokenizer.json has changed"),
        ("index/texts.jsonl", flip, "index/texts.jsonl has changed"),
        ("distil/student/tokenizer.json", flip, "distil/student: tokenizer.json has changed"),
    ],
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: "+".join(name for name, *_ in damage))
def test_what_a_finished_run_lacks_is_made_again(place: Path, finished: Path, damage) -> None:
    for name, harm, _ in damage:
        harm(finished / name)
    done = run_inside(command(place, finished.name))
    assert done.returncode == 0 and all(said in done.stderr for *_, said in damage), done.stderr[-2000:]
    assert_same(finished, place / "run")
    again = run_inside(command(place, finished.name))
    assert again.returncode == 0 and "is complete" in again.stderr


@pytest.mark.parametrize("part", ["export", "index", "distil/student"])
def test_a_seal_that_was_deleted_is_missed(place: Path, finished: Path, part: str) -> None:
    """A sealed run's folders are sealed, so that one without a seal is none of before there were seals."""
    (finished / part / files.SEAL).unlink()
    done = run_inside(command(place, finished.name))
    assert done.returncode == 0 and "made again" in done.stderr, done.stderr[-2000:]
    assert (finished / part / files.SEAL).is_file()
    assert_same(finished, place / "run")


def test_a_run_from_before_there_were_seals_is_complete(place: Path, finished: Path) -> None:
    for seal in finished.rglob(files.SEAL):
        seal.unlink()
    done = run_inside(command(place, finished.name))
    assert done.returncode == 0 and "is complete" in done.stderr, done.stderr[-2000:]


def test_keys_that_do_not_touch_the_weights_may_change(place: Path, finished: Path) -> None:
    done = run_inside(command(place, finished.name, index="HNSW8", index_texts=40))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "index is 'HNSW8' now, and was 'Flat'" in done.stderr
    assert (finished / "export/model.safetensors").read_bytes() == (place / "run/export/model.safetensors").read_bytes()
    assert len((finished / "index/texts.jsonl").read_text().splitlines()) == 40
    again = run_inside(command(place, finished.name, index="HNSW8", index_texts=40))
    assert "is complete" in again.stderr
    other = run_inside(command(place, finished.name, index="HNSW8", index_texts=40, learning_rate=2e-3))
    assert other.returncode == 2 and "learning_rate: 0.001 there, 0.002 now" in other.stderr


def test_an_index_that_was_asked_for_later_is_in_the_results(place: Path) -> None:
    assert run_inside(command(place, "late", index_texts=0)).returncode == 0
    assert not (place / "late" / "index").exists()
    assert run_inside(command(place, "late")).returncode == 0
    assert results(place / "late") == results(place / "run") and results(place / "late")["index"]["by"] == "student"


@pytest.mark.parametrize("keys, said", [
    ({"index": "IVF4096,Flat"}, "at least 4096"),
    ({"index": "IVF4,PQ5"}, "FAISS makes no index"),
    ({"index": "nonsense"}, "FAISS makes no index"),
    ({"index": "IVF4,Flat", "index_effort": "speed=high"}, "FAISS makes no index"),
])  # fmt: skip
def test_an_index_that_cannot_be_made_is_refused_before_the_first_step(place: Path, keys: dict, said: str) -> None:
    done = run_inside(command(place, "no-index", **keys))
    assert done.returncode == 2 and "--config.index=" in done.stderr and said in done.stderr, done.stderr[-2000:]
    assert not list((place / "no-index").rglob("checkpoints"))
    mended = run_inside([*command(place, "no-index", index="IVF4,Flat"), "--dry_run"])
    assert mended.returncode == 0


def test_a_disk_without_room_is_said_before_the_first_step(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**30, 2**30 - 2**20, 2**20))
    done = run_inside(command(place, "no-room"))
    assert done.returncode == 2 and "no-room/distil needs about" in done.stderr and "1 MiB are free" in done.stderr
    assert not list((place / "no-room").rglob("checkpoints"))


def test_an_evaluation_set_that_is_not_there_is_said_before_the_first_step(place: Path) -> None:
    for key in ("senteval", "beir", "dev_pairs", "dev_retrieval"):
        done = run_inside(command(place, f"no-{key}", **{key: place / "nowhere"}))
        assert done.returncode == 2 and "nowhere" in done.stderr, done.stderr[-1000:]
        assert not list((place / f"no-{key}").rglob("checkpoints"))


def test_a_folder_that_is_no_run_is_not_taken(place: Path) -> None:
    for name in ("export/photo.jpg", "index/notes.txt", "export.old/thesis.tex", "report.html", ".hidden"):
        folder = place / f"theirs-{name.replace('/', '-')}"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
        done = run_inside(command(place, folder.name))
        assert done.returncode == 2 and "is not empty and holds no run" in done.stderr and name in done.stderr
        assert files.files_in(folder) == {name} and (folder / name).read_text() == "mine"


def test_a_config_json_that_is_not_ours_is_not_taken(place: Path) -> None:
    folder = place / "a-model"
    folder.mkdir()
    for theirs in ('{"model_type": "bert"}', "{", "[]"):
        (folder / "config.json").write_text(theirs)
        done = run_inside(command(place, folder.name))
        assert done.returncode == 2 and "config.json is damaged, or no config of a run" in done.stderr
        assert (folder / "config.json").read_text() == theirs


def test_a_users_folder_in_a_runs_place_is_not_replaced(place: Path, finished: Path) -> None:
    (finished / "export" / "thesis.tex").write_text("mine")
    (finished / "report.html").unlink()
    flip(finished / "export" / "model.safetensors")
    done = run_inside(command(place, finished.name))
    assert done.returncode == 2 and "thesis.tex" in done.stderr
    assert (finished / "export" / "thesis.tex").read_text() == "mine"


def test_a_second_run_in_the_same_folder_is_told_who_works_there(place: Path, finished: Path) -> None:
    with only_run(finished):
        done = run_inside(command(place, finished.name))
    assert done.returncode == 2 and "is in use by a run of another process (process" in done.stderr
    assert_same(finished, place / "run")


def test_a_changed_byte_of_a_checkpoint_is_noticed(place: Path, finished: Path) -> None:
    """Wherever it stands: in the arrays, the description or the dev score by which the best is kept."""
    steps = sorted(int(path.name) for path in (finished / "distil" / "checkpoints").glob("[0-9]*"))
    newest = finished / "distil" / "checkpoints" / str(steps[-1])
    first = Checkpoints(finished / "distil" / "checkpoints", 3)
    order = first.best_first()
    first.close()
    whole = Checkpoints(place / "run" / "distil" / "checkpoints", 3)
    expected = {step: leaves(whole.restore(None, [step])[1]) for step in steps}
    whole.close()
    for path in sorted(path for path in newest.rglob("*") if path.is_file()):
        before = path.read_bytes()
        flip(path)
        checkpoints = Checkpoints(finished / "distil" / "checkpoints", 3)
        step, state, _ = checkpoints.restore(None)
        assert checkpoints.best_first() == order or newest.name not in map(str, checkpoints.best_first()), path
        checkpoints.close()
        same = [np.array_equal(a, b) for a, b in zip(leaves(state), expected[step], strict=True)]
        assert all(same), f"{path.relative_to(newest)}: another state was taken for step {step}"
        path.write_bytes(before)


def test_checkpoints_that_a_killed_deletion_left_are_deleted(place: Path, finished: Path) -> None:
    """A kill between a save and the deletions that follow leaves one more than are kept, also where no step is left to take."""
    checkpoints = finished / "distil" / "checkpoints"
    steps = sorted(path.name for path in checkpoints.glob("[0-9]*"))
    shutil.copytree(
        checkpoints / steps[0], checkpoints / "1"
    )  # its arrays, description and score: as good as the first at most
    (finished / "results.json").unlink()
    done = run_inside(command(place, finished.name))
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(path.name for path in checkpoints.glob("[0-9]*")) == steps
    assert_same(finished, place / "run")


def test_where_the_best_checkpoint_is_damaged_the_next_best_is_taken(place: Path, finished: Path) -> None:
    checkpoints = Checkpoints(finished / "distil" / "checkpoints", 3)
    best, second = checkpoints.best_first()[:2]
    checkpoints.close()
    for path in (finished / "distil" / "checkpoints" / str(best)).rglob("*"):
        if path.is_file() and path.stat().st_size > 1500:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    out = finished.with_name(f"{finished.name}-out")
    assert export.main(["--workdir", str(finished), "--out", str(out)]) == 0
    whole = Checkpoints(place / "run" / "distil" / "checkpoints", 3)
    _, state, _ = whole.restore(None, [second])
    whole.close()
    kept = loading.load(str(out)).with_weights(state["params"]["student"])
    texts = sentences(5)
    np.testing.assert_allclose(loading.load(str(out)).encode(texts), kept.encode(texts), atol=1e-6)


def test_a_teacher_that_tells_no_texts_apart_is_refused(place: Path) -> None:
    model = make_encoder()
    for leaf in leaves(model.params):
        leaf[:] = 0.1
    save_encoder(model, place / "constant")
    done = run_inside(command(place, "of-constant", teacher=place / "constant"))
    assert done.returncode == 2 and "gives the same vector for each of" in done.stderr, done.stderr[-2000:]
    assert not (place / "of-constant" / "export").exists()


def test_a_checkpoint_is_one_device_s_copy(tmp_path: Path) -> None:
    """Copies that each device computes for itself may differ in their last bits; what is saved is one of them, as its digest says."""
    code = (
        "import jax, numpy as np; from pathlib import Path; from jdistill.core import sharding; from jdistill.train.checkpoint import Checkpoints\n"
        "mesh = sharding.global_mesh(); one = np.arange(64, dtype=np.float32)\n"
        "copies = [jax.device_put(one + i, device) for i, device in enumerate(mesh.devices.flat)]\n"
        "x = jax.make_array_from_single_device_arrays((64,), sharding.replicated(mesh), copies)\n"
        f"kept = Checkpoints(Path({str(tmp_path / 'checkpoints')!r}), 1)\n"
        "kept.save(1, {'x': x}, {}, None); kept.wait()\n"
        "_, state, _ = kept.restore(None); kept.close()\n"
        "assert len(copies) == 4 and np.array_equal(state['x'], one), state\n"
    )
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = commands.run([sys.executable, "-c", code], **flags)
    assert done.returncode == 0, done.stderr[-2000:]
