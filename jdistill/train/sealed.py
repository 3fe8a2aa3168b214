"""What a checkpoint says of itself: a description with its dev score, sealed, and a digest of its arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax

from jdistill.core import sharding
from jdistill.core.digest import digest
from jdistill.core.files import look_into, write_json
from jdistill.core.progress import log
from jdistill.core.types import Tree

DIGEST_KEY, SEAL_KEY = "digest", "seal"  # in a description: of the arrays, and of the rest of it


def state_digest(state: Tree) -> str:
    """A hash of a tree of arrays, 32 hexadecimal digits: names, types, shapes and bytes; the same whether its nodes are tuples, as they are
    saved, or dicts. All processes call it together.
    """
    leaves = jax.tree_util.tree_leaves_with_path(state)
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): sharding.to_host(leaf) for path, leaf in leaves}
    return digest(*(part for name in sorted(named) for part in (name, named[name])))


def seal_of(about: dict[str, Any]) -> str:
    """A hash of a description, 32 hexadecimal digits, without its seal."""
    return digest(json.dumps({name: about[name] for name in sorted(about) if name != SEAL_KEY}))


def check_sealed(state: Tree, about: dict[str, Any]) -> None:
    """Raises ValueError where a checkpoint is not what was saved. One from before there were digests is taken as it is."""
    if SEAL_KEY not in about and DIGEST_KEY not in about:
        return
    if about.get(SEAL_KEY) != seal_of(about):
        raise ValueError("its description has changed since it was saved")
    if about.get(DIGEST_KEY) != state_digest(state):
        raise ValueError("its arrays have changed since they were saved")


def read_description(checkpoint: Path) -> dict[str, Any] | None:
    """A checkpoint's sealed description; None where it is damaged or from before there were seals."""
    about = look_into(checkpoint / "about" / "metadata")
    return about if isinstance(about, dict) and about.get(SEAL_KEY) == seal_of(about) else None


def _metrics(checkpoint: Path) -> float | None:
    """The dev score as Orbax keeps it."""
    try:
        return float(look_into(checkpoint / "metrics" / "metrics")["score"])
    except (KeyError, TypeError, ValueError):
        return None


def kept_score(checkpoint: Path) -> float | None:
    """A checkpoint's dev score; None where it has none."""
    about = read_description(checkpoint)
    return _metrics(checkpoint) if about is None else about["score"]


def mend_metrics(folder: Path) -> None:
    """Orbax keeps the best by files of its own, which must say what the sealed descriptions say."""
    for checkpoint in folder.glob("[0-9]*"):
        about = read_description(checkpoint)
        if about is None or about["score"] is None or about["score"] == _metrics(checkpoint):
            continue
        log.warning("checkpoint %s: its dev score has changed, and is written again", checkpoint)
        (checkpoint / "metrics").mkdir(exist_ok=True)
        write_json(checkpoint / "metrics" / "metrics", {"score": about["score"]})
