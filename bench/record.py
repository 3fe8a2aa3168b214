"""A bench's rows in bench/results/NAME.json, and how they were made: command, commit, machine and its load."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.core.json_files import read_json
from jdistill.core.locks import only_one

RESULTS = Path(os.environ.get("BENCH_RESULTS") or Path(__file__).parent / "results")  # BENCH_RESULTS: of a try
RESULTS.mkdir(parents=True, exist_ok=True)  # before a bench measures what it is to write there
MADE_ANEW = ("command", "commit", "load", "rows")  # what may differ where a row takes its own place again
Row = dict[str, Any]


def commit() -> str:
    """The checkout's commit, shortened, and whether its code was changed since; without git or a checkout JDISTILL_COMMIT, where that is set."""
    told = os.environ.get("JDISTILL_COMMIT", "")
    if shutil.which("git") is None:
        return told

    def answer(*asked: str) -> str:
        done = subprocess.run(["git", *asked], cwd=Path(__file__).parents[1], capture_output=True, text=True)
        return done.stdout.strip()

    changed = answer(
        "status", "--porcelain", "--untracked-files=no", "--", "jdistill", "configs", "bench", ":!bench/results"
    )
    return (answer("rev-parse", "--short", "HEAD") or told) + (", changed" if changed else "")


COMMIT = (
    commit()
)  # as the bench began: runs that it found finished are older, and a checkout may move on while it lasts


def code_digest(*more: str) -> str:
    """Of the package, the configs and further files or folders of bench: what a bench keeps of another code is not this one's."""
    root, hashed = Path(__file__).parents[1], hashlib.blake2b(digest_size=8)
    for place in (root / "jdistill", root / "configs", *(Path(__file__).with_name(name) for name in more)):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            hashed.update(path.read_bytes())
    return hashed.hexdigest()


def processor() -> str:
    """The processor's model and how many cores of it are ours."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores"


def made_by(command: str, **more: Any) -> Row:
    """What a results file begins with.

    Args:
      command: that makes it again.
      more: further keys, such as seed.
    """
    load = f"{os.getloadavg()[2]:.1f} processes on average in the last 15 minutes, its own among them"
    return {"command": command, "commit": COMMIT, "machine": processor()} | more | {"load": load}


def check_settings(workdir: Path, settings: Row, begun: str) -> None:
    """Keeps the settings that decide what a bench finds finished in its workdir.

    Args:
      settings: the bench's flags, or some of them.
      begun: a file or folder, or a pattern of them, that the bench leaves there first.

    Raises: UserError for a workdir of other settings, or one that was begun before any were kept.
    """
    mine = json.loads(json.dumps(settings, default=str))
    path = workdir / "settings.json"
    if not path.is_file():
        if next(workdir.glob(begun), None):
            raise UserError(f"{workdir} was begun before its settings were kept; choose another --workdir")
        workdir.mkdir(parents=True, exist_ok=True)
        write_json(path, mine)
        return
    theirs = read_json(path)
    if differ := [name for name in mine if theirs.get(name) != mine[name]]:
        of = "; ".join(f"--{name} {theirs.get(name)!r} there, {mine[name]!r} now" for name in differ)
        raise UserError(f"{workdir} was begun with other settings: {of}. Choose another --workdir")


def shown(source: str | Path) -> str:
    """Files, folders or models, with commas between them, without the folders that they lie in; an export keeps its run's name."""
    return ",".join(_last(part) for part in str(source).split(","))


def _last(source: str) -> str:
    if "/" not in source or ":" in source:  # pkg:NAME/model is no path
        return source
    path = PurePath(source)
    return f"{path.parent.name}/{path.name}" if path.name == "export" else path.name


def shown_run(path: str | Path) -> str:
    """A run's folder, its export or its judge's adapter, with the folder that the run lies in: each table calls its runs alike."""
    parts = Path(path).absolute().parts
    inside = max(len(tail) * (parts[-len(tail) :] == tail) for tail in (("export",), ("tune", "adapter")))
    return "/".join(parts[-2 - inside :])


def shown_model(source: str | Path) -> str:
    """A model for a row: a folder of a run by shown_run, so that two students of one name stay two; else as `shown` has it."""
    return shown_run(source) if Path(source).is_dir() else shown(source)


