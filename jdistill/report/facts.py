"""What a run's folder holds: its JSON files and its stages' metrics, as far as they can be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

EXACT_KIND = "Flat"  # FAISS's exact search, as retrieval.index has it


def read_json_object(path: Path) -> tuple[dict[str, Any], str]:
    """The object in a JSON file and, where there is none to read, the line that says so (otherwise empty)."""
    try:
        content = json.loads(path.read_text("utf-8", errors="replace"))
    except FileNotFoundError:
        return {}, f"No {path.name} in this run's folder."
    except (ValueError, RecursionError) as error:
        return {}, f"{path.name} is not valid JSON ({error}) and was left out."
    return (content, "") if isinstance(content, dict) else ({}, f"{path.name} holds no JSON object and was left out.")


def objects(content: Any) -> dict[str, dict[str, Any]]:
    """The entries of a JSON object that are objects themselves; none where `content` is no object."""
    entries = content.items() if isinstance(content, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict)}


def scored_pairs(results: dict[str, Any], whose: str = "") -> dict[str, Any]:
    """File -> Spearman x 100 on its pairs, "Avg" the mean of several; a file alone is "pairs". whose: "teacher_" or "words_"."""
    mean, of_file = results.get(f"{whose}scored_pairs"), results.get(f"{whose}scored_pairs_of")
    if mean is None:
        return {}
    return of_file | {"Avg": mean} if isinstance(of_file, dict) else {"pairs": mean}


def of_dev_pairs(results: dict[str, Any]) -> str:
    """A sentence that says how many dev pairs the test sets hold, as feeds.evaluation_sets counted them; empty where none was counted."""
    counts = objects(results.get("training")).get("dev_pairs_in_tests", {})
    pairs, same, holds = (counts.get(name) for name in ("pairs", "same_pair", "same_sentence"))
    if not type(pairs) is type(same) is type(holds) is int or not same + holds:
        return ""
    return f"Of the {pairs:,} dev pairs {same:,} are pairs of the test sets, and {holds:,} others hold a sentence of theirs."


def searched_by(results: dict[str, Any]) -> str:
    """What else than an exact search a collection's figures are of, in words behind a comma; empty for an exact one."""
    by = objects(results).get("searched_by", {})
    effort = f" ({by['effort']})" if by.get("effort") else ""
    again = by.get("rescored")
    return (f", vectors in an index {by['index']}{effort}" if by.get("index") else "") + (
        f", {again} documents ranked anew by the module" if again else ""
    )


def of_search(results: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Results that say what their searches are of; from before they did, by the run's config."""
    kind = config.get("index", EXACT_KIND)
    if "searched_by" in results or kind == EXACT_KIND or not results.get("retrieval"):
        return results
    return results | {"searched_by": {"index": str(kind), "effort": str(config.get("index_effort", ""))}}


def read_metrics(path: Path) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], int]:
    """One stage's curves, name -> (steps int64 [n], values float64 [n]) by rising step, and the count of bad lines.

    A step found again (after a resume) replaces the earlier value; null and NaN are kept as NaN; a line that is not
    an object with an integer step, such as the last one of a killed run, counts as bad.
    """
    curves: dict[str, dict[int, float]] = {}
    bad = 0
    for line in filter(str.strip, path.read_text("utf-8", errors="replace").split("\n")):
        try:
            row = json.loads(line)
            step = row.pop("step")
            if type(step) is not int or step >= 2**63:
                raise TypeError("the step is not an integer")
            for name, value in row.items():
                if value is None or type(value) in (int, float):
                    curves.setdefault(name, {})[step] = float("nan" if value is None else value)
        except (ValueError, AttributeError, KeyError, TypeError, OverflowError, RecursionError):
            bad += 1
    return {
        name: (np.array(sorted(points), np.int64), np.array([points[s] for s in sorted(points)]))
        for name, points in curves.items()
    }, bad
