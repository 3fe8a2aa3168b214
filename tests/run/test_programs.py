"""What is read from a compiled program: its loops, products, collectives and memory, against programs that can be counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from configs import d2llm
from jdistill.core.errors import UserError
from jdistill.core.machines import known_gpus, machine_named
from jdistill.run.advice import Needs, suggestions
from jdistill.run.program import ArrayType, read_program
from jdistill.run.program_costs import costs_of, group_size
from jdistill.run.roofline import roofline_of

GEMM = (
    'metadata={op_name="jit(step)/dot_general"}, backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]},"precision_config":{"operand_precision":["HIGHEST","HIGHEST"]}}}'
)
# As XLA's GPU compiler writes it, cut short: a loop of seven rounds with a product by cuBLAS, collectives of two kinds, a slice in a fusion.
OF_GPU = """HloModule jit_step, is_scheduled=true, num_partitions=8

%cut (param_0.1: f32[100,64], param_1.1: s32[]) -> f32[1,64] {
  %param_0.1 = f32[100,64]{1,0} parameter(0)
  %param_1.1 = s32[] parameter(1)
  ROOT %slice = f32[1,64]{1,0} dynamic-slice(%param_0.1, %param_1.1, %param_1.1), dynamic_slice_sizes={1,64}
}

%body (arg: (s32[], f32[32,64], f32[64,16])) -> (s32[], f32[32,64], f32[64,16]) {
  %arg = (s32[], f32[32,64]{1,0}, f32[64,16]{1,0}) parameter(0)
  %round = s32[] get-tuple-element(%arg), index=0
  %x = f32[32,64]{1,0} get-tuple-element(%arg), index=1
  %w = f32[64,16]{1,0} get-tuple-element(%arg), index=2
  %product = (f32[32,16]{1,0}, s8[1024]{0}) custom-call(%x, %w), custom_call_target="__cublas$gemm", GEMM
  ROOT %next = (s32[], f32[32,64]{1,0}, f32[64,16]{1,0}) tuple(%round, %x, %w)
}

