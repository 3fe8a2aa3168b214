"""A card's snippets: those that can be run here give Flax's vectors, and a student has those alone that load it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bilstm_setting import student as make_bilstm
from conftest import make_decoder, make_encoder
from modernbert_setting import make_modernbert
from t5_setting import make_sentence_t5

from jdistill.encoder import torch_backend
from jdistill.encoder.encoder import Encoder
from jdistill.export.card import write_card
from jdistill.export.card_metadata import Release
from jdistill.export.folder import export
from jdistill.models.modernbert.config import GLOBAL, LOCAL

TEXTS = ["a sentence", "another one"]
ONNX_BACKEND, OPENVINO = "sentence-transformers by ONNX Runtime", "sentence-transformers by OpenVINO"
WRAPPERS = {"LangChain", "LlamaIndex", "Infinity"}
BY_THEMSELVES = {"transformers alone", "fastembed", "transformers.js"}
ALL = {ONNX_BACKEND, OPENVINO, "ONNX Runtime alone, which pools by the graph"} | WRAPPERS | BY_THEMSELVES


def snippets(folder: Path, release: Release | None = None) -> dict[str, tuple[str, str]]:
    """title -> (language, code) of the section on servers in a folder's card."""
    run = folder.parent / "run"
    run.mkdir(exist_ok=True)
    write_card(run, folder, results={}, **({"release": release} if release else {}))
    section = (folder / "README.md").read_text().partition("\n## Servers\n")[2].partition("\n## ")[0]
    rows = re.findall(r"(?ms)^([^\n`]+?)(?: \(`[^\n]*`\))?:\n\n```(\w+)\n(.*?)\n```$", section)
    return {title: (language, code) for title, language, code in rows}


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_what_runs_here_gives_the_vectors_of_flax(tmp_path: Path, pooling: str) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = replace(make_encoder(num_layers=1), pooling=pooling, normalize=pooling == "mean", max_length=32)
    export(model, tmp_path / "export", onnx=True)
    by_title = snippets(tmp_path / "export")
    assert set(by_title) == ALL
    expected = model.encode(TEXTS)
    for title, texts in (("transformers alone", 2), ("ONNX Runtime alone, which pools by the graph", 1)):
        names: dict[str, Any] = {}
        exec(by_title[title][1].replace('"path/to/run"', repr(str(tmp_path / "export"))), names)
        np.testing.assert_allclose(names["vectors"], expected[:texts], atol=1e-5)
    assert f"PoolingType.{pooling.upper()}, normalization={pooling == 'mean'}, dim=32" in by_title["fastembed"][1]
    assert (
        f'pooling: "{pooling}", normalize: {"true" if pooling == "mean" else "false"}' in by_title["transformers.js"][1]
    )


@pytest.mark.parametrize("release", [None, Release("owner/student")])
def test_every_snippet_is_code_that_names_the_model(tmp_path: Path, release: Release | None) -> None:
    export(make_encoder(num_layers=1), tmp_path / "export", onnx=True)
    by_title = snippets(tmp_path / "export", release)
    assert set(by_title) == ALL
    for title, (language, code) in by_title.items():
        place = "owner/student" if release else "path/to/run"
        names = place if release or language != "js" else "path/to/"
        assert names in code, title
        if language == "python":
            ast.parse(code)
    assert by_title["Infinity"] == (
        "bash", f"infinity_emb v2 --model-id {place} --engine torch --port 7997 --no-bettertransformer"
    )  # fmt: skip


def test_a_recurrent_student_is_loaded_as_its_card_says(tmp_path: Path) -> None:
    """Its tokenizer lies with its first module, and takes no role."""
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = replace(make_bilstm(), prompts={"query": "ask: "})
    export(model, tmp_path / "export", onnx=True)
    by_title, names = snippets(tmp_path / "export"), dict[str, Any]()
    code = by_title["ONNX Runtime alone, which pools by the graph"][1]
    exec(code.replace('"path/to/run"', repr(str(tmp_path / "export"))), names)
    np.testing.assert_allclose(names["vectors"], model.encode(TEXTS[:1]), atol=1e-5)
    card = (tmp_path / "export" / "README.md").read_text()
    assert "`encode` with `prompt_name` puts the same prompt" in card and "AutoModel" not in card
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "export"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(
        theirs.encode(TEXTS, prompt_name="query"), model.encode(TEXTS, prompt="query"), atol=1e-5
    )
    assert "Infinity" not in by_title  # which looks for a model of transformers
    with pytest.raises(TypeError, match="task"):
        theirs.encode_query(TEXTS)
    by_torch = torch_backend.load_torch_encoder(str(tmp_path / "export"), trust_remote_code=True)
    np.testing.assert_allclose(by_torch.encode_in_role(TEXTS, "query"), model.encode(TEXTS, prompt="query"), atol=1e-5)


