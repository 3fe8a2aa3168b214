"""docs/extending.md, taken at its word: every file and line of it, in a copy of the package, is used as the page says."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from commands import HANG, ROOT, environment
from conftest import make_encoder, save_encoder, sentences, write_senseless_pairs

from jdistill.data.text.schemes import SCHEMES

PAGE = ROOT / "docs" / "extending.md"
FILE = re.compile(r"<!-- not run: into (\S+) -->\n```python\n(.*?)```", re.S)
LINE = re.compile(r"<!-- not run: line after (\w+) of (\S+) -->\n```python\n([^\n]+)\n```")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with what the page adds, and the data that it is used on."""
    folder = tmp_path_factory.mktemp("extending")
    for package in ("jdistill", "configs"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    page = PAGE.read_text()
    for path, content in FILE.findall(page):
        assert not (folder / path).exists()
        (folder / path).write_text(content)
    for registry, path, line in LINE.findall(page):
        add_line(folder / path, registry, line)
    save_encoder(make_encoder(num_layers=2), folder / "teacher")
    texts = sentences(80)
    with sqlite3.connect(folder / "notes.db") as database:
        database.execute("create table notes (id integer, note text)")
        database.executemany("insert into notes values (?, ?)", list(enumerate(texts)))
    write_senseless_pairs(folder / "scored.csv", 40)
    (folder / "notes.txt").write_text("\n".join(texts) + "\n")
    (folder / "twins.tsv").write_text("".join(f"{text}\t{text}\n" for text in texts[:20]))
    return folder


def add_line(path: Path, registry: str, line: str) -> None:
    """The line, first in its registry, and the import of the module that it names."""
    content = path.read_text()
    opening = re.search(rf"^{registry}\b.*[{{(]\n", content, re.M)
    assert opening, f"{path}: no {registry}"
    module = re.findall(r"\b(\w+)\.\w+,", line)[0]
    package = ".".join(path.parent.parts[-3:])
    package = package[package.index("jdistill") :]
    content = content[: opening.end()] + line + "\n" + content[opening.end() :]
    first = re.search(r"^from jdistill", content, re.M)
    assert first
    path.write_text(content[: first.start()] + f"from {package} import {module}\n" + content[first.start() :])


def run(folder: Path, code: str) -> str:
    """Python in a process whose jdistill is the copy."""
    env = environment() | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=HANG, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_the_page_has_all_of_them() -> None:
    page = PAGE.read_text()
    added = {path.rpartition("/")[0] for path, _ in FILE.findall(page)}
    assert added == {
        "jdistill/data/text",
        "jdistill/evals",
        "jdistill/export",
        "jdistill/feeds",
        "jdistill/methods",
        "configs",
        "",
    }
    assert {registry for registry, _, _ in LINE.findall(page)} == {"SCHEMES", "SETS", "TARGETS", "METHODS"}


@pytest.fixture(scope="module")
def said(place: Path) -> dict[str, str]:
    """What one process says of each test: an import of JAX and torch takes longer than what it does then."""
    code = """
import subprocess, sys
from pathlib import Path
from configs import regression
from jdistill import evaluate, main
from jdistill.core.errors import UserError
from jdistill.config.keys import check_config
from jdistill.data.text.sources import read_texts
from jdistill.export import command
from jdistill.run.stages import stages_of
print(len(read_texts("sqlite:notes.db", "note").texts))
for source, column in (("sqlite:notes.db", "text"), ("sqlite:teacher/config.json", "note"), ("sqlight:notes.db", "note")):
    try: read_texts(source, column)
    except UserError as error: print(error)
print("of the run")
cfg = regression.get_config()
cfg.update_from_flattened_dict({
    "teacher": "teacher", "text": "sqlite:notes.db", "text_column": "note", "scored": "scored.csv", "cache_dir": "cache", "max_steps": 12,
    "batch_size": 8, "checkpoint_every": 6, "held_out": 8, "length_buckets": 1, "latency_texts": 0, "index_texts": 0, "student.layers": 1,
})
main.run(cfg, Path("run"), False)
assert command.main(["--workdir", "run", "--out", "out", "--target", "onnx-half"]) == 0
assert evaluate.main(["--model", "out", "--twins", "twins.tsv"]) == 0
cfg.method = "regresion"
try: stages_of(cfg)
except Exception as error: print(error)
import own_cosine
own = own_cosine.get_config()
own.update_from_flattened_dict({
    "teacher": "teacher", "text": "notes.txt", "cache_dir": "cache", "max_steps": 6, "batch_size": 8, "held_out": 8, "latency_texts": 0,
    "index_texts": 0, "student.layers": 1, "student.embedding_size": 12,
})
main.run(own, Path("own"), False)
own.method = "own_sine"
try: check_config(own)
except UserError as error: print(error)
assert command.main(["--workdir", "run", "--out", "out2", "--target", "onnx-third"]) == 2
code = "from jdistill.export import command; command.main(['--workdir', 'own', '--out', 'out3'])"
assert subprocess.run([sys.executable, "-c", code]).returncode == 0  # which has not seen own_cosine.py
"""
    of_source, of_run = run(place, code).split("of the run\n")
    return {"source": of_source, "run": of_run}


def test_a_text_source(said: dict[str, str]) -> None:
    found = said["source"]
    assert found.startswith(f"{len(set(sentences(80)))}\n") and "there are id, note" in found
    assert "sqlite:teacher/config.json cannot be read" in found
    assert f"no text source sqlight:; there are sqlite, {', '.join(SCHEMES)} and pkg:" in found


def test_a_feed_and_a_method_and_then_an_evaluation_set_and_a_form_of_the_export(
    place: Path, said: dict[str, str]
) -> None:
    """One run on all of them: text of the source, the feed's pairs, the method; its student scored and exported."""
    found = said["run"]
    assert "training regress: 12 steps of 8 pairs" in found or (place / "run/regress/metrics.jsonl").exists()
    half, plain = place / "out/onnx/model_half.onnx", place / "out/model.safetensors"
    assert half.stat().st_size < 0.6 * plain.stat().st_size
    assert re.search(r"Twins\n  found +1\.0000", found), found[-2000:]
    assert "'regresion' is not one of regression, " in found
    assert re.search(r"regression, .*, own_cosine$", found, re.M), found[-2000:]
    logged = map(json.loads, (place / "own/distil/metrics.jsonl").read_text().splitlines())
    losses = [(of["loss"], of["cosine"]) for of in logged if "loss" in of]
    assert losses and all(loss == pytest.approx(1 - cosine, abs=1e-6) for loss, cosine in losses)
    assert (place / "out3/model.safetensors").is_file()
    assert "onnx-third: there is no such form of an export; there are onnx-half, " in found


def test_an_architecture_is_its_file_and_its_line(place: Path, tmp_path: Path) -> None:
    """MPNet, which was added so, is taken away again: nothing else knows of it."""
    shutil.copytree(ROOT / "jdistill", tmp_path / "jdistill", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "jdistill/models/mpnet.py").unlink()
    registry = tmp_path / "jdistill/models/registry.py"
    left = [line for line in registry.read_text().splitlines() if "mpnet" not in line.lower()]
    assert len(left) == len(registry.read_text().splitlines()) - 2  # its import and its line
    registry.write_text("\n".join(left) + "\n")
    code = """
import jdistill, sys
from jdistill.core.errors import UserError
from jdistill.models.registry import transformer_named
print(jdistill.load(sys.argv[1]).encode(["a river"]).shape) if len(sys.argv) > 1 else None
try: transformer_named("mpnet", "config.json")
except UserError as error: print(error)
"""
    code = code.replace("sys.argv[1]", repr(str(place / "teacher"))).replace("if len(sys.argv) > 1 else None", "")
    said = run(tmp_path, code)
    assert "(1, 32)" in said and "model_type is 'mpnet'; jdistill reads albert, bert, distilbert, electra, " in said
