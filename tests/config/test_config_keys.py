"""The type and range of every key: all configs are in them, and what is not is refused by name before anything is done."""

from __future__ import annotations

import importlib
import math
from functools import partial
from pathlib import Path

import bilstm_setting
import d2llm_setting
import ibkd_setting
import jax
import pytest
import simtde_setting
from commands import command, run_inside
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict
from optuna.distributions import CategoricalDistribution

from configs import base, bilstm_sra, bilstm_sra_task, d2llm, ibkd, simtde
from jdistill.config.file import check_keys
from jdistill.config.keys import OF_ALL, check_config, rule_of
from jdistill.config.method_keys import OF_METHODS
from jdistill.config.rules import (
    FLOAT32_LARGEST,
    above,
    at_least,
    between,
    share,
    whole_number,
    zero_or_whole,
)
from jdistill.core.errors import UserError
from jdistill.core.files import flat
from jdistill.methods import METHODS
from jdistill.methods.needs import NEEDS
from jdistill.sweep.space import check_space

ROOT = Path(__file__).parents[2]
FILES = sorted(path.stem for path in (ROOT / "configs").glob("*.py") if path.stem not in ("base", "__init__"))


def variants() -> list[tuple[str, str]]:
    return [
        (name, variant)
        for name in FILES
        for variant in getattr(importlib.import_module(f"configs.{name}"), "VARIANTS", {"": {}})
    ]


def load(name: str, variant: str = "") -> ConfigDict:
    module = importlib.import_module(f"configs.{name}")
    return module.get_config(variant) if variant else module.get_config()


@pytest.mark.parametrize("name,variant", variants())
def test_every_key_of_every_config_has_a_rule_that_its_default_keeps(name: str, variant: str):
    cfg = load(name, variant)
    assert [key for key in flat(cfg.to_dict()) if rule_of(key) is None] == []
    check_config(cfg)


def test_every_rule_is_of_a_key_that_some_config_has():
    used = {key for name, variant in variants() for key in flat(load(name, variant).to_dict())}
    assert set(OF_ALL) == set(flat(base.get_config().to_dict()))
    assert set(OF_METHODS) - used == set()


# What ran to its end with nonsense, and what ended in a traceback.
WRONG = [
    ("max_steps", -5), ("epochs", 0.0), ("epochs", -1.0), ("learning_rate", -1.0), ("clip_norm", -1.0), ("warmup", 2.0),
    ("adam_b1", 1.5), ("adam_b2", 1.0), ("adam_eps", 0.0), ("max_texts", -5), ("held_out", -5), ("batch_size", 0),
    ("checkpoint_every", 0), ("log_every", 0), ("length_multiple", 0), ("length_buckets", 0), ("chunk_size", -3),
    ("block_size", -1), ("seed", -1), ("max_length", 1), ("max_length", -1), ("student.dropout", 2.0), ("dtype", "float8"),
    ("keep_last", 0), ("checkpoint", "newest"), ("patience", -1), ("weight_decay", -0.1), ("schedule", "cosin"), ("pooling", "meen"),
    ("teacher_pooling", "meen"), ("teacher_dtype", "float16"), ("latency_texts", -1), ("index_texts", -1), ("index", ""),
    ("trust_remote_code", "True"),
    ("text", "a\0b"), ("method", "simtdee"), ("student.layers", -1), ("student.embedding_size", -2),
    ("student.copy_layers", "middle"), ("student.start", "pca"), ("student.vocabulary", "all"), ("student.vocabulary", "-5"),
    ("loss.alpha", -0.1), ("loss.hidden", -1.0),
    ("loss.token", "blocks"), ("loss.sentence", "mae"),
]  # fmt: skip


@pytest.mark.parametrize("key,value", WRONG)
def test_a_value_out_of_range_is_refused_by_its_key(key: str, value: object):
    cfg = simtde.get_config()
    cfg.update_from_flattened_dict({key: value})
    with pytest.raises(UserError) as refused:
        check_config(cfg)
    assert str(refused.value).startswith(f"--config.{key}=") and ": must be " in str(refused.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("key", [key for key, rule in (OF_ALL | OF_METHODS).items() if float in rule.kinds])
def test_no_number_may_be_nan_or_infinite(key: str, value: float):
    rule = rule_of(key)
    assert rule is not None and rule.fault(value).startswith("must be a number")


@pytest.mark.parametrize("key", OF_ALL | OF_METHODS)
def test_a_value_of_another_type_is_named(key: str):
    rule = rule_of(key)
    assert rule is not None
    for value in ([], None, True if bool not in rule.kinds else 1, "1" if str not in rule.kinds else 1):
        assert rule.fault(value).endswith(f"and is of type {type(value).__name__}")


def test_the_ends_of_ranges():
    def allowed(rule, *values) -> list[bool]:
        return [not rule.fault(value) for value in values]

    assert allowed(at_least(0), 0, 0.0, 3, -1e-9) == [True, True, True, False]
    assert allowed(above(0), 0.0, 1e-9, 1e-50, FLOAT32_LARGEST, 1e39, 10**400) == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]
    assert allowed(between(0, 1), 0.0, 1.0, 1.0001) == [True, True, False]
    assert allowed(share(), 0.0, 1e-6, 1.0, 1.1) == [False, True, True, False]
    assert allowed(whole_number(1), 0, 1, 2**31 - 1, 2**31, 1.0) == [False, True, True, False, False]
    assert allowed(zero_or_whole(3), 0, 1, 2, 3) == [True, False, False, True]
    assert above(0).fault(1e-50) == "must be a number above 0, and is 0 in float32"


