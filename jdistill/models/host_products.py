"""Matrix products of a CPU in bfloat16 by torch's kernels, which know AMX, called from compiled programs; XLA's CPU has none for it.

Asked for by the environment variable JDISTILL_PRODUCTS=torch (docs/performance.md, "AMX"). The program holds a custom call; XLA
hands the pointers of its buffers to a function of this process, which lets torch write the product where XLA wants it.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.types import Array

PRODUCTS_VARIABLE, XLA, TORCH = "JDISTILL_PRODUCTS", "xla", "torch"
TARGET = "jdistill_torch_product"
STATUS_RETURNING = 3  # XLA's number for custom calls of the form below
# Under so many multiplications the call itself, some 50 us, is what a product would cost.
FEWEST_MULTIPLICATIONS = 2_000_000

# void call(void* out, const void** in, const char* opaque, size_t opaque_bytes, XlaCustomCallStatus*)
_CALL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)


def takes(a: Array, b: Array, multiplications: int) -> bool:
    """Whether a product of a and b of so many multiplications, in a program that is being traced, is torch's: it was asked for, both are
    bfloat16, they lie on one CPU (a partitioner cannot split the call), and the call is worth it."""
    if chosen() != TORCH or not a.dtype == b.dtype == jnp.bfloat16 or multiplications < FEWEST_MULTIPLICATIONS:
        return False
    return sharding.platform() == "cpu" and jax.device_count() == 1


@cache
def chosen() -> str:
    """Whose products this process computes with: XLA or TORCH, as the variable says.

    Raises: UserError where it says neither, or torch cannot be imported.
    """
    name = os.environ.get(PRODUCTS_VARIABLE) or XLA
    if name not in (XLA, TORCH):
        raise UserError(f"{PRODUCTS_VARIABLE}={name} is not one of {XLA}, {TORCH}")
    if name == TORCH:
        _register()
    return name


def describe_compute() -> str:
    """The devices, and whose products they compute with where those are not XLA's, such as "1 x cpu, products by torch"."""
    return sharding.describe_devices() + (f", products by {TORCH}" if chosen() == TORCH else "")


def torch_product(a: Array, b: Array, turn_a: bool = False, turn_b: bool = False) -> Array:
    """a [..., M, K] times b [..., K, N], the same leading axes; summed in float32.

    Args:
      a, b: bfloat16.
      turn_a, turn_b: a is given as [..., K, M], b as [..., N, K]; no copy is made of them.

    Returns: bfloat16 [..., M, N].
    """
    rows, columns = a.shape[-1 if turn_a else -2], b.shape[-2 if turn_b else -1]
    shape = (*a.shape[:-2], rows, columns)
    call = jax.ffi.ffi_call(
        TARGET,
        jax.ShapeDtypeStruct(shape, a.dtype),
        vmap_method="sequential",
        custom_call_api_version=STATUS_RETURNING,
        legacy_backend_config=_written(a.shape, b.shape, shape, turn_a, turn_b),
    )
    return call(a, b)


def _written(*facts: tuple[int, ...] | bool) -> str:
    """What the call is told beside its pointers: shapes as 2x3x4, flags as 0 or 1, a blank between them."""
    return " ".join(str(int(x)) if isinstance(x, bool) else "x".join(map(str, x)) for x in facts)


@cache
def _read(written: bytes) -> tuple[Any, ...]:
    *shapes, turn_a, turn_b = written.decode().split()
    return *(tuple(map(int, shape.split("x"))) for shape in shapes), turn_a == "1", turn_b == "1"


@cache
def _register() -> Any:
    """Tells XLA the function that its custom calls run. Returns: what must live as long as the process."""
    # torch's threads would spin after each product, on the cores that XLA goes on with. Read when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
    except ImportError as error:
        raise UserError(f"{PRODUCTS_VARIABLE}={TORCH} needs torch: pip install 'jdistill[torch]' ({error})") from error

    def tensor(pointer: int, shape: tuple[int, ...]) -> torch.Tensor:
        memory = (ctypes.c_char * (2 * prod(shape))).from_address(pointer)
        return torch.frombuffer(memory, dtype=torch.bfloat16).view(shape)

    @torch.inference_mode()
    def run(out: int, operands: Any, opaque: int, opaque_bytes: int, _status: int) -> None:
        a_shape, b_shape, shape, turn_a, turn_b = _read(ctypes.string_at(opaque, opaque_bytes))
        try:
            a, b = tensor(operands[0], a_shape), tensor(operands[1], b_shape)
            torch.matmul(a.mT if turn_a else a, b.mT if turn_b else b, out=tensor(out, shape))
        except BaseException:  # which nobody above would see: XLA would go on with whatever lay in the buffer
            ctypes.memset(out, 0xFF, 2 * prod(shape))  # 0xFFFF is no number, in bfloat16
            raise  # to ctypes, which prints it

    function = _CALL(run)
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new_capsule(ctypes.cast(function, ctypes.c_void_p).value, b"xla._CUSTOM_CALL_TARGET", None)
    jax.ffi.register_ffi_target(TARGET, capsule, platform="cpu", api_version=0)
    return function
