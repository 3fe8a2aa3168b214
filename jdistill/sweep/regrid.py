"""A grid that takes other values: a sweep goes on with them, and what its folder has of the old ones stays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import optuna
from ml_collections import ConfigDict
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from jdistill.core.files import TEMPORARY, flat, look_into, write_json
from jdistill.core.progress import log
from jdistill.core.run_folder import is_config
from jdistill.run.workdir import settle_config
from jdistill.sweep.space import Space
from jdistill.sweep.trials import REFUSED, open_study, refused_trials, set_at_first

FROM_A_LIST = CategoricalDistribution.__name__ + "("  # how the identity of a sweep writes listed values


def settle_grid(identity: ConfigDict, workdir: Path, keys: Collection[str]) -> None:
    """As settle_config, where the keys that a grid varies may have other values than before.

    Args:
      identity: what the folder is to belong to: the config, and of each varied key what it is drawn from.
      keys: those whose values may be others.

    Raises: UserError where anything else differs, such as which keys vary.
    """
    path = workdir / "config.json"
    content = look_into(path)
    there, asked = flat(content) if is_config(content) else {}, flat(identity.to_dict())
    of_grids = there.get("sampler") == "grid" == identity.sampler
    listed = [key for key in keys if _listed(there.get(key)) and _listed(asked[key])] if of_grids else []
    changed = {key: asked[key] for key in listed if asked[key] != there[key]}
    identity.update_from_flattened_dict({key: there[key] for key in changed})
    settle_config(identity, workdir)
    identity.update_from_flattened_dict(changed)
    if changed:
        for key, value in changed.items():
            log.info("%s is of %s now, and was of %s", key, value, there[key])
        of_file = ConfigDict(look_into(path), type_safe=False)
        of_file.update_from_flattened_dict(changed)
        write_json(path, of_file.to_dict())


def _listed(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(FROM_A_LIST)


def with_values(
    study: optuna.Study, path: Path, space: Space, settings: Sequence[dict[str, Any]], prune: bool
) -> tuple[optuna.Study, Space]:
    """The study and a space whose lists hold the values of its trials too, since Optuna takes no others later on.

    Args:
      path: the study's journal. It is written anew, and takes the old one's place, where values are new, or trials wait or were
        refused whose values no longer are any.
      space: the keys of its trials, in their order.
      settings: what the grid is to run.
      prune: as open_study.
    """
    trials = study.get_trials(deepcopy=False)
    drawn = {key: _choices(trials, key) for key in space}
    every = {key: list(dict.fromkeys([*drawn[key], *(setting[key] for setting in settings)])) for key in space}
    both: Space = {key: CategoricalDistribution(values) for key, values in every.items()}
    waiting = [set_at_first(trial) for trial in trials if trial.state == TrialState.WAITING]
    to_come = [*waiting, *(trial.params for trial in refused_trials(study))]
    if all(setting in settings for setting in to_come) and all(drawn[key] in ([], every[key]) for key in space):
        return study, both
    beside = path.with_name(TEMPORARY + path.name)
    beside.unlink(missing_ok=True)  # of a kill
    anew = open_study(beside, prune)
    for trial in trials:
        if trial.state != TrialState.WAITING:
            anew.add_trial(_over(trial, both, trial.params in settings))
    for setting in waiting:
        if setting in settings:
            anew.enqueue_trial(setting)
    beside.replace(path)
    return open_study(path, prune), both


def _choices(trials: Sequence[FrozenTrial], key: str) -> list[Any]:
    """The list that trials have drawn a key's value from; empty before the first."""
    lists = [trial.distributions[key] for trial in trials if key in trial.distributions]
    return list(lists[-1].choices) if lists and isinstance(lists[-1], CategoricalDistribution) else []


def _over(trial: FrozenTrial, space: Space, asked: bool) -> FrozenTrial:
    """A trial that has ended, as one of another space with the same keys; where it is not asked for any more none that was refused."""
    return create_trial(
        state=trial.state,
        value=trial.value if trial.state == TrialState.COMPLETE else None,
        params=trial.params,
        distributions={key: space[key] for key in trial.params},
        user_attrs={name: value for name, value in trial.user_attrs.items() if asked or name != REFUSED},
        system_attrs=trial.system_attrs,
        intermediate_values=trial.intermediate_values,
    )
