"""Writes the folder of a search page from a finished run: graph, tokenizer, vectors, texts, page, and the browser's runtime."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import file_digest
from jdistill.core.folders import replacing
from jdistill.core.progress import log
from jdistill.core.run_folder import WITH_INDEX, part_of_run
from jdistill.core.templates import page_templates
from jdistill.encoder.bulk import refuse_full_prompt
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.encoder.pair_scorer import load_pair_scorer
from jdistill.export import onnx_forms
from jdistill.export.onnx.storage import graph_files
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.site.int8_rows import int8_rows, write_int8_rows
from jdistill.export.site.page_tokens import page_tokens
from jdistill.export.site.web_runtime import WebRuntime, web_runtime
from jdistill.export.targets import add_form
from jdistill.models.registry import architecture_of
from jdistill.retrieval.index import SavedIndex, load_index_of

SITE_SEAL = "site"  # of the seal
PAGE_GRAPH, PAGE_VECTORS, PAGE_TEXTS, PAGE_SETTINGS = "model.onnx", "vectors.bin", "texts.json", "site.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
DIGEST_LETTERS = 16  # of a digest that stands in an address
SHOWN_TEXTS = 10  # texts a question
PAGE_TEMPLATES = page_templates("jdistill.export.site")


def write_site(workdir: Path, out: Path, runtime_place: str, overwrite: bool = False) -> None:
    """Writes a folder for any static file server, whose page answers from the run's index by the run's export.

    Args:
      workdir: of a finished run with an index.
      out: a new folder, an empty one, or a page of ours, which is replaced.
      runtime_place: as web_runtime has it.
      overwrite: replace whatever is in `out`.

    Raises: UserError where a part of the run is missing or belongs to another model, where the student is none for a page, and where its int8
      graph differs from Flax; `out` is then as it was.
    """
    runtime = web_runtime(runtime_place)
    scorer = load_pair_scorer(str(part_of_run(workdir, "export")), key="workdir")
    if scorer.params is not None:
        raise UserError(
            f"{workdir}: the student's answers are ranked by an interaction module, which a page does not have; it has jdistill.search"
        )
    model = scorer.encoder
    refuse_full_prompt(model, "query", "train with a longer max_length")
    saved = load_index_of(part_of_run(workdir, "index", WITH_INDEX), model)
    tokens = page_tokens(model)
    with replacing(
        out, SITE_SEAL, key="--out", overwrite=overwrite, settings={"runtime": dict(runtime.versions)}
    ) as beside:
        vector = _write_model(model, beside)
        write_int8_rows(beside / PAGE_VECTORS, *int8_rows(index_vectors(saved, model)))
        (beside / PAGE_TEXTS).write_text(json.dumps(list(saved.texts), ensure_ascii=False), "utf-8", "replace")
        runtime.copy_into(beside)
        settings = {
            "rows": saved.index.rows,
            "width": model.dim,
            "shown": SHOWN_TEXTS,
            "probe_vector": vector.tolist(),
            "runtime": {name: _dated(beside, address) for name, address in runtime.addresses.items()},
            "digests": _digests(beside, (PAGE_GRAPH, PAGE_VECTORS, PAGE_TEXTS, *TOKENIZER_FILES)),
            **tokens,
        }
        (beside / PAGE_SETTINGS).write_text(json.dumps(settings))
        _write_page(beside, workdir.resolve().name, saved.index.rows, runtime)
        sizes = {path.name: path.stat().st_size / 1e6 for path in beside.rglob("*") if path.is_file()}
    log.info(
        "%s: %d texts, %.1f MB, of which the graph %.1f, vectors %.1f, texts %.1f, runtime %.1f; "
        "serve it from any file server, such as python -m http.server -d %s",
        out, saved.index.rows, sum(sizes.values()), sizes[PAGE_GRAPH], sizes[PAGE_VECTORS], sizes[PAGE_TEXTS],
        sum(sizes.get(name, 0) for name in runtime.addresses), shlex.quote(str(out)),
    )  # fmt: skip


def _write_model(model: Encoder, folder: Path) -> np.ndarray:
    """Writes the int8 graph, held against Flax, and the tokenizer's files; returns the graph's vector of the first probe text, float32 [D]."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        exported = Path(scratch)
        write_files(model, exported)
        write_weights(model, exported)
        graph = add_form(model, exported, "onnx-int8")
        if len(graph_files(graph)) > 1:
            raise UserError("--format=site: the student's graph is above 1.5 GiB, too large for a page")
        vector = onnx_forms.encode(model.in_role("query"), graph, PROBE_TEXTS[:1])[0]
        shutil.move(graph, folder / PAGE_GRAPH)
        tokenizer = architecture_of(model.config).modules(model.config)[0][1]  # which lies with the first module
        for name in TOKENIZER_FILES:
            shutil.move(exported / tokenizer / name, folder / name)
    return vector


def index_vectors(saved: SavedIndex, model: Encoder) -> np.ndarray:
    """Vectors of the index's texts, float32 [N, D]: as an exact index holds them, else encoded anew."""
    exact = saved.index.stored_vectors()
    if exact is not None:
        return exact
    if saved.owner:
        raise UserError(
            f"--format=site: a page needs the vectors themselves, and this index of {saved.owner} does not hold them; the run's command with "
            "--config.index=Flat makes one that does"
        )
    return model.encode(saved.texts, prompt=model.prompt_for("document"), show_progress=True)


def _write_page(folder: Path, name: str, rows: int, runtime: WebRuntime) -> None:
    """Writes index.html, style.css and search.js.

    name: of the run. rows: texts that are searched.
    """
    num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    content: dict[str, Any] = {
        "name": name,
        "rows": f"{rows:,}",
        "megabytes": f"{num_bytes / 1e6:.0f}",
        "elsewhere": runtime.elsewhere,
        "policy": content_policy(runtime.elsewhere),
        "versions": [f"{package} {version}" for package, version in runtime.versions.items()],
    }
    for page in ("style.css", "search.js"):
        (folder / page).write_text(_template(page), "utf-8", "replace")
    content["digests"] = _digests(folder, ("style.css", "search.js"))
    (folder / "index.html").write_text(PAGE_TEMPLATES.get_template("index.html").render(content), "utf-8", "replace")


def _dated(folder: Path, address: str) -> str:
    """The address of a file of the runtime with its digest; a CDN's as it is, which names a version."""
    return f"{address}?{_digests(folder, [address])[address]}" if (folder / address).is_file() else address


def _digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Name -> what its address ends with, so that no cache gives a reader the file of an earlier page."""
    return {name: file_digest(folder / name)[:DIGEST_LETTERS] for name in names}


def _template(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text("utf-8")


def content_policy(elsewhere: tuple[str, ...]) -> str:
    """The Content-Security-Policy of a page: its own files and WebAssembly, what `elsewhere` names, and no text as HTML or code."""
    sources = " ".join(("'self'", *elsewhere))
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {sources} 'wasm-unsafe-eval'",
            f"connect-src {sources}",
            "style-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
