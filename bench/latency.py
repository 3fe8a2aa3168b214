"""A pass over sentences one at a time: teacher and students in Flax, ONNX Runtime and torch. Seconds, and the ratio
to the teacher.

    python bench/latency.py --models TEACHER STUDENT [STUDENT …] --texts sts-test.csv|file.txt [--limit 0] [--rounds 3]

The first model is the one that ratios refer to. Models alternate in each round; the median round counts. Texts:
STS-B's csv (both sentences) or one a line. Adds to bench/results/latency.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from record import command_line, keep_rows, shown, shown_model

import jdistill
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.export.form_speed import OpenedForm, opened_form
from jdistill.export.onnx import graph
from jdistill.export.targets import TARGETS


def read(path: Path, limit: int) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    texts = [side for line in lines for side in line.split("\t")[5:7]] if path.name.startswith("sts-") else lines
    return texts[:limit] if limit else texts


def encoders(model: jdistill.Encoder, folder: Path) -> dict[str, Callable[[str], object]]:
    """framework -> a function that embeds one text, tokenising included."""
    write_files(model, folder)
    write_weights(model, folder)
    forms = {"ONNX Runtime": opened_form(model, graph.save_graph(folder))}
    if TARGETS["sentence-transformers"].available:
        forms["torch"] = opened_form(model, folder)
    return {"Flax": lambda text: model.encode([text], batch_size=1)} | {
        name: partial(_alone, form) for name, form in forms.items()
    }


def _alone(form: OpenedForm, text: str) -> object:
    return form.encode([text], batch_size=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frameworks", nargs="+", default=["Flax", "ONNX Runtime", "torch"])
    flags = parser.parse_args()
    texts = read(flags.texts, flags.limit)
    with tempfile.TemporaryDirectory() as scratch:
        ready = {
            source: encoders(jdistill.load(source), Path(scratch) / str(i)) for i, source in enumerate(flags.models)
        }
        print(f"{len(texts)} sentences, one at a time")
        for framework in (f for f in next(iter(ready.values())) if f in flags.frameworks):
            seconds: dict[str, list[float]] = {source: [] for source in ready}
            for source in ready:  # compile and warm up on every length
                for text in texts if framework == "Flax" else texts[:50]:
                    ready[source][framework](text)
            for _ in range(flags.rounds):
                for source, frameworks in ready.items():
                    began = time.perf_counter()
                    for text in texts:
                        frameworks[framework](text)
                    seconds[source].append(time.perf_counter() - began)
            first = seconds[flags.models[0]]
            for source, times in seconds.items():
                middle = statistics.median(times)
                faster = statistics.median(
                    a / b for a, b in zip(first, times, strict=True)
                )  # side by side, round by round
                print(
                    f"{framework:13} {middle:7.2f} s a pass, {1000 * middle / len(texts):6.2f} ms a sentence, "
                    f"{faster:.2f} times {flags.models[0]}  (rounds {', '.join(f'{t:.2f}' for t in times)})  {source}",
                    flush=True,
                )
                row = {
                    "framework": framework,
                    "model": shown_model(source),
                    "ms a sentence": 1000 * middle / len(texts),
                }
                row |= {"times the first's speed": faster, "rounds (s)": [round(t, 3) for t in times]}
                about: dict[str, Any] = {
                    "first": shown_model(flags.models[0]),
                    "texts": shown(flags.texts),
                    "sentences": len(texts),
                }
                keep_rows("latency", command_line(), [row], ("framework", "model"), **about)


if __name__ == "__main__":
    main()
