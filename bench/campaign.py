"""The campaign: is anything of the user's lost, or something wrong called done?

    python bench/campaign.py --part kills --count 1000     # killed at random moments, resumed: equal to the run left alone?
    python bench/campaign.py --part files --count 1000     # a file deleted, cut in half, a byte flipped: the same command again
    python bench/campaign.py --part faults --count 1000    # ENOSPC, EIO, EACCES at a write call, then the command again without
    python bench/campaign.py --part pairs --count 100      # two processes at once on one folder
    python bench/campaign.py --case kills/simtde/0/3       # again; SCRATCH/slot and SCRATCH/logs show it

--count: cases (kills: kills). The same command goes on where it was stopped: ended cases are in SCRATCH/PART.jsonl. Writes
bench/results/campaign-PART.json, of the cases of --seed and --settings alone. Wrong cases are kept
in SCRATCH/kept. Needs cc, Linux and the test extra.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from campaign import children, faults, file_damage, kills, pairs, write_faults
from campaign.cases import Ledger
from campaign.workplace import Workplace
from record import COMMIT

PARTS = {"kills": kills, "files": file_damage, "faults": write_faults, "pairs": pairs}


def environment(scratch: Path) -> dict[str, str]:
    """Compiled programs are shared, and quickly made; no hub is asked."""
    return {
        "JAX_PLATFORMS": "cpu",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(scratch / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=["kills"])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", nargs="*", default=[], help="only these, by the names in campaign/settings.py")
    parser.add_argument("--case", nargs="+", default=[], help="ids of cases that are run again, and not noted")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "jdistill-campaign")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    flags = parser.parse_args()
    scratch = flags.scratch.resolve()
    faults.start_again_with(faults.build(scratch), **environment(scratch))
    lock = (scratch / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(f"error: another campaign runs in --scratch={scratch}; wait for it, or choose another", file=sys.stderr)
        return 2
    children.import_all(scratch / "modules.json")
    place = Workplace(scratch)
    if flags.case:
        wrong = 0
        for case_id in flags.case:
            case = PARTS[case_id.split("/")[0]].run_case(place, case_id)
            print("\n  ".join([f"{case.id}: {case.outcome}", *case.did, *case.why]), flush=True)
            wrong += case.outcome == "wrong"
        return wrong > 0
    return any([run_part(part, place, flags) for part in flags.part])


def run_part(part: str, place: Workplace, flags: argparse.Namespace) -> int:
    """Runs what is left of a part and writes its summary; returns how many cases are wrong."""
    ledger, of = Ledger(place.scratch / f"{part}.jsonl", place), PARTS[part]
    began, new, ids, done = time.monotonic(), 0, [], 0
    for case_id in of.cases(place, flags.seed, flags.settings):
        if done >= flags.count:
            break
        if case_id not in ledger.cases:
            case = of.run_case(place, case_id)
            ledger.add(case, COMMIT)
            new += 1
            about = f"{'; '.join(case.why)[:160]}  ({(time.monotonic() - began) / new:.1f} s a case)"
            print(f"{done:5d} {case.outcome:8s}{case.id}  {case.phase}  {about}", flush=True)
        ids.append(case_id)  # the ledger may have another seed's and other settings' too
        done += ledger.cases[case_id]["kills"] if part == "kills" else 1
    summary = {"command": shlex.join(["python", *sys.argv]), "seed": flags.seed} | ledger.summary(ids)
    flags.results.mkdir(parents=True, exist_ok=True)
    (flags.results / f"campaign-{part}.json").write_text(json.dumps(summary, indent=2) + "\n")
    print({key: value for key, value in summary.items() if isinstance(value, (int, str))})
    return summary["wrong"]


if __name__ == "__main__":
    raise SystemExit(main())
