"""Golden numbers: what small seeded runs of every method gave when they were written down, in tests/golden/NAME.json.

    python tests/golden.py [NAME ...]     # writes them anew: after a change that is meant to change numbers, and says so

Of each stage the losses of its first and last step and the names, types and shapes of its checkpoint; of the run the digest of
its config.json and what its export gives for fixed texts. Equal bit for bit on the machine and with the flags that wrote them, and to
1e-5 on others: XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false" pytest tests/test_golden.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import conftest  # noqa: E402, F401  # the flags that XLA compiles a test with
import jax  # noqa: E402
import jaxlib  # noqa: E402
import numpy as np  # noqa: E402
from campaign.settings import SETTINGS, write_inputs  # noqa: E402
from commands import run_inside  # noqa: E402
from conftest import sentences  # noqa: E402

STEPS = 50
NAMES = [name for name, setting in SETTINGS.items() if setting.devices == setting.processes == 1]
LATER = (
    "prefetch",
    "answers_ahead",
    "shard_params",
    "steps_per_call",
    "average",
    "optimizer",
    "dev_retrieval",
    "student.vocabulary",
    "student.intermediate_size",
    "loss.align",
    "attention",
    "loss.scores",
    "loss.scores_weight",
    "loss.scores_temperature",
    "loss.in_batch",
    "trust_remote_code",
    "text_role",
    "pairs",
    "index_by",
    "text_pairs",
    "checkpoint",
    "checkpoint_minutes",
    "tune.prompts",
    "tune.patience",
    "topics",
    "iem_cosine",
    "queries_without_positive",
    "unlabelled_symmetric",
    "unlabelled_asymmetric",
    "unlabelled_queries",
    "loss_scaling",
    "loss.vectors",
    "loss.listed",
    "finetune.packed",
)  # keys that change no number, and came after the numbers were written
LONG = {key: STEPS for key in ("max_steps", "checkpoint_every")}
# Half of the module's units that start as similarity lie exactly at ReLU's kink, where rounding decides after an update which are on: other
# flags of XLA on one machine then move the loss by 2e-4 at the third step, and from a random start by 1e-7 in all fifty.
OWN: dict[str, dict[str, object]] = {"d2llm": {"heads_start": "random"}}


def machine() -> str:
    """What float32 sums may depend on: the processor's instructions, the cores that are ours, XLA and its flags."""
    found = Path("/proc/cpuinfo")
    instructions = re.search(r"^(?:flags|Features)\s*:(.*)$", found.read_text(), re.M) if found.exists() else None
    model = (
        re.search(r"^model name\s*:(.*)$", found.read_text(), re.M) if found.exists() else None
    )  # its caches decide how sums are cut
    parts = [platform.machine(), model and model[1], instructions and sorted(instructions[1].split())]
    parts.append(len(os.sched_getaffinity(0)))
    versions = [jax.__version__, jaxlib.__version__, np.__version__, os.environ.get("XLA_FLAGS")]
    return hashlib.blake2b(json.dumps([parts, versions]).encode(), digest_size=8).hexdigest()


def measure(name: str, inputs: Path, slot: Path) -> dict[str, Any]:
    """Runs a setting of the campaign for STEPS steps a stage and reads what it left."""
    arguments = SETTINGS[name].launch(inputs, slot).arguments
    stages = {key.partition(".")[0] + "." for key in SETTINGS[name].keys if key.endswith(".max_steps")}
    longer = {f"{stage}{key}": value for stage in {"", *stages} for key, value in LONG.items()} | {"log_every": 1}
    longer |= OWN.get(name, {})
    longer |= {} if "packed" in SETTINGS[name].keys else {"packed": False}  # as it was when they were written first
    longer = {
        key: value for key, value in longer.items() if key != "max_steps" or "max_steps" not in SETTINGS[name].keys
    } | {"max_steps": STEPS}
    done = run_inside(
        [sys.executable, "-m", "jdistill.main", *arguments, *(f"--config.{k}={v}" for k, v in longer.items())]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    run = slot / "run"
    config = json.loads((run / "config.json").read_text().replace(str(inputs), "INPUTS").replace(str(slot), "SLOT"))
    for block, _, key in (key.rpartition(".") for key in LATER):
        if isinstance(of_block := config.get(block) if block else config, dict):
            of_block.pop(key, None)
    config = json.dumps(config, indent=2) + "\n"
    return {
        "machine": machine(),
        "config": hashlib.blake2b(config.encode(), digest_size=16).hexdigest(),
        "stages": {folder.parent.name: stage(folder.parent) for folder in sorted(run.glob("*/checkpoints"))},
        "encoding": encoding(run / "export"),
    }


def stage(folder: Path) -> dict[str, Any]:
    from jdistill.train.checkpoint import Checkpoints

    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = {str(row["step"]): row["loss"] for row in rows if row["step"] in (1, STEPS) and "loss" in row}
    checkpoints = Checkpoints(folder / "checkpoints", 100)
    step, state, _ = checkpoints.restore(None)
    checkpoints.close()
    leaves = jax.tree_util.tree_leaves_with_path(state)
    names = {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}
    return {
        "losses": losses,
        "step": step,
        "checkpoint": {name: f"{x.dtype} {list(x.shape)}" for name, x in sorted(names.items())},
    }


def encoding(export: Path) -> list[list[float]]:
    """What the exported student gives for three texts, float32 as the shortest decimals that read back the same."""
    from jdistill.encoder import loading

    vectors = loading.load(str(export)).encode(sentences(3))
    return [[float(str(value)) for value in row] for row in vectors.astype(np.float32)]


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        write_inputs(Path(scratch) / "inputs")()
        for name in sys.argv[1:] or NAMES:
            found = measure(name, Path(scratch) / "inputs", Path(scratch) / name)
            (GOLDEN / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
            print(name, {key: value["losses"] for key, value in found["stages"].items()}, flush=True)


if __name__ == "__main__":
    main()
