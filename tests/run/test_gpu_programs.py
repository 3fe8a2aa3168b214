"""The steps of all methods compiled for 1, 8 and 2 x 8 GPUs that are not there: what each device holds, and what they exchange.

bash launch/test_gpu.sh     # JAX's plugin for GPUs needs an environment of its own
"""

from __future__ import annotations

import functools
import importlib.util
import math

import jax
import numpy as np
import pytest
from commands import ROOT, command, run_inside
from conftest import sentences
from gpu_settings import EVERY, METHODS, ROWS
from ml_collections import ConfigDict

from jdistill.core.absent import absent_mesh
from jdistill.core.errors import UserError
from jdistill.core.machines import machine_named
from jdistill.models.attention import CUDNN, PLAIN_ATTENTION, use_attention
from jdistill.models.token_batch import TOKEN_ARRAYS
from jdistill.run.compiled_step import CompiledStep, compile_step
from jdistill.run.program import ArrayType
from jdistill.train.method import Method

MACHINES = ("h200", "h200x8", "2xh200x8")
CASES = [(name, machine) for name in EVERY for machine in MACHINES if name in METHODS or machine == "h200x8"]
HAS_PLUGIN = importlib.util.find_spec("jax_plugins") and importlib.util.find_spec("jax_plugins.xla_cuda13")
SMALL = 4096  # bytes: sums of scalars, of a loss and its metrics


@functools.cache
def mesh_of_machine(name: str) -> jax.sharding.Mesh:
    if not HAS_PLUGIN:
        pytest.skip("JAX's plugin for GPUs, jax[cuda13], is not installed: bash launch/test_gpu.sh")
    return absent_mesh(machine_named(name))


@functools.cache
def built(name: str) -> tuple[Method, dict[str, np.ndarray], ConfigDict]:
    return *EVERY[name].make(), EVERY[name].config()


def size(tree: object) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def vectors(name: str) -> int:
    """Bytes of all that a loss may compare across texts: a few vectors of each, and the teacher's; no state of a token."""
    method, batch, _ = built(name)
    reps = jax.eval_shape(lambda params: method.represent(params, method.frozen, batch, None), method.params)
    of_texts = [x for key, x in reps.items() if key != "tokens" and not key.startswith("hidden")]
    return size(of_texts) + size(
        {key: x for key, x in batch.items() if key not in (*TOKEN_ARRAYS, "segments", "positions")}
    )


def of_all_pairs(array: ArrayType) -> bool:
    """Two sizes of the whole batch, of texts or of several a row."""
    return sum(size >= ROWS and size % ROWS == 0 for size in array.dims) > 1


@pytest.mark.parametrize("name, machine", CASES)
def test_what_a_device_holds_and_exchanges(name: str, machine: str) -> None:
    mesh = mesh_of_machine(machine)
    method, batch, cfg = built(name)
    step = compile_step(cfg, method, batch, machine_named(machine), mesh)
    assert not step.program.on_host()
    assert sum(step.costs.flops.values()) > 0 and not step.costs.uncounted
    assert step.memory["all"] < 2**30
    pairs = [str(array) for array, _ in step.program.arrays() if of_all_pairs(array)]
    if mesh.size == 1:
        assert bool(pairs) == EVERY[name].pairs  # what is looked for is found where it must be
        assert not step.costs.collectives
        return
    assert not pairs, pairs
    check_gathered(name, step)
    check_summed(name, step)
    held = 3 * size(method.params)  # with AdamW's two moments
    assert step.memory["state"] < held / mesh.size + held / 50 if cfg.shard_params else step.memory["state"] >= held


def check_gathered(name: str, step: CompiledStep) -> None:
    """Vectors of texts, forward and backward, and no states of tokens. Split weights are gathered too."""
    method, _, cfg = built(name)
    split = size(method.params) * cfg.shard_params + size(method.frozen) * cfg.shard_frozen
    exchanged = step.costs.collectives
    others = sum(bytes for kind, bytes in exchanged.items() if kind not in ("all-reduce", "reduce-scatter"))
    assert others <= 2 * vectors(name) + 2 * split + SMALL, exchanged


def check_summed(name: str, step: CompiledStep) -> None:
    """All bytes of the parameters once, positions beyond the longest text excepted, and beside them no more than the vectors' own gradients."""
    method, _, _ = built(name)
    exchanged = step.costs.collectives
    summed, params = exchanged["all-reduce"] + exchanged["reduce-scatter"], size(method.params)
    # Of adapters the compiler sums the gradient of the kernel that they are added to, and then takes their part of it.
    kernels = size([_kernel(method, path) for path in method.params.get("adapters", ())])
    least = params / 2 if name == "bfloat16" else params  # whose gradients may be summed in bfloat16
    assert 0.85 * least - kernels <= summed <= params + kernels + 2 * vectors(name) + SMALL, exchanged


def _kernel(method: Method, path: str) -> np.ndarray:
    return functools.reduce(lambda tree, part: tree[part], path.split("/"), method.frozen["base"])


def test_cudnns_attention_is_shared_by_the_devices() -> None:
    """Each device attends in its own texts: the library's call is no reason to gather states."""
    mesh, (method, batch, cfg) = mesh_of_machine("h200x8"), built("without_dropout")
    use_attention(CUDNN)
    try:
        step = compile_step(cfg, method, batch, machine_named("h200x8"), mesh)
    finally:
        use_attention(PLAIN_ATTENTION)
    assert any("__cudnn$fmha" in instruction.details for _, instruction, _ in step.program.executed)
    check_gathered("without_dropout", step)


def test_a_plan_is_printed_and_nothing_written(tmp_path, tiny_teacher) -> None:
    mesh_of_machine("h200x8")
    (tmp_path / "text.txt").write_text("\n".join(sentences(120)))
    keys: dict[str, object] = {
        "teacher": tiny_teacher, "text": tmp_path / "text.txt", "text_column": "", "cache_dir": tmp_path / "cache", "batch_size": 16,
        "student.layers": 1, "student.embedding_size": 12, "held_out": 10, "length_buckets": 1,
    }  # fmt: skip
    arguments = [*command("configs/simtde.py", tmp_path / "run", keys), "--dry_run", "--machine=h200x8"]
    done = run_inside(arguments)
    assert done.returncode == 0, done.stderr
    for line in ("on 8 x NVIDIA H200", "a device: fits", "all-reduce", "TFLOP", "bound by"):
        assert line in done.stdout, done.stdout
    assert "asked" not in done.stderr and not (tmp_path / "run").exists()


def test_a_batch_that_the_devices_cannot_share_evenly_is_refused() -> None:
    mesh, (method, batch, cfg) = mesh_of_machine("h200x7"), built("mse")
    with pytest.raises(UserError, match="batch_size=80 does not divide by the 7 devices"):
        compile_step(cfg, method, batch, machine_named("h200x7"), mesh)


@pytest.mark.skipif(bool(HAS_PLUGIN), reason="jax[cuda13] is installed: the message is of one that is not")
def test_a_plan_without_the_plugin_says_what_to_install(tmp_path) -> None:
    done = run_inside([*command("configs/simtde.py", tmp_path / "run", {}), "--dry_run", "--machine=h200x8"])
    assert done.returncode == 2 and "pip install -e '.[gpu]'" in done.stderr and ROOT.name not in done.stderr
    done = run_inside([*command("configs/simtde.py", tmp_path / "run", {}), "--machine=h200x8"])
    assert done.returncode == 2 and "--dry_run" in done.stderr
