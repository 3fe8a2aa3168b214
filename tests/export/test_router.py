"""A folder of two models: queries by the student, documents by its teacher, as sentence-transformers loads it without jdistill."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bilstm_setting import student as make_bilstm
from commands import command, in_a_process_without_jdistill, run_inside
from conftest import make_encoder, save_encoder, sentences

import jdistill
from jdistill import evaluate
from jdistill.core.errors import UserError
from jdistill.data.sets.beir import write_collection
from jdistill.evals.retrieval import evaluate_retrieval
from jdistill.export.command import main
from jdistill.export.router import _write, export_router

PROMPTS = {"query": "query: ", "document": "passage: "}


def keys_of(place: Path) -> dict[str, object]:
    return {
        "teacher": place / "teacher", "text": place / "text.txt", "text_column": "", "cache_dir": place / "cache", "held_out": 10,
        "student.layers": 2, "student.embedding_size": 12, "batch_size": 8, "max_steps": 2, "checkpoint_every": 2, "onnx": False,
        "latency_texts": 0, "index_texts": 0, "query_prompt": "ask: ",
    }  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of SimTDE by a teacher that has prompts, whose student asks by one of its own."""
    place = tmp_path_factory.mktemp("router")
    save_encoder(replace(make_encoder(num_layers=2), prompts=PROMPTS), place / "teacher")
    (place / "text.txt").write_text("\n".join(sentences(120)) + "\n")
    done = run_inside(command("configs/simtde.py", place / "run", keys_of(place)))
    assert done.returncode == 0, done.stderr[-3000:]
    return place


def test_queries_by_the_student_documents_by_the_teacher(place: Path) -> None:
    pytest.importorskip("sentence_transformers")
    arguments = ["--workdir", str(place / "run"), "--out", str(place / "search"), "--documents", str(place / "teacher")]
    assert main(arguments) == 0
    assert main(arguments) == 0  # one of ours is replaced
    texts = sentences(30, seed=4)
    (place / "search" / "texts.json").write_text(json.dumps(texts))
    in_a_process_without_jdistill(
        "import json, numpy\n"
        "from sentence_transformers import SentenceTransformer\n"
        "texts = json.load(open('texts.json'))\n"
        "model = SentenceTransformer('.', device='cpu')\n"
        "numpy.savez('vectors.npz', query=model.encode_query(texts), document=model.encode_document(texts), alone=model.encode(texts))\n",
        place / "search",
    )
    vectors = np.load(place / "search" / "vectors.npz")
    student, teacher = jdistill.load(str(place / "run" / "export")), jdistill.load(str(place / "teacher"))
    np.testing.assert_allclose(vectors["query"], student.encode(texts, prompt="query"), atol=1e-5)
    np.testing.assert_allclose(vectors["document"], teacher.encode(texts, prompt="document"), atol=1e-5)
    np.testing.assert_array_equal(vectors["alone"], vectors["document"])  # a text without a task is a document
    # Both are whole models too.
    np.testing.assert_array_equal(jdistill.load(str(place / "search" / "query")).encode(texts), student.encode(texts))
    np.testing.assert_array_equal(
        jdistill.load(str(place / "search" / "document")).encode(texts), teacher.encode(texts)
    )


@pytest.mark.parametrize("backend", ["flax", "torch"])
def test_where_one_model_is_needed_a_router_is_refused(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """sentence-transformers would ask the documents' model for queries too, and say nothing; what to do instead does it right."""
    pytest.importorskip("sentence_transformers")
    queries, documents = (replace(make_encoder(num_layers=1), prompts={role: PROMPTS[role]}) for role in PROMPTS)
    _write(queries, documents, tmp_path / "both")
    texts = sentences(40)
    relevant = {f"q{i}": {f"d{i}": 1} for i in range(20)}
    asked = {f"q{i}": texts[i].rsplit(" ", 1)[0] for i in range(20)}
    write_collection(tmp_path / "mine", {f"d{i}": text for i, text in enumerate(texts)}, asked, relevant)
    more = ["--beir", str(tmp_path / "mine"), "--backend", backend, "--out", str(tmp_path / "out.json")]
    assert evaluate.main(["--model", str(tmp_path / "both"), *more]) == 2
    error = capsys.readouterr().err
    assert f"--model={tmp_path}/both is two models, a Router" in error
    instead = error[error.index("--model ") :].split()[:4]
    assert evaluate.main([*instead, *more]) == 0
    figures = json.loads((tmp_path / "out.json").read_text())["retrieval"]["mine"]
    expected = evaluate_retrieval(queries, tmp_path / "mine", corpus_model=documents)["mine"]
    assert figures["ndcg@10"] == pytest.approx(expected["ndcg@10"], abs=1e-4)


def test_documents_may_be_of_a_model_that_leaves_its_prompt_out(tmp_path: Path) -> None:
    """A graph cannot, by which no half has to be checked where sentence-transformers is there."""
    library = pytest.importorskip("sentence_transformers")
    student = replace(make_encoder(num_layers=1), prompts=PROMPTS)
    documents = replace(student, include_prompt=False, default_prompt="document")
    checks = export_router(student, documents, tmp_path / "both")
    assert "document, ONNX Runtime" not in checks and {"query, ONNX Runtime", "document, Router"} <= set(checks)
    texts = sentences(8)
    found = library.SentenceTransformer(str(tmp_path / "both"), device="cpu").encode_document(texts)
    np.testing.assert_allclose(found, documents.encode(texts, prompt="document"), atol=1e-5)
    assert np.abs(found - student.encode(texts, prompt="document")).max() > 1e-3  # the prompt does count otherwise


def test_a_router_of_others_names_no_parts(tmp_path: Path) -> None:
    model = make_encoder(num_layers=1)
    _write(model, model, tmp_path / "both")
    (tmp_path / "both" / "query" / "modules.json").unlink()
    with pytest.raises(
        UserError, match="is two models, a Router .*; jdistill reads folders of one model; .* through st:SOURCE"
    ):
        jdistill.load(str(tmp_path / "both"))


def test_models_that_share_no_space_are_refused(tmp_path: Path) -> None:
    student = make_encoder(num_layers=1)
    other = replace(make_encoder(seed=9, num_layers=1), source="another")
    with pytest.raises(UserError, match=r"--documents=another: .* mean cosine of -?0\.\d+ .*loss.align"):
        export_router(student, other, tmp_path / "out")
    narrow = replace(
        make_encoder(num_layers=1, hidden_size=16, embedding_size=16, intermediate_size=32), source="narrow"
    )
    with pytest.raises(UserError, match="--documents=narrow: its vectors are 16 wide and the student's 32"):
        export_router(student, narrow, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_recurrent_model_is_no_part_of_a_router(tmp_path: Path) -> None:
    recurrent, other = make_bilstm(), make_encoder(num_layers=1)
    for queries, documents, who in ((recurrent, other, "the student"), (other, recurrent, "--documents=")):
        with pytest.raises(UserError, match=f"{who}.* is recurrent, .*without --documents, and encode by encode"):
            export_router(queries, documents, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported_together_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--workdir", str(place / "run"), "--out", str(place / "no-search")]
    for more, fault in (
        (["--documents", str(place / "gone")], "gone"),
        (["--documents", str(place / "teacher"), "--format", "onnx"], "--documents writes two models"),
        (["--documents", str(place / "teacher"), "--quantize", "int8"], "--documents writes two models"),
    ):
        assert main(arguments + more) == 2
        assert fault in capsys.readouterr().err
    assert not (place / "no-search").exists()
