"""Products by torch's kernels inside compiled programs: against sums in float64, in gradients, and what asks for them."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jdistill.core.errors import UserError
from jdistill.models import host_products
from jdistill.models.attention import attend_plainly
from jdistill.models.matmul import matmul, over_leading, times_transpose

ROUNDING = 2.0**-8  # of a number that becomes a bfloat16


@pytest.fixture
def by_torch(monkeypatch):
    """Products of any size by torch, in a process whose XLA may have several devices."""
    pytest.importorskip("torch")
    monkeypatch.setattr(host_products, "takes", lambda a, b, multiplications: a.dtype == b.dtype == jnp.bfloat16)
    host_products._register()


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


def exact(x: jax.Array) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


def assert_rounded(got: jax.Array, wanted: np.ndarray, terms: np.ndarray) -> None:
    """As a bfloat16 of a float32 sum: half a last place of the result, and float32's rounding once a term."""
    assert got.dtype == jnp.bfloat16
    bound = ROUNDING * np.abs(wanted) + 1e-5 * terms
    assert (np.abs(exact(got) - wanted) <= bound).all()


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_products_in_all_forms_are_the_sums(by_torch, leading, turned):
    a, b = normal(0, *leading, 5, 7), normal(1, *leading, 7, 4)
    given_a, given_b = (x.mT if turn else x for x, turn in zip((a, b), turned, strict=True))
    got = jax.jit(host_products.torch_product, static_argnums=(2, 3))(given_a, given_b, *turned)
    assert_rounded(got, exact(a) @ exact(b), np.abs(exact(a)) @ np.abs(exact(b)))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_product_that_failed_is_no_number(by_torch, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("torch.matmul", fails)
    assert np.isnan(exact(jax.jit(host_products.torch_product)(normal(0, 5, 7), normal(1, 7, 4)))).all()


def test_under_vmap_each_product_is_its_own(by_torch):
    a, b = normal(0, 3, 5, 7), normal(1, 7, 4)
    got = jax.jit(jax.vmap(host_products.torch_product, in_axes=(0, None)))(a, b)
    assert_rounded(got, exact(a) @ exact(b), np.abs(exact(a)) @ np.abs(exact(b)))


def test_gradients_of_a_layer_are_the_sums(by_torch):
    x, kernel, dy = normal(0, 2, 6, 8), normal(1, 8, 5), normal(2, 2, 6, 5)
    dx, dkernel = jax.jit(lambda x, kernel, dy: jax.vjp(matmul, x, kernel)[1](dy))(x, kernel, dy)
    assert_rounded(dx, exact(dy) @ exact(kernel).T, np.abs(exact(dy)) @ np.abs(exact(kernel)).T)
    rows, by_rows = exact(x).reshape(12, 8), exact(dy).reshape(12, 5)
    assert_rounded(dkernel, rows.T @ by_rows, np.abs(rows).T @ np.abs(by_rows))
    assert_rounded(over_leading(x, dy), rows.T @ by_rows, np.abs(rows).T @ np.abs(by_rows))
    assert_rounded(
        times_transpose(kernel, kernel),
        exact(kernel) @ exact(kernel).T,
        np.abs(exact(kernel)) @ np.abs(exact(kernel)).T,
    )


def test_attention_and_its_gradients_are_those_of_float32(by_torch):
    arrays = [normal(seed, 2, 3, 6, 4) for seed in range(4)]
    bias = jnp.where(jnp.arange(6) < 5, 0.0, -1e9)[None, None, None]

    def outputs(query, key, value, dy):
        mixed, backwards = jax.vjp(lambda q, k, v: attend_plainly(q, k, v, bias, 0.5), query, key, value)
        return mixed, *backwards(dy)

    wanted = outputs(*(x.astype(jnp.float32) for x in arrays))
    for got, of_float32 in zip(jax.jit(outputs)(*arrays), wanted, strict=True):
        # Four roundings stand between them (scores, weights, their gradients, the result), of numbers of order one.
        assert np.abs(exact(got) - exact(of_float32)).max() <= 8 * ROUNDING * np.abs(exact(of_float32)).max()


def test_a_log_and_a_checkpoint_say_whose_products_they_are(monkeypatch):
    devices = host_products.describe_compute()
    assert "torch" not in devices
    monkeypatch.setattr(host_products, "chosen", lambda: host_products.TORCH)
    assert host_products.describe_compute() == f"{devices}, products by torch"


def test_small_ones_float32_and_several_devices_stay_with_xla(monkeypatch):
    monkeypatch.setattr(host_products, "chosen", lambda: host_products.TORCH)
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    x, enough = normal(0, 2, 2), host_products.FEWEST_MULTIPLICATIONS
    assert host_products.takes(x, x, enough)
    assert not host_products.takes(x, x, enough - 1)
    assert not host_products.takes(x.astype(jnp.float32), x.astype(jnp.float32), enough)
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert not host_products.takes(x, x, enough)


@pytest.mark.parametrize(
    ("name", "message"), [("mkl", "JDISTILL_PRODUCTS=mkl is not one of xla, torch"), ("torch", "jdistill.torch")]
)
def test_what_cannot_be_had_is_named(monkeypatch, name, message):
    monkeypatch.setenv("JDISTILL_PRODUCTS", name)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(host_products, "_register", host_products._register.__wrapped__)
    with pytest.raises(UserError, match=message):
        host_products.chosen.__wrapped__()


PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jdistill.models.matmul import matmul
x, kernel = jax.random.normal(jax.random.key(0), (2, 256, 256), jnp.bfloat16)
made = jax.jit(matmul).lower(x, kernel)
got, wanted = (np.asarray(x).astype(np.float64) for x in (made.compile()(x, kernel), x))
wanted = wanted @ np.asarray(kernel).astype(np.float64)
print("torch" if "jdistill_torch_product" in made.as_text() else "xla", (np.abs(got - wanted) - 2.0**-8 * np.abs(wanted)).max())
"""


def test_a_process_that_asks_gets_them_and_the_others_do_not():
    pytest.importorskip("torch")
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    said = {}
    for name in ("xla", "torch"):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment | {"JDISTILL_PRODUCTS": name},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        said[name] = run.stdout.split()
    assert [said["xla"][0], said["torch"][0]] == ["xla", "torch"]
    # Beyond the result's own rounding float32's: 256 terms of some 0.6, once each.
    assert max(float(said[name][1]) for name in said) <= 256 * 256 * 2.0**-24
