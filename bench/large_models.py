"""Models too large for one device, compiled for 8 x H100-80 that are not there: does a step fit, and by which keys. No array is made.

    python bench/large_models.py                # all cases, some minutes; writes bench/results/large_models.json
    python bench/large_models.py --only finetune --machine h100x4

D2LLM with a judge and student of Qwen2.5-7B's shape, its tuning and its distillation, and full fine-tuning of a student of
Qwen2.5-1.5B's shape by IBKD's second stage. Weights are shapes (jax.eval_shape). Needs JAX's plugin for GPUs (the gpu extra) and none of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")

import jax
import numpy as np
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict
from record import RESULTS, made_by

from configs import d2llm as d2llm_file
from configs import ibkd as ibkd_file
from jdistill.core.absent import absent_mesh
from jdistill.core.machines import machine_named
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Start
from jdistill.methods import d2llm, finetune
from jdistill.methods.d2llm_judge import build_judge
from jdistill.models import lora
from jdistill.models.decoder import DecoderConfig
from jdistill.models.interaction import random_iem
from jdistill.models.pma import random_pma
from jdistill.models.registry import parameter_shapes
from jdistill.run.compiled_step import compile_step
from jdistill.run.machine_plan import describe_program, fits
from jdistill.train.method import Method, scalars

OF_QWEN = dict(
    model_type="qwen2", head_size=128, max_positions=32768, rms_norm_eps=1e-6, rope_theta=1e6, rope_scaling=None, activation="silu",
    qkv_bias=True, out_bias=False, mlp_bias=False, qk_norm=False, pad_token_id=0,
)  # fmt: skip
# As their config.json files have them.
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen2.5-7B": dict(
        vocab_size=152064, hidden_size=3584, num_layers=28, num_heads=28, num_kv_heads=4, intermediate_size=18944, tied=False
    ),
    "Qwen2.5-1.5B": dict(
        vocab_size=151936, hidden_size=1536, num_layers=28, num_heads=12, num_kv_heads=2, intermediate_size=8960, tied=True
    ),
}  # fmt: skip
Case = tuple[ConfigDict, Method, dict[str, Any]]


def abstract_encoder(name: str, layers: int) -> Encoder:
    """A decoder whose weights are shapes. layers: of it; 0: all."""
    sizes: dict[str, Any] = OF_QWEN | SHAPES[name] | ({"num_layers": layers} if layers else {})
    config = DecoderConfig(**sizes)
    shapes = {path: jax.ShapeDtypeStruct(shape, np.float32) for path, shape in parameter_shapes(config).items()}
    return Encoder(config, unflatten_dict(shapes, sep="/"), cast(Any, None), pooling="lasttoken", max_length=512)


def arrays(**shapes: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
    """A batch of abstract arrays: name -> (type, sizes)."""
    return {name: jax.ShapeDtypeStruct(sizes, np.dtype(kind)) for name, (kind, sizes) in shapes.items()}


def of_d2llm(rows: int) -> ConfigDict:
    cfg = d2llm_file.get_config()
    cfg.batch_size, cfg.dtype, cfg.remat, cfg.shard_frozen, cfg.symmetric = rows, "bfloat16", True, True, "given"
    return cfg


def tuning(layers: int, rows: int = 16, tokens: int = 264, begun_tokens: int = 56) -> Case:
    """The judge's tuning (Appendix D): prompts of so many tokens behind one of two instructions of so many."""
    cfg = of_d2llm(rows)
    cfg.lora.update(cfg.tune.lora)
    model = abstract_encoder("Qwen2.5-7B", layers)
    answers = jax.ShapeDtypeStruct((2, model.config.hidden_size), np.float32)
    begun = tuple(jax.ShapeDtypeStruct((2, begun_tokens), np.dtype(kind)) for kind in ("int32", "bool"))
    feed = SimpleNamespace(judge=SimpleNamespace(model=model, answer_rows=answers), beginnings=lambda cfg: begun)
    method = build_judge(cfg, Start(model, True, model.dim, cast(Any, None), cast(Any, None), cast(Any, feed)))
    batch = arrays(
        ids=("int32", (rows, tokens)), mask=("bool", (rows, tokens)), beginning=("int32", (rows,)), label=("float32", (rows,)),
    )  # fmt: skip
    return cfg, method, batch


