"""The hub: whether it answers, what to say where it does not, and the tables of a datasets id."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.progress import log

TIMEOUT_S = 5.0


def dataset_table(source: str, key: str) -> Any:
    """The train split of a datasets id owner/name or owner/name:subset, or of whatever else load_dataset takes."""
    return train_of(dataset_splits(source, key), source, key)


def train_of(splits: Any, source: str, key: str) -> Any:
    """The train split of a datasets id's splits, or the only one. Raises UserError where there are others alone."""
    if "train" not in splits and len(splits) > 1:
        raise UserError(f"--{key}={source} has no train split, only {', '.join(splits)}")
    if "train" in splits:
        return splits["train"]
    ((name, table),) = splits.items()
    log.warning("WARNING: --%s=%s has no train split; its only one, %r, is taken", key, source, name)
    return table


def dataset_splits(source: str, key: str) -> Any:
    """split -> table of a datasets id, as dataset_table takes it."""
    name, _, subset = source.partition(":")
    return _asked_of_the_hub(source, key, lambda datasets: datasets.load_dataset(name, subset or None))


def dataset_subsets(source: str, key: str, among: Sequence[str]) -> list[str]:
    """The names of a datasets id's subsets (its configurations); without the hub, those of `among` that a copy is cached of."""
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        return _asked_of_the_hub(source, key, lambda datasets: datasets.get_dataset_config_names(source))
    cached: list[str] = []
    last = None
    for name in among:  # offline, datasets names every id's subsets "default"
        try:
            dataset_splits(f"{source}:{name}", key)
        except UserError as error:
            last = error
        else:
            cached.append(name)
    if not cached:
        raise hub_error(source, key, True, last)
    return cached


def _asked_of_the_hub(source: str, key: str, ask: Callable[[Any], Any]) -> Any:
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE and not hub_answers():
        raise hub_error(source, key, True, None)
    import datasets

    try:
        return ask(datasets)
    except Exception as error:  # builders raise whatever they meet
        raise hub_error(source, key, constants.HF_HUB_OFFLINE, error) from error


def hub_answers() -> bool:
    """Whether the hub answers at all; where it does not, snapshot_download and load_dataset alone retry for minutes."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    replies: list[bool] = []

    def ask() -> None:
        try:
            replies.append(get_session().head(constants.ENDPOINT, timeout=TIMEOUT_S).status_code < 500)
        except Exception as error:  # requests' before huggingface_hub 1.0, httpx's since
            log.info("the hub at %s does not answer: %s", constants.ENDPOINT, error)

    # In a thread because looking up a name has no timeout of its own, and takes half a minute behind some firewalls.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(2 * TIMEOUT_S)
    return replies == [True]


def hub_error(source: str, key: str, offline: bool, error: Exception | None) -> UserError:
    """What a user is told. offline: the hub was not asked, or does not answer."""
    from huggingface_hub import constants

    if not offline:
        first = next(iter(str(error).splitlines()), "")
        return UserError(
            f"--{key}={source}: the hub at {constants.ENDPOINT} did not give it ({type(error).__name__}: "
            f"{first}). Check the name; a private or gated repository needs a login (hf auth login)"
        )
    keys = "--config.teacher and --config.text" if key in ("config.teacher", "config.text") else f"--{key}"
    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"the hub at {constants.ENDPOINT} cannot be reached"
    return UserError(
        f"--{key}={source}: there is no such path here, and as a hub id it cannot be had: {why}"
        f"{' and no copy is cached' if error else ' (HF_HUB_OFFLINE=1 reads a copy cached before)'}. "
        f"Point {keys} at local files or at pkg:import_name/sub/folder"
    )
