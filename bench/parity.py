"""Every architecture against its model in transformers: the largest difference of a hidden state, by variant and compute type.

    python bench/parity.py

Runs the tests that compare states (random weights, texts of several lengths, padded; transformers in double precision), which report what
they compared, and keeps of each test the largest difference as a share of the state's largest number. A test that fails fails the bench.
Writes bench/results/parity.json, of which docs/generate.py makes a page. Needs the test extra.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from record import RESULTS, made_by

ROOT = Path(__file__).parents[1]
SAME_STATES, NARROW = "test_every_hidden_state_equals_transformers", "test_bfloat16_is_as_near_as_its_eight_bits_allow"
# File of tests -> the architecture, where its variants do not name it.
FILES = {
    "test_models": "", "test_albert": "ALBERT", "test_mpnet": "MPNet", "test_modernbert": "ModernBERT", "test_nomicbert": "NomicBERT",
    "test_t5": "T5 encoder", "test_decoder": "", "test_sliding_window": "",
}  # fmt: skip
NAMES = {
    "bert": "BERT", "roberta": "RoBERTa", "xlm-roberta": "XLM-RoBERTa", "distilbert": "DistilBERT", "electra": "ELECTRA", "llama": "Llama",
    "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma 3",
}  # fmt: skip
TEST = re.compile(r"tests/models/(\w+)\.py::\w+(?:\[(.*)\])?$")


def architecture_and_variant(test: str) -> tuple[str, str]:
    """Of a test's id, such as tests/models/test_t5.py::test_x[gated gelu]. Padding on either side is no variant."""
    match = TEST.match(test)
    assert match is not None, test
    file, parameters = match[1], match[2] or ""
    variant = re.sub(r"^(?:left|right)-|-(?:left|right|True|False)$", "", parameters)
    if FILES[file]:
        return FILES[file], variant
    kind, _, rest = variant.partition("_")
    return (NAMES[kind], rest.replace("_", " ")) if kind in NAMES else ("Llama", variant)


def largest_differences(report: Path) -> list[dict[str, object]]:
    """Rows of architecture, variant and, by compute type, the largest difference of any comparison."""
    largest: dict[tuple[str, str], dict[str, float]] = {}
    for line in report.read_text().splitlines():
        _, test, _, dtype, relative = line.split("\t")
        of_variant = largest.setdefault(architecture_and_variant(test), {})
        of_variant[dtype] = max(of_variant.get(dtype, 0.0), float(relative))
    return [
        {"architecture": architecture, "variant": variant, **by_type}
        for (architecture, variant), by_type in sorted(largest.items(), key=lambda row: (row[0][0].lower(), row[0][1]))
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.tsv"
        files = [f"tests/models/{name}.py" for name in FILES]
        chosen = f"{SAME_STATES} or {NARROW} or test_hidden_states_and_logits_equal_transformers"
        command = [sys.executable, "-m", "pytest", "-q", *files, "-k", chosen]
        subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"JDISTILL_PARITY_REPORT": str(report)})
        rows = largest_differences(report)
    about = made_by("python bench/parity.py", seed=0)
    (RESULTS / "parity.json").write_text(json.dumps(about | {"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
