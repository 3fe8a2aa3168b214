"""A model card, read back as the hub reads it: its metadata, its results, and names of others that stay names."""

from __future__ import annotations

import json
import re
import shutil
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import make_encoder, save_encoder
from huggingface_hub import EvalResult, ModelCard
from t5_setting import make_t5

from jdistill.export.card import write_card
from jdistill.export.card_metadata import Release, hub_id, language_code, license_name, metadata

LABELS = {"accuracy": 81.25, "f1": 70.0, "ap": 64.0, "precision": 61.5, "recall": 80.0, "prior": 33.3, "threshold": 0.2}
RESULTS: dict[str, Any] = {
    "student": {"name": "student", "num_params": 9_493_632},
    "teacher": {"name": "owner/teacher", "num_params": 22_713_216},
    "sts": {"STS12": 72.123456, "SICK-R": 70.0, "Avg": 71.0},
    "teacher_sts": {"STS12": 80.0, "Avg": 78.0},
    "retrieval": {"scifact": {"ndcg@10": 0.61, "recall@100": 0.9, "index_bytes": 1536, "queries_per_s": 90.5}},
    "teacher_retrieval": {"scifact": {"ndcg@10": 0.64}},
    "scored_pairs": 68.0,
    "teacher_scored_pairs": 80.0,
    "pairs": {"same": {"student": LABELS, "teacher": LABELS | {"ap": 99.0}}},
    "task": {"sst2": {"accuracy": 90.5, "split": "dev", "dev": {"accuracy": 90.5}, "rows": {"train": 10}}},
    "questions": {"answers": {"cosine": {"ndcg@10": 0.5, "mrr@10": 0.4, "recall@10": 0.75}}},
    "warning": "the student gives every text the same vector",
    "agreement": {"mean_cosine": 0.9651, "spearman": 97.0},
    "training": {
        "sentences": 365_012,
        "texts": 9000,
        "steps": 2852,
        "devices": "2 x cpu",
        "removed_evaluation_texts": 3,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported student."""
    return save_encoder(make_encoder(num_layers=1), tmp_path_factory.mktemp("card") / "export")


def card_of(folder: Path, workdir: Path, teacher: str, results: dict[str, Any], measured: str = "") -> ModelCard:
    """The card of a run with this teacher and these results, as huggingface_hub loads it."""
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "config.json").write_text(json.dumps({"method": "simtde", "teacher": teacher}))
    write_card(workdir, folder, measured, results)
    return ModelCard.load(folder / "README.md")


def found(results: list[EvalResult]) -> set[tuple[Any, ...]]:
    return {(of.task_type, of.dataset_type, of.dataset_split, of.metric_type, of.metric_value) for of in results}


def test_the_hub_finds_what_was_measured(folder: Path, tmp_path: Path) -> None:
    card = card_of(folder, tmp_path / "my run", "owner/teacher-v1.5", RESULTS)
    data = card.data.to_dict()
    assert data["library_name"] == "sentence-transformers" and data["pipeline_tag"] == "sentence-similarity"
    assert {"sentence-transformers", "jdistill"} <= set(data["tags"]) and data["base_model"] == "owner/teacher-v1.5"
    assert "language" not in data and data["model-index"][0]["name"] == card.data.model_name == "my run"
    pairs = ("binary-classification", "same", None)
    assert found(card.data.eval_results) == {
        ("semantic-similarity", "mteb/sts12-sts", "test", "spearmanr", 72.1235),
        ("semantic-similarity", "SICK-R", "test", "spearmanr", 70.0),
        ("information-retrieval", "scifact", None, "ndcg_at_10", 0.61),
        ("information-retrieval", "scifact", None, "recall_at_100", 0.9),
        (*pairs, "accuracy", 81.25),
        (*pairs, "f1", 70.0),
        (*pairs, "average_precision", 64.0),
        (*pairs, "precision", 61.5),
        (*pairs, "recall", 80.0),
        ("text-classification", "sst2", "dev", "accuracy", 90.5),
    }
    assert {of.metric_name for of in card.data.eval_results if of.task_type == "binary-classification"} == {
        f"{measure} in percent" for measure in ("accuracy", "f1", "average precision", "precision", "recall")
    }


def test_figures_of_an_approximate_search_name_its_index(folder: Path, tmp_path: Path) -> None:
    results = RESULTS | {"searched_by": {"index": "IVF4,Flat", "effort": "nprobe=2"}}
    card = card_of(folder, tmp_path / "run", "owner/teacher", results)
    assert "\n## Retrieval: scifact, vectors in an index IVF4,Flat (nprobe=2)\n" in card.text
    names = {of.metric_name for of in card.data.eval_results if of.task_type == "information-retrieval"}
    assert names == {f"{metric}, vectors in an index IVF4,Flat (nprobe=2)" for metric in ("ndcg@10", "recall@100")}
    before = {
        "method": "simtde",
        "teacher": "owner/teacher",
        "index": "HNSW8",
        "index_effort": "",
    }  # results did not say it once
    (tmp_path / "run" / "config.json").write_text(json.dumps(before))
    write_card(tmp_path / "run", folder, results=RESULTS)
    assert "\n## Retrieval: scifact, vectors in an index HNSW8\n" in (folder / "README.md").read_text()


def test_the_text_of_a_card_shows_the_same_figures(folder: Path, tmp_path: Path) -> None:
    text = card_of(folder, tmp_path / "run", "owner/teacher", RESULTS).text
    assert text.startswith(
        "\n# run\n\nA sentence encoder of 9.5 million parameters with 32-dimensional vectors, distilled"
    )
    for line in (
        "| STS12 | 72.12 | 80.00 | 90.2 % |",
        "| SICK-R | 70.00 |  |  |",
        "## Dev pairs (Spearman x 100)",
        "| pairs | 68.00 | 80.00 | 85.0 % |",
        "the student gives every text the same vector",
        "## Classification, by head.safetensors",
        "| sst2 | dev | accuracy | 90.50 |",
        "| answers | cosine | 0.500 | 0.400 | 0.750 |",
        "| ndcg@10 | 0.6100 | 0.6400 |",
        "| recall@100 | 0.9000 |  |",
        "| student | 81.25 | 64.00 | 61.50 | 80.00 |",
        "| mean cosine | 0.9651 |",
        "365,012 sentences of 9,000 distinct texts in 2,852 steps on 2 x cpu; 3 texts of evaluation sets were removed first.",
    ):
        assert line in text.splitlines(), line
    write_card(tmp_path / "run", folder, measured="another stage", results=RESULTS, num_params=4_000_000)
    assert "encoder of 4.0 million parameters" in (folder / "README.md").read_text()
    assert "33.3 % of them are positives" in text and "## Agreement with the teacher on held-out text" in text


def test_a_card_of_labelled_rows_alone_counts_no_texts(folder: Path, tmp_path: Path) -> None:
    training = {"sentences": 64, "steps": 8, "devices": "1 x cpu"}
    for before in ({}, {"texts": 0, "removed_evaluation_texts": 0}):  # as runs wrote it once
        text = card_of(folder, tmp_path / "run", "owner/teacher", {"training": training | before}).text
        assert "\n64 sentences in 8 steps on 1 x cpu.\n" in text


def test_a_teacher_s_figure_of_nothing_is_no_divisor(folder: Path, tmp_path: Path) -> None:
    results = {"sts": {"STS12": 72.0}, "teacher_sts": {"STS12": 0.0}}
    assert "| STS12 | 72.00 | 0.00 |  |" in card_of(folder, tmp_path / "run", "owner/teacher", results).text


def test_auto_model_is_named_where_it_makes_the_encoder(folder: Path, tmp_path: Path) -> None:
    """Of T5 it makes a decoder too, which the folder has no weights for; AutoTokenizer does not lower text as the first module's settings ask."""
    lowered = shutil.copytree(folder, tmp_path / "lowered")
    settings = lowered / "sentence_bert_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"do_lower_case": True}))
    t5 = save_encoder(make_t5(), tmp_path / "t5")
    for place, is_named in ((folder, True), (t5, False), (lowered, False)):
        assert ("AutoModel" in card_of(place, tmp_path / "run", "owner/teacher", RESULTS).text) == is_named


@pytest.mark.parametrize(("results", "measured"), [({}, ""), (RESULTS, "the checkpoint that it exports")])
def test_a_card_claims_no_figures_that_are_not_its_own(
    results: dict[str, Any], measured: str, folder: Path, tmp_path: Path
) -> None:
    card = card_of(folder, tmp_path / "run", "owner/teacher", results, measured)
    assert card.data.eval_results is None and "model-index" not in card.data.to_dict()
    assert "STS12" not in card.text and ("the run measured the checkpoint that it exports" in card.text) == bool(
        measured
    )


def test_a_model_of_the_hub_is_told_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "teacher").mkdir(parents=True)
    assert hub_id("owner/name_1.5-x") == "owner/name_1.5-x"
    cache = "/home/me/.cache/huggingface/hub/models--owner--my-name/snapshots/0a1b2c"
    assert hub_id(cache) == hub_id(cache + "/") == "owner/my-name"
    assert hub_id("st:owner/name") == hub_id(f"st:owner/name@{'0a' * 20}") == "owner/name"
    for source in (
        "runs/teacher",
        "runs/gone",
        "pkg:json/x",
        "owner/a:b",
        "st:runs/teacher",
        "st:owner/name@main",
        "a/b/c",
        "x",
        "",
        "owner/a--b",
        "owner/a.gguf/",
        "\x1b/x",
    ):
        assert hub_id(source) is None, source
    start = metadata("run", {"teacher": "", "start": "owner/start"}, {})
    assert "base_model: owner/start\n" in start and "base_model" not in metadata("run", {"teacher": "runs/teacher"}, {})
    # Of a run: as it was where the run was started, wherever and whenever it is exported.
    assert "base_model" not in metadata("run", {"teacher": "runs/gone2"}, {"base_model": None})
    assert "base_model: owner/a\n" in metadata("run", {"teacher": "owner/a"}, {"base_model": "owner/a"})
    both = metadata("run", {}, {}, Release(languages=("de", "pt-BR")))
    assert (
        "language:\n- de\n" in both and "language_bcp47:\n- pt-BR\n" in both
    )  # the hub takes no region under the first


def test_licence_and_languages_are_those_that_the_user_states(folder: Path, tmp_path: Path) -> None:
    card = card_of(folder, tmp_path / "run", "owner/teacher", RESULTS)
    assert card.data.license is None and card.data.language is None
    write_card(tmp_path / "run", folder, "", RESULTS, Release("owner/student", "cc-by-4.0", ("en", "zh-Hant")))
    card = ModelCard.load(folder / "README.md")
    assert card.data.license == "cc-by-4.0" and card.data.language == ["en"]
    assert card.data.language_bcp47 == ["zh-Hant"]
    assert card.data.base_model == "owner/teacher" and len(card.data.eval_results) == 10
    assert 'SentenceTransformer("owner/student")' in card.text and "path/to" not in card.text
    for check, right, wrong in (
        (license_name, ["mit", "apache-2.0", "other"], ["MIT", "", "a b", "-x", "a\nb", "a: b"]),
        (language_code, ["en", "deu", "zh-Hant", "multilingual"], ["", "EN", "english", "e", "en\n", "en_US", "[en]"]),
    ):
        assert [check(text) for text in right] == right
        for text in wrong:
            with pytest.raises(ArgumentTypeError):
                check(text)


HOSTILE = "\n---\n# heading\n<script>alert('\"1')</script>[a](http://b) ![i](j) `c`: {d} & |e|\x1b\u2028\ud800"


def test_names_of_others_are_no_markup_in_a_card(folder: Path, tmp_path: Path) -> None:
    results = {
        "sts": {HOSTILE: 1.0, "STS12": float("nan")},
        "retrieval": {HOSTILE: {HOSTILE: 0.5}},
        "pairs": {HOSTILE: {"student": LABELS, HOSTILE: LABELS}},
        "task": {HOSTILE: {"accuracy": 2.0, "split": HOSTILE}},
        "training": RESULTS["training"] | {"devices": HOSTILE},
    }
    workdir = tmp_path / HOSTILE.replace("/", "_").replace("\ud800", "")
    card = card_of(folder, workdir, HOSTILE, results)
    whole = (folder / "README.md").read_text("utf-8")
    block = whole.split("\n---\n")[0]
    assert not any(character in block for character in "<>`[]|&!*\x1b\u2028") and "base_model" not in block
    assert len(card.data.eval_results) == 8 and "model-index:" in block
    assert [of.metric_value for of in card.data.eval_results if of.task_type == "semantic-similarity"] == [1.0]
    # What stands as code Markdown shows letter by letter: the teacher's name between backticks, and how to load the model.
    prose, spans = re.subn(r"`` .* ``", "", re.sub(r"(?s)```\w+\n.*?\n```\n", "", card.text))
    for mark in ("<script>", "[a](", "![i]", "`c`", "\x1b", "\u2028"):
        assert mark not in prose, mark
    assert spans == 1 and "\\<script\\>" in prose
    assert "\n---\n" not in card.text and "\n# heading" not in card.text


@pytest.mark.parametrize("prompts, said", [
    ({"query": "ask: ", "passage": "tell: "}, "encodes the questions and `model.encode_document` the passages, each with its own"),
    ({"query": "ask: "}, "`model.encode_query` puts a prompt before the questions; the passages have none of their own."),
    ({"clustering": "group: "}, ""),
])  # fmt: skip
def test_sides_of_a_search_that_have_a_prompt_are_named(tmp_path: Path, prompts: dict[str, str], said: str) -> None:
    folder = save_encoder(replace(make_encoder(num_layers=1), prompts=prompts), tmp_path / "export")
    text = card_of(folder, tmp_path / "run", "owner/teacher", {}).text
    assert said in text and ("Of a search" in text) == bool(said)
