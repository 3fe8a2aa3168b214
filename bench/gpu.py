"""Everything to be measured on a lent GPU, part by part within a budget of time; bench/gpu.sh starts it.

    python bench/gpu.py [--out FILE] [--parts rates simtde] [--budget 540]
    python bench/gpu.py --add FILE    # what a call left on a lent machine, into bench/results/gpu.json or --out
    python bench/gpu.py --cpu    # a rehearsal of all of it with tiny models, on any machine

A part has a process and a time limit of its own, so that one that fails or hangs loses its own rows alone. After each the results
are written anew, to $OUT/gpu.json where OUT names a folder, else bench/results/gpu.json; a rehearsal's to runs/gpu-rehearsal.json. Parts of
earlier calls on the same device stay in the file, but for those that are measured again. Its exit status is 1 where a part was not whole.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from gpu.children import run_part
from gpu.parts import BUDGET, PARTS, Part, Row, Setting
from record import RESULTS, made_by

from jdistill.core.files import write_json

WHOLE = "whole"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the results' file")
    parser.add_argument("--add", type=Path, help="a file of results that joins them; nothing is measured")
    parser.add_argument(
        "--parts", nargs="+", default=[part.name for part in PARTS], help="in this order, by name or MODULE:FUNCTION"
    )
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of all parts together")
    parser.add_argument("--limit", type=float, default=0.0, help="seconds of each part; 0: its own")
    parser.add_argument("--cpu", action="store_true", help="a rehearsal: tiny models and batches")
    parser.add_argument("--fork", action="store_true", help="import once for all parts; not where a GPU is")
    return parser  # fmt: skip


def chosen_parts(names: Sequence[str], limit: float) -> list[Part]:
    """The parts of these names; MODULE:FUNCTION is one that is not in the list."""
    by_name = {part.name: part for part in PARTS}
    parts = []
    for name in names:
        if name not in by_name and ":" not in name:
            sys.exit(f"--parts: {name} is none of {', '.join(by_name)}")
        part = by_name.get(name) or Part(name, name, BUDGET, "")
        parts.append(replace(part, limit=limit or part.limit))
    return parts


def with_shares(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows, those that say their operations with their share of the large bfloat16 product's rate; and how the two trainings compare."""
    peak = max((row.get("tflop_per_s", 0.0) for row in rows.get("rates", []) if row.get("dtype") == "bfloat16"), default=0.0)  # fmt: skip
    shared = {
        name: [
            row | {"share_of_bfloat16_rate": row["tflop_per_s"] / peak} if peak and "tflop_per_s" in row else row
            for row in of_part
        ]
        for name, of_part in rows.items()
    }
    ratios = [
        {"what": f"{what}, jdistill over sentence-transformers"} | labels | {"ratio": ours / theirs}
        for what, sides, figure in (
            ("training", ("training", "trainer"), "sentences_per_s"),
            ("encoding", ("encoding", "encoder"), "texts_per_s"),
        )
        for labels, ours, theirs in _beside(*(rows.get(side, []) for side in sides), figure)
    ]
    return shared | ({"ratio": ratios} if ratios else {})


def _beside(ours: list[Row], theirs: list[Row], figure: str) -> Iterator[tuple[Row, float, float]]:
    """Type and batch size of the rows that both sides have, with a figure of each."""
    for row in ours:
        labels = {key: row.get(key) for key in ("dtype", "batch")}
        for other in theirs:
            if labels.items() <= other.items() and row.get(figure) and other.get(figure):
                yield labels, row[figure], other[figure]


