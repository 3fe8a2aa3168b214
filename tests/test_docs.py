"""README, docs/ and the build notes: their commands run, their names exist, their links lead somewhere, what is generated is up to date.

A block of shell or Python runs in a small place that holds what the pages name: TEACHER, sentences.txt.gz, SENTEVAL and so on, with keys
that make a run short. What needs more says so in a comment before it: <!-- not run: why -->.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from commands import ROOT, run_inside
from conftest import make_encoder, save_encoder, sentences, write_senseless_pairs

from jdistill import compare, embed, evaluate, mine, search
from jdistill.core.files import flat
from jdistill.evals.sets import SETS
from jdistill.export import command as export

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ALL = [*PAGES, ROOT / "BUILD_NOTES.md", ROOT / "SECURITY.md"]
LANGUAGES = ("bash", "python", "text")
NOT_RUN = re.compile(r"<!-- not run: .{5,} -->")
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
SMALLER: dict[str, dict[str, object]] = {
    "simtde": {"student.embedding_size": 8},
    "ibkd": {"output_dim": 8, "finetune.max_steps": 2, "finetune.batch_size": 8},
    "bilstm_sra": {"student.embedding_size": 8, "student.lstm_size": 8},
    "bilstm_sra_task": {"held_out": 0, "index_texts": 0},
}
# Options of other programs and of scripts, and words of a sentence.
OTHER_FLAGS = {"fast", "pack", "no-deps", "nodes", "xla_backend_optimization_level", "option", "check", "array"}


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    runs: bool


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    lines, start = page.read_text().splitlines(), None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        marked = start > 0 and NOT_RUN.fullmatch(lines[start - 1]) is not None
        yield Block(page, start + 1, lines[start][3:], "\n".join(lines[start + 1 : number]), not marked)
        start = None
    assert start is None, f"{page}: a block that does not end"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the pages name, and the run of the README in it."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "configs").symlink_to(ROOT / "configs")
    save_encoder(make_encoder(), folder / "TEACHER")
    texts = sentences(240)
    with gzip.open(folder / "sentences.txt.gz", "wt") as file:
        file.write("\n".join(texts[:120]))
    rows = [
        {"anchor": a, "positive": p, "negative": n}
        for a, p, n in zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    ]
    (folder / "triplets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
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
                config = Path(words[words.index("--config") + 1]).stem.partition(".")[0]
                keys = SHORT | SMALLER.get(config, {}) | {"cache_dir": folder / "cache"}
                keys |= WHOLE if "runs/mine" in words else {}
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


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_lines_end_by_120_characters(page: Path) -> None:
    """But for tables, whose rows cannot be broken."""
    long = [line for line in page.read_text().splitlines() if len(line) > 120 and not line.startswith("|")]
    assert not long, long


def test_readme_and_notes_are_short() -> None:
    readme, notes = ((ROOT / name).read_text().splitlines() for name in ("README.md", "BUILD_NOTES.md"))
    assert len(readme) <= 120 and max(map(len, readme)) <= 120
    assert len(notes) <= 200 and max(map(len, notes)) <= 120


def test_generated_pages_are_up_to_date() -> None:
    old = generator().out_of_date()
    assert not old, f"{', '.join(old)}: python docs/generate.py"


def test_a_changed_comment_makes_a_page_out_of_date(monkeypatch: pytest.MonkeyPatch) -> None:
    module = generator()
    source = module._source
    monkeypatch.setattr(module, "_source", lambda name: source(name).replace("# 0: by epochs", "# 0: as epochs say"))
    assert module.out_of_date() == ["docs/configs.md"]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_key_is_explained_in_the_page_of_configs() -> None:
    page = (DOCS / "configs.md").read_text()
    missing = {key for name in config_names() for key in flat(config(name).to_dict()) if f"`{key}`" not in page}
    assert not missing


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        assert not target.startswith("http") and there.is_file(), f"{name_of(page)}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, target


def prose(page: Path) -> str:
    """A page without line breaks within its commands and names in code."""
    return page.read_text().replace("\\\n", " ")


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_modules_and_files_exist(page: Path) -> None:
    text = prose(page)
    for name in re.findall(r"\bjdistill(?:\.[A-Za-z_]\w*)+", text):
        adds = f"into {name.replace('.', '/')}.py -->" in text  # to a copy of the package (test_extending.py)
        if name != "jdistill.json" and not adds:  # the name of a seal
            assert exists(name), f"{name_of(page)}: {name}"
    for path in re.findall(r"\b(?:jdistill|configs|bench|tests|launch|docs)/[\w/.-]*\w", text):
        if "NAME" not in path and f"into {path} -->" not in text:
            assert (ROOT / path).exists(), f"{name_of(page)}: {path}"
    for path, name in re.findall(r"`(jdistill/[\w/]+\.py): (\w+)", text):
        assert re.search(rf"^ *(def|class) {name}\b|^ *{name}\b.*=", (ROOT / path).read_text(), re.MULTILINE), (
            path,
            name,
        )


def exists(name: str) -> bool:
    """Whether a dotted name is a module of ours, or what one holds."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:count])
        if path.is_dir() or path.with_suffix(".py").is_file():
            holder = None if count == len(parts) else importlib.import_module(".".join(parts[:count]))
            for attribute in parts[count:]:
                if not hasattr(holder, attribute):
                    return False
                holder = getattr(holder, attribute)
            return True
    return False


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_flags_and_keys_exist(page: Path) -> None:
    text, keys, flags = prose(page), known_keys(), known_flags()
    for key in re.findall(r"--config\.([a-z_]\w*(?:\.\w+)*)", text):
        assert key in keys or key == "key", f"{name_of(page)}: --config.{key}"
    for flag in re.findall(r"(?<![\w-])--([a-z][\w-]*)", text):
        known = {flag, flag.removeprefix("no-")} & (flags | OTHER_FLAGS) or flag.startswith("xla_")
        assert known, f"{name_of(page)}: --{flag}"
    for name, variant in re.findall(r"\bconfigs/(\w+)\.py:([a-z]\w*)", text):
        assert variant in importlib.import_module(f"configs.{name}").VARIANTS, f"{name_of(page)}: {name}:{variant}"


def config_names() -> list[str]:
    return sorted(path.stem for path in (ROOT / "configs").glob("*.py"))


def config(name: str):
    return importlib.import_module(f"configs.{name}").get_config()


def known_keys() -> set[str]:
    return {key for name in config_names() for key in flat(config(name).to_dict())}


def known_flags() -> set[str]:
    """Options that a command or bench of ours defines."""
    found = {"symmetric", "asymmetric", *SETS}  # which are not written out
    for folder in ("jdistill", "bench", "docs", "launch"):
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text()
            found |= {a or b for a, b in re.findall(r"DEFINE_\w+\(\s*\"([\w-]+)\"|\"--([\w-]+)\"", source)}
            if 'f"--{name}"' in source:
                found |= {
                    name for row in re.findall(r"for name in \(([^)]*)\)", source) for name in re.findall(r"\w+", row)
                }
    return found


def test_the_site_is_built_without_a_warning_and_asks_nobody(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    arguments = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, timeout=1800, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES) - 2
    fetched = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//[^>]+>")
    for page in pages:
        assert not (from_elsewhere := fetched.findall(page.read_text())), (page, from_elsewhere)
