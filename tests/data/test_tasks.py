"""Labelled tasks: each layout, what is refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder
from task_setting import senteval

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets import task_files
from jdistill.data.sets.tasks import read_task
from jdistill.evals.task import task_results
from jdistill.models.classifier_head import random_head


def test_senteval_s_layouts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log.addHandler(caplog.handler)
    folder = str(senteval(tmp_path))
    sst = read_task("sst2", folder)
    assert (len(sst.train), len(sst.dev), len(sst.test or ())) == (8, 4, 6) and not sst.pairs
    assert sst.train.texts[1] == "train film 1" and sst.train.labels.tolist() == [0, 1] * 4
    mrpc = read_task("mrpc", folder)
    assert mrpc.pairs and (len(mrpc.train), len(mrpc.dev)) == (18, 2) and mrpc.metrics == ("accuracy", "f1")
    assert mrpc.test is not None and mrpc.test.others == [f"other {i}" for i in range(6)]
    assert not set(mrpc.train.texts) & set(mrpc.dev.texts)
    trec = read_task("trec", folder)
    assert trec.labels == ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM") and "caf\xe9" in trec.train.texts[0]
    mr = read_task("mr", folder)
    assert "mr has no test split: 4 rows drawn by the seed stand for one" in caplog.text
    log.removeHandler(caplog.handler)
    assert (len(mr.train), len(mr.dev), len(mr.test or ())) == (32, 4, 4) and mr.labels == ("neg", "pos")
    assert mr.train.texts == read_task("mr", folder).train.texts != read_task("mr", folder, seed=1).train.texts
    assert len(read_task("sst2", folder, label_fraction=0.5).train) == 4


def test_own_files_of_pairs(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text('sentence1\tsentence2\tlabel\na "quoted\tb\tyes\nc\td\tno\n')
    (tmp_path / "dev.jsonl").write_text('{"sentence1": "e", "sentence2": "f", "label": "no"}\n')
    task = read_task("mine", str(tmp_path))
    assert task.labels == ("no", "yes") and task.train.texts == ['a "quoted', "c"] and task.test is None
    assert task.dev.labels.tolist() == [0]


BAD = {
    "label": (
        "sentence\tlabel\na\tx\nb\ty\n",
        "sentence\tlabel\nc\tz\n",
        "dev.tsv, line 2: label 'z' is not one of x, y",
    ),
    "empty": ("sentence\tlabel\na\tx\n \ty\n", "sentence\tlabel\nc\tx\n", "train.tsv, line 3: an empty sentence"),
    "side": (
        "sentence1\tsentence2\tlabel\na\t\tx\n",
        "sentence1\tsentence2\tlabel\nc\td\tx\n",
        "train.tsv, line 2: the pair's sentence2 is missing",
    ),
    "column": (
        "text1\tlabel\na\tx\n",
        "sentence\tlabel\nc\tx\n",
        "the columns sentence .* there are .'label', 'text1'",
    ),
}


BAD |= {
    "key": (
        "sentence1\tsentence2\tlabel\na\tb\tx\n",
        "sentence1\tlabel\nc\tx\n",
        "dev.tsv, line 2: the pair's sentence2 is missing",
    ),
    "twice": ("sentence\tlabel\tsentence\n", "", "train.tsv line 1: 2 columns are called"),
    "tab": (
        "sentence\tlabel\na\tb\t1\nc\t0\n",
        "sentence\tlabel\nc\t1\n",
        "train.tsv, line 2: more columns than the header's 2",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_named_with_file_and_line(tmp_path: Path, case: str) -> None:
    train, dev, message = BAD[case]
    (tmp_path / "train.tsv").write_text(train)
    (tmp_path / "dev.tsv").write_text(dev)
    with pytest.raises(UserError, match=message):
        read_task("mine", str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"sentence": "caf\xe9", "label": "x"}\n', "train.jsonl is not UTF-8"),
        (b'{"sentence": "a", "label": "x"}\n[1]\n', "train.jsonl, line 2 is no JSON object"),
        (b'{"sentence": "a", "label": "x"}\n{"label": "x"}\n', "train.jsonl, line 2: sentence is missing"),
        (
            b'{"sentence1": "a", "sentence2": "b", "label": "x"}\n{"sentence1": "c", "label": "y"}\n',
            "line 2: the pair's sentence2",
        ),
    ],
)
def test_bad_records_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "train.jsonl").write_bytes(content)
    (tmp_path / "dev.jsonl").write_text('{"sentence": "a", "label": "x"}\n')
    with pytest.raises(UserError, match=message):
        read_task("mine", str(tmp_path))


def test_labels_of_numbers_beside_gaps_are_read_as_pandas_writes_them(tmp_path: Path) -> None:
    labels = enumerate((1, 1.0, 0.0, 0, -1.0, 2.5))
    lines = [f'{{"sentence": "text {i}", "label": {label}}}\n' for i, label in labels]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_text("".join(lines))
    task = read_task("mine", str(tmp_path))  # -1 is none
    assert task.labels == ("0", "1", "2.5") and [*task.train.labels] == [1, 1, 0, 0, 2]
    (tmp_path / "train.jsonl").write_text("".join(lines) + '{"sentence": "a gap", "label": NaN}\n')
    with pytest.raises(UserError, match="train.jsonl, line 7: label '' is not one of 0, 1, 2.5"):
        read_task("mine", str(tmp_path))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("1 -1 1 -1", "train.tsv, line 2 and on: .* one label, '1', .* 2 rows labelled - or -1 .* name it 0$"),
        ("-1 -1", "the training rows have no label, .* 2 rows labelled"),
        ("x x", "one label, 'x', and a task tells two or more apart$"),
    ],
)
def test_a_task_of_fewer_than_two_labels_is_refused(tmp_path: Path, labels: str, message: str) -> None:
    for split in ("train", "dev"):
        rows = [f"text {i}\t{label}\n" for i, label in enumerate(labels.split())]
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    with pytest.raises(UserError, match=message):
        read_task("mine", str(tmp_path))


@pytest.mark.parametrize("rows", ["", "a\t-1\nb\t-\n"])
def test_a_dev_split_without_a_labelled_row_is_refused(tmp_path: Path, rows: str) -> None:
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\tx\nb\ty\n")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n" + rows)
    with pytest.raises(UserError, match=f"task mine: the dev split of {tmp_path} has no labelled row"):
        read_task("mine", str(tmp_path))


def test_labels_that_mean_none_and_may_be_a_class_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(task_files.log, "warning", lambda line, *values: told.append(line % values))
    for share, labels in (("few", 20 * ["0", "1"] + ["-1"]), ("many", 4 * ["0", "1", "-1"])):
        folder = tmp_path / share
        folder.mkdir()
        for split in ("train", "dev"):
            rows = [f"text {i}\t{label}\n" for i, label in enumerate(labels)]
            (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
        assert read_task("mine", str(folder)).labels == ("0", "1")
    assert len(told) == 2 and told[0].startswith(
        "WARNING: train: 4 of 12 rows are labelled - or -1, which means no label"
    )


def test_columns_of_pairs_labels_without_and_the_positive_one(tmp_path: Path) -> None:
    def write(split: str, *rows: dict) -> None:
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    row = {"question": "who?", "sentence": "she " + 200_000 * "x", "label": "entailment"}
    write("train", row, row | {"label": "not_entailment"}, row | {"label": "-"})
    write("dev", row)
    write("test", row | {"label": "-1"}, {"question": "who?", "sentence": "he"})  # as GLUE's own, without labels
    task = read_task("qnli", str(tmp_path))
    assert task.pairs and task.train.texts == ["who?"] * 2 and task.test is None
    assert task.labels == ("not_entailment", "entailment") and task.train.labels.tolist() == [1, 0]
    (tmp_path / "train.tsv").write_text(
        "sentence1\tsentence2\tlabel\na\t" + 200_000 * "x" + "\tnot_equivalent\nc\td\tequivalent\n"
    )
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tequivalent\n")
    (tmp_path / "test.jsonl").unlink()
    mrpc = read_task("mrpc", str(tmp_path))
    assert mrpc.labels == ("not_equivalent", "equivalent") and mrpc.metrics == ("accuracy", "f1")
    (tmp_path / "dev.jsonl").unlink()
    (tmp_path / "dev.tsv").rename(tmp_path / "dev_matched.tsv")
    (tmp_path / "dev_mismatched.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tequivalent\nc\td\tequivalent\n")
    both = read_task("mine", str(tmp_path))
    assert len(both.dev) == 1 and both.other_dev is not None and len(both.other_dev) == 2
    head = random_head(32, 2, 8, 2, np.random.default_rng(0))
    found = task_results(both, make_encoder(num_layers=1), head)
    assert found.keys() == {"mine", "mine-mm"} and found["mine"]["split"] == found["mine-mm"]["split"] == "dev"
    assert found["mine"]["rows"] == {"train": 2, "dev": 1} and found["mine-mm"]["rows"] == {"train": 2, "dev": 2}


@pytest.mark.parametrize("name", ["snli", "mnli", "qnli"])
def test_glue_by_datasets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    columns = ("question", "sentence") if name == "qnli" else ("premise", "hypothesis")
    kinds = datasets.ClassLabel(names=["entailment", "other"])
    features = datasets.Features(
        {columns[0]: datasets.Value("string"), columns[1]: datasets.Value("string"), "label": kinds}
    )

    def rows(*labels: int) -> object:
        texts = [f"text {i}" for i in range(len(labels))]
        return datasets.Dataset.from_dict({columns[0]: texts, columns[1]: texts, "label": list(labels)}, features)

    splits = {"train": rows(0, 1, -1, 1), "validation": rows(1, 1, 0)}
    if name == "mnli":
        splits = {"train": rows(0, 1), "validation_matched": rows(0), "validation_mismatched": rows(1, 1)}
    asked = []
    monkeypatch.setattr("jdistill.data.text.hub.hub_answers", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: asked.append(given) or datasets.DatasetDict(splits))
    task = read_task(name, "owner/sets")
    assert asked == [("owner/sets", {"snli": "plain_text"}.get(name, name))]
    # As own files with these names have it: of two labels entailment is the positive one, whatever its number is.
    assert task.labels == ("other", "entailment") and task.pairs and task.train.labels.tolist()[:2] == [1, 0]
    assert len(task.dev) == {"mnli": 1}.get(name, 3) and (task.train.labels >= 0).all()
    assert (task.other_dev is not None and len(task.other_dev) == 2) == (name == "mnli")
    empty = splits["train"].map(lambda row: row | {columns[1]: " "})  # type: ignore[attr-defined]
    splits["train"] = empty
    with pytest.raises(UserError, match=f"owner/sets .*, train, row 0: the pair's {columns[1]} is missing"):
        read_task(name, "owner/sets")


def test_what_is_not_there_or_of_another_layout_is_named(tmp_path: Path) -> None:
    folder = senteval(tmp_path / "senteval")
    (folder / "MRPC" / "msr_paraphrase_train.txt").write_text("Quality\n1\tonly two\n")
    with pytest.raises(UserError, match="msr_paraphrase_train.txt, line 2: 2 columns, not label"):
        read_task("mrpc", str(folder))
    (folder / "SST" / "binary" / "sentiment-dev").write_text("no tab here\n")
    with pytest.raises(UserError, match="sentiment-dev, line 1: a sentence, a tab and 0 or 1"):
        read_task("sst2", str(folder))
    (folder / "SST" / "binary" / "sentiment-train").write_text("one \t2\n")
    with pytest.raises(UserError, match="sentiment-train, line 1: label '2' is not one of 0, 1"):
        read_task("sst2", str(folder))
    with pytest.raises(
        UserError, match="subj.objective is missing: the folder of the task is not laid out as SentEval"
    ):
        read_task("subj", str(folder))
    with pytest.raises(UserError, match="holds no train.tsv or train.jsonl, and SentEval's layout is known of sst2"):
        read_task("cola", str(folder))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train.tsv").write_text("sentence\tlabel\na\tx\n")
    with pytest.raises(UserError, match="holds no dev or dev_matched as .tsv or .jsonl"):
        read_task("mine", str(tmp_path / "own"))
    with pytest.raises(UserError, match="label_fraction=0.0 must lie above 0"):
        read_task("mr", str(folder), label_fraction=0.0)
    with pytest.raises(UserError, match="task trec: no training row has the label"):
        read_task("trec", str(folder), label_fraction=0.05)
