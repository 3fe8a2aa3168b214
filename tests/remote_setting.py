"""Object stores for tests: fsspec's in memory, a real one of moto's on this machine, and machines that share nothing but them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import fsspec
import pytest

from jdistill.core import cache_mirror

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",  # botocore's own, beside ours
}


def enter_machine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on local copies and mirrors are those of another machine, which keeps them in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(cache_mirror, "_roots", {})
    monkeypatch.setattr(cache_mirror, "_own_parts", {})


def put(url: str, content: bytes) -> None:
    """Puts an object into the store in memory."""
    fsspec.filesystem("memory").pipe_file(url.removeprefix("memory:/"), content)


def objects(url: str) -> dict[str, bytes]:
    """What a folder of a store holds, by name."""
    fs, root = fsspec.url_to_fs(url)
    fs.invalidate_cache()
    return {path.removeprefix(root).lstrip("/"): fs.cat_file(path) for path in fs.find(root)}


def skip_without_store() -> None:
    """Skips a test of a real store where what serves and reads it is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("moto", "s3fs", "flask_cors")):
        pytest.skip("moto and s3fs are not installed, which the test extra brings")
