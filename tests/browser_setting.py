"""A headless Chromium, the npm packages of a search page, and a plain file server, for tests; where one is missing they are skipped."""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jdistill.core.errors import UserError
from jdistill.export.site.web_runtime import INSTALL, web_runtime

WAIT = 120  # seconds until a page that loads nothing counts as one that hangs
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=900,1000",
)  # fmt: skip


def installed_packages() -> Path:
    """The folder node_modules that JDISTILL_WEB_RUNTIME names, or that lies in the one it names."""
    place = os.environ.get("JDISTILL_WEB_RUNTIME", "")
    try:
        web_runtime(place)
    except UserError:
        pytest.skip(f"JDISTILL_WEB_RUNTIME names no folder node_modules with the packages of a search page ({INSTALL})")
    inside = Path(place) / "node_modules"
    return inside if inside.is_dir() else Path(place)


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with a new profile, as Selenium drives it."""
    pytest.importorskip("selenium", reason="needs the browser extra (selenium)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*QUIET, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


class Quiet(SimpleHTTPRequestHandler):
    """A plain file server that others' pages may read, as a CDN's."""

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """Serves a folder; gives its address, which ends with a slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def wait_for_status(browser: Any, *beginnings: str) -> str:
    """The page's status line, once it begins with one of these or tells of an error."""
    from selenium.webdriver.support.wait import WebDriverWait

    wanted = (*beginnings, "The page could not", "The question could not")

    def shown(_: Any) -> str | bool:
        text = browser.execute_script("return document.getElementById('status').textContent")
        return text if text.startswith(wanted) else False

    return WebDriverWait(browser, WAIT, poll_frequency=0.02).until(shown)