def write(out: Path, about: Row, ends: list[Row], rows: dict[str, list[Row]]) -> None:
    """The results so far: who made them, how each part ended, and the rows of each; of parts that are none of these what was there."""
    earlier = earlier_results(out, about["on"])
    # A part that measured fewer rows, since it was not begun, say, leaves an earlier call's as they are.
    ends = [end for end in ends if measured(rows.get(end["part"], [])) >= measured(earlier.get(end["part"], []))]
    here = {end["part"] for end in ends}
    before = [end for end in earlier.get("parts", []) if end["part"] not in here]
    rows = {name: of for name, of in rows.items() if name in here}
    rows = {end["part"]: earlier[end["part"]] for end in before if end["part"] in earlier} | rows
    ends = [*before, *ends]
    seconds = round(sum(end["seconds"] for end in ends), 1)
    found = about | {"seconds": seconds, "parts": ends} | with_shares({name: of for name, of in rows.items() if of})
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, found)


def measured(rows: list[Row]) -> int:
    """How many rows hold a measurement, and not that it failed or that no time was left."""
    return sum(not row.keys() & {"failed", "left"} for row in rows)


def earlier_results(out: Path, device: Row) -> Row:
    """What a file of results holds, {} where there is none. Ends this process where it is of another device, or of other libraries."""
    earlier: Row = json.loads(out.read_text()) if out.is_file() else {}
    if earlier and earlier.get("on") != device:
        if earlier.get("rehearsal"):
            return {}
        sys.exit(f"{out} holds results of {earlier.get('on')}, and here is {device}; name another --out")
    return earlier


def add(file: Path, out: Path) -> None:
    """Adds the parts of a file of results to those in `out`."""
    found = json.loads(file.read_text())
    rows = {end["part"]: found.get(end["part"], []) for end in found["parts"]}
    about = {key: value for key, value in found.items() if key not in (*rows, "seconds", "parts", "ratio")}
    write(out, about, found["parts"], rows)


def look_at_device() -> Row:
    """The device that JAX sees and the libraries' versions, by a process of its own: this one must not hold the card's memory."""
    looked = "import json; from gpu.rates import device; print(json.dumps(device()))"
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run([sys.executable, "-c", looked], capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"JAX does not start here ({'; '.join(done.stderr.strip().splitlines()[-1:])})")
    device: Row = json.loads(done.stdout.splitlines()[-1])
    return device


def import_once() -> None:
    """What the parts import, before they are copies of this process. No device is touched."""
    for name in ("torch", "sentence_transformers", *{part.source.partition(":")[0] for part in PARTS}):
        importlib.import_module(name)


def main() -> int:
    flags = make_parser().parse_args()
    end = time.monotonic() + flags.budget
    results = (Path(os.environ["OUT"]) if os.environ.get("OUT") else RESULTS) / "gpu.json"
    out = flags.out or (ROOT / "runs" / "gpu-rehearsal.json" if flags.cpu else results)
    if flags.add:
        add(flags.add, flags.out or RESULTS / "gpu.json")
        return 0
    if flags.cpu:
        os.environ.update(
            {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        )  # threads cost more than they give at such sizes
    else:
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")  # one process at a time has the card
    device = look_at_device()
    if not flags.cpu and device["platform"] != "gpu":
        sys.exit(f"there is no GPU here (JAX runs on {device['platform']}); --cpu rehearses the bench without one")
    os.environ.update({"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"})
    if flags.fork:
        import_once()
    about = made_by(f"bash bench/gpu.sh{' --cpu' if flags.cpu else ''}", seed=0, rehearsal=flags.cpu)
    earlier_results(out, device)  # before anything is measured
    about |= {"on": device}
    ends: list[Row] = []
    rows: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(flags.cpu, Path(folder), end)
        for part in chosen_parts(flags.parts, flags.limit):
            ended, of_part = run_part(part, setting, end, flags.fork)
            ends.append(ended | {"commit": about["commit"]})
            rows |= {part.name: of_part} if of_part else {}
            print(f"{part.name}: {ended['end']}, {ended['rows']} rows, {ended['seconds']} s", flush=True)
            write(out, about, ends, rows)
    print(f"wrote {out}")
    return int(any(end["end"] != WHOLE for end in ends))


if __name__ == "__main__":
    sys.exit(main())
