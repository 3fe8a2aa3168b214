"""jdistill.evaluate's flags: one that would do nothing is refused at once, and a file that came meanwhile is not replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from jdistill import evaluate
from jdistill.data.sets.beir import write_collection


@pytest.mark.parametrize(
    ("flags", "other"),
    [
        (["--corpus_model=m"], "--beir or --mteb"),
        (["--index=IVF16,Flat"], "--beir"),
        (["--index_effort=nprobe=4"], "--beir"),
        (["--rescore=all"], "--beir"),
        (["--task_dir=tasks"], "--transfer"),
        (["--onnx_file=onnx/model_quint8_avx2.onnx"], "--backend=onnx"),
        (["--trust_remote_code"], "--backend=torch"),
        (["--trust_remote_code", "--backend=onnx"], "--backend=torch"),
    ],
)
def test_a_flag_that_would_do_nothing_is_refused(
    flags: list[str], other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\na,b,1\nc,d,2\n")
    assert evaluate.main(["--model=no/such-model", f"--pairs={tmp_path / 'pairs.csv'}", *flags]) == 2
    name = flags[0].split("=")[0]
    assert f"error: {name} is of {other}, which is not given" in capsys.readouterr().err


def test_no_document_ranked_anew_is_no_number_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a config 0 means all; who writes it here may mean none."""
    assert evaluate.main(["--model=no/such-model", f"--beir={tmp_path}", "--rescore=0"]) == 2
    assert "--rescore=0: a number of documents, 1 or more, or all" in capsys.readouterr().err


def test_an_index_that_proposes_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--rescore=all", "--index=HNSW8"]
    assert evaluate.main(["--model=no/such-model", f"--beir={tmp_path}", *flags]) == 2
    assert "--rescore=all ranks every document, so that no index proposes any" in capsys.readouterr().err


def test_a_model_without_a_module_ranks_nothing_anew(
    tmp_path: Path, tiny_teacher: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_collection(tmp_path / "c", {"d": "a river"}, {"q": "water"}, {"q": {"d": 1}})
    assert evaluate.main([f"--model={tiny_teacher}", f"--beir={tmp_path / 'c'}", "--rescore=5"]) == 2
    assert "has no interaction module to rank documents anew by" in capsys.readouterr().err


def test_a_file_that_came_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\na,b,1\nc,d,2\n")
    out = tmp_path / "results.json"

    def scored(*_: object) -> dict[str, float]:
        out.write_text("a user's own")
        return {"scored_pairs": 12.5}

    monkeypatch.setattr(evaluate, "evaluate_model", scored)
    command = ["--model=no/such-model", f"--pairs={tmp_path / 'pairs.csv'}", f"--out={out}"]
    assert evaluate.main(command) == 2
    said = capsys.readouterr()
    assert "is there already" in said.err and "12.50" in said.out  # hours of scoring are told all the same
    assert out.read_text() == "a user's own"
    assert evaluate.main([*command, "--overwrite"]) == 0 and '"scored_pairs": 12.5' in out.read_text()


def test_figures_are_kept_where_nobody_reads_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\na,b,1\nc,d,2\n")
    monkeypatch.setattr(evaluate, "evaluate_model", lambda *_: {"scored_pairs": 12.5})
    monkeypatch.setattr(evaluate, "print", closed, raising=False)
    with pytest.raises(BrokenPipeError):
        evaluate.main.__wrapped__(["--model=m", f"--pairs={tmp_path / 'pairs.csv'}", f"--out={tmp_path / 'r.json'}"])
    assert '"scored_pairs": 12.5' in (tmp_path / "r.json").read_text()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("pairs", "sentence1,sentence2,score\na,b,1\nc,d,x\n", "line 3"),
        ("pairs", "sentence1,sentence2,score\na,b,1\nc,d,1\n", "ranks need different scores"),
        ("entity", "query,entity,label\nq,e,2\n", "line 2: the label is '2'"),
        ("entity", "query,entity,label\nq,e,0\n", "no query has an entity labelled 1"),
        ("geometry", "a,b\nx,y\n", "2 columns hold text; --geometry takes a file with one column of text"),
        ("geometry", "text\n", "no usable text"),
    ],
)
def test_a_set_that_cannot_be_scored_is_refused_before_the_model_is_loaded(
    name: str, content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "set.csv").write_text(content)
    folder = tmp_path / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    (folder / "sts-test.csv").write_text("g\tf\ty\t1\t5\tA man.\tA person.\n")
    command = ["--model=no/such-model", f"--{name}={tmp_path / 'set.csv'}"]
    if name == "geometry":
        assert evaluate.main(command) == 2 and "--geometry needs --senteval too" in capsys.readouterr().err
        command.append(f"--senteval={tmp_path}")
    assert evaluate.main(command) == 2
    assert said in capsys.readouterr().err


def test_a_damaged_file_of_sts_is_refused_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "SICK").mkdir()
    (tmp_path / "SICK" / "SICK_test_annotated.txt").write_text(
        "sentence_A\tsentence_B\trelatedness_score\na\tb\tfour\n"
    )
    assert evaluate.main(["--model=no/such-model", f"--senteval={tmp_path}"]) == 2
    assert "SICK_test_annotated.txt" in capsys.readouterr().err


def test_what_a_task_lacks_is_named_by_the_commands_own_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flag in ("task_dir", "senteval"):
        assert evaluate.main(["--model=no/such-model", "--transfer=unknown", f"--{flag}={tmp_path}"]) == 2
        said = capsys.readouterr().err
        assert "--transfer=unknown" in said and "--config" not in said


def test_one_task_s_folder_is_not_several_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\t0\nb\t1\n")
    flags = ["--model=no/such-model", f"--task_dir={tmp_path}", "--transfer", "sst2", "mrpc"]
    assert evaluate.main(flags) == 2
    assert "is one task, with a train file of its own, and --transfer names 2; name one" in capsys.readouterr().err
