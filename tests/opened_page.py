"""A search page in a browser: visited, asked, read, copied and changed."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from browser_setting import wait_for_status

from jdistill.export.command import main


@dataclass(frozen=True)
class OpenedPage:
    """A page in a browser: the run, the page's folder, its address and the browser."""

    run: Path
    folder: Path
    address: str
    browser: Any

    def visit(self, address: str = "") -> str:
        """Opens the page anew, and returns its status line when it is ready."""
        self.browser.get("about:blank")
        self.browser.get(address or self.address)
        return wait_for_status(self.browser, "Ready")

    def element(self, name: str) -> Any:
        return self.browser.find_element("id", name)

    def ask(self, question: str) -> str:
        """Types a question and presses Enter; returns the status line of the answer."""
        from selenium.webdriver.common.keys import Keys

        field = self.element("question")
        field.clear()
        self.browser.execute_script("document.getElementById('status').textContent = ''")
        if not question.isascii():  # WebDriver types characters of the first plane alone
            self.browser.execute_script("arguments[0].value = arguments[1]", field, question)
            field.send_keys(Keys.ENTER)
        else:
            field.send_keys(question, Keys.ENTER)
        return wait_for_status(self.browser, *"0123456789", "The question is empty", "No texts")

    def answers(self) -> list[tuple[int, float, str]]:
        """(row, score, text) of each result, as the page shows them."""
        items = self.browser.execute_script(
            "return [...document.querySelectorAll('#results li')].map((item) => "
            "[Number(item.dataset.row), item.children[1].textContent, item.children[0].textContent])"
        )
        return [(row, float(score.removeprefix("score ")), text) for row, score, text in items]


def export_page(run: Path, folder: Path, runtime: str) -> int:
    return main(["--workdir", str(run), "--out", str(folder), "--format=site", "--web_runtime", runtime])


def copied(opened: OpenedPage, name: str) -> OpenedPage:
    """A copy of the page beside it, to be changed."""
    folder = opened.folder.with_name(name)
    shutil.copytree(opened.folder, folder)
    return OpenedPage(opened.run, folder, opened.address.replace("/page/", f"/{name}/"), opened.browser)


def change(page: OpenedPage, **settings: object) -> None:
    path = page.folder / "site.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
