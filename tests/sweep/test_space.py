"""What a sweep tries: keys by their end, ranges, and what is refused before the first trial."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from sweep_setting import config, hill, never

from configs import d2llm as d2llm_file
from configs import distilface as config_file
from configs import ibkd as ibkd_file
from jdistill.core.errors import UserError
from jdistill.sweep.command import sweep
from jdistill.sweep.space import check_space, parse_space
from jdistill.sweep.trials import trial_name


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([], "--grid is missing"),
        (["temperature"], "write KEY=A,B,C"),
        (["temprature=0.1"], "no such key; near it: .*temperature"),
        (["learning_rate=1e-3,fast"], "'fast' is no float, which learning_rate is"),
        (["batch_size=64.5"], "'64.5' is no int"),
        (["onnx=maybe"], "'maybe' is no bool"),
        (["learning_rate=1e-5..1e-3"], "a range needs --sampler"),
        (["seed=0,1", "seed=2"], "given twice"),
        (["seed=1,1"], "a value is given twice"),
        (["adam_b=0.9"], "no such key"),
        (["seed=[1, 2"], "--grid seed=.*: not valid JSON"),
        (["seed=[[1]]"], "the list holds values"),
        (["seed=[]"], "the list holds values"),
        (['seed=["a"]'], "'a' is no int"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused(specs: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_space(specs, config_file.get_config(), "grid")


def test_without_optuna_the_command_says_what_to_install() -> None:
    code = "import sys, runpy; sys.modules['optuna'] = None; runpy.run_module('jdistill.sweep', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert done.stderr.strip() == 'error: a sweep needs optuna: pip install -e ".[sweep]"' and done.returncode == 1


def test_keys_by_their_end_and_ranges() -> None:
    specs = ["temperature=0.1,1", "batch_size=8..64", "learning_rate=1e-5..1e-3"]
    found = parse_space(specs, config(), "tpe")
    assert set(found) == {"loss.temperature", "batch_size", "learning_rate"}
    assert list(parse_space(specs[::-1], config(), "tpe")) == list(found)  # whose trials have the same names then
    assert found["learning_rate"].log and not found["batch_size"].log  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="from a lower number"):
        parse_space(["learning_rate=1e-3..1e-5"], config(), "tpe")
    paths = parse_space(["start=../a.gguf,../b.gguf"], config(), "grid")["start"]
    assert paths.choices == ("../a.gguf", "../b.gguf")  # type: ignore[attr-defined]
    both = ConfigDict({"a": {"x": 1}, "b": {"x": 2}})
    with pytest.raises(UserError, match="a.x, b.x end so"):
        parse_space(["x=1"], both, "grid")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("temperature=0.05,0", "loss.temperature=0.0: must be a number above 0"),
        ("pooling=mean,men", "pooling=men: must be one of cls,"),
        ("dtype=float8", "dtype=float8: must be one of"),
        ("batch_size=1,8", "at least 2 texts"),
    ],
)
def test_a_value_that_the_method_refuses_ends_the_sweep_before_it_begins(
    tmp_path: Path, spec: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        sweep(config(), tmp_path / "sweep", parse_space([spec], config(), "grid"), trainer=never)
    assert not (tmp_path / "sweep").exists()


def test_trials_without_a_dev_score_are_refused_before_the_first(tmp_path: Path) -> None:
    space = parse_space(["temperature=0.05"], config_file.get_config(), "grid")
    with pytest.raises(UserError, match="none without --config.dev_pairs"):
        sweep(config_file.get_config(), tmp_path / "sweep", space, trainer=never)
    taught = config_file.get_config()  # agreement with the teacher is a score of its own
    taught.update_from_flattened_dict({"teacher": "teacher", "loss.distil": 1.0})
    assert sweep(taught, tmp_path / "taught", space, trainer=hill)
    taught.held_out = 0
    with pytest.raises(UserError, match="--config.dev_retrieval or --config.held_out$"):
        sweep(taught, tmp_path / "alone", space, trainer=never)
    assert not (tmp_path / "alone").exists()


@pytest.mark.parametrize(
    ("changes", "spec", "ways"),
    [
        ({}, "distil=0,0.5,1", "dev_pairs and others by dev_pairs and held_out"),
        ({"loss.distil": 1.0}, "held_out=0,1000", "dev_pairs and others by dev_pairs and held_out"),
        (
            {"dev_retrieval": "folder", "loss.distil": 1.0, "loss.align": 1.0},
            "index_by=student,teacher",
            "the student's index and others by .*the teacher's index",
        ),
    ],
)
def test_trials_that_are_scored_by_different_sets_are_refused(changes: dict, spec: str, ways: str) -> None:
    """The mean of one's own pairs and the agreement with the teacher, which is near 95, would win whatever it did to the pairs."""
    cfg = config()
    cfg.update_from_flattened_dict({"teacher": "teacher", "dev_pairs": "dev.csv"} | changes)
    with pytest.raises(UserError, match=f"scored by .*{ways}.* says nothing beside the other"):
        check_space(cfg, parse_space([spec], cfg, "grid"))
    cfg.held_out = 0
    if "distil" in spec:
        check_space(cfg, parse_space([spec], cfg, "grid"))


