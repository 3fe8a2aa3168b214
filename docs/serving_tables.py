"""docs/serving.md from bench/results/servers.json: a student in each server, as bench/servers.py measured it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markdown_parts import MADE, as_page, code, table

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results" / "servers.json"
# What was not run, and why. That ELECTRA's layout is unknown there is what is reported of them; their sources were not read for this.
NOT_RUN = {
    "text-embeddings-inference": "its image needs Docker; it is said to know BERT's layout and not ELECTRA's",
    "vLLM": "its CPU build is compiled from source; it is said to know BERT's layout and not ELECTRA's",
    "llama.cpp, Ollama": "there is no export to GGUF yet; llama.cpp is said to know BERT's layout and not ELECTRA's",
}
NOTES = [
    "OpenVINO computes in bfloat16 where the processor has it, unless it is told otherwise: "
    '`SentenceTransformer(..., backend="openvino", model_kwargs={"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}})`.',
    "ONNX Runtime alone and fastembed pool by the graph or by themselves; both need no torch.",
]
HEAD = ["server", "loads", "largest difference", "memory, MB", "versions"]


def serving_page() -> str:
    """docs/serving.md."""
    measured = json.loads(RESULTS.read_text())
    parts = [
        "# Servers",
        MADE,
        "Where an exported student loads, each server really started in an environment of its own: the largest difference of a number "
        "of its vectors, of length one, from jdistill's own; and the most memory that its process held.",
        f"<!-- not run: makes an environment for each server -->\n```bash\n{measured['command']}\n```",
        f"{measured['sentences']:,} sentences, {measured['machine']}, commit {code(measured['commit'])}. The bench writes rates too; they "
        "were taken beside other work here, and are not shown.",
    ]
    for student, servers in measured["students"].items():
        parts += [f"## {student}", table(HEAD, [_row(name, figures) for name, figures in servers.items()])]
        parts += [f"{name}: {figures['error']}" for name, figures in servers.items() if not figures["loads"]]
    rows = [[name, why] for name, why in NOT_RUN.items()]
    return as_page([*parts, *NOTES, "## Not run", table(["server", "why"], rows)])


def _row(name: str, figures: dict[str, Any]) -> list[str]:
    if not figures["loads"]:
        return [name, "no", *[""] * (len(HEAD) - 2)]
    versions = ", ".join(f"{library} {version}" for library, version in figures["versions"].items())
    return [name, "yes", f"{figures['largest_difference']:.1e}", f"{figures['peak_mb']:,.0f}", versions]
