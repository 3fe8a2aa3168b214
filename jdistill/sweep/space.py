"""What a sweep draws its trials from: --grid KEY=A,B,C, a JSON list and KEY=LOW..HIGH, checked against the config and its method."""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
from typing import Any

from ml_collections import ConfigDict
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from jdistill.config.keys import check_config
from jdistill.core.errors import UserError
from jdistill.core.files import flat
from jdistill.core.json_files import parse_json
from jdistill.core.stage_keys import own_keys
from jdistill.models.pooling import resolve_pooler
from jdistill.run.stages import stages_of
from jdistill.train.optimizer import make_optimizer

Space = dict[str, BaseDistribution]
TRIED_BEFORE = 256  # trials that are checked before the first; of more each value by itself


def parse_space(specs: list[str], cfg: ConfigDict, sampler: str) -> Space:
    """Full config key -> what it is drawn from. Raises UserError for a key that there is not, or that several keys end in,
    a value of another type, a range for the sampler grid, and a key named twice."""
    keys = flat(json.loads(cfg.to_json()))
    space: Space = {}
    for spec in specs:
        name, equals, values = spec.partition("=")
        if not equals or not values:
            raise UserError(f"--grid {spec}: write KEY=A,B,C or KEY=LOW..HIGH")
        key = _full_key(name, list(keys))
        if key in space:
            raise UserError(f"--grid {spec}: {key} is given twice")
        if not isinstance(keys[key], bool | int | float | str):
            raise UserError(
                f"--grid {spec}: {key} is {keys[key]!r}, and a sweep varies numbers, texts, and True or False"
            )
        # Of a key that is text, such as a path, two dots are no range.
        bounds = None if isinstance(keys[key], str) else re.fullmatch(r"(.+?)\.\.(.+)", values)
        if bounds is None:
            choices = [_typed(value, keys[key], spec) for value in _listed(values, spec)]
            if len(set(choices)) < len(choices):
                raise UserError(f"--grid {spec}: a value is given twice")
            space[key] = CategoricalDistribution(choices)
            continue
        if sampler == "grid":
            raise UserError(f"--grid {spec}: a range needs --sampler=random or tpe; the grid takes values, KEY=A,B,C")
        low, high = (_typed(bound, keys[key], spec) for bound in bounds.groups())
        if isinstance(low, bool) or low >= high:
            raise UserError(f"--grid {spec}: a range goes from a lower number to a higher one")
        space[key] = (
            IntDistribution(low, int(high)) if isinstance(low, int) else FloatDistribution(low, high, log=low > 0)
        )
    if not space:
        raise UserError("--grid is missing: KEY=A,B,C, once for each key that varies")
    return {key: space[key] for key in keys if key in space}  # the same trials in whatever order the flags came


def settings_of(space: Space) -> list[dict[str, Any]]:
    """Every combination of the values of a grid, in order."""
    choices = [of.choices for of in space.values() if isinstance(of, CategoricalDistribution)]
    return [dict(zip(space, combination, strict=True)) for combination in itertools.product(*choices)]


def check_space(cfg: ConfigDict, space: Space) -> None:
    """Raises the UserError of the method or optimiser for a value, or end of a range, that it refuses, and one where a trial
    would end without a dev score; and of a budget, which chooses a student by itself."""
    if "budget" in cfg:
        raise UserError(
            "a sweep does not take a config with a budget, which chooses one student by itself; run it by jdistill.main, or sweep "
            "configs/simtde.py or configs/search.py over student.layers and student.embedding_size"
        )
    values = {
        key: list(of.choices) if isinstance(of, CategoricalDistribution) else [of.low, of.high]  # type: ignore[attr-defined]
        for key, of in space.items()
    }
    if math.prod(map(len, values.values())) > TRIED_BEFORE:
        for key, of_key in values.items():
            _check_measures({_check_trial(cfg, {key: value}) for value in of_key})
        return
    # Keys may belong together, so that a value is good where any of its trials is; a bad pair is refused as a trial.
    refused: dict[tuple[str, Any], UserError] = {}
    good, scored_by = set[tuple[str, Any]](), set[tuple[str, ...]]()
    for combination in itertools.product(*values.values()):
        changes = dict(zip(values, combination, strict=True))
        try:
            scored_by.add(_check_trial(cfg, changes))
        except UserError as error:
            refused |= {item: error for item in changes.items() if item not in refused}
        else:
            good |= set(changes.items())
    if bad := next((item for item in refused if item not in good), None):
        raise refused[bad]
    _check_measures(scored_by)


