"""How far dev pairs are apart from the test sets: counted by what sentences say, and told, in the log, a run's report and its card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import command, run_inside
from conftest import make_encoder, save_encoder, sentences
from sts_setting import write_year

from configs import ibkd as ibkd_file
from jdistill.feeds.evaluation_sets import dev_pairs_in_tests, evaluation_texts
from jdistill.report.facts import of_dev_pairs

SAID = "Of the 1,369 dev pairs 6 are pairs of the test sets, and 51 others hold a sentence of theirs."
HEAD = "sentence1,sentence2,score\n"


def test_dev_pairs_that_test_sets_hold_are_counted_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_year(tmp_path, 12, "a", ["A man sings.\tA dog runs.", "A bird\tA robin", "Not scored\tA cat"], ["3", "4", ""])
    cfg = ibkd_file.get_config()
    cfg.senteval, cfg.dev_pairs = str(tmp_path), str(tmp_path / "dev")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "a.csv").write_text(
        HEAD + "a man sings !,another,1\na DOG runs,A man sings,3\nA bird,A bird,5\n"
    )
    (tmp_path / "dev" / "b.csv").write_text(HEAD + "a cat,not scored,2\nnew,other,2\na man,sings,0\n")
    # Two are test pairs, one of them turned round and one that got no score; a pair of a sentence with itself is another pair.
    assert dev_pairs_in_tests(cfg) == {"pairs": 6, "same_pair": 2, "same_sentence": 2}
    evaluation_texts(cfg)
    assert "of the 6 dev pairs 2 are pairs of the test sets in --config.senteval, and 2 others hold" in caplog.text
    assert caplog.records[-1].levelname == "WARNING"


def test_dev_pairs_apart_from_the_tests_are_no_matter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_year(tmp_path, 12, "a", ["A man sings.\tA dog runs."], ["3"])
    dev = tmp_path / "dev.csv"
    dev.write_text(HEAD + "a bird,a robin,4\n")
    cfg = ibkd_file.get_config()
    for senteval, pairs in (("", dev), (tmp_path, "")):
        cfg.senteval, cfg.dev_pairs = str(senteval), str(pairs)
        assert dev_pairs_in_tests(cfg) == {}
    caplog.set_level("INFO")
    cfg.senteval, cfg.dev_pairs = str(tmp_path), str(dev)
    assert dev_pairs_in_tests(cfg) == {"pairs": 1, "same_pair": 0, "same_sentence": 0}
    evaluation_texts(cfg)
    assert "test sets" not in caplog.text
    dev.write_text(HEAD + "a bird,a dog runs,4\n")
    evaluation_texts(cfg)
    assert "of the 1 dev pairs 1 hold a sentence of the test sets in --config.senteval" in caplog.text
    assert "WARNING" not in caplog.text


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({"pairs": 1369, "same_pair": 6, "same_sentence": 51}, SAID),
        ({"pairs": 1369, "same_pair": 0, "same_sentence": 0}, ""),
        ({"pairs": 1369, "same_pair": "6", "same_sentence": 51}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_the_sentence_of_reports_and_cards(counts: dict[str, int], says: str) -> None:
    assert of_dev_pairs({"training": {"dev_pairs_in_tests": counts}}) == says
    assert of_dev_pairs({"training": None}) == of_dev_pairs({}) == ""


def test_a_run_says_so_in_its_results_and_on_its_card(tmp_path: Path) -> None:
    texts = sentences(60)
    write_year(
        tmp_path / "senteval", 12, "a", [f"{texts[i]}\t{texts[i + 1]}" for i in range(0, 8, 2)], ["1", "4", "2", "5"]
    )
    (tmp_path / "dev.csv").write_text(HEAD + "".join(f"{texts[i]},{texts[i + 1]},{i}\n" for i in range(6, 12, 2)))
    (tmp_path / "text.txt").write_text("\n".join(texts[12:]) + "\n")
    keys = {
        "teacher": save_encoder(make_encoder(num_layers=2), tmp_path / "teacher"), "text": tmp_path / "text.txt", "text_column": "",
        "cache_dir": tmp_path / "cache", "held_out": 8, "student.layers": 2, "student.embedding_size": 12, "batch_size": 8, "max_steps": 2,
        "checkpoint_every": 2, "onnx": False, "latency_texts": 0, "index_texts": 0, "evaluate_teacher": False,
        "senteval": tmp_path / "senteval", "dev_pairs": tmp_path / "dev.csv",
    }  # fmt: skip
    done = run_inside(command("configs/simtde.py", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING: of the 3 dev pairs 1 are pairs of the test sets" in done.stderr
    counted = json.loads((tmp_path / "run" / "results.json").read_text())["training"]["dev_pairs_in_tests"]
    assert counted == {"pairs": 3, "same_pair": 1, "same_sentence": 0}
    sentence = "Of the 3 dev pairs 1 are pairs of the test sets, and 0 others hold a sentence of theirs."
    assert sentence in (tmp_path / "run" / "export" / "README.md").read_text()
    assert sentence in (tmp_path / "run" / "report.html").read_text()
