"""A run's folder: which config it belongs to, and JSON files that are whole or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jdistill import sharding
from jdistill.errors import UserError

MAY_CHANGE = {"cache_dir", "log_every", "index_texts"}  # keys that change neither the student nor its figures


def settle_config(cfg: ConfigDict, workdir: Path) -> None:
    """Writes workdir/config.json, or refuses a workdir that belongs to another config, with the keys that differ."""
    path = workdir / "config.json"
    mine = json.loads(cfg.to_json())
    if path.is_file():
        theirs = json.loads(path.read_text())
        flat_mine, flat_theirs = flat(mine), flat(theirs)
        differ = [
            key
            for key in sorted(flat_mine.keys() | flat_theirs.keys())
            if flat_mine.get(key) != flat_theirs.get(key) and key not in MAY_CHANGE
        ]
        if differ:
            rows = "\n".join(f"  {key}: {flat_theirs.get(key)!r} there, {flat_mine.get(key)!r} now" for key in differ)
            raise UserError(
                f"{workdir} belongs to a run with another config:\n{rows}\nChoose another --workdir, or give the same keys"
            )
        return
    workdir.mkdir(parents=True, exist_ok=True)
    if sharding.is_first_process():
        write_json(path, mine)


def write_json(path: Path, content: Any) -> None:
    """Writes beside, then renames."""
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(content, indent=2) + "\n")
    beside.replace(path)


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dict as one of dotted keys."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found