def scored_by_keys(cfg: ConfigDict) -> set[str]:
    """The keys that decide by what trials are scored: of another value of theirs a score says nothing beside those that are there."""
    return {*stages_of(cfg)[-1].data.dev_keys, "held_out", "index_by"}


def _check_measures(scored_by: set[tuple[str, ...]]) -> None:
    """Raises UserError where trials have dev scores that are means of different figures, and so say nothing of one another.

    Args:
      scored_by: what _check_trial returns of each.
    """
    if len(scored_by) > 1:
        ways = [" and ".join(keys) for keys in sorted(scored_by)]
        raise UserError(
            f"--grid: some trials would be scored by {ways[0]} and others by {ways[1]}, and a score of the one says nothing beside the other; "
            "give all of them the same dev sets, such as by --config.held_out=0, or sweep them apart"
        )


def _check_trial(cfg: ConfigDict, changes: dict[str, Any]) -> tuple[str, ...]:
    """By what the trial's checkpoints are scored: its dev sets' keys, and of a collection whose index is searched."""
    changed = cfg.copy_and_resolve_references()
    changed.update_from_flattened_dict(changes)
    check_config(changed)
    stages = stages_of(changed)
    for stage in stages:
        make_optimizer(stage.cfg, 1)
        resolve_pooler(stage.cfg.pooling or "mean")
    for key in changes:
        if all(key in own_keys(changed, stage.name) for stage in stages):
            raise UserError(f"--grid {key}: no stage reads it; stage {stages[0].name} goes by {stages[0].name}.{key}")
    dev_keys = stages[-1].data.dev_keys
    if not any(changed[key] for key in dev_keys):
        raise UserError(
            f"a sweep compares dev scores, and this method has none without {' or '.join(f'--config.{key}' for key in dev_keys)}"
        )
    index = [f"the {changed.index_by}'s index"] if "dev_retrieval" in dev_keys and changed.dev_retrieval else []
    return (*(key for key in dev_keys if changed[key]), *index)


def _full_key(name: str, keys: list[str]) -> str:
    """temperature is loss.temperature, where no other key ends so."""
    if name in keys:
        return name
    ends = [key for key in keys if key.endswith("." + name)]
    if len(ends) > 1:
        raise UserError(f"--grid {name}: {', '.join(ends)} end so; write the one that is meant")
    if not ends:
        near = difflib.get_close_matches(name, [*keys, *(key.rpartition(".")[2] for key in keys)], n=3)
        hint = f"; near it: {', '.join(dict.fromkeys(near))}" if near else ""
        raise UserError(f"--grid {name}: the config has no such key{hint}")
    return ends[0]


def _listed(values: str, spec: str) -> list[str]:
    """A,B,C, or a JSON list, whose values may have commas."""
    if not values.startswith("["):
        return [value.lstrip() for value in values.split(",")]
    listed = parse_json(values.encode(), f"--grid {spec}")
    if (
        not isinstance(listed, list)
        or not listed
        or any(isinstance(value, list | dict) or value is None for value in listed)
    ):
        raise UserError(f'--grid {spec}: the list holds values, as in KEY=["a, b", "c"]')
    return [value if isinstance(value, str) else json.dumps(value) for value in listed]


def _typed(value: str, like: Any, spec: str) -> Any:
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[value.strip().lower()]
        return value if isinstance(like, str) else type(like)(value.strip())  # a prompt may end with a space
    except (ValueError, KeyError):
        raise UserError(
            f"--grid {spec}: {value!r} is no {type(like).__name__}, which {spec.partition('=')[0]} is"
        ) from None
