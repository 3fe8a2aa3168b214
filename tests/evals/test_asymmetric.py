"""Search as searchers have it: a student asks its teacher's index, and checkpoints are chosen on a collection of the user's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import command, run_inside
from conftest import make_encoder, save_encoder, sentences

import jdistill
from jdistill import evaluate
from jdistill.evals.retrieval import evaluate_beside_queries_of, evaluate_retrieval

SHORT = 6  # tokens that the run reads of a text
MEASURES = ("ndcg@10", "mrr@10", "recall@10", "recall@100", "recall@1000")


def write_collection(folder: Path, seed: int) -> Path:
    """Texts, of which every third is the answer to a question that shares its words."""
    texts = sentences(60, seed=seed)
    (folder / "qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(rows))
    asked = [json.dumps({"_id": f"q{i}", "text": texts[i].rsplit(" ", 2)[0]}) for i in range(0, 60, 3)]
    (folder / "queries.jsonl").write_text("\n".join(asked))
    judged = "".join(f"q{i}\td{i}\t1\n" for i in range(0, 60, 3))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return folder


def of(figures: dict) -> dict[str, float]:
    return {name: figures[name] for name in MEASURES}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of SimTDE, whose student lives in its teacher's space, with a collection to choose by and one to report."""
    place = tmp_path_factory.mktemp("asymmetric")
    save_encoder(make_encoder(num_layers=2), place / "teacher")
    dev = write_collection(place / "dev" / "mine", seed=5)
    write_collection(place / "test" / "theirs", seed=6)
    queries = [json.loads(line)["text"] for line in (dev / "queries.jsonl").read_text().splitlines()]
    (place / "text.txt").write_text("\n".join([*sentences(200), *queries]) + "\n")
    keys = {
        "teacher": place / "teacher", "text": place / "text.txt", "text_column": "", "cache_dir": place / "cache", "held_out": 20,
        "student.layers": 2, "student.embedding_size": 12, "batch_size": 8, "max_steps": 4, "checkpoint_every": 2, "onnx": False,
        "latency_texts": 0, "index_texts": 0, "dev_retrieval": place / "dev", "beir": place / "test", "max_length": SHORT,
    }  # fmt: skip
    done = run_inside(command("configs/simtde.py", place / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    (place / "log").write_text(done.stderr)
    return place


def test_checkpoints_are_chosen_by_the_collection_too(place: Path) -> None:
    lines = [json.loads(line) for line in (place / "run" / "distil" / "metrics.jsonl").read_text().splitlines()]
    scores = [line for line in lines if "dev/retrieval" in line]
    assert [line["step"] for line in scores] == [2, 4]
    for line in scores:
        assert line["dev/score"] == pytest.approx((line["dev/retrieval"] + line["dev/spearman"]) / 2)
    best = max(scores, key=lambda line: line["dev/score"])
    student = jdistill.load(str(place / "run" / "export"))
    found = evaluate_retrieval(student, place / "dev")["mine"]["ndcg@10"]
    assert 100 * found == pytest.approx(best["dev/retrieval"], abs=1e-3)


def test_checkpoints_of_a_student_that_asks_its_teachers_index_are_chosen_in_it(place: Path) -> None:
    """The teacher reads the documents once, whole and by its prompt for them, whatever the run shortens; each checkpoint its queries."""
    keys = in_teachers_index(place)
    done = run_inside(command("configs/simtde.py", place / "asks", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "vectors of mine's documents: 61 asked, 0 found" in done.stderr
    lines = [json.loads(line) for line in (place / "asks" / "distil" / "metrics.jsonl").read_text().splitlines()]
    scores = [line for line in lines if "dev/score" in line]
    assert [line["step"] for line in scores] == [2, 4] and not any("dev/retrieval" in line for line in lines)
    for line in scores:
        assert line["dev/score"] == pytest.approx((line["dev/retrieval_teacher_index"] + line["dev/spearman"]) / 2)
    best = max(scores, key=lambda line: line["dev/score"])["dev/retrieval_teacher_index"]
    student, teacher = (jdistill.load(str(place / name)) for name in ("asks/export", "prompted"))
    figures = [
        evaluate_retrieval(student, keys["dev_retrieval"], corpus_model=owner)["mine"]["ndcg@10"]
        for owner in (teacher, replace(teacher, max_length=SHORT), replace(teacher, prompts={}), None)
    ]
    assert 100 * figures[0] == pytest.approx(best, abs=1e-3)
    assert all(abs(figures[0] - other) > 1e-3 for other in figures[1:]), (
        figures
    )  # or the test would not tell whose index it is
    done = run_inside(command("configs/simtde.py", place / "asks", keys | {"index_by": "student"}))
    assert done.returncode == 2 and "index_by: 'teacher' there, 'student' now" in done.stderr, done.stderr[-2000:]


def in_teachers_index(place: Path) -> dict[str, object]:
    """Keys of a run in its teacher's index, whose teacher has prompts and whose collection has an empty document."""
    if not (place / "prompted").is_dir():
        teacher = replace(make_encoder(num_layers=2), prompts={"query": "find: ", "document": "text of a book: "})
        save_encoder(teacher, place / "prompted")
        corpus = write_collection(place / "dev-empty" / "mine", seed=5) / "corpus.jsonl"
        corpus.write_text(corpus.read_text() + "\n" + json.dumps({"_id": "none", "title": "", "text": ""}))
    return {
        "teacher": place / "prompted", "text": place / "text.txt", "text_column": "", "cache_dir": place / "cache", "held_out": 20,
        "student.layers": 2, "student.embedding_size": 12, "batch_size": 8, "max_steps": 4, "checkpoint_every": 2, "onnx": False,
        "latency_texts": 0, "index_texts": 0, "dev_retrieval": place / "dev-empty", "max_length": SHORT, "index_by": "teacher",
        "teacher_dtype": "float32",
    }  # fmt: skip


def test_a_teachers_index_that_cannot_be_asked_or_made_is_refused_before_the_first_step(place: Path) -> None:
    keys = in_teachers_index(place)
    done = run_inside(command("configs/simtde.py", place / "no-run-1", keys | {"loss.sentence": "pair_mse"}))
    assert done.returncode == 2 and "does not stand in its teacher's space" in done.stderr, done.stderr[-2000:]
    texts = (place / "text.txt").read_text().splitlines()
    np.savez(place / "vectors.npz", texts=np.array(texts), embeddings=make_encoder(num_layers=2).encode(texts))
    of_file = {
        "teacher": f"vectors:{place / 'vectors.npz'}",
        "start": place / "prompted",
        "text": "",
        "loss.token": "none",
    }
    done = run_inside(command("configs/simtde.py", place / "no-run-2", keys | of_file))
    assert done.returncode == 2 and "the teacher cannot answer the collection's documents" in done.stderr, done.stderr[
        -2000:
    ]
    assert not list((place / "no-run-2").rglob("checkpoints"))


def test_its_questions_are_no_training_text(place: Path) -> None:
    removed = json.loads((place / "run" / "results.json").read_text())["training"]["removed_evaluation_texts"]
    assert removed >= 20 and f"removed {removed} texts" in (place / "log").read_text()


def test_the_teacher_is_measured_as_who_has_it_uses_it(place: Path) -> None:
    """The run shortened its texts, but what a student is held against reads as much as it does without us."""
    results = json.loads((place / "run" / "results.json").read_text())
    teacher = jdistill.load(str(place / "teacher"))
    whole = evaluate_retrieval(teacher, place / "test")["theirs"]
    short = evaluate_retrieval(replace(teacher, max_length=SHORT), place / "test")["theirs"]
    assert of(results["teacher_retrieval"]["theirs"]) == pytest.approx(of(whole), abs=1e-6)
    assert of(whole) != pytest.approx(of(short), abs=1e-6)  # or the test would say nothing
    assert jdistill.load(str(place / "run" / "export")).max_length == SHORT


def test_the_student_asks_the_teachers_index(place: Path) -> None:
    results = json.loads((place / "run" / "results.json").read_text())
    student, teacher = jdistill.load(str(place / "run" / "export")), jdistill.load(str(place / "teacher"))
    asked = evaluate_retrieval(student, place / "test", corpus_model=teacher)["theirs"]
    assert of(results["asymmetric_retrieval"]["theirs"]) == pytest.approx(of(asked), abs=1e-6)
    both = evaluate_beside_queries_of(student, teacher, place / "test")
    assert of(both[0]["theirs"]) == pytest.approx(of(results["teacher_retrieval"]["theirs"]), abs=1e-6)
    assert of(both[1]["theirs"]) == pytest.approx(of(asked), abs=1e-6)


def test_both_indices_stand_side_by_side_with_their_owner(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_model = ["--model", str(place / "run" / "export"), "--corpus_model", str(place / "teacher")]
    assert evaluate.main([*of_model, "--beir", str(place / "test"), "--out", str(place / "both.json")]) == 0
    figures, lines = json.loads((place / "both.json").read_text()), capsys.readouterr().out.splitlines()
    own, asked = (figures[key]["theirs"]["ndcg@10"] for key in ("own_index_retrieval", "retrieval"))
    results = json.loads((place / "run" / "results.json").read_text())
    for value, key in ((own, "retrieval"), (asked, "asymmetric_retrieval")):
        assert value == pytest.approx(results[key]["theirs"]["ndcg@10"], abs=1e-6)
    assert f"Retrieval, theirs: in an index of its own, and in that of {place / 'teacher'}" in lines
    (line,) = [line for line in lines if line.split()[:1] == ["ndcg@10"]]
    assert [float(value) for value in line.split()[1:]] == pytest.approx([own, asked], abs=1e-4)


def test_an_index_of_a_stranger_is_refused_with_what_to_train(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its vectors are as wide, and have nothing to do with the student's."""
    save_encoder(make_encoder(seed=9, num_layers=2), place / "stranger")
    of_model = ["--model", str(place / "run" / "export"), "--corpus_model", str(place / "stranger")]
    assert evaluate.main([*of_model, "--beir", str(place / "test")]) == 2
    told = capsys.readouterr().err
    assert (
        "the corpus model, of 20 query and 30 document texts of theirs: the student's vectors have a mean cosine"
        in told
    )
    assert "not above 0.5" in told and "--config configs/search.py" in told and "--config.loss.align=1" in told


def test_page_and_card_say_whose_index_it_was(place: Path) -> None:
    results = json.loads((place / "run" / "results.json").read_text())
    page, card = ((place / "run" / name).read_text() for name in ("report.html", "export/README.md"))
    for key in ("asymmetric_retrieval", "bm25_retrieval"):
        shown = f"{results[key]['theirs']['ndcg@10']:.4f}"
        assert shown in page and shown in card
    assert "Student asks the teacher&#39;s index" in page and "| its queries, the teacher's index | BM25 |" in card


def test_a_collection_without_judgements_is_refused_before_the_first_step(place: Path) -> None:
    folder = write_collection(place / "unjudged", seed=7)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t0\n")
    keys = {"teacher": place / "teacher", "text": place / "text.txt", "text_column": "", "cache_dir": place / "cache"}
    done = run_inside(
        command(
            "configs/simtde.py",
            place / "no-run-3",
            keys | {"student.layers": 2, "student.embedding_size": 12, "dev_retrieval": folder},
        )
    )
    assert done.returncode == 2 and "no query of queries.jsonl has a relevant document" in done.stderr, done.stderr
    assert not list((place / "no-run-3").rglob("checkpoints"))
