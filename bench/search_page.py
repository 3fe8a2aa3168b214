"""A search page in a headless Chromium: how large it is, how long until the first answer, and how long a question takes then.

    python bench/search_page.py --workdir RUN --web_runtime node_modules [--screenshot FOLDER]

Makes the page of the run (python -m jdistill.export --format=site), serves it from this machine, opens it with a question in its address in a
new profile, --openings times, and then asks texts of the run's own index. Needs chromium, chromedriver and the browser extra. Writes
bench/results/search_page.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np
from browser_setting import chromium, file_server, wait_for_status
from record import RESULTS, made_by

from jdistill.export.command import main as export

QUESTIONS = 100
ASK = """
const [text, done] = arguments;
const line = document.getElementById("status");
new MutationObserver((_, observer) => { observer.disconnect(); done(); }).observe(line, {childList: true, characterData: true, subtree: true});
document.getElementById("question").value = text;
document.getElementById("form").requestSubmit();
"""
DURATIONS = "return performance.getEntriesByName('answer').map((entry) => entry.duration)"
FIRST = "const first = performance.getEntriesByName('answer')[0]; return first.startTime + first.duration"


def megabytes(folder: Path) -> dict[str, dict[str, float]]:
    """file -> its size, and its size by gzip, as most servers send it; the largest first."""
    sizes = {}
    for path in sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size):
        content = path.read_bytes()
        sizes[path.relative_to(folder).as_posix()] = {
            "megabytes": round(len(content) / 1e6, 3),
            "gzip": round(len(gzip.compress(content, 6)) / 1e6, 3),
        }
    return sizes


def first_answer(page: str, question: str) -> float:
    """Seconds from opening the page, in a browser that has never seen it, until its first answer stands there."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        browser.get(f"{page}#q={quote_plus(question)}")
        wait_for_status(browser, *"123456789")
        return browser.execute_script(FIRST) / 1000


def question_times(page: str, questions: list[str], screenshots: Path | None) -> list[float]:
    """Milliseconds of each question in a page that is ready, tokenising and showing the answer included."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        browser.get(page)
        wait_for_status(browser, "Ready")
        for question in questions:
            browser.execute_async_script(ASK, question)
        times = browser.execute_script(DURATIONS)
        if screenshots:
            take_pictures(browser, screenshots)
        return times


def take_pictures(browser: Any, folder: Path) -> None:
    """The page with an answer in light and dark, and on a narrow screen."""
    folder.mkdir(parents=True, exist_ok=True)
    browser.execute_async_script(ASK, "how do I copy a directory tree")
    for name, scheme, width in (("light", "light", 900), ("dark", "dark", 900), ("narrow", "light", 500)):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.set_window_size(width, 1000)
        time.sleep(0.3)
        browser.save_screenshot(str(folder / f"{name}.png"))
    browser.execute_async_script(ASK, "")
    browser.save_screenshot(str(folder / "empty.png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", required=True, help="a finished run with an index")
    parser.add_argument("--web_runtime", required=True)
    parser.add_argument("--openings", type=int, default=5)
    parser.add_argument("--screenshot", type=Path, help="a folder for pictures of the page")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, file_server(Path(scratch)) as address:
        folder = Path(scratch) / "page"
        arguments = [
            "--workdir",
            flags.workdir,
            "--out",
            str(folder),
            "--format=site",
            "--web_runtime",
            flags.web_runtime,
        ]
        if export(arguments):
            raise SystemExit(1)
        settings = json.loads((folder / "site.json").read_text())
        texts = json.loads((folder / "texts.json").read_text())
        questions = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:QUESTIONS]]
        page = f"{address}page/"
        openings = [first_answer(page, "how do I copy a directory tree") for _ in range(flags.openings)]
        times = question_times(page, questions, flags.screenshot)
        sizes = megabytes(folder)
    result = made_by("python bench/search_page.py --workdir RUN --web_runtime node_modules") | {
        "texts": settings["rows"],
        "width": settings["width"],
        "megabytes": round(sum(size["megabytes"] for size in sizes.values()), 1),
        "megabytes by gzip": round(sum(size["gzip"] for size in sizes.values()), 1),
        "seconds to the first answer, median": round(float(np.median(openings)), 2),
        "seconds to the first answer, longest": round(max(openings), 2),
        "milliseconds a question, median": round(float(np.median(times)), 1),
        "milliseconds a question, 95 of 100": round(float(np.percentile(times, 95)), 1),
        "files": sizes,
    }
    (RESULTS / "search_page.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "files"}, indent=2))


if __name__ == "__main__":
    main()
