"""Three devices that are not there: what an encoder would give them is counted, and computed on the one that is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jdistill.core import sharding


def three_devices(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[int]]:
    """For a test: the weights of each upload from here on, and the rows of each batch."""
    uploads: list[Any] = []
    heights: list[int] = []

    def replicate(tree: Any, mesh: Any) -> Any:
        uploads.append(tree)
        return tree

    def shard_rows(tree: Any, mesh: Any) -> Any:
        heights.append(len(tree[0]))
        return tree

    monkeypatch.setattr(sharding, "local_mesh", lambda: SimpleNamespace(size=3))
    monkeypatch.setattr(sharding, "replicate", replicate)
    monkeypatch.setattr(sharding, "shard_rows", shard_rows)
    return uploads, heights
