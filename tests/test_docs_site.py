"""README, docs/ and the build notes as they are shown: short lines, generated pages up to date, a site that asks nobody."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from commands import ROOT
from docs_setting import ALL, DOCS, PAGES, config, config_names, name_of

from jdistill.core.files import flat


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
    source = module.config_tables._source
    monkeypatch.setattr(
        module.config_tables, "_source", lambda name: source(name).replace("# 0: by epochs", "# 0: as epochs say")
    )
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
    assert not (blank := [line for line in page.splitlines() if re.search(r"\|\s*\|$", line)]), blank


def test_a_new_config_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever config it changes, whose words stand beside the keys that it only sets anew."""
    (tmp_path / "configs").mkdir()
    for path in (ROOT / "configs").glob("*.py"):
        (tmp_path / "configs" / path.name).write_text(path.read_text())
    own = "c = ibkd.get_config()\n    c.document_length = 77\n    return c\n"
    own = f"from configs import ibkd\n\n\ndef get_config(variant=''):\n    {own}"
    (tmp_path / "configs" / "own.py").write_text(f'"""Own."""\n\n{own}')
    tables = generator().config_tables
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr("configs.__path__", [str(tmp_path / "configs")])
    section = tables.config_page().partition("## configs/own.py")[2]
    assert "every other key is as in `configs/ibkd.py`" in section
    assert re.search(r"`document_length` \| `77` \| [^|]+ \| tokens of a positive or negative", section)


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