%more (arg.1: (s32[], f32[32,64], f32[64,16])) -> pred[] {
  %arg.1 = (s32[], f32[32,64]{1,0}, f32[64,16]{1,0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (x.1: f32[32,64], w.1: f32[64,16], table: f32[100,64], i: s32[]) -> f32[64,16] {
  %x.1 = f32[32,64]{1,0} parameter(0), metadata={op_name="batch[\\'x\\']"}
  %w.1 = f32[64,16]{1,0} parameter(1)
  %table = f32[100,64]{1,0} parameter(2)
  %i = s32[] parameter(3)
  %row = f32[1,64]{1,0} fusion(%table, %i), kind=kLoop, calls=%cut
  %before = (s32[], f32[32,64]{1,0}, f32[64,16]{1,0}) tuple(%i, %x.1, %w.1)
  %loop = (s32[], f32[32,64]{1,0}, f32[64,16]{1,0}) while(%before), condition=%more, body=%body, backend_config={"known_trip_count":{"n":"7"}}
  %started = f32[64,16]{1,0} all-reduce-start(%w.1), channel_id=1, replica_groups=mesh['axis_0'=8,'axis_1'=1] {'axis_0'}, to_apply=%more
  %gather = (f32[4,64]{1,0}, f32[32,64]{1,0}) all-gather-start(%row4), channel_id=2, replica_groups=[2,4]<=[8], dimensions={0}
  %gathered = f32[32,64]{1,0} all-gather-done(%gather)
  %seen = () custom-call(%x.1), custom_call_target="xla_ffi_python_gpu_callback"
  ROOT %reduced = f32[64,16]{1,0} all-reduce-done(%started)
}
""".replace("GEMM", GEMM)


def test_a_program_of_the_gpu_compiler_is_counted_as_by_hand() -> None:
    program = read_program(OF_GPU.replace("%row4", "%row"))
    costs = costs_of(program, 8)
    assert program.entry == "main" and len(program.executed) == 12 + 6
    assert dict(costs.flops) == {"f32": 7 * 2 * 32 * 16 * 64}
    assert dict(costs.collectives) == {"all-reduce": 64 * 16 * 4, "all-gather": 36 * 64 * 4 - 64 * 4}
    assert costs.sent == 2 * 7 / 8 * 4096 + 3 / 4 * (36 * 64 * 4 - 64 * 4)
    row, product = 64 * 4, 32 * 16 * 4 + 1024 + 32 * 64 * 4 + 64 * 16 * 4
    exchanged = 2 * 4096 + 36 * 64 * 4 + row
    assert (
        costs.memory == (2 * row + 4) + 7 * product + exchanged + 32 * 64 * 4
    )  # the slice, the loop, the collectives, the callback
    assert program.on_host() == ["seen"]
    assert costs.uncounted == {"xla_ffi_python_gpu_callback": 1}
    names = {(str(array), instruction.op_name) for array, instruction in program.arrays()}
    assert {("f32[32,64]", "batch['x']"), ("f32[32,16]", "jit(step)/dot_general"), ("f32[1,64]", "")} <= names


@pytest.mark.parametrize(
    "groups, size",
    [("{{0,1,2},{3,4,5}}", 3), ("[2,4]<=[8]", 4), ("mesh['a'=2,'b'=4] {'b'}", 4), ("mesh['a'=2,'b'=4] {'a','b'}", 8), ("{}", 16)],
)  # fmt: skip
def test_who_exchanges_with_whom(groups: str, size: int) -> None:
    text = f"ENTRY %main (x: f32[2]) -> f32[2] {{\n  ROOT %r = f32[2]{{0}} all-reduce(%x), replica_groups={groups}, to_apply=%add\n}}\n"
    (instruction,) = read_program(text).computations["main"].values()
    assert group_size(instruction, 16) == size


def test_products_in_loops_of_a_program_compiled_here() -> None:
    """Against the numbers of its equations: five rounds of [4, 8] times [8, 8], then a batch of products in bfloat16."""

    def f(x: jax.Array, w: jax.Array, a: jax.Array) -> jax.Array:
        looped = jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=5)[0]
        return looped.sum() + jnp.einsum("bij,bjk->bik", a, a).astype(jnp.float32).sum()

    x, w, a = jnp.ones((4, 8)), jnp.ones((8, 8)), jnp.ones((3, 16, 16), jnp.bfloat16)
    flags = {"xla_cpu_use_onednn": False}
    compiled = jax.jit(f).lower(x, w, a).compile(compiler_options=flags)
    costs = costs_of(read_program(compiled.as_text()), 1)
    assert sum(costs.flops.values()) == 5 * 2 * 4 * 8 * 8 + 3 * 2 * 16 * 16 * 16
    assert not costs.collectives and not costs.sent
    assert costs.memory >= sum(array.nbytes for array in (x, w, a))


def test_the_least_time_is_that_of_the_slowest_part() -> None:
    program = read_program(OF_GPU)
    there = machine_named("h200x8")
    costs = costs_of(program, 8)
    roofline = roofline_of(costs, there)
    assert roofline.seconds["products"] == costs.flops["f32"] / there.gpu.flops_f32
    assert roofline.seconds["NVLink"] == costs.sent / 450e9
    assert roofline.bound == max(roofline.seconds, key=roofline.seconds.__getitem__)
    assert roofline_of(costs, machine_named("2xh200x8")).seconds["network"] == costs.sent / (8 * 50e9)
    assert f"bound by {roofline.bound}" in roofline.in_words(8)


def test_every_gpu_has_its_source_and_figures_in_proportion() -> None:
    assert {"h200", "h100", "a100-80", "l4", "rtx4090"} <= known_gpus().keys()
    for name, gpu in known_gpus().items():
        assert len(gpu.source.split()) > 8, name
        assert gpu.flops_bf16 > gpu.flops_tf32 >= gpu.flops_f32 > 1e13, name
        assert 1e11 < gpu.memory_bandwidth < 1e13 and 1e10 < gpu.device_memory_size < 1e12, name
        assert gpu.shared_memory_per_block_optin < gpu.shared_memory_per_core, name
        assert gpu.target().count("{") == gpu.target().count("}") == 4, name


@pytest.mark.parametrize(
    "name, hosts, gpus",
    [
        ("h200", 1, 1),
        ("h200x8", 1, 8),
        ("2xh200x8", 2, 8),
        ("2xh200", 2, 1),
        ("RTX4090x2", 1, 2),
        ("4xa100-80x8", 4, 8),
    ],
)
def test_a_machine_by_its_name(name: str, hosts: int, gpus: int) -> None:
    machine = machine_named(name)
    assert (machine.hosts, machine.gpus, machine.devices) == (hosts, gpus, hosts * gpus)
    assert machine.gpu.name in name.lower()


@pytest.mark.parametrize("name", ["", "b300x8", "h200x", "8xh200x8x8", "h200x0", "0xh200", "h200 x8", "../h200"])
def test_a_machine_that_there_is_not_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(UserError, match="--machine=") as error:
        machine_named(name)
    assert "at least one" in str(error.value) or ("2xh200x8" in str(error.value) and "rtx4090" in str(error.value))


def test_keys_are_named_for_what_does_not_fit() -> None:
    cfg = d2llm.get_config()
    cfg.batch_size = 4096
    sizes = {"state": 0, "frozen": 0, "batch": 1, "scratch": 0, "all": 0}

    def said(devices: int = 8, largest: tuple[int, ...] = (8, 8), **parts: int) -> str:
        whole = sizes | parts
        return "; ".join(suggestions(cfg, Needs(whole | {"all": sum(whole.values())}, 100, devices, largest)))

    assert said(state=50) == ""
    assert "shard_params" in said(state=120) and "shard_frozen" not in said(state=120)
    assert "shard_frozen" in said(frozen=120) and "shard_frozen" not in said(devices=1, frozen=120)
    assert "block_size" in said(scratch=150, largest=(512, 4096)) and "block_size" not in said(scratch=150)
    assert "chunk_size=1024" in said(scratch=150) and "remat" in said(scratch=150)
    cfg.remat, cfg.chunk_size, cfg.block_size, cfg.shard_frozen, cfg.shard_params = True, 8, 64, True, True
    assert "batch_size" in said(state=120) and "batch_size" in said(scratch=150, largest=(512, 4096))


def test_an_array_knows_its_bytes() -> None:
    assert (
        ArrayType("bf16", (3, 5)).bytes == 30 and ArrayType("f32", ()).bytes == 4 and ArrayType("token", ()).bytes == 0
    )
    assert str(ArrayType("f32", (2, 3))) == "f32[2,3]"