def test_the_highest_seed_makes_a_key_of_its_own():
    """JAX keeps 32 bits of a seed, so that a higher one would draw as a lower one does."""
    keys = [jax.random.key_data(jax.random.key(seed)).tolist() for seed in (0, 2**31, 2**32 - 1)]
    assert len({tuple(key) for key in keys}) == 3
    assert rule_of("seed").fault(2**32)


def test_all_keys_at_fault_are_listed():
    cfg = simtde.get_config()
    cfg.update_from_flattened_dict({"batch_size": 0, "dtype": "float8", "student.dropout": 1.0})
    with pytest.raises(UserError) as refused:
        check_config(cfg)
    assert str(refused.value).split("; ") == [
        "--config.batch_size=0: must be a whole number, 1 or more",
        "--config.dtype=float8: must be one of auto, float32, bfloat16, float16",
        "--config.student.dropout=1.0: must be a number from 0 to below 1",
    ]


def test_keys_that_are_wrong_together():
    for cfg, changes, message in (
        (simtde, {"epochs": 0.0}, "--config.epochs=0: must be more than 0 where --config.max_steps is 0"),
        (ibkd, {"finetune.epochs": 0.0}, "--config.finetune.epochs=0: must be more than 0 where"),
        (d2llm, {"mining.first": 100}, "--config.mining.first=100: must be less than --config.mining.last=100"),
    ):
        wrong = cfg.get_config()
        wrong.update_from_flattened_dict(changes)
        with pytest.raises(UserError, match=message):
            check_config(wrong)
    for cfg, changes in (
        (simtde, {"epochs": 0.0, "max_steps": 10}),
        (ibkd, {"finetune.epochs": 0.0, "finetune.max_steps": 10}),
        (ibkd, {"finetune.epochs": 0.0, "triplets": ""}),
        (d2llm, {"tune.epochs": 0.0}),
    ):
        right = cfg.get_config()
        right.update_from_flattened_dict(changes)
        check_config(right)


def test_keys_of_a_stage_have_the_rules_of_the_runs_own():
    cfg = ibkd.get_config()
    cfg.update_from_flattened_dict({"finetune.batch_size": 0, "finetune.loss.temperature": 0.0})
    with pytest.raises(UserError, match="(?s)finetune.batch_size=0: .*finetune.loss.temperature=0.0: "):
        check_config(cfg)


def test_a_strangers_own_key_is_left_alone():
    cfg = simtde.get_config()
    cfg.mine = ConfigDict({"weight": -1.0})
    check_config(cfg)


def test_the_needs_of_a_method_are_keys_of_its_config():
    assert NEEDS.keys() == METHODS.keys()
    for name, variant in variants():
        cfg = load(name, variant)
        assert set(NEEDS[cfg.method]) <= set(flat(cfg.to_dict())), name


@pytest.mark.parametrize("name,method,lacks", [("ibkd", "simtde", "loss.alpha"), ("simtde", "ibkd", "finetune.batch_size"),
                                               ("bilstm_sra_task", "simtde", "student.layers"), ("simtde", "classify", "student,")])  # fmt: skip
def test_a_config_of_another_method_is_refused(name: str, method: str, lacks: str):
    cfg = load(name)
    cfg.method = method
    with pytest.raises(UserError, match=f"--config.method={method}: this config lacks .*{lacks}"):
        check_config(cfg)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_run_checks_its_config_before_it_reads_or_writes(tmp_path: Path, dry_run: bool):
    arguments = command("configs/simtde.py", tmp_path / "run", {"teacher": "nowhere", "held_out": -5})
    done = run_inside([*arguments, "--dry_run"] if dry_run else arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --config.held_out=-5: must be a whole number, 0 or more\n"
    assert not (tmp_path / "run").exists()


def test_a_sweep_checks_all_its_values():
    space = {"warmup": CategoricalDistribution([0.1, 2.0])}
    with pytest.raises(UserError, match="--config.warmup=2.0: must be a number from 0 to 1"):
        check_space(simtde.get_config(), space)


@pytest.mark.parametrize(
    "name", ["simtde", "task", "bilstm", "d2llm", "ibkd", "crd", "hpd", "mse", "finetune", "supervised"]
)
def test_a_method_reads_no_key_beyond_its_needs(name: str, monkeypatch: pytest.MonkeyPatch):
    """Stages and parameters are made from a config of which all else was taken away."""
    modules = {"simtde": simtde_setting, "d2llm": d2llm_setting, "task": bilstm_setting, "bilstm": bilstm_setting}
    of = modules.get(name, ibkd_setting)
    for module in (simtde, d2llm, bilstm_sra, bilstm_sra_task, ibkd):
        monkeypatch.setattr(module, "get_config", partial(needed_alone, module.get_config))
    of.setting(*(() if of in (simtde_setting, d2llm_setting) else (name,)))


def needed_alone(get_config, *variant: str) -> ConfigDict:
    whole = get_config(*variant)
    needs = {*OF_ALL, *NEEDS[whole.method]}
    return ConfigDict(
        unflatten_dict({key: value for key, value in flat(whole.to_dict()).items() if key in needs}, sep=".")
    )


@pytest.mark.parametrize("value, takes", [([], True), (["--dry_run"], False), (["a.txt"], True)])
def test_a_key_of_text_does_not_take_the_next_flag_for_its_value(value: list[str], takes: bool):
    argv = ["main", "--config.text_column", *value]
    if takes:
        check_keys(simtde.get_config(), argv)
        return
    with pytest.raises(UserError, match="--config.text_column has no value, and --dry_run is a flag"):
        check_keys(simtde.get_config(), argv)
    check_keys(simtde.get_config(), ["main", "--config.text_column=", "--dry_run"])
    check_keys(simtde.get_config(), ["main", "--config.onnx", "--dry_run"])
