"""mteb's kept figures and prompts: of a file that holds more than is asked, what is asked; of a model's prompts, those that say something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import make_encoder, sentences

pytest.importorskip("mteb", reason="mteb is not installed, which the test extra brings")

from mteb.types import PromptType

from jdistill.data.sets.beir import write_collection
from jdistill.evals.mteb.adapter import MtebEncoder, model_meta, prompt_of
from jdistill.evals.mteb.run import TaskGroup, evaluate_mteb, task_groups


def test_splits_that_an_earlier_command_asked_for_are_no_part_of_the_figure(tmp_path: Path) -> None:
    texts = sentences(40, seed=3)
    documents = {f"d{i}": text for i, text in enumerate(texts)}
    write_collection(tmp_path / "mine", documents, {"q": texts[7][:20]}, {"q": {"d7": 1}})
    (task,) = task_groups([f"beir:{tmp_path / 'mine'}"])[0].tasks
    group, model = TaskGroup("Bench", [task], is_local=False), make_encoder(num_layers=1)
    encoder = MtebEncoder(model, model_meta(model, "my/model"))
    first = evaluate_mteb(encoder, [group], tmp_path / "out")
    (kept,) = [path for path in (tmp_path / "out").rglob("*.json") if "scores" in path.read_text()]
    content = json.loads(kept.read_text())
    (split,) = content["scores"]
    content["scores"]["other"] = [of | {"main_score": of["main_score"] / 2 + 0.1} for of in content["scores"][split]]
    kept.write_text(json.dumps(content))
    assert evaluate_mteb(encoder, [group], tmp_path / "out") == first


def test_an_empty_prompt_of_another_librarys_is_none() -> None:
    """sentence-transformers adds "document" to the prompts of a model that has "passage"."""
    asked = SimpleNamespace(name="a task", type="Retrieval")
    model = replace(make_encoder(num_layers=1), prompts={"query": "query: ", "passage": "passage: "})
    by_torch = SimpleNamespace(prompts={**model.prompts, "document": ""}, prompt_for=model.prompt_for)
    for role in (PromptType.query, PromptType.document):
        assert prompt_of(by_torch, asked, role) == prompt_of(model, asked, role)  # type: ignore[arg-type]