def command_line() -> str:
    """This process's command, of paths out of the checkout the last part alone: they are this machine's."""
    return f"python bench/{Path(sys.argv[0]).name} {joined(sys.argv[1:])}".strip()


def joined(arguments: Iterable[str]) -> str:
    """Arguments as one string, of paths out of the checkout (/… and ../…) the last part alone."""
    return shlex.join(re.sub(r"(?<![^=,])(?:\.\.)?/[^=,]+", lambda path: shown(path[0]), part) for part in arguments)


def keep_rows(
    name: str, command: str, rows: Iterable[Row], by: Sequence[str], unfinished: bool = False, **settings: Any
) -> None:
    """Adds rows to bench/results/NAME.json, each in the place of an earlier one of its names, machine and settings.

    The file is {"by": [...], "runs": [{"command", "commit", "machine", settings, "load", "rows": [...]}, ...]}. Mean and spread over seeds
    are computed where it is read (docs/run_tables.py). Benches of the same name may write at once.

    Args:
      command: that makes the rows again.
      rows: figures, and the names that tell them apart.
      by: the keys of these names, such as row and seed.
      unfinished: the rows get further columns later, or had them before: one of these names, machine and settings that has the same
        figures and more stays, and one that has others besides gives them.
      settings: what else tells rows apart, such as dtype or sentences; those of other settings stay.

    Raises: UserError for a file that is there and holds no runs.
    """
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    run = json.loads(json.dumps(made_by(command, **settings) | {"rows": list(rows)}, default=float))
    with only_one(path.with_name(f".{path.name}.lock"), path, "a bench", wait=True):
        write_json(path, {"by": list(by), "runs": with_run(_read_runs(path), run, by, unfinished)})


def with_run(runs: Sequence[Row], run: Row, by: Sequence[str], unfinished: bool = False) -> list[Row]:
    """The runs and one more, whose rows replace those of the same names, machine and settings; runs that lose all rows are left out.

    Args:
      unfinished: a row that is there with the same figures and more columns is not replaced, and one with other columns gives them.
    """

    def names(row: Row) -> list[Any]:
        return [row.get(key) for key in by]

    if unfinished:
        there = [row for other in runs if _setting(other) == _setting(run) for row in other["rows"]]
        fuller = [
            names(row) for new in run["rows"] for row in there if names(row) == names(new) and row.items() > new.items()
        ]
        run = run | {"rows": [_with_columns(row, there, names) for row in run["rows"] if names(row) not in fuller]}
    made = [names(row) for row in run["rows"]]
    left, together = [], False
    for other in runs:
        if _setting(other) == _setting(run):
            other = other | {"rows": [row for row in other["rows"] if names(row) not in made]}
            if all(other[key] == run[key] for key in ("command", "commit")):  # the same run, some rows later
                other, together = run | {"rows": other["rows"] + run["rows"]}, True
        left.append(other)
    return [other for other in (left if together else [*left, run]) if other["rows"]]


def _with_columns(row: Row, there: Sequence[Row], names: Callable[[Row], list[Any]]) -> Row:
    """The row, and what a row of its names that agrees with it in all that both have has besides."""
    for other in there:
        if names(other) == names(row) and all(other[key] == row[key] for key in other.keys() & row.keys()):
            return other | row
    return row


def _setting(run: Row) -> Row:
    return {key: value for key, value in run.items() if key not in MADE_ANEW}


def _read_runs(path: Path) -> list[Row]:
    kept = read_json(path, default={"runs": []})
    runs = kept.get("runs") if isinstance(kept, dict) else None
    if not isinstance(runs, list) or not all(isinstance(run, dict) and _has_rows(run) for run in runs):
        raise UserError(f"{path} holds no list of runs with their rows; take it back from git, or move it away")
    return runs


def _has_rows(run: Row) -> bool:
    """Whether a run of a file is one that keep_rows wrote."""
    rows = run.get("rows")
    return (
        {"command", "commit", "machine"} <= run.keys()
        and isinstance(rows, list)
        and all(isinstance(row, dict) for row in rows)
    )
