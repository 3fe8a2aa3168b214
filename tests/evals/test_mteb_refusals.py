"""What mteb cannot score is refused before a model is loaded, in one line that says what to do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from commands import ROOT
from conftest import make_encoder, sentences

pytest.importorskip("mteb", reason="mteb is not installed, which the test extra brings")

import datasets
import huggingface_hub
import mteb

from jdistill.core.errors import UserError
from jdistill.evals.mteb.adapter import MtebEncoder, model_meta
from jdistill.evals.mteb.entry import mteb_scores, read_mteb
from jdistill.evals.mteb.run import evaluate_mteb, task_groups
from jdistill.evaluate import main


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As HF_HUB_OFFLINE=1 sets it, which these libraries read when they are imported."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def pairs_file(path: Path, scores: list[int]) -> Path:
    rows = "".join(f"{text},{text[::-1]},{score}\n" for text, score in zip(sentences(len(scores)), scores, strict=True))
    path.write_text("sentence1,sentence2,score\n" + rows)
    return path


def test_a_name_that_mteb_does_not_have() -> None:
    with pytest.raises(
        UserError, match=r"--mteb=NanoBER: mteb [\d.]+ has no such task or benchmark; near it: NanoBEIR.*beir:PATH"
    ):
        task_groups(["NanoBER"])
    with pytest.raises(UserError, match=r"--mteb=nonsense-of-ours: .* no such task or benchmark\. Local files are"):
        task_groups(["nonsense-of-ours"])


def test_nanobeir_is_a_benchmark_of_thirteen_collections() -> None:
    (group,) = task_groups(["NanoBEIR"])
    assert len(group.tasks) == 13 and not group.is_local
    assert {task.metadata.main_score for task in group.tasks} == {"ndcg_at_10"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("beir:PLACE/nowhere", "there is no such file or folder"),
        ("beir:nobody/nothing", "there is no such folder; name mteb's own task"),
        ("beir:PLACE/empty", "no collection in"),
        ("pairs:PLACE/nowhere.csv", "nowhere.csv cannot be read"),
        ("pairs:PLACE/flat.csv", "all 5 pairs have the score 3; ranks need different scores"),
        ("labelled:PLACE/nowhere", "there is no such folder; FOLDER and FOLDER:TASK are understood"),
        ("labelled:nowhere", "there is no such folder; FOLDER and FOLDER:TASK are understood"),
        ("labelled:PLACE/empty:sst2", "sentiment-train is missing"),
        ("labelled:PLACE/nli", "mteb scores pairs of two labels, and here are a, b, c"),
    ],
)
def test_local_files_that_are_not_there_or_do_not_fit(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "empty").mkdir()
    pairs_file(tmp_path / "flat.csv", [3] * 5)
    (tmp_path / "nli").mkdir()
    for split in ("train", "dev"):
        rows = [f"{text}\tother\t{label}" for text, label in zip(sentences(6), "abcabc", strict=True)]
        (tmp_path / "nli" / f"{split}.tsv").write_text("\n".join(["premise\thypothesis\tlabel", *rows]) + "\n")
    with pytest.raises(UserError, match=why):
        task_groups([name.replace("PLACE", str(tmp_path))])


def test_two_tasks_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pairs_file(tmp_path / name / "mine.csv", [1, 2, 3])
    names = [f"pairs:{tmp_path / name / 'mine.csv'}" for name in ("a", "b")]
    with pytest.raises(
        UserError, match=r"a/mine.csv and .*b/mine.csv both bring local-pairs-mine; leave one out, or rename it"
    ):
        task_groups(names)


def test_flags_that_go_together(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for more in (["--mteb", "STS12"], ["--mteb_results", str(tmp_path)]):
        assert main(["--model", "nowhere", *more, "--pairs", "mine.csv"]) == 2
        assert "--mteb, what to score on, and --mteb_results" in capsys.readouterr().err


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="holds files and no results/, where mteb keeps figures; name a new folder"):
        read_mteb(["STS12"], str(tmp_path))
    with pytest.raises(UserError, match="is a file; name a folder"):
        read_mteb(["STS12"], str(tmp_path / "thesis.txt"))


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    """And everything else works: nothing but --mteb imports it."""
    code = "import sys; sys.modules['mteb'] = None; from jdistill.evaluate import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["--model", "nowhere", "--mteb", "STS12", "--mteb_results", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: --mteb needs the mteb extra: pip install -e '.[mteb]'"


def test_a_hub_that_does_not_answer_ends_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a model is loaded; local files beside ask nobody."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    local = f"pairs:{pairs_file(tmp_path / 'mine.csv', [1, 2, 3])}"
    why = "--mteb=NanoBEIR: its data are on the hub, and http://127.0.0.1:9 cannot be reached. HF_HUB_OFFLINE=1 reads copies"
    with pytest.raises(UserError, match=why):
        read_mteb([local, "NanoBEIR"], str(tmp_path / "out"))
    assert len(read_mteb([local], str(tmp_path / "out"))) == 1


def test_data_that_no_copy_is_cached_of(tmp_path: Path) -> None:
    model = make_encoder(num_layers=1)
    asked = MtebEncoder(model, model_meta(model, "my/model"))
    with pytest.raises(
        UserError,
        match=r"--mteb=STS12: mteb could not run it .*Its data are the dataset mteb/sts12-sts; without the hub",
    ):
        evaluate_mteb(asked, task_groups(["STS12"]), tmp_path)


def test_a_damaged_file_of_figures_is_named(tmp_path: Path) -> None:
    model = make_encoder(num_layers=1)
    meta = model_meta(model, "my/model")
    path = mteb.ResultCache(tmp_path).get_task_result_path("STS12", meta)
    path.parent.mkdir(parents=True)
    path.write_text('{"task_name": "STS12", "sc')
    with pytest.raises(UserError, match=r"STS12.json is no file of mteb's figures \(.*\); remove it"):
        evaluate_mteb(MtebEncoder(model, meta), task_groups(["STS12"]), tmp_path)


def test_an_index_of_another_width(tmp_path: Path) -> None:
    model, owner = make_encoder(num_layers=1), make_encoder(num_layers=1, hidden_size=64)
    groups = task_groups([f"pairs:{pairs_file(tmp_path / 'mine.csv', [1, 2, 3])}"])
    with pytest.raises(UserError, match="the corpus model: its vectors are 64 wide and the student's 32"):
        mteb_scores(groups, str(tmp_path / "out"), model, "my/model", corpus_model=owner, corpus_source="my/owner")


def test_models_are_told_apart_in_a_folder_of_results(tmp_path: Path) -> None:
    """Weights, prompts and who fills the index: a figure of one is never taken for another's."""
    model = make_encoder(num_layers=1)
    others = [make_encoder(1, num_layers=1), replace(model, prompts={"query": "ask: "}, default_prompt="query")]
    paths = {
        mteb.ResultCache(tmp_path).get_task_result_path("T", model_meta(of, "my/model")) for of in (model, *others)
    }
    for owner in others:
        meta = model_meta(model, "my/model", corpus_model=owner, corpus_source="my/owner")
        paths.add(mteb.ResultCache(tmp_path).get_task_result_path("T", meta))
    assert len(paths) == 5
