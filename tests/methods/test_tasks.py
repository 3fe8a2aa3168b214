"""Labelled tasks: each layout, what is refused with file and line, the classifier's equations, fine-tuning and KD as runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import commands
import jax
import numpy as np
import pytest
from bilstm_setting import flavour
from conftest import make_encoder, save_encoder, sentences
from parity import assert_close
from safetensors.numpy import load_file
from simtde_setting import random_tokens

from configs import bilstm_sra_task
from jdistill.core.errors import UserError
from jdistill.data.sets.task_augment import WordsByTag, task_variants, variant
from jdistill.data.sets.tasks import Split, Task, read_task
from jdistill.data.text.sentences import split_sentences
from jdistill.encoder.classifier import Classifier, load_classifier, save_head
from jdistill.evals.classify import classification_scores
from jdistill.evals.task import task_results
from jdistill.export import command as exporter
from jdistill.export.folder import export
from jdistill.feeds.stage import Start
from jdistill.feeds.task import TaskFeed, read_rows
from jdistill.methods import METHODS
from jdistill.models import classifier_head
from jdistill.models.classifier_head import random_head
from jdistill.students.bilstm import make_bilstm, make_tokenizer


def senteval(folder: Path) -> Path:
    def write(name: str, lines: list[str], encoding: str = "utf-8") -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n", encoding=encoding)

    for split, count in (("train", 8), ("dev", 4), ("test", 6)):
        write(f"SST/binary/sentiment-{split}", [f"{split} film {i} \t{i % 2}" for i in range(count)])
    for split, count in (("train", 20), ("test", 6)):
        rows = [f"{i % 2}\t{i}\t{i}\tone {i}\tother {i}" for i in range(count)]
        write(f"MRPC/msr_paraphrase_{split}.txt", ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows])
    kinds = ["ABBR:exp", "DESC:def", "ENTY:food", "HUM:ind", "LOC:city", "NUM:date"]
    write("TREC/train_5500.label", [f"{kinds[i % 6]} Who is caf\xe9 {i} ?" for i in range(60)], "latin-1")
    write("TREC/TREC_10.label", [f"{kinds[i % 6]} What {i} ?" for i in range(6)], "latin-1")
    for sub, files in (("MR", ("rt-polarity.neg", "rt-polarity.pos")), ("CR", ("custrev.neg", "custrev.pos"))):
        for file in files:
            write(f"{sub}/{file}", [f"{file} {i}" for i in range(20)], "latin-1")
    return folder


def test_senteval_s_layouts(tmp_path: Path) -> None:
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
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: asked.append(given) or datasets.DatasetDict(splits))
    task = read_task(name, "owner/sets")
    assert asked == [("owner/sets", {"snli": "plain_text"}.get(name, name))]
    assert task.labels == ("entailment", "other") and task.pairs and task.train.labels.tolist()[:2] == [0, 1]
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
    with pytest.raises(UserError, match="subj.objective is missing: --config.task_dir is not laid out as SentEval"):
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


def test_scores_by_counting() -> None:
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    found = classification_scores(labels, predicted, ("accuracy", "f1"))
    assert found["accuracy"] == pytest.approx(100 * (labels == predicted).mean())
    hits = sum(a == b == 1 for a, b in zip(labels, predicted, strict=True))
    precision, recall = hits / sum(predicted == 1), hits / sum(labels == 1)
    assert found["f1"] == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert classification_scores(labels, np.zeros(200, int), ("f1",))["f1"] == 0


@pytest.mark.parametrize("pairs", [False, True])
def test_a_classifier_by_its_documented_reader(tmp_path: Path, pairs: bool) -> None:
    encoder = make_encoder()
    rng = np.random.default_rng(1)
    head = random_head(encoder.dim, 2 if pairs else 1, 16, 3, rng)
    model = Classifier(encoder, head, ("a", "b", "c"), pairs)
    export(encoder, tmp_path / "out")
    save_head(model, tmp_path / "out")
    texts, others = sentences(5), sentences(5, seed=1) if pairs else None
    again = load_classifier(str(tmp_path / "out"))
    assert again.predict(texts, others) == model.predict(texts, others) and again.fingerprint() == model.fingerprint()
    w = load_file(tmp_path / "out" / "head.safetensors")
    for row, text in enumerate(texts):
        v = encoder.encode([text])[0]
        u = encoder.encode([others[row]])[0] if others else v
        f = np.concatenate([v, u, np.abs(v - u), v * u]) if pairs else v
        hidden = np.maximum(w["hidden.weight"] @ f + w["hidden.bias"], 0)
        logits = w["out.weight"] @ hidden + w["out.bias"]
        assert_close(model.logits(texts, others)[row], logits, 4 * encoder.dim, 2 * 6)  # 4 layers and 2 of the head
    with pytest.raises(UserError, match="takes single texts" if not pairs else "takes pairs"):
        model.logits(texts, None if pairs else texts)
    with pytest.raises(UserError, match="holds no head.safetensors"):
        load_classifier(str(save_encoder(encoder, tmp_path / "plain")))


def settings(tmp_path: Path, **changes: object) -> dict[str, object]:
    return {
        "teacher": tmp_path / "start",
        "task": "flavour",
        "task_dir": tmp_path / "flavour",
        "scratch.embedding_size": 16,
        "scratch.lstm_size": 12,
        "batch_size": 16,
        "max_steps": 60,
        "checkpoint_every": 20,
        "learning_rate": 0.01,
        "length_buckets": 1,
        "onnx": False,
        "cache_dir": tmp_path / "cache",
    } | changes


def test_from_scratch_then_its_logits_teach_a_transformer(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "start")
    flavour(tmp_path / "flavour", pairs=False)
    first = commands.run_inside(
        commands.command("configs/bilstm_sra_task.py", tmp_path / "scratch", settings(tmp_path))
    )
    assert first.returncode == 0, first.stderr[-2000:]
    found = json.loads((tmp_path / "scratch" / "results.json").read_text())["task"]["flavour"]
    assert (
        found["accuracy"] > 85 and found["split"] == "test" and found["rows"] == {"train": 240, "dev": 80, "test": 80}
    )
    model = load_classifier(str(tmp_path / "scratch" / "export"))
    assert (
        model.predict(["a lemon"]) == ["1"] and model.encoder.config.model_type == "bilstm" and model.encoder.dim == 24
    )
    assert exporter.main(["--workdir", str(tmp_path / "scratch"), "--out", str(tmp_path / "again")]) == 0
    assert load_classifier(str(tmp_path / "again")).fingerprint() == model.fingerprint()
    again = settings(tmp_path, student=tmp_path / "start", kd=tmp_path / "scratch", learning_rate=1e-3)
    done = commands.run_inside(commands.command("configs/bilstm_sra_task.py", tmp_path / "kd", again))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "the fine-tuned teacher's logits: 240 asked" in done.stderr
    lines = [json.loads(line) for line in (tmp_path / "kd" / "task" / "metrics.jsonl").read_text().splitlines()]
    losses = [line for line in lines if "loss" in line]
    for line in losses:
        assert line["loss"] == pytest.approx(0.5 * line["cross_entropy"] + 0.5 * line["logit_mse"], rel=1e-4)
    assert losses[-1]["logit_mse"] < losses[0]["logit_mse"]
    other = settings(tmp_path, kd=tmp_path / "scratch", task="mr", task_dir=senteval(tmp_path / "senteval"))
    refused = commands.run_inside(commands.command("configs/bilstm_sra_task.py", tmp_path / "other", other))
    assert refused.returncode == 2 and "tells ('0', '1') apart, and the task mr has ('neg', 'pos')" in refused.stderr


def test_a_distilled_student_is_tuned_on_pairs(tmp_path: Path) -> None:
    from configs import bilstm_sra

    start = make_encoder()
    save_encoder(start, tmp_path / "start")
    cfg = bilstm_sra.get_config()
    cfg.student.embedding_size, cfg.student.lstm_size = 16, 12
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    distilled = make_bilstm(cfg, start, random_tokens(50, vocab_size=1000), 32)
    export(distilled, tmp_path / "run" / "export")
    flavour(tmp_path / "flavour", pairs=True)
    keys = settings(tmp_path, student=tmp_path / "run", max_steps=20, learning_rate=1e-6)
    done = commands.run_inside(commands.command("configs/bilstm_sra_task.py", tmp_path / "task", keys))
    assert done.returncode == 0, done.stderr[-2000:]
    model = load_classifier(str(tmp_path / "task" / "export"))
    assert model.pairs and model.head["hidden"]["kernel"].shape == (4 * 24, 256) and not model.encoder.dense
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), model.encoder.params, distilled.params)
    assert 0 < max(jax.tree.leaves(moved)) < 1e-4  # by twenty steps of 1e-6 from the distilled weights
    missing = commands.run_inside(
        commands.command("configs/bilstm_sra_task.py", tmp_path / "none", settings(tmp_path, task_dir=""))
    )
    assert missing.returncode == 2 and "--config.task and --config.task_dir are needed" in missing.stderr


def test_variants_of_a_task_s_rows() -> None:
    texts = ["the quick fox jumps over a lazy dog", "a quiet river runs over the old stone", "one"]
    words = WordsByTag(texts)
    rng = np.random.default_rng(0)
    assert words.tag_of["quick"] == words.tag_of["lazy"] != words.tag_of["fox"]
    drawn = {words.draw("fox", rng) for _ in range(200)}
    assert drawn <= {word for word in words.tag_of if words.tag_of[word] == words.tag_of["fox"]} and len(drawn) > 1
    many = [variant(texts[0], words, rng).split() for _ in range(3000)]
    whole = [tokens for tokens in many if len(tokens) == 8]
    cells = np.array(whole)
    assert (cells == "[MASK]").mean() == pytest.approx(0.1, abs=0.02)
    assert len(whole) / len(many) == pytest.approx(0.75, abs=0.03)
    assert {len(tokens) for tokens in many} == {1, 2, 3, 4, 5, 8}
    rows = task_variants(texts, None, seed=0)
    assert rows == task_variants(texts, None, seed=0) and len(set(rows)) == len(rows) <= 60
    assert all(other is None for _, other in rows) and not {(text, None) for text in texts} & set(rows)
    pairs = task_variants(texts[:2], ["an old dog", "the lazy stone"], seed=0)
    first, second = {texts[0], texts[1]}, {"an old dog", "the lazy stone"}
    assert any(a not in first and b in second for a, b in pairs) and any(
        a in first and b not in second for a, b in pairs
    )
    assert any(a not in first and b not in second for a, b in pairs)


def test_the_loss_with_a_teacher_and_rows_without_a_label() -> None:
    rng = np.random.default_rng(0)
    cfg = bilstm_sra_task.get_config()
    cfg.update_from_flattened_dict({"task_dir": "x", "loss.hard": 0.3, "scratch.lstm_size": 12, "student": "given"})
    (stage,) = METHODS["classify"](cfg)
    rows = Split(["a", "b"], None, np.array([0, 1], np.int32))
    task = Task("mine", ("no", "yes"), rows, rows, None)
    encoder, feed = make_encoder(num_layers=1), TaskFeed(None, task, rows, None)  # type: ignore[arg-type]
    method = stage.build(stage.cfg, Start(encoder, False, 32, random_tokens(20), lambda rows: rows, feed))
    vectors, logits = rng.normal(size=(5, 1, 32)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)
    labels = np.array([1, -1, 0, -1, 1], np.int32)
    batch = {"label": labels, "logits": logits}
    total, metrics = method.objective(method.params, method.frozen, {"vectors": vectors}, batch)
    z = np.asarray(classifier_head.classifier_logits(method.params["head"], vectors), np.float64)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    entropy = -np.mean([log_p[i, labels[i]] for i in (0, 2, 4)])
    squares = np.mean((z - logits) ** 2)
    assert float(metrics["cross_entropy"]) == pytest.approx(entropy, rel=1e-5)
    # Row by row: of five, three have a label.
    assert float(total) == pytest.approx(0.3 * entropy * 3 / 5 + 0.7 * squares, rel=1e-5)
    right = np.mean([z[i].argmax() == labels[i] for i in (0, 2, 4)])
    assert float(metrics["accuracy"]) == pytest.approx(right)


def test_augmented_rows_are_answered_by_the_teacher(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "start")
    flavour(tmp_path / "flavour", pairs=False)
    encoder = make_encoder(num_layers=1)
    export(encoder, tmp_path / "teacher" / "export")
    head = random_head(encoder.dim, 1, 8, 2, np.random.default_rng(0))
    save_head(Classifier(encoder, head, ("0", "1"), False), tmp_path / "teacher" / "export")
    keys = settings(tmp_path, kd=tmp_path / "teacher", augment="ts", max_steps=10, checkpoint_every=10, log_every=5)
    done = commands.run_inside(commands.command("configs/bilstm_sra_task.py", tmp_path / "ts", keys))
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.search(r"240 training rows and (\d+) variants", done.stderr)
    assert found and 3000 < int(found[1]) <= 4800
    cfg = bilstm_sra_task.get_config()
    cfg.update_from_flattened_dict(
        {key: str(value) if isinstance(value, Path) else value for key, value in keys.items()}
    )
    _, rows, logits = read_rows(cfg)
    assert logits is not None and rows.labels[240:].tolist() == [-1] * int(found[1])
    texts = rows.texts[238:243]
    expected = Classifier(encoder, head, ("0", "1"), False).logits(texts)
    assert_close(logits[238:243], expected, 64, 2 * 3)  # a layer and 2 of the head
    alone = commands.run_inside(
        commands.command("configs/bilstm_sra_task.py", tmp_path / "alone", settings(tmp_path, augment="ts"))
    )
    assert alone.returncode == 2 and "kd names no teacher to answer them" in alone.stderr


def test_documents_are_cut_into_distinct_sentences() -> None:
    found = split_sentences(["It rains. It pours! Does it?", "It rains. \n\n Yes.", ""])
    assert found == ["It rains.", "It pours!", "Does it?", "Yes."]
