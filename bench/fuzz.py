"""Fuzz by seeded damage: does every reader either read a file or say what is wrong with it?

    python bench/fuzz.py [--inputs 10000] [--seed 0] [--out bench/results/fuzz.json] [--kinds texts,gguf] [--keep FOLDER]

Each input is a whole sample of some kind (bench/fuzz_kinds.py) with one file damaged (bench/mutations.py), read in a process of its own
that may take 10 s and 2 GiB more than it has. It is then "read" and sane, "refused" by a UserError of one line, or "wrong": another
exception, an insane answer, too slow, too large, or a crash. Wrong inputs are kept in FOLDER/KIND-NUMBER. Stopped and started again, it
goes on after the inputs that FOLDER/done.jsonl lists.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # forked processes cannot use their parent's threads

from fuzz_kinds import KINDS
from mutations import mutate_file
from record import RESULTS, code_digest, command_line, made_by

from jdistill.core.errors import UserError
from jdistill.core.progress import log

SECONDS, MORE_BYTES, AT_ONCE = 10, 2 << 30, 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "fuzz.json")
    parser.add_argument("--kinds", default="", help="with commas between; all where empty")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "jdistill-fuzz")
    flags = parser.parse_args()
    kinds = flags.kinds.split(",") if flags.kinds else list(KINDS)
    began = time.monotonic()
    rows = campaign(kinds, flags.inputs, flags.seed, flags.keep)
    about = made_by(command_line(), seed=flags.seed, kinds=flags.kinds)
    report = about | summary(rows) | {"seconds": round(time.monotonic() - began)}
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    return int(report["outcomes"].get("wrong", 0) > 0)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts by kind and outcome, and the distinct faults of what was wrong."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        kinds[row["kind"]][row["outcome"]] += 1
    faults = Counter(f"{row['kind']}: {row['error'][:160]}" for row in rows if row["outcome"] == "wrong")
    whole = sum(kinds.values(), Counter())
    return {
        "inputs": len(rows),
        "outcomes": dict(whole),
        "kinds": {k: dict(v) for k, v in kinds.items()},
        "faults": dict(faults),
    }


def campaign(kinds: list[str], inputs: int, seed: int, keep: Path) -> list[dict[str, Any]]:
    """One row {"case", "kind", "outcome", "error"} for each of `inputs` inputs, spread over the kinds."""
    keep.mkdir(parents=True, exist_ok=True)
    done_file = keep / "done.jsonl"
    done = [json.loads(line) for line in done_file.read_text().splitlines()] if done_file.is_file() else []
    code = code_digest("fuzz.py", "fuzz_kinds.py", "fuzz_models.py", "mutations.py")
    done = [row for row in done if row.pop("code", "") == code and row["seed"] == seed]
    plan = [(case, kinds[case % len(kinds)]) for case in range(inputs)]
    planned = set(plan)
    done = [row for row in done if (row["case"], row["kind"]) in planned]
    seen = {(row["case"], row["kind"]) for row in done}
    todo = [one for one in plan if one not in seen]
    with tempfile.TemporaryDirectory() as scratch, done_file.open("a") as out:
        samples = Path(scratch, "samples")
        for kind in dict.fromkeys(kind for _, kind in todo):
            (samples / kind).mkdir(parents=True)
            KINDS[kind].make(samples / kind)
            # Whole once, so that what is imported at the first use is not imported again by every process.
            whole = next(path for path in sorted((samples / kind).rglob("*")) if _may_be_damaged(path, kind))
            KINDS[kind].read(samples / kind, whole)
        while todo:
            for row in _worker(todo[:AT_ONCE], samples, Path(scratch, "work"), seed, keep):
                done.append(row)
                out.write(json.dumps(row | {"code": code}) + "\n")
                out.flush()
                todo.pop(0)
    return done


def _worker(cases: list[tuple[int, str]], samples: Path, work: Path, seed: int, keep: Path) -> Iterator[dict[str, Any]]:
    """The rows of these inputs, tried in a forked process, up to and with the one that ends it."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        _try_all(cases, samples, work, seed, keep, send)
    os.close(send)
    told, buffer = 0, b""
    while told < len(cases):
        ready = select.select([receive], [], [], SECONDS + 2)[0]
        piece = os.read(receive, 1 << 16) if ready else b""
        if not piece:
            break
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in lines:
            told += 1
            yield json.loads(line)
    if told < len(cases):
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(receive)
    if told < len(cases):
        case, kind = cases[told]
        slow = not ready or os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
        error = f"more than {SECONDS} s" if slow else f"the process died ({status})"
        _keep(work, keep, kind, case, error)
        yield {"case": case, "kind": kind, "seed": seed, "outcome": "wrong", "error": error}


def _try_all(cases: list[tuple[int, str]], samples: Path, work: Path, seed: int, keep: Path, send: int) -> None:
    """What the forked process does; it never returns."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    log.disabled = True
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for case, kind in cases:
        signal.alarm(SECONDS)
        outcome, error = _try(case, kind, samples, work, seed)
        signal.alarm(0)
        if outcome == "wrong":
            _keep(work, keep, kind, case, error)
        last = error.strip().rsplit("\n", 1)[-1].replace(str(work), "")[:500]
        row = {"case": case, "kind": kind, "seed": seed, "outcome": outcome, "error": last}
        os.write(send, json.dumps(row).encode() + b"\n")
    os._exit(0)


def _try(case: int, kind: str, samples: Path, work: Path, seed: int) -> tuple[str, str]:
    """(outcome, what was said) of one input."""
    rng = Random(f"{seed} {kind} {case}")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(samples / kind, work)
    damaged = rng.choice(sorted(path for path in work.rglob("*") if _may_be_damaged(path, kind)))
    before = damaged.read_bytes()
    try:
        while damaged.read_bytes() == before:
            mutate_file(damaged, rng)
    except Exception:
        return "wrong", f"the fuzzer itself failed:\n{traceback.format_exc()}"
    try:
        KINDS[kind].read(work, damaged)
    except UserError as error:
        return ("wrong", f"an error of several lines: {error}") if "\n" in str(error) else ("refused", str(error))
    except BaseException:
        return "wrong", traceback.format_exc()
    return "read", ""


def _may_be_damaged(path: Path, kind: str) -> bool:
    return path.is_file() and path.name.endswith(KINDS[kind].only)


def _keep(work: Path, keep: Path, kind: str, case: int, error: str) -> None:
    place = keep / f"{kind.replace(' ', '-')}-{case}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(work, place)
    (place / "ERROR").write_text(error, errors="replace")


if __name__ == "__main__":
    raise SystemExit(main())
