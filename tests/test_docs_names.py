"""README, docs/ and the build notes: the modules, files, flags, keys and links that they name exist."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest
from commands import ROOT
from docs_setting import ALL, blocks, config, config_names, name_of

from jdistill.core.files import flat
from jdistill.evals.sets import SETS
from jdistill.sweep.space import parse_space

# Options of other programs and of scripts, and words of a sentence.
PROGRAMS = (
    "python",
    r"\.venv/bin/python",
    "bash",
    "pip",
    "sbatch",
    "kubectl",
    "hf",
    "npm",
    "export",
)  # that a line of a block calls
OTHER_FLAGS = {
    "fast",
    "pack",
    "no-deps",
    "nodes",
    "xla_backend_optimization_level",
    "option",
    "check",
    "array",
    "gpus-per-node",
    "gpus-per-task",
}
SWEPT = re.compile(r"configs/(\w+)\.py(?::([a-z]\w*))?|--grid ([a-z][\w.]*=[^\s`]+)")


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        assert not target.startswith("http") and there.is_file(), f"{name_of(page)}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, target


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_commands_have_lines_of_their_own(page: Path) -> None:
    """Of blocks that are not run too: who wraps a page's lines may have wrapped theirs."""
    for block in blocks(page):
        for line in prose_of(block.text).splitlines() if block.language == "bash" else ():
            assert not line.strip() or re.match(rf"(#|[A-Z]+=|({'|'.join(PROGRAMS)}) )", line), (
                f"{name_of(page)}: {line}"
            )
            assert "\\" not in line and not re.search(r"\S (python|bash) ", line), f"{name_of(page)}: {line}"


def prose(page: Path) -> str:
    """A page without line breaks within its commands and names in code."""
    return prose_of(page.read_text())


def prose_of(text: str) -> str:
    return text.replace("\\\n", " ")


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


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_keys_that_are_swept_are_of_the_config_that_stands_before_them(page: Path) -> None:
    """And one key each: temperature is none where a second stage has one of its own."""
    name, variant = "", ""
    for another, its_variant, spec in SWEPT.findall(page.read_text()):
        if another:
            name, variant = another, its_variant
        else:
            parse_space(
                [spec], importlib.import_module(f"configs.{name}").get_config(*filter(None, [variant])), "random"
            )


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
