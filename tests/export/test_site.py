"""The folder of a search page: its files, vectors in a byte a number, what the page may load, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from bilstm_setting import student as make_bilstm
from commands import ROOT
from conftest import make_encoder, sentences
from site_setting import HOSTILE, npm_packages, searchable_run

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.folders import check_out
from jdistill.export import onnx_forms
from jdistill.export.command import main
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.site.folder import SITE_SEAL, content_policy
from jdistill.export.site.int8_rows import int8_cosines, int8_rows, read_int8_rows, write_int8_rows
from jdistill.export.site.page_tokens import page_tokens
from jdistill.export.site.web_runtime import INSTALL, PACKAGES
from jdistill.retrieval.index import load_index, unit_rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a compact student, whose name and one of whose texts are HTML."""
    return searchable_run(tmp_path_factory.mktemp("runs") / "a<b>&c")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_packages(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="module")
def page(run: Path, packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "page"
    assert command(run, out, "--web_runtime", str(packages)) == 0
    return out


def command(run: Path, out: Path, *more: str) -> int:
    return main(["--workdir", str(run), "--out", str(out), "--format=site", *more])


def test_the_folder_holds_the_page_and_all_that_it_loads(page: Path, run: Path) -> None:
    assert files.files_in(page) == {
        "index.html", "style.css", "search.js", "site.json", "model.onnx", "tokenizer.json", "tokenizer_config.json", "vectors.bin",
        "texts.json", "runtime/ort.js", "runtime/ort.wasm", "runtime/tokenizers.js", "runtime/onnxruntime-web-package.json",
        "runtime/huggingface-tokenizers-package.json", "runtime/huggingface-tokenizers-LICENSE",
    }  # fmt: skip
    assert not files.damage(page, SITE_SEAL)
    settings = json.loads((page / "site.json").read_text())
    for name, digest in settings["digests"].items():  # by which no cache gives a file of an earlier page
        assert files.file_digest(page / name).startswith(digest)
    assert settings["digests"].keys() == {
        "model.onnx",
        "vectors.bin",
        "texts.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    for name in ("style.css", "search.js"):
        assert f'{name}?{files.file_digest(page / name)[:16]}"' in (page / "index.html").read_text()
    for address in settings["runtime"].values():  # relative, so that a page works under any path
        path, _, digest = address.partition("?")
        assert files.file_digest(page / path).startswith(digest) and digest and not address.startswith("/")
    saved = load_index(run / "index")
    assert json.loads((page / "texts.json").read_text()) == saved.texts and HOSTILE in saved.texts
    rows, width = saved.index.rows, saved.index.dim
    assert (settings["rows"], settings["width"]) == (rows, width)
    assert (page / "vectors.bin").stat().st_size == rows * (4 + width)
    graph, weights = (
        (folder / name).stat().st_size for folder, name in ((page, "model.onnx"), (run, "export/model.safetensors"))
    )
    assert graph < 0.35 * weights


def test_scores_are_those_of_the_search_but_for_the_rounding(page: Path, run: Path) -> None:
    """Vectors in a byte, and questions by the int8 graph, against the index's vectors and Flax."""
    import jdistill

    model, saved = jdistill.load(str(run / "export")), load_index(run / "index")
    scales, rows = read_int8_rows(page / "vectors.bin", model.dim)
    questions = sentences(20, seed=3)
    vectors = model.encode(questions)
    exact = unit_rows(vectors) @ saved.index.stored_vectors().T
    # Half a scale a number, at most.
    bound = 0.5 * scales[None] * np.abs(unit_rows(vectors)).sum(1)[:, None] + 1e-6
    assert (np.abs(int8_cosines(scales, rows, vectors) - exact) <= bound).all()
    by_graph = onnx_forms.encode(model, page / "model.onnx", questions)
    moved = np.linalg.norm(unit_rows(by_graph) - unit_rows(vectors), axis=1)[
        :, None
    ]  # of a score, no more than the vector's
    assert (np.abs(int8_cosines(scales, rows, by_graph) - exact) <= bound * 1.5 + moved).all()


def test_int8_rows_keep_a_zero_row_and_come_back_from_their_file(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    vectors[3] = 0
    scales, rows = int8_rows(vectors)
    assert rows.dtype == np.int8 and scales[3] == 0 and not rows[3].any()
    for i in (0, 6):
        unit = vectors[i] / np.linalg.norm(vectors[i])
        assert [round(float(x) / float(np.abs(unit).max()) * 127) for x in unit] == rows[i].tolist()
    write_int8_rows(tmp_path / "vectors.bin", scales, rows)
    assert (tmp_path / "vectors.bin").read_bytes()[:4] == np.array(scales[0], "<f4").tobytes()
    again = read_int8_rows(tmp_path / "vectors.bin", 5)
    assert (again[0] == scales).all() and (again[1] == rows).all()


class Tags(HTMLParser):
    """Every tag with its attributes, and the text inside scripts and styles."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.code = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.code += data.strip()


def test_the_page_holds_no_code_and_a_policy(page: Path) -> None:
    html = (page / "index.html").read_text()
    tags = Tags(html)
    assert not tags.code
    for tag, attributes in tags.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href"):
            address = attributes.get(name) or ""
            assert address == "data:," or not re.match(r"/|\w+:", address), address
    (policy,) = [attributes["content"] for tag, attributes in tags.tags if "http-equiv" in attributes]
    directives = dict(part.strip().split(" ", 1) for part in (policy or "").split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].split() == ["'self'", "'wasm-unsafe-eval'"]
    assert directives["connect-src"] == directives["style-src"] == "'self'"
    assert directives["require-trusted-types-for"] == "'script'" and directives["trusted-types"] == "'none'"
    assert "<title>Search a&lt;b&gt;&amp;c</title>" in html and "<b>" not in html
    script = (page / "search.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


def test_the_page_has_a_label_a_live_region_and_a_language(page: Path) -> None:
    tags = Tags((page / "index.html").read_text()).tags
    assert dict(tags)["html"]["lang"] == "en"
    (field,) = [attributes for tag, attributes in tags if tag == "input"]
    assert [attributes["for"] for tag, attributes in tags if tag == "label"] == [field["id"]]
    assert any(
        attributes.get("role") == "status" and attributes["id"] == field["aria-describedby"] for _, attributes in tags
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(page: Path, scheme: str) -> None:
    """4.5 to 1 for words on the page and on the button, as WCAG 2 counts it."""
    blocks = re.findall(r":root \{(.*?)\}", (page / "style.css").read_text(), re.S)
    colours = dict(re.findall(r"--([\w-]+): (#\w+)", blocks[scheme == "dark"]))

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for ink, ground in (("ink", "page"), ("soft", "page"), ("wrong", "page"), ("edge", "page"), ("on-edge", "edge")):
        darker, lighter = sorted((luminance(colours[ink]), luminance(colours[ground])))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (ink, ground)


def test_a_cdn_is_asked_for_the_tested_versions_alone(run: Path, tmp_path: Path) -> None:
    assert command(run, tmp_path / "page", "--web_runtime=https://cdn.example/npm") == 0
    assert not (tmp_path / "page" / "runtime").exists()
    addresses = json.loads((tmp_path / "page" / "site.json").read_text())["runtime"]
    roots = [f"https://cdn.example/npm/{package.name}@{package.version}/" for package in PACKAGES]
    assert all(address.startswith(tuple(roots)) for address in addresses.values())
    policy = content_policy(tuple(roots))
    assert f"script-src 'self' {' '.join(roots)} 'wasm-unsafe-eval'; connect-src 'self' {' '.join(roots)};" in policy
    assert policy.replace("'", "&#39;") in (tmp_path / "page" / "index.html").read_text()


def test_a_recurrent_student_brings_its_tokenizer(tmp_path: Path) -> None:
    run = searchable_run(tmp_path / "run", student=make_bilstm())
    assert command(run, tmp_path / "page", "--web_runtime=https://cdn.example/npm") == 0
    own = (run / "export" / "0_WordEmbeddings" / "tokenizer.json").read_bytes()
    assert (tmp_path / "page" / "tokenizer.json").read_bytes() == own


def test_a_page_is_replaced_by_a_page(page: Path) -> None:
    check_out(page, SITE_SEAL, "--out")
    (page / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds files that jdistill did not put there \(mine.txt\)"):
        check_out(page, SITE_SEAL, "--out")
    (page / "mine.txt").unlink()


def test_the_rule_of_tokens_gives_the_models_own() -> None:
    """Under a prompt and cut; the longest probe is longer than the model's length."""
    model = replace(make_encoder(), prompts={"query": "query: "}, max_length=20)
    rule = page_tokens(model)
    ids = model.tokenize(list(PROBE_TEXTS), "query")
    assert [probe["ids"] for probe in rule["probes"]] == ids and max(map(len, ids)) == 20
    assert (rule["prompt"], rule["before"], rule["after"]) == ("query: ", [101], [102])


def test_the_docs_name_the_versions_that_are_tested() -> None:
    assert INSTALL in (ROOT / "docs" / "site.md").read_text()
