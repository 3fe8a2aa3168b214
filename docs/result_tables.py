"""docs/results/index.md from bench/results/*.json: what was measured, by which command, and the pages of figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markdown_parts import MADE, as_page, short, table, with_spaces
from run_tables import rows_table, run_parts

ROOT = Path(__file__).resolve().parents[1]
# Figures of a bench that say how it was made rather than what came out.
ABOUT = ("command", "commit", "date", "machine", "device", "devices", "seed")


def results_page() -> str:
    """docs/results/index.md."""
    parts = [
        "# Results",
        MADE,
        "What was measured, by which command. Each page of figures answers one question; the tables below are read from the "
        "files that the benches write into `bench/results`. A commit is that of the checkout a bench ran in; a bench that was new "
        "then came with a later one.",
        pages_of_figures(),
    ]
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        found = json.loads(path.read_text())
        parts += [f"## bench/results/{path.name}"]
        if not isinstance(found, dict):
            found = {"rows": found}
        if command := found.get("command"):
            parts += [f"<!-- not run: a measurement -->\n```bash\n{command}\n```"]
        about = [f"{key} `{short(found[key])}`" for key in ABOUT[1:] if _is_word(found, key)]
        if about:
            parts += [_sentence(", ".join(about))]
        parts += (
            run_parts(found)
            if "runs" in found and "by" in found
            else figures({key: value for key, value in found.items() if not _is_word(found, key)})
        )
    return as_page(parts)


def pages_of_figures() -> str:
    """A list of the other pages of the folder, each with its first sentence."""
    rows = []
    for path in sorted((ROOT / "docs" / "results").glob("*.md")):
        if path.name != "index.md":
            lines = [line for line in path.read_text().splitlines() if not line.startswith("<!--")]
            first = " ".join(" ".join(lines[2:]).split(". ")[0].split())
            rows.append([f"[{lines[0].removeprefix('# ')}]({path.name})", first.rstrip(".")])
    return table(["page", "what it tells"], rows)


def figures(found: dict[str, Any], under: str = "") -> list[str]:
    """Tables of a JSON object: its scalars in one, each object of objects or list of objects in one of its own."""
    scalars = {key: value for key, value in found.items() if not isinstance(value, (dict, list))}
    parts = (
        [table(["figure", "value"], [[with_spaces(key), short(value)] for key, value in scalars.items()])]
        if scalars
        else []
    )
    for key, value in found.items():
        title = f"{under}{with_spaces(key)}"
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            parts += [f"**{title}**", rows_table(value)]
        elif isinstance(value, list) and value:
            parts += [f"**{title}**: {short(value)}"]
        elif isinstance(value, dict) and value and all(isinstance(row, dict) for row in value.values()):
            columns = list(dict.fromkeys(name for row in value.values() for name in row))
            columns = [c for c in columns if any(row.get(c) not in (0, None, "") for row in value.values())]
            rows = [[name, *(short(row.get(c, "")) for c in columns)] for name, row in value.items()]
            parts += [f"**{title}**", table(["", *map(with_spaces, columns)], rows)]
        elif isinstance(value, dict) and any(isinstance(row, (dict, list)) for row in value.values()):
            parts += [f"**{title}**", *figures(value, f"{title}, ")]
        elif isinstance(value, dict) and value:
            parts += [f"**{title}**", table(["", "value"], [[name, short(row)] for name, row in value.items()])]
    return parts


def _is_word(found: dict[str, Any], key: str) -> bool:
    """Whether a key says how the figures were made."""
    return key in ABOUT and key in found and not isinstance(found[key], (dict, list))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."