def distilling(layers: int, rows: int = 32, sequences: int = 15, tokens: int = 128) -> Case:
    """The student's distillation: queries with 14 candidates in so many sequences. The modules start at random, for which no text is read."""
    cfg = of_d2llm(rows)
    base = abstract_encoder("Qwen2.5-7B", layers)
    rng, D = np.random.default_rng(0), base.config.hidden_size
    adapters = lora.start(base.params, cfg.lora.paths, cfg.lora.rank, rng)
    params = {"adapters": adapters, "pooler": random_pma(D, rng), "iem": random_iem(D, rng, cfg.iem_size)}
    frozen = {"base": base.params} | scalars(cfg.loss, "temperature", *d2llm.COEFFICIENTS.values())
    method = Method(params, base, frozen, partial(d2llm.represent, cfg, base), partial(d2llm.objective, cfg))
    C, near = cfg.positives + cfg.hard_negatives + cfg.easy_negatives, cfg.positives + cfg.hard_negatives
    packed = ("int32", (rows, sequences, tokens))
    batch = arrays(
        ids=packed, segments=packed, positions=packed, real=("bool", (rows, 1 + C)), texts=("int32", (rows, 1 + C)),
        z=("float32", (rows, C)), r=("float32", (rows, near, near)), symmetric=("bool", (rows,)),
    )  # fmt: skip
    return cfg, method, batch


def finetuning(layers: int, split: bool = True, rows: int = 64, tokens: int = 128) -> Case:
    """Full fine-tuning on triplets of one negative each: all weights are trained. split: over the devices, with the optimiser."""
    cfg = ibkd_file.get_config()
    cfg.batch_size, cfg.dtype, cfg.shard_params, cfg.output_dim = rows, "bfloat16", split, 0
    cfg.chunk_size, cfg.loss.beta = 96, 0.0
    student = abstract_encoder("Qwen2.5-1.5B", layers)
    method = finetune.build(cfg, Start(student, True, student.dim, cast(Any, None), cast(Any, None), None))
    of_tokens = (rows, 3, tokens)
    batch = arrays(
        ids=("int32", of_tokens), mask=("bool", of_tokens), real=("bool", (rows, 3)), texts=("int32", (rows, 3))
    )
    return cfg, method, batch


CASES: dict[str, Callable[[int], Case]] = {
    "tune a judge of 7B": tuning,
    "distil into a student of 7B": distilling,
    "finetune a student of 1.5B": finetuning,
    "finetune a student of 1.5B, each device with the whole state": partial(finetuning, split=False),
}


def measure(name: str, machine_name: str, layers: int) -> dict[str, Any]:
    """A case compiled, its plan printed; its figures as a row."""
    machine = machine_named(machine_name)
    mesh = absent_mesh(machine)
    cfg, method, batch = CASES[name](layers)
    began = time.monotonic()
    step = compile_step(cfg, method, batch, machine, mesh)
    seconds = time.monotonic() - began
    print(f"== {name}, {machine}", *describe_program(step, cfg, machine), sep="\n", flush=True)
    keys = {
        key: cfg[key] for key in ("batch_size", "chunk_size", "shard_frozen", "shard_params", "remat") if key in cfg
    }
    exchanged = {
        kind.replace("-", "_") + "_GiB": round(size / 2**30, 3) for kind, size in step.costs.collectives.items()
    }
    memory = {f"{part}_GiB": round(size / 2**30, 2) for part, size in step.memory.items()}
    flops = {f"TFLOP_{rate}": round(count / 1e12, 2) for rate, count in step.costs.flops.items()}
    least = {"least_seconds": round(step.roofline.least, 4), "bound": step.roofline.bound}
    told = {"case": name, "fits": fits(step.memory["all"], machine), "compile_seconds": round(seconds)}
    return told | keys | memory | exchanged | flops | least


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machine", default="h100x8", help="as of --dry_run --machine")
    parser.add_argument("--only", default="", help="cases whose names hold this word; nothing is written then")
    parser.add_argument("--layers", type=int, default=0, help="of every model; 0: all. Nothing is written of fewer")
    args = parser.parse_args()
    rows = [measure(name, args.machine, args.layers) for name in CASES if args.only in name]
    if args.only or args.layers:
        return
    about = made_by("python bench/large_models.py", planned=args.machine, jax=jax.__version__)
    (RESULTS / "large_models.json").write_text(json.dumps(about | {"steps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