def cut_at_the_front() -> Encoder:
    model = make_encoder(num_layers=1)
    model.tokenizer.truncation_side = model.tokenizer.init_kwargs["truncation_side"] = "left"
    return replace(model, max_length=8)


CASES: dict[str, tuple[Callable[[], Encoder], bool, set[str]]] = {
    "without a graph": (
        lambda: make_encoder(num_layers=1), False, {OPENVINO, "transformers alone"} | WRAPPERS,
    ),
    "modernbert": (make_modernbert, True, ALL),
    # Layers whose kinds the old key of config.json cannot tell, by which the transformers that Infinity comes with goes.
    "no turns": (lambda: make_modernbert(layer_types=(LOCAL, LOCAL, GLOBAL, LOCAL)), True, ALL - {"Infinity"}),
    # Which nothing that pools by itself could be told.
    "several layers": (
        lambda: replace(make_encoder(num_layers=2), pooling="avg_last2"), True, ALL - BY_THEMSELVES - {ONNX_BACKEND, OPENVINO},
    ),
    "code": (
        lambda: replace(make_encoder(num_layers=2), pooling="max_last2"), True,
        {"ONNX Runtime alone, which pools by the graph"},
    ),
    "a projection": (
        make_sentence_t5, True, {"ONNX Runtime alone, which pools by the graph"} | WRAPPERS,
    ),
    "last token": (make_decoder, True, ALL - BY_THEMSELVES),
    "newer than Infinity's transformers": (
        lambda: replace(make_decoder(model_type="qwen3", qk_norm=True), pooling="lasttoken"), True, ALL - BY_THEMSELVES - {"Infinity"},
    ),
    "cut at the front": (cut_at_the_front, True, ALL - {"fastembed", "transformers.js"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_student_has_the_snippets_of_servers_that_load_it(tmp_path: Path, case: str) -> None:
    make, onnx, titles = CASES[case]
    model = make()
    if case == "last token":
        model = replace(
            model, pooling="lasttoken", prompts={"query": "ask: ", "document": "title: "}, default_prompt="query"
        )
    export(model, tmp_path / "export", onnx=onnx)
    found = snippets(tmp_path / "export")
    assert set(found) == titles
    card = (tmp_path / "export" / "README.md").read_text()
    has_prompt = case == "last token"
    assert ("The prompt is put before a text by sentence-transformers, and by LangChain" in card) == has_prompt
    assert ('Its prompts are `document`: `"title: "`, `query`: `"ask: "`; tools that know' in card) == has_prompt
    assert ("`model.encode_query` encodes the questions" in card) == has_prompt


def test_a_student_that_reads_a_texts_end_does_so_by_the_cards_code(tmp_path: Path) -> None:
    model, text = cut_at_the_front(), "one two three four five six seven eight nine ten"
    export(model, tmp_path / "export", onnx=True)
    code = snippets(tmp_path / "export")["ONNX Runtime alone, which pools by the graph"][1]
    names: dict[str, Any] = {}
    exec(code.replace('"path/to/run"', repr(str(tmp_path / "export"))).replace('"a sentence"', repr(text)), names)
    np.testing.assert_allclose(names["vectors"], model.encode([text]), atol=1e-5)


def test_a_model_with_nothing_but_its_default_prompt_has_no_list_of_roles(tmp_path: Path) -> None:
    export(replace(make_encoder(num_layers=1), prompts={"ask": "ask: "}, default_prompt="ask"), tmp_path / "export")
    snippets(tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    assert "The prompt is put before a text" in card and "Its prompts are" not in card
