"""What a command leaves behind, as a digest a file, and what differs between two of those."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Keys of JSON files that hold times, rates or the command itself: no two runs have the same.
VOLATILE = re.compile(r"(.*seconds.*|sentences_per_s|texts_per_s|speed|command|latency.*|.*_ms|bytes_per_s|source)$")
TEMPORARY = re.compile(r"(\.jdistill-|\.tmp|\.partial|\.part|\.old|\.lock|-tmp-|orbax-checkpoint-tmp)")
LOGS = ("metrics.jsonl", "study.log", "crash.txt")


def digest(slot: Path) -> Callable[[], dict[str, str]]:
    """For a child: path below `slot` -> what stands there. A hash; of pages and pictures "whole" or "broken"; of a checkpoint the
    hash of its state. Keys that begin with "log " are of files that are only appended to."""

    def look() -> dict[str, str]:
        found: dict[str, str] = {}
        for path in sorted(slot.rglob("*")):
            name = path.relative_to(slot).as_posix()
            if path.name.startswith(".jdistill-lock"):  # nobody's once its process has ended: the next one takes it
                continue
            if "/checkpoints/" in name:
                continue
            if path.name == "checkpoints":
                found |= _checkpoints(path, name)
            elif path.is_file():
                found |= _file(path, name, slot)
            elif not any(path.iterdir()) and path.name != "events":  # where TensorBoard's logs were
                found[name + "/"] = "empty folder"
        return found

    return look


def _file(path: Path, name: str, slot: Path) -> dict[str, str]:
    if name.startswith(
        "cache/"
    ):  # a fill that was killed goes on in another order, one beside another in a part of its own
        return {re.sub(r"part-\d{5}", "part", name): "there"}
    if path.name.startswith("events.out.tfevents"):
        return {"log " + name.rpartition("/")[0] + "/tfevents": "there"}
    if path.name == "metrics.jsonl":
        return {"log " + name: _hash(json.dumps(_losses(path)))}
    if path.name == "crash.txt":  # a defect, or a process that lost another: the case tells which
        return {"log " + name: path.read_text(errors="replace").strip().splitlines()[-1][:300]}
    if path.name in LOGS:
        return {"log " + name: "there"}
    data = path.read_bytes()
    if path.suffix == ".html":
        return {name: "whole" if data.rstrip().endswith(b"</html>") else "broken"}
    if path.suffix == ".png":
        return {name: "whole" if data.endswith(b"IEND\xaeB`\x82") else "broken"}
    if (
        path.name == "jdistill.json"
    ):  # a seal holds digests of files that hold times: which files, and by which settings
        return {name: _seal(data)}
    if path.suffix == ".json":
        try:
            return {name: _hash(json.dumps(_steady(json.loads(data)), sort_keys=True).replace(str(slot), "@"))}
        except ValueError:
            return {name: "broken"}
    if path.name == "README.md":  # the card tells how long the training took
        data = re.sub(rb"[\d.,]+ (s|min|h|ms)\b|[\d,.]+ (sentences|texts)/s", b"", data).replace(
            str(slot).encode(), b"@"
        )
    return {name: _hash(data)}


def _seal(data: bytes) -> str:
    try:
        found = json.loads(data)
        return _hash(json.dumps([found["kind"], found.get("settings"), sorted(found["files"])]))
    except (ValueError, KeyError, TypeError):
        return "broken"


def _steady(content: Any) -> Any:
    """JSON without what no two runs have in common."""
    if isinstance(content, dict):
        return {key: _steady(value) for key, value in content.items() if not VOLATILE.match(key)}
    return [_steady(value) for value in content] if isinstance(content, list) else content


def _losses(path: Path) -> dict[str, Any]:
    """step -> its last loss; a line that a kill cut off is passed over."""
    found: dict[str, Any] = {}
    for line in path.read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
            found[str(row["step"])] = row.get("loss", found.get(str(row["step"])))
        except (ValueError, KeyError, TypeError):
            continue
    return dict(sorted(found.items()))


def _checkpoints(folder: Path, name: str) -> dict[str, str]:
    """The steps there, other entries, and the newest state by its bits."""
    entries = sorted(path.name for path in folder.iterdir())
    steps = sorted(int(entry) for entry in entries if entry.isdigit())
    found = {name: "steps " + " ".join(map(str, steps))}
    found |= {f"{name}/{entry}": "there" for entry in entries if not entry.isdigit()}
    if steps:
        found[f"{name}/state"] = _state(folder, steps[-1])
    return found


def _state(folder: Path, step: int) -> str:
    import jax
    import numpy as np

    from jdistill.train.checkpoint import Checkpoints

    try:
        checkpoints = Checkpoints(folder, 1000)
        _, state, _ = checkpoints.restore(None, [step])
        checkpoints.close()
    except Exception as error:
        return f"unreadable: {type(error).__name__}"
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    return _hash(b"".join(str((x.dtype, x.shape)).encode() + x.tobytes() for x in leaves))


def _hash(data: bytes | str) -> str:
    return hashlib.blake2b(data if isinstance(data, bytes) else data.encode(), digest_size=8).hexdigest()


def differences(found: dict[str, str], expected: dict[str, str]) -> tuple[list[str], list[str]]:
    """(what differs, what differs in logs alone), each as "path: what is there, not what should be"."""
    of_products: list[str] = []
    of_logs: list[str] = []
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            stray = " (stray)" if TEMPORARY.search(name) else ""
            line = f"{name}{stray}: {found.get(name, 'missing')}, not {expected.get(name, 'there')}"
            (of_logs if name.startswith("log ") else of_products).append(line)
    return of_products, of_logs
