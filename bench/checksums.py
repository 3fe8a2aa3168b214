"""What checksums cost: reading answers with and without them, opening a token table, and a checkpoint's digest.

    python bench/checksums.py [--rows 200000] [--width 384] [--rounds 5]

Both ways of reading take the same random batches of the same file in turn, in one process. Prints medians and writes
bench/results/checksums.json. A training step is the yardstick: a batch of 128 answers belongs to one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from record import RESULTS, command_line, made_by

from jdistill.data.batching.kept_tokens import in_this_process, tokenize_once
from jdistill.teachers.cache import AnswerCache
from jdistill.train.sealed import state_digest

BATCH = 128


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        cache = AnswerCache(Path(scratch) / "answers", flags.width)
        texts = [f"text {i}" for i in range(flags.rows)]
        cache.fill(texts, lambda asked: rng.standard_normal((len(asked), flags.width), np.float32))
        batches = rng.permutation(flags.rows)[: flags.rows // BATCH * BATCH].reshape(-1, BATCH)
        values = cache.parts[0].values

        def checked() -> None:
            for rows in batches:
                cache.gather(rows)

        def unchecked() -> None:
            for rows in batches:
                np.array(values[rows])

        unchecked()  # the file is in the system's memory from here on
        times = [(seconds(checked), seconds(unchecked)) for _ in range(flags.rounds)]
        ids = [[7] * 20] * flags.rows
        tokens = Path(scratch) / "tokens"
        tokenize_once(texts, in_this_process(lambda some: ids[: len(some)]), "t", tokens)
        opening = [
            seconds(lambda: tokenize_once(texts, in_this_process(lambda some: []), "t", tokens))
            for _ in range(flags.rounds)
        ]
        state = {"params": rng.standard_normal(25_000_000, np.float32)}  # 100 MB: 8 million parameters with two moments
        digests = [seconds(lambda: state_digest(state)) for _ in range(flags.rounds)]
    with_sums, without = (statistics.median(of) / len(batches) * 1e3 for of in zip(*times, strict=True))
    found = {
        "rows": flags.rows,
        "width": flags.width,
        "batch": BATCH,
        "ms_a_batch_checked": round(with_sums, 4),
        "ms_a_batch_unchecked": round(without, 4),
        "ms_to_open_tokens": round(1e3 * statistics.median(opening), 1),
        "ms_to_digest_100_MB": round(1e3 * statistics.median(digests), 1),
    }
    out = RESULTS / "checksums.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(made_by(command_line()) | found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
