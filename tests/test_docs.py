"""README, docs/ and the build notes: their commands run.

A block of shell or Python runs in a small place that holds what the pages name: TEACHER, sentences.txt.gz, SENTEVAL and so on, with keys
that make a run short. What needs more says so in a comment before it: <!-- not run: why -->.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shlex
import sys
from pathlib import Path

import pytest
from commands import ROOT, run_inside
from conftest import make_encoder, save_encoder, sentences, write_senseless_pairs
from docs_setting import ALL, PAGES, Block, blocks, name_of

from jdistill import compare, embed, evaluate, mine, search
from jdistill.export import command as export

LANGUAGES = ("bash", "python", "text")
COMMANDS = {
    "jdistill.evaluate": evaluate.main,
    "jdistill.search": search.main,
    "jdistill.embed": embed.main,
    "jdistill.mine": mine.main,
    "jdistill.compare": compare.main,
    "jdistill.export": export.main,
}
# What makes a run short. Of a config: what its tiny teacher, 32 wide, cannot have as large as the page says.
SHORT = {
    "max_steps": 2, "batch_size": 16, "held_out": 40, "checkpoint_every": 2, "length_buckets": 1, "latency_texts": 0, "index_texts": 0,
    "max_length": 32, "onnx": False, "evaluate_teacher": False,
}  # fmt: skip
WHOLE = {"onnx": True, "index_texts": 100}  # of the README's run, whose parts other pages use
WITH_INDEX = {"runs/mine": WHOLE} | dict.fromkeys(
    ["runs/passages", "runs/read"], {"index_texts": 100}
)  # of runs that a page searches
SMALLER: dict[str, dict[str, object]] = {
    "simtde": {"student.embedding_size": 8},
    "search": {"student.embedding_size": 8},
    "search.py:read": {},  # a student of that size
    "ibkd": {"output_dim": 8, "finetune.max_steps": 2, "finetune.batch_size": 8},
    "bilstm_sra": {"student.embedding_size": 8, "student.lstm_size": 8},
    "bilstm_sra_task": {"held_out": 0, "index_texts": 0},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the pages name, and the run of the README in it."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "configs").symlink_to(ROOT / "configs")
    save_encoder(make_encoder(), folder / "TEACHER")
    texts = sentences(240)
    with gzip.open(folder / "sentences.txt.gz", "wt") as file:
        file.write("\n".join(texts[:120]))
    (folder / "passages.txt").write_text("\n".join(texts[1::3]))
    rows = [
        {"anchor": a, "positive": p, "negative": n}
        for a, p, n in zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    ]
    (folder / "triplets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored = [row | {"scores": [float(i % 7), -1.0]} for i, row in enumerate(rows)]
    (folder / "triplets-scored.jsonl").write_text("".join(json.dumps(row) + "\n" for row in scored))
    (folder / "pairs.jsonl").write_text(
        "".join(json.dumps({"query": row["anchor"], "positive": row["positive"]}) + "\n" for row in rows)
    )
    write_senseless_pairs(folder / "pairs.csv", 20)
    sts = folder / "SENTEVAL" / "STS" / "STSBenchmark"
    sts.mkdir(parents=True)
    (sts / "sts-test.csv").write_text(
        "".join(f"main\tx\t2012\t{i}\t{i % 6}\t{texts[i]}\t{texts[i + 1 - i % 2]}\n" for i in range(40))
    )
    small = folder / "COLLECTIONS" / "small"
    (small / "qrels").mkdir(parents=True)
    for file, start in (("corpus", 0), ("queries", 30)):
        (small / f"{file}.jsonl").write_text(
            "".join(json.dumps({"_id": f"{i}", "title": "", "text": texts[start + i]}) + "\n" for i in range(30))
        )
    judged = "".join(f"{i}\t{i}\t1\n" for i in range(10))
    (small / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    (folder / "FILMS").mkdir()
    for split, first, last in (("train", 0, 60), ("dev", 60, 80)):
        films = "".join(f"{text}\t{'positive' if i % 2 else 'negative'}\n" for i, text in enumerate(texts[first:last]))
        (folder / "FILMS" / f"{split}.tsv").write_text("sentence\tlabel\n" + films)
    (block,) = [block for block in blocks(ROOT / "README.md") if block.runs and "jdistill.main" in block.text]
    run_block(block, folder)
    return folder


def run_block(block: Block, folder: Path) -> None:
    """Runs a block with `folder` as the current one, in this process."""
    where = f"{name_of(block.page)}, line {block.line}"
    with contextlib.chdir(folder):
        if block.language == "python":
            exec(compile(block.text, where, "exec"), {"__name__": "__main__"})
            return
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            assert words[:2] == ["python", "-m"], f"{where}: {line!r} is no command that the test runs; mark it"
            if words[2] == "jdistill.main":
                config = Path(words[words.index("--config") + 1])
                smaller = SMALLER.get(config.name, SMALLER.get(config.stem.partition(".")[0], {}))
                keys = SHORT | smaller | {"cache_dir": folder / "cache"}
                if "output_dim" not in line:  # made smaller where the page asks for it
                    keys.pop("output_dim", None)
                keys |= next((more for workdir, more in WITH_INDEX.items() if workdir in words), {})
                done = run_inside([sys.executable, *words[1:], *(f"--config.{k}={v}" for k, v in keys.items())], folder)
                assert done.returncode == 0, f"{where}: {done.stderr[-3000:]}"
            else:
                assert COMMANDS[words[2]](words[3:]) == 0, f"{where}: {line!r} failed"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(b.runs and b.language != "text" for b in blocks(page))], ids=name_of
)
def test_blocks_run(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for block in blocks(page):
        if block.runs and block.language != "text":
            run_block(block, place)


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_blocks_name_their_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= set(LANGUAGES)
