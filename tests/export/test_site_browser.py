"""A search page in a headless Chromium, against jdistill.search on the same run; skipped where there is no browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_setting import chromium, file_server, installed_packages, wait_for_status
from conftest import sentences
from opened_page import OpenedPage, change, copied, export_page
from site_setting import HOSTILE, searchable_run

from jdistill import search
from jdistill.encoder.loading import load
from jdistill.export import onnx_forms
from jdistill.export.site.int8_rows import int8_cosines, read_int8_rows
from jdistill.export.site.web_runtime import PACKAGES

QUESTIONS = [*sentences(4, seed=9), HOSTILE, "Übermut [SEP] naïve 東京 🙂 [UNK]", "مرحبا", "ΟΔΟΣ", "river " * 100]
SHOWN_DIGITS = 6e-4  # the page shows three


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedPage]:
    """A page of a compact student, served under a sub-path."""
    packages, place = installed_packages(), tmp_path_factory.mktemp("served")
    with chromium(tmp_path_factory.mktemp("profile")) as browser, file_server(place) as address:
        run, folder = searchable_run(tmp_path_factory.mktemp("runs") / "mine"), place / "some" / "path" / "page"
        folder.parent.mkdir(parents=True)
        assert export_page(run, folder, str(packages)) == 0
        page = OpenedPage(run, folder, f"{address}some/path/page/", browser)
        assert page.visit().startswith("Ready")
        yield page


@pytest.mark.parametrize("question", QUESTIONS, ids=range(len(QUESTIONS)))
def test_answers_are_those_of_the_search(opened: OpenedPage, question: str) -> None:
    """Exactly those of the same graph and vectors in Python; of the search with Flax, what the rounding to bytes leaves."""
    assert opened.ask(question).startswith("10 texts of 63")
    answers = opened.answers()
    texts = json.loads((opened.folder / "texts.json").read_text())
    assert [text for _, _, text in answers] == [texts[row] for row, _, _ in answers]
    model = load(str(opened.run / "export"))
    (scores,) = int8_cosines(
        *read_int8_rows(opened.folder / "vectors.bin", model.dim),
        onnx_forms.encode(model, opened.folder / "model.onnx", [question]),
    )
    shown = np.array([score for _, score, _ in answers])
    assert np.abs(shown - scores[[row for row, _, _ in answers]]).max() < SHOWN_DIGITS
    assert scores[[row for row, _, _ in answers]].min() >= np.sort(scores)[-10] - SHOWN_DIGITS
    exact = {text: score for score, text in search.answer(opened.run, question, len(texts))}
    error = np.abs(scores - [exact[text] for text in texts]).max()
    assert error < 0.05
    flax = [exact[text] for _, _, text in answers]
    assert np.abs(shown - flax).max() <= error + SHOWN_DIGITS
    best = sorted(exact.values(), reverse=True)
    assert min(flax) >= best[9] - 2 * error and flax[0] >= best[0] - 2 * error


def test_markup_in_a_text_is_shown_and_not_run(opened: OpenedPage) -> None:
    opened.visit()
    opened.ask(HOSTILE)
    row, score, text = opened.answers()[0]
    assert text == HOSTILE and score > 0.9
    assert opened.browser.title == "Search mine"
    assert opened.browser.execute_script("return document.querySelectorAll('#results :not(li, p)').length") == 0
    assert (
        opened.browser.execute_script(  # what the policy does to whoever tries
            "try { document.getElementById('results').innerHTML = '<b>x</b>'; return 'taken'; } catch (error) { return error.name; }"
        )
        == "TypeError"
    )


def test_an_empty_question_is_told_and_keeps_the_focus(opened: OpenedPage) -> None:
    opened.visit()
    opened.ask("river")
    for question in ("", "   "):
        assert opened.ask(question).startswith("The question is empty")
        field = opened.element("question")
        assert field.get_attribute("aria-invalid") == "true" and opened.browser.switch_to.active_element == field
        assert not opened.element("answer").is_displayed()
    opened.ask("river")
    assert opened.element("question").get_attribute("aria-invalid") is None
    assert opened.element("answer").is_displayed()


def test_the_keyboard_alone_is_enough(opened: OpenedPage) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    opened.visit()
    press = ActionChains(opened.browser)
    press.send_keys(Keys.TAB, "river stone", Keys.TAB).perform()
    assert opened.browser.switch_to.active_element.tag_name == "button"
    outline = opened.browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    press.send_keys(Keys.ENTER).perform()
    assert wait_for_status(opened.browser, "10 texts").endswith("ms.")
    assert opened.element("status").get_attribute("role") == "status"
    assert opened.element("question").accessible_name == "Your question"


def test_an_answer_has_an_address_which_no_server_sees(opened: OpenedPage) -> None:
    opened.visit()
    opened.ask("river & stone")
    address, first = opened.browser.current_url, opened.answers()
    assert address == f"{opened.address}#q=river+%26+stone"
    opened.ask("winter garden")
    opened.browser.back()
    wait_for_status(opened.browser, "10 texts")
    assert opened.element("question").get_attribute("value") == "river & stone"
    opened.browser.get("about:blank")
    opened.browser.get(address)
    wait_for_status(opened.browser, "10 texts")
    assert opened.answers() == first


def test_nothing_is_refused_by_the_pages_own_policy(opened: OpenedPage) -> None:
    opened.browser.get_log("browser")
    opened.visit()
    opened.ask("river")
    assert not [entry for entry in opened.browser.get_log("browser") if entry["level"] == "SEVERE"]
    loaded = opened.browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert loaded and all(name.startswith((opened.address, "data:")) for name in loaded)


def test_the_reader_may_prefer_dark(opened: OpenedPage) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    backgrounds = set()
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        opened.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        backgrounds.add(opened.browser.execute_script(colour))
    opened.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(backgrounds) == 2


def test_few_texts_and_none(opened: OpenedPage) -> None:
    few = copied(opened, "few")
    texts, width = json.loads((few.folder / "texts.json").read_text()), 32
    scales, rows = read_int8_rows(few.folder / "vectors.bin", width)
    for count, status in ((3, "3 texts of 3,"), (1, "1 text of 1,"), (0, "No texts: this page has none")):
        (few.folder / "texts.json").write_text(json.dumps(texts[:count]))
        (few.folder / "vectors.bin").write_bytes(scales[:count].tobytes() + rows[:count].tobytes())
        change(few, rows=count)
        few.visit()
        assert few.ask("river").startswith(status)
        assert len(few.answers()) == count and few.element("answer").is_displayed() == bool(count)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda page: (page.folder / "model.onnx").unlink(), "the server answers 404 for model.onnx"),
        (lambda page: (page.folder / "texts.json").write_text('["one"]'), "do not belong together"),
        (lambda page: change(page, probes=[{"text": "river", "ids": [1, 2]}]), 'the tokenizer of this page reads "river" otherwise'),
        (lambda page: change(page, probe_vector=[1.0] + [0.0] * 31), "the model gives other vectors in this browser"),
        (lambda page: (page.folder / "runtime" / "ort.wasm").write_bytes(b"no wasm"), "no available backend"),
    ],
    ids=["graph", "texts", "tokenizer", "vectors", "runtime"],
)  # fmt: skip
def test_a_damaged_page_says_so_and_does_not_answer(
    opened: OpenedPage, damage: Any, told: str, request: pytest.FixtureRequest
) -> None:
    page = copied(opened, f"damaged-{request.node.callspec.id}")
    damage(page)
    status = page.visit()
    assert status.startswith("The page could not be loaded") and told in status
    assert not page.element("loading").is_displayed()


def test_a_page_whose_runtime_is_at_a_cdn(opened: OpenedPage, tmp_path: Path) -> None:
    packages = installed_packages()
    for package in PACKAGES:
        link = tmp_path / f"{package.name}@{package.version}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(packages.resolve() / package.name)
    with file_server(tmp_path) as cdn:
        folder = opened.folder.with_name("by-cdn")
        assert export_page(opened.run, folder, cdn) == 0
        page = OpenedPage(opened.run, folder, opened.address.replace("/page/", "/by-cdn/"), opened.browser)
        assert page.visit().startswith("Ready")
        assert page.ask("river").startswith("10 texts")
        loaded = page.browser.execute_script(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        )
        assert sum(name.startswith(cdn) for name in loaded) == 3
