"""No text of other people's becomes HTML on any page: each is put there with a tag, quotes and an ampersand, and read back as text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from jdistill.report import page as pages
from jdistill.report.comparison import write_comparison_page
from jdistill.report.page import TEMPLATES
from jdistill.report.run import write_report
from jdistill.report.sweep import write_sweep_page

TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "div", "table", "caption", "thead", "tbody", "tr",
    "th", "td", "figure", "img", "figcaption", "details", "summary", "pre",
}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "name", "content", "class", "tabindex", "scope", "src", "alt"}


class Elements(HTMLParser):
    """A page's tags, its attributes, and its texts as a reader sees them."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def hostile(field: str) -> str:
    """A text that would open a script, close an attribute, or do both, and tells which field it stands in."""
    return f"""'"><script>alert("{field}")</script>&lt;b&gt;<img src=x onerror='x'>"""


def fields_of(*contents: Any) -> list[str]:
    """The fields whose hostile texts stand in objects, as keys or values."""
    return sorted(set(re.findall(r'alert\(\\"(.+?)\\"', json.dumps(contents))))


def hostile_run(folder: Path) -> tuple[Path, list[str]]:
    """The page of a run and the fields that it must show."""
    # A folder's name cannot hold a slash.
    workdir, stage = folder / "<script>\"'&run", "<script>\"'&stage"
    (workdir / stage).mkdir(parents=True)
    config = {hostile("key"): [hostile("value")], hostile("section"): {"x": hostile("inner")}}
    (workdir / "config.json").write_text(json.dumps(config))
    metrics = {hostile("term"): 1.0, "dev/" + hostile("dev"): 2.0, hostile("empty term"): None, "loss": 3.0}
    (workdir / stage / "metrics.jsonl").write_text(json.dumps({"step": 1} | metrics) + "\nspoilt\n")
    results: dict[str, Any] = {
        "student": {"name": hostile("student"), "num_params": 5},
        "teacher": {"name": hostile("teacher"), "num_params": 9},
        "sts": {hostile("sts"): 1.0},
        "retrieval": {hostile("collection"): {hostile("measure"): 0.5}},
        "speed": [{"model": hostile("student"), "framework": hostile("framework"), "ratio": 2.0}],
        "agreement": {hostile("agreement"): 0.1, "pairs": [[0.1, 0.2]]},
        "training": {hostile("figure"): 3, "devices": hostile("devices")},
        "task": {hostile("task"): {hostile("metric"): 1.0, "split": hostile("split")}},
        "pairs": {hostile("pairs"): {hostile("scorer"): {"ap": 1.0}}},
        "questions": {hostile("questions"): {hostile("ranking"): {"ndcg@10": 1.0}}},
        "command": hostile("command"),
    }
    return write_report(workdir, results), fields_of(config, metrics, results)


def hostile_sweep(folder: Path) -> tuple[Path, list[str]]:
    """The page of a sweep and the fields that it must show."""
    workdir = folder / "<script>\"'&sweep"
    workdir.mkdir()
    params = [{hostile("key"): hostile(f"value {i}"), "seed": 0} for i in range(3)]
    rows: list[dict[str, Any]] = [
        {"params": params[0], "score": 2.0, "state": "complete", "curve": {"1": 1.0, "2": 2.0}},
        {"params": params[1], "score": 1.0, "state": "complete", "curve": {"1": 1.0}},
        {"params": params[2], "score": None, "state": hostile("state"), "curve": {}, "error": hostile("error")},
    ]
    return write_sweep_page(workdir, rows), fields_of(rows)


def hostile_comparison(folder: Path) -> tuple[Path, list[str]]:
    """The page of a comparison and the fields that it must show."""
    geometry = {"alignment": 0.1, "uniformity": -2.0, "off_diagonal": 0.1}
    figures = {"num_params": 5, "dim": hostile("width"), "geometry": geometry, "covariance": [[1.0]]}
    found = {hostile(name): figures | {"sts": {hostile("task"): 1.0}} for name in ("one", "two")}
    return write_comparison_page(found, folder), fields_of(found)


PAGES: list[Callable[[Path], tuple[Path, list[str]]]] = [hostile_run, hostile_sweep, hostile_comparison]


@pytest.mark.parametrize("write", PAGES)
def test_hostile_texts_are_shown_and_never_obeyed(
    write: Callable[[Path], tuple[Path, list[str]]], tmp_path: Path
) -> None:
    path, fields = write(tmp_path)
    html = path.read_bytes().decode("utf-8")
    page = Elements(html)
    assert "<script" not in html and page.tags <= TAGS, page.tags - TAGS
    assert {name for name, _ in page.attributes} <= ATTRIBUTES
    shown = "\n".join(page.texts + [value for _, value in page.attributes])
    shown = shown.replace('\\"', '"')  # as JSON writes a config's quotes
    # Curves' labels end after 60 characters.
    missing = [field for field in fields if hostile(field) not in shown and hostile(field)[:50] not in shown]
    assert len(fields) > 3 and not missing, (fields, missing)
    assert f"{path.parent.name}" in shown or write is hostile_comparison


@pytest.mark.parametrize("write", PAGES)
def test_a_page_fetches_nothing(write: Callable[[Path], tuple[Path, list[str]]], tmp_path: Path) -> None:
    page = Elements(write(tmp_path)[0].read_text("utf-8", errors="replace"))
    sources = [value for name, value in page.attributes if name in ("src", "href")]
    assert sources and all(source.startswith("data:image/png;base64,") for source in sources)
    assert not any(fetching in text for text in page.texts for fetching in ("url(", "@import"))


def test_templates_escape_all_that_they_show() -> None:
    """No template switches escaping off, and each value in an attribute stands in double quotes, which escaping needs."""
    names = TEMPLATES.list_templates()
    assert set(names) == {"page.html", "parts.html", "run.html", "sweep.html", "comparison.html"}
    assert TEMPLATES.autoescape is True
    for name in names:
        text = (Path(pages.__file__).parent / "templates" / name).read_text()
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", text), name
        assert not re.search(r"=\s*'?\{\{", text), name


def test_templates_are_part_of_the_package() -> None:
    """Each template matches what pyproject.toml puts into a wheel."""
    root = Path(__file__).parents[2]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "jdistill.report"
    ]
    packed = {path for pattern in patterns for path in (root / "jdistill" / "report").glob(pattern)}
    assert packed == set((root / "jdistill" / "report").rglob("*.html")) and packed
