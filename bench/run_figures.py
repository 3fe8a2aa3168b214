"""What finished runs say of themselves: the figures of their results.json, kept with the keys that made them.

    python bench/run_figures.py --config configs/ibkd.py:mse RUN [RUN …]

For students, and judges, that jdistill.main trains by one command and no bench. Of each run a row for each set that it was scored on: the
student's STS and retrieval and the teacher's, the labelled pairs by the student and by its judge, the held-out text. The keys are those of
the run's config that differ from the config file; machine and load are those of the reading. Adds to bench/results/run_figures.json. No
model is read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from dev_curve import changed_keys
from record import command_line, keep_rows, shown_run

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_json

WHOLE = ("sts", "teacher_sts", "agreement")  # sections that are one row of figures
BY_SET = ("retrieval", "teacher_retrieval", "bm25_retrieval", "asymmetric_retrieval", "translations", "transfer")
BY_SET_AND_WHO = ("pairs", "questions")


def rows_of(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """{"of": section, "set", "by"} and the figures of each part of a results.json.

    Raises: UserError where it has none of them.
    """
    found = False
    for section in (name for name in (*WHOLE, *BY_SET, *BY_SET_AND_WHO) if results.get(name)):
        of = results[section]
        parts = {"": {"": of}} if section in WHOLE else {name: {"": part} for name, part in of.items()}
        parts = of if section in BY_SET_AND_WHO else parts
        for name, by_whom in parts.items():
            for who, figures in by_whom.items():
                found = True
                yield {"of": section, "set": name, "by": who} | _numbers(figures)
    if not found:
        raise UserError("there are no figures in it: the run had no set to be scored on")


def _numbers(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if isinstance(value, int | float)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of finished runs")
    parser.add_argument("--config", required=True, help="the config file that they began with, and its variant")
    flags = parser.parse_args()
    for run in flags.runs:
        if not (run / "results.json").is_file():
            parser.error(f"{run} is not finished: it has no results.json")
        results, about = read_json(run / "results.json"), {"run": shown_run(run)}
        about |= {"seed": read_json(run / "config.json")["seed"]}
        rows = [about | row for row in rows_of(results)]
        made = {
            "config": flags.config,
            "changed": changed_keys(run, flags.config),
            "parameters": results["student"]["num_params"],
        }
        keep_rows("run_figures", command_line(), rows, ("run", "seed", "of", "set", "by"), **made)
        for row in rows:
            print(" ".join(f"{name}={value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
