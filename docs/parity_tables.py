"""docs/results/parity.md from bench/results/parity.json: every architecture against transformers."""

from __future__ import annotations

import json
from pathlib import Path

from markdown_parts import MADE, as_page, code, table

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results" / "parity.json"
DTYPES = ("float32", "bfloat16")


def parity_page() -> str:
    """docs/results/parity.md."""
    measured = json.loads(RESULTS.read_text())
    rows = [
        [row["architecture"], row["variant"], *(f"{row[dtype]:.1e}" if dtype in row else "" for dtype in DTYPES)]
        for row in measured["rows"]
    ]
    return as_page([
        "# Architectures: parity",
        MADE,
        "Every architecture that teaches here, against its model in transformers in double precision: the largest difference of a number of "
        "any hidden state (in bfloat16 of the last one at least), as a share of the state's largest. Random weights, small models of several "
        "shapes, texts of several lengths, padded. Each lies within what rounding explains (`tests/parity.py`), or a test fails.",
        f"<!-- not run: two minutes -->\n```bash\n{measured['command']}\n```",
        f"{measured['machine']}, commit {code(measured['commit'])}.",
        table(["architecture", "variant", *DTYPES], rows),
        "No published weights could be had for most of these; what was read of such is on the pages of figures.",
    ])  # fmt: skip
