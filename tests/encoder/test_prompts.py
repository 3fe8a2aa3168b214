"""The prompt of a role: what is read here, written by an export, and taken by sentence-transformers' encode_query and encode_document."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences

import jdistill
from jdistill.encoder.torch_backend import load_torch_encoder
from jdistill.feeds.tokens import in_role

ROLES = ("query", "document")
# Prompts, the default's name, and what is put before a query, a document and a text without a role.
CASES = [
    ({}, None, ("", "", "")),
    ({"query": "q: "}, None, ("q: ", "", "")),
    ({"query": "q: ", "passage": "p: "}, None, ("q: ", "p: ", "")),
    ({"title": "t: "}, "title", ("", "", "t: ")),
    ({"query": "q: "}, "query", ("q: ", "", "q: ")),
    ({"corpus": "c: ", "title": "t: "}, "title", ("", "c: ", "t: ")),
]


@pytest.mark.parametrize(("prompts", "default", "expected"), CASES)
def test_one_meaning_of_a_role(
    tmp_path: Path, prompts: dict[str, str], default: str | None, expected: tuple[str, str, str]
) -> None:
    model = replace(make_encoder(num_layers=1), prompts=prompts, default_prompt=default)
    plain, texts = replace(model, default_prompt=None), sentences(5)
    asked = {role: [before + text for text in texts] for role, before in zip((*ROLES, ""), expected, strict=True)}
    for role in ROLES:
        vectors = plain.encode(asked[role])
        for reader in (model.in_role(role), in_role(model, role, 0)):
            np.testing.assert_array_equal(reader.encode(texts), vectors)
        np.testing.assert_array_equal(model.encode(texts, prompt=model.prompt_for(role)), vectors)
    np.testing.assert_array_equal(model.encode(texts), plain.encode(asked[""]))
    folder = save_encoder(model, tmp_path / "m")
    again = jdistill.load(str(folder))
    assert again.fingerprint() == model.fingerprint()
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    by_torch = load_torch_encoder(str(folder))
    for role in ROLES:
        assert again.prompt_text(again.prompt_for(role)) == by_torch.prompt_in_role(role)
        for vectors in (by_torch.encode_in_role(texts, role), by_torch.encode(texts, prompt=by_torch.prompt_for(role))):
            np.testing.assert_allclose(vectors, plain.encode(asked[role]), atol=1e-5)
    np.testing.assert_allclose(by_torch.encode(texts), plain.encode(asked[""]), atol=1e-5)


def test_prompts_of_a_model_without_a_default_are_written_as_they_are(tmp_path: Path) -> None:
    prompts = {"query": "q: ", "STS": "s: "}
    folder = save_encoder(replace(make_encoder(num_layers=1), prompts=prompts), tmp_path / "m")
    assert json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"] == prompts