def test_of_many_trials_the_values_of_a_key_are_compared_among_themselves() -> None:
    """Each is tried beside the config's own other values, which may be scored otherwise than every trial is."""
    cfg = config()
    cfg.update_from_flattened_dict({"teacher": "teacher", "dev_pairs": "dev.csv", "loss.distil": 0.0})
    many = f"seed={','.join(map(str, range(200)))}"
    check_space(cfg, parse_space(["distil=0.5,1", many], cfg, "grid"))
    with pytest.raises(UserError, match="scored by dev_pairs and others by"):
        check_space(cfg, parse_space(["distil=0,0.5,1", many], cfg, "grid"))


def test_a_key_that_the_only_stage_has_of_its_own_is_refused() -> None:
    cfg = ibkd_file.get_config("supervised")
    cfg.update({"triplets": "t.jsonl", "dev_pairs": "dev.csv", "start": "x", "teacher": ""})
    with pytest.raises(UserError, match="--grid learning_rate: no stage reads it; .*finetune.learning_rate"):
        check_space(cfg, parse_space(["learning_rate=1e-6,3e-5"], cfg, "grid"))
    check_space(cfg, parse_space(["finetune.learning_rate=1e-6,3e-5"], cfg, "grid"))


def test_a_dev_set_that_the_method_does_not_choose_by_is_no_dev_score(tmp_path: Path) -> None:
    cfg = d2llm_file.get_config()
    cfg.symmetric, cfg.dev_pairs, cfg.dev_retrieval = "pairs.jsonl", "dev.csv", "folder"
    with pytest.raises(UserError, match="none without --config.dev_queries$"):
        sweep(cfg, tmp_path / "sweep", parse_space(["dev_queries=100,0"], cfg, "grid"), trainer=never)
    check_space(cfg, parse_space(["dev_queries=100"], cfg, "grid"))


def test_a_key_that_is_no_single_value_is_refused() -> None:
    """As a method of one's own may have one."""
    cfg = ConfigDict({"none": None, "betas": (0.9, 0.99)})
    for spec in ("none=1,2", "betas=1,2"):
        with pytest.raises(UserError, match=f"--grid {spec}: .* and a sweep varies numbers, texts, and True or False"):
            parse_space([spec], cfg, "grid")


def test_a_prompt_keeps_its_space() -> None:
    cfg = config()
    cfg.query_prompt = ""
    space = parse_space(["query_prompt=query: , search_query: "], cfg, "grid")
    assert space["query_prompt"].choices == ("query: ", "search_query: ")
    space = parse_space(['query_prompt=["Given a question, find: ", "query: "]', "learning_rate=[1e-3,2]"], cfg, "grid")
    assert space["query_prompt"].choices == ("Given a question, find: ", "query: ")
    led = parse_space(['query_prompt=["\\nquery: ", "query: "]'], cfg, "grid")
    assert led["query_prompt"].choices == ("\nquery: ", "query: ")
    assert space["learning_rate"].choices == (0.001, 2.0)
    assert parse_space(["onnx=[true, false]"], cfg, "grid")["onnx"].choices == (True, False)


def test_trials_of_other_values_have_other_folders_that_a_file_system_takes() -> None:
    assert trial_name({"loss.temperature": 0.1, "seed": 2}) == "loss.temperature=0.1,seed=2"
    values = ["a/b.txt", "a_b.txt", "問" * 95, "問" * 96, "x" * 200, "x" * 199, "é" * 73]
    names = [trial_name({"text": value}) for value in values]
    assert len(set(names)) == len(names)
    assert all("/" not in name and len(name.encode()) < 150 for name in names)
