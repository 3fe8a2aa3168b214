"""Tables of the runs that bench/record.py keeps in a file: each run's rows, then mean and spread where rows have several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from markdown_parts import WIDTH, short, table, with_spaces

NO_SETTING = ("command", "commit", "machine", "load", "rows")
Row = dict[str, Any]


def run_parts(kept: Row) -> list[str]:
    """The parts of a page for a file {"by": [...], "runs": [...]}."""
    parts = []
    for run in kept["runs"]:
        about = ", ".join([f"commit `{run['commit']}`", run["machine"], *_settings(run, but="keys"), run["load"]])
        parts += [f"`{_with_short_words(run['command'])}`: {about}.", rows_table(run["rows"])]
    for settings, rows in over_seeds(kept):
        about = ", ".join(["Mean and sample standard deviation over seeds", *_settings(settings)])
        parts += [f"{about}:", rows_table(rows)]
    return parts


def _with_short_words(command: str) -> str:
    """A command whose words fit a line; what is cut off one stands in the file, and mostly in the rows."""
    most = WIDTH - 5  # beside the marks around it
    return " ".join(word if len(word) <= most else word[:most] + "…" for word in command.split(" "))


def _settings(run: Row, but: str = "") -> list[str]:
    """Of a run its settings that say something, each with its name. but: one that its command says already."""
    return [f"{with_spaces(key)} {short(run[key])}" for key in run if key not in (*NO_SETTING, but) and run[key] != ""]


def rows_table(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return table(
        map(with_spaces, columns),
        [["" if row.get(column) is None else short(row[column]) for column in columns] for row in rows],
    )


def over_seeds(kept: Row) -> list[tuple[Row, list[Row]]]:
    """Settings, and a row for each that has several seeds at them; a seed that several machines ran counts once, with their mean."""
    by = kept.get("by", [])
    names = [key for key in by if key != "seed"]
    groups: dict[str, tuple[Row, dict[tuple[Any, ...], dict[Any, list[Row]]]]] = {}
    for run in kept["runs"]:
        settings = {key: value for key, value in run.items() if key not in NO_SETTING}
        of_settings = groups.setdefault(repr(sorted(settings.items())), (settings, {}))[1]
        for row in run["rows"]:
            if row.get("seed") is not None:
                seeds = of_settings.setdefault(tuple(row.get(key) for key in names), {})
                seeds.setdefault(row["seed"], []).append(row)
    summed = [
        (
            settings,
            [
                _mean_row(dict(zip(names, name, strict=True)), seeds, by)
                for name, seeds in rows.items()
                if len(seeds) > 1
            ],
        )
        for settings, rows in groups.values()
    ]
    return [(settings, rows) for settings, rows in summed if rows]


def _mean_row(names: Row, seeds: dict[Any, list[Row]], by: Sequence[str]) -> Row:
    mean: Row = names | {"seeds": len(seeds)}
    every = [row for rows in seeds.values() for row in rows]
    for column in dict.fromkeys(name for row in every for name in row if name not in by):
        if all(_is_number(row.get(column)) for row in every):
            values = [statistics.mean(row[column] for row in rows) for rows in seeds.values()]
            mean[column] = f"{statistics.mean(values):.4g} ± {statistics.stdev(values):.2g}"
    return mean


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
