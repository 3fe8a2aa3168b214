"""The figures of the pages' tables: each stands in a file of bench/results that its page names, as it was written or as a mean over seeds.

A coarse net: it takes a figure of two decimals and more for held where any number of those files rounds to it, so that it finds what was
copied from a terminal or not changed with its file, and not what stands in the wrong row.
"""

from __future__ import annotations

import json
import re
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT

RESULTS = ROOT / "bench" / "results"
# Made from the files (index.md), of the papers' own figures for the most part (papers.md), or of hours and of nothing to lean on (the others).
NOT_THESE = ("index.md", "papers.md", "plan.md", "unconfirmed.md")
OTHERS = ("README.md", "docs/performance.md", "docs/budget.md", "docs/export.md", "docs/search.md")
PAGES = [page for page in sorted((ROOT / "docs" / "results").glob("*.md")) if page.name not in NOT_THESE]
PAGES += [ROOT / name for name in OTHERS]
FIGURE = re.compile(r"(?<![\w.,])\d[\d,]*\.(?P<decimals>\d\d+)(?P<million> M)?(?!\w|\.\d)")
OF_ITS_MAKING = ("command", "commit", "machine", "load", "rows")  # what two runs of one setting may differ by
PUBLISHED = "the paper"  # a row that begins so holds what was published


def numbers(value: Any) -> Iterator[float]:
    """All numbers in what a file holds."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def over_seeds(results: dict[str, Any]) -> Iterator[float]:
    """Mean and sample standard deviation of each measure over rows of one setting that differ by their seed."""
    naming = [name for name in results.get("by") or () if name != "seed"]
    measured: dict[str, list[float]] = defaultdict(list)
    for run in results.get("runs", []):
        setting = {name: value for name, value in run.items() if name not in OF_ITS_MAKING}
        for row in run["rows"] if "seed" in results["by"] else ():
            for name, value in row.items():
                if isinstance(value, int | float) and name not in results["by"]:
                    measured[json.dumps([setting, [row.get(key) for key in naming], name])].append(value)
    for values in measured.values():
        if len(values) > 1:
            yield from (statistics.mean(values), statistics.stdev(values))


@cache
def of_file(name: str) -> frozenset[float]:
    """A file's numbers and, where it has rows of several seeds, what they come to."""
    file = json.loads((RESULTS / f"{name}.json").read_text())
    return frozenset((*numbers(file), *over_seeds(file)))


def held_by(names: Iterable[str]) -> list[float]:
    """What the named files hold, sorted."""
    return sorted(frozenset[float]().union(*map(of_file, names)))


def named_in(page: Path) -> set[str]:
    """The results' files that a page names; of the README, which names none, those of its table."""
    if page.name == "README.md":
        return {"simtde_claim", "ibkd_table", "run_figures", "search"}
    return {path.stem for path in RESULTS.glob("*.json")} & set(re.findall(r"([\w-]+)\.json", page.read_text()))


def is_held(figure: float, decimals: int, held: list[float]) -> bool:
    """Whether a number, its hundredth or a hundred times it rounds to the figure."""
    half = 0.5001 * 10.0**-decimals
    for scale in (1.0, 100.0, 0.01):
        at = bisect_left(held, (figure - half) / scale)
        if at < len(held) and held[at] <= (figure + half) / scale:
            return True
    return False


def missing(page: Path, held: list[float]) -> list[str]:
    """The figures of two decimals and more in a page's tables, their first column apart, that no number held rounds to, with their line."""
    found, in_code = [], False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        in_code ^= line.startswith("```")
        label, _, cells = line.strip("| ").partition("|")
        if in_code or not line.startswith("|") or label.startswith(PUBLISHED):
            continue
        for match in FIGURE.finditer(cells):
            figure, decimals = float(match[0].removesuffix(" M").replace(",", "")), len(match["decimals"])
            if match["million"]:
                figure, decimals = figure * 1e6, decimals - 6
            if not is_held(figure, decimals, held):
                found.append(f"{page.relative_to(ROOT)}:{number}: {match[0]}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_figures_of_a_page_stand_in_the_files_that_it_names(page: Path) -> None:
    assert missing(page, held_by(named_in(page))) == []


def test_a_figure_that_no_file_holds_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "| row | STS | parameters |\n| --- | --- | --- |\n| ours, 0.05 | 79.08, 78.30 | 9.35 M |\n| the paper's | 78.09 | |\n"
    )
    assert missing(page, [0.7908, 9_345_792.0]) == ["page.md:3: 78.30"]
    assert missing(page, [78.304, 79.08, 9_345_792.0]) == []


def test_seeds_of_one_setting_are_averaged_and_no_others() -> None:
    def run(dropout: float, *rows: dict[str, Any]) -> dict[str, Any]:
        return {"command": f"by {rows[0]['seed']}", "dropout": dropout, "rows": [*rows]}

    rows = [{"row": "a", "seed": seed, "STS": 70.0 + seed} for seed in range(3)]
    results = {"by": ["row", "seed"], "runs": [run(0.0, *rows[:2]), run(0.0, rows[2]), run(0.1, rows[0])]}
    assert [*over_seeds(results)] == [71.0, 1.0]
