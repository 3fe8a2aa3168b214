"""kill -9 at random moments of a short run, resumed each time: are the final parameters bit-identical to the
uninterrupted run's?

    python bench/kill.py [--kills 10] [--seed 0] -- --config configs/quickstart.py
    --config.max_steps=60 --config.checkpoint_every=10 …

Moments are drawn uniformly over the time the uninterrupted run took, start-up, saving and export included. Prints
each kill with the newest checkpoint then there. Adds to bench/results/kill.json.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
from record import command_line, joined, keep_rows

from jdistill.train.checkpoint import Checkpoints


def final_state(workdir: Path) -> list[np.ndarray]:
    checkpoints = Checkpoints(workdir / "distil" / "checkpoints", 1000)
    _, state, _ = checkpoints.restore(None)
    checkpoints.close()
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("arguments", nargs="*", help="of jdistill.main, after --")
    flags = parser.parse_args()
    rng = random.Random(flags.seed)
    with tempfile.TemporaryDirectory() as scratch:

        def command(name: str) -> list[str]:
            return [sys.executable, "-m", "jdistill.main", *flags.arguments, "--workdir", f"{scratch}/{name}"]

        began = time.monotonic()
        subprocess.run(command("whole"), check=True, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        print(f"uninterrupted: {seconds:.0f} s", flush=True)
        one, done, same, runs = final_state(Path(scratch, "whole")), 0, True, 0
        while done < flags.kills:  # a run takes as many kills as come before its end; then the next one begins
            runs += 1
            name = f"killed-{runs}"
            checkpoints = Path(scratch, name, "distil", "checkpoints")
            while done < flags.kills:
                process = subprocess.Popen(command(name), stderr=subprocess.DEVNULL)
                moment = rng.uniform(0.05, 0.75) * seconds
                try:
                    if process.wait(timeout=moment):
                        print(f"run {runs} ended by itself with status {process.returncode}", file=sys.stderr)
                        return 1
                    print(f"  run {runs} ended before its kill at {moment:.1f} s", flush=True)
                    break
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                done += 1
                steps = sorted(int(p.name) for p in checkpoints.glob("[0-9]*") if p.name.isdigit())
                newest = steps[-1] if steps else "none"
                print(f"  kill {done}, of run {runs}, after {moment:5.1f} s: newest checkpoint {newest}", flush=True)
            subprocess.run(command(name), check=True, stderr=subprocess.DEVNULL)
            other = final_state(Path(scratch, name))
            equal = len(one) == len(other) and all(
                a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other, strict=True)
            )
            print(f"  run {runs}: {'bit-identical' if equal else 'DIFFERENT'}", flush=True)
            same = same and equal
        print(
            f"{done} kills of {runs} runs: final state of {len(one)} arrays, {sum(a.size for a in one):,} numbers: "
            f"{'bit-identical' if same else 'DIFFERENT'}"
        )
        row = {
            "seed": flags.seed,
            "kills": done,
            "runs": runs,
            "uninterrupted (s)": round(seconds, 1),
            "arrays": len(one),
        }
        row |= {"numbers": sum(a.size for a in one), "end": "bit-identical" if same else "different"}
        keep_rows("kill", command_line(), [row], ("seed",), run=joined(flags.arguments))
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
