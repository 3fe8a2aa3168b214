"""HSIC against the definition with loops and the centring matrix in float64, its gradient, and its awkward inputs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive import GAMMA, added, aligned_from, naive_gram, naive_hsic
from parity import assert_close

from jdistill.losses import hsic as of_hsic
from jdistill.losses.hsic import ESTIMATORS, KERNELS, median_distance

# One program a case, as in a step: op by op, every shape of every operation is one.
hsic = jax.jit(of_hsic.hsic, static_argnames=("kernel", "gamma", "estimator", "unit_rows", "block"))


def both_gradients(**keys: object):
    """(x, s) -> HSIC and its gradients to both, one program."""
    return jax.jit(jax.value_and_grad(lambda x, s: of_hsic.hsic(x, s, **keys).value, argnums=(0, 1)))


def data(n: int, seed: int = 0, scale: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal((n, 6))
    return x.astype(np.float32), (x @ rng.standard_normal((6, 4)) * 0.5 + 0.1 * rng.standard_normal((n, 4))).astype(
        np.float32
    )


@pytest.mark.parametrize(("kernel", "estimator"), list(itertools.product(KERNELS, ESTIMATORS)))
@pytest.mark.parametrize("n", [4, 9, 16])
def test_against_the_definition(kernel, estimator, n):
    x, s = data(n)
    ours = hsic(x, s, kernel=kernel, gamma=GAMMA, estimator=estimator).value
    assert ours.dtype == jnp.float32
    assert_close(ours, naive_hsic(x, s, kernel, estimator), n * n, largest=added(x, s, kernel, estimator))


def test_few_rows():
    x, s = data(2)
    for estimator in ("biased", "n_minus_1"):
        value, expected = hsic(x, s, estimator=estimator).value, naive_hsic(x, s, "rbf", estimator)
        assert_close(value, expected, 4, largest=added(x, s, "rbf", estimator))
    assert float(hsic(x[:1], s[:1]).value) == pytest.approx(0.0, abs=1e-6)  # one row depends on nothing
    with pytest.raises(ValueError, match="1 rows: the n_minus_1 estimator needs at least 2"):
        hsic(x[:1], s[:1], estimator="n_minus_1")
    with pytest.raises(ValueError, match="needs at least 4"):
        hsic(x, s, estimator="unbiased")
    with pytest.raises(ValueError, match="kernel 'cubic'"):
        hsic(x, s, kernel="cubic")


@pytest.mark.parametrize(("kernel", "estimator"), list(itertools.product(KERNELS, ESTIMATORS)))
def test_gradient_against_finite_differences_of_the_definition(kernel, estimator):
    x, s = data(7, seed=1)
    _, (grad_x, grad_s) = both_gradients(kernel=kernel, estimator=estimator)(x, s)
    x, s = x.astype(np.float64), s.astype(np.float64)
    for values, grad in ((x, grad_x), (s, grad_s)):
        for i, j in ((0, 0), (3, 2), (6, 3)):
            at, step = values[i, j], 1e-5
            values[i, j] = at + step
            above = naive_hsic(x, s, kernel, estimator)
            values[i, j] = at - step
            below = naive_hsic(x, s, kernel, estimator)
            values[i, j] = at
            assert float(grad[i, j]) == pytest.approx((above - below) / (2 * step), abs=1e-6, rel=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("block", [1, 4, 5])
def test_blocks_give_the_same_value_and_gradient(kernel, block):
    x, s = data(12, seed=2)
    whole, in_blocks = (both_gradients(kernel=kernel, block=of)(x, s) for of in (0, block))
    for plain, blocked in zip(jax.tree.leaves(whole), jax.tree.leaves(in_blocks), strict=True):
        assert_close(blocked, plain, 12 * 12, 2, largest=max(added(x, s, kernel, "biased"), float(np.abs(plain).max())))


@pytest.mark.parametrize("kernel", KERNELS)
def test_duplicates_identical_inputs_huge_norms_and_bfloat16(kernel):
    x, s = data(8, seed=3)
    x[5], s[5], x[6] = x[1], s[1], x[1]
    cases = {
        "duplicates": (x, s),
        "all rows the same": (np.repeat(x[:1], 8, 0), np.repeat(s[:1], 8, 0)),
        "identical sides": (x, x),
        "huge": (x * 1e15, s * 1e18),
        "zero": (x * 0, s),
    }
    value_and_gradients = both_gradients(kernel=kernel)
    for name, (a, b) in cases.items():
        value, grads = value_and_gradients(a, b)
        assert np.isfinite(value), name
        assert all(np.isfinite(g).all() for g in grads), name
    assert float(hsic(x, s, kernel=kernel).value) == pytest.approx(naive_hsic(x, s, kernel, "biased"), abs=1e-6)
    low = hsic(jnp.asarray(x, jnp.bfloat16), jnp.asarray(s, jnp.bfloat16), kernel=kernel).value
    rounded = (np.asarray(jnp.asarray(v, jnp.bfloat16), np.float64) for v in (x, s))
    assert low.dtype == jnp.float32
    assert float(low) == pytest.approx(naive_hsic(*rounded, kernel, "biased"), abs=1e-6)


def test_which_rows_give_the_median_depends_on_their_texts_alone():
    """Of numbers in order some of all parts are looked at: the median of few of very different lengths is near that of all."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((900, 6)) * np.linspace(0.5, 2, 900)[:, None]).astype(np.float32)
    numbers, mask = np.arange(900, dtype=np.int32), rng.random(900) < 0.9
    order = rng.permutation(900)
    plain, chosen = (
        [float(median_distance(x[o], mask[o], numbers_n=n)) for o, n in ((slice(None), first), (order, again))]
        for first, again in ((None, None), (numbers, numbers[order]))
    )
    assert chosen[0] == pytest.approx(chosen[1], rel=1e-5) and plain[0] != pytest.approx(plain[1], rel=1e-2)
    whole = float(median_distance(x, mask, rows=900))
    assert abs(chosen[0] / whole - 1) < 0.2 < abs(plain[0] / whole - 1)
    spoilt = np.where(mask[:, None], x, np.float32(1e3))
    assert float(median_distance(spoilt, mask, numbers_n=numbers)) == pytest.approx(chosen[0], rel=1e-5)
    value = [
        hsic(x[o], x[o, :4], gamma=0.0, numbers_n=numbers[o], mask_n=mask[o]).value for o in (np.arange(900), order)
    ]
    np.testing.assert_allclose(value[0], value[1], rtol=1e-4)


def test_masked_rows_do_not_count():
    x, s = data(9, seed=4)
    mask = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1], bool)
    for kernel, estimator in itertools.product(KERNELS, ESTIMATORS):
        kept = hsic(x[mask], s[mask], kernel=kernel, estimator=estimator)
        masked = hsic(x, s, kernel=kernel, estimator=estimator, mask_n=jnp.asarray(mask))
        largest = np.maximum(np.abs(np.stack(kept[:-1])), added(x[mask], s[mask], kernel, estimator))
        assert_close(np.stack(masked[:-1]), np.stack(kept[:-1]), 9 * 9, 2, largest=largest)
        assert_close(masked.cka, kept.cka, 9 * 9, 2, largest=aligned_from(x[mask], s[mask], kernel))
        spoilt = np.where(mask[:, None], x, np.float32(-3e38))
        again = hsic(spoilt, s, kernel=kernel, estimator=estimator, mask_n=jnp.asarray(mask))
        np.testing.assert_array_equal(np.stack(again), np.stack(masked))
        kept = hsic(x[mask], s[mask], kernel=kernel, estimator=estimator, gamma=0.0)
        masked = hsic(x, s, kernel=kernel, estimator=estimator, gamma=0.0, mask_n=jnp.asarray(mask))
        np.testing.assert_allclose(np.stack(masked[:-1]), np.stack(kept[:-1]), atol=1e-5)
    grad = jax.jit(jax.grad(lambda x: hsic(x, s, mask_n=jnp.asarray(mask)).value))(x)
    assert np.abs(np.asarray(grad)[~mask]).max() < 1e-7


@pytest.mark.parametrize("kernel", KERNELS)
def test_alignment_against_the_definition(kernel):
    x, s = data(16)
    both, of_x, of_s = (naive_hsic(*sides, kernel, "unbiased") for sides in ((x, s), (x, x), (s, s)))
    expected = both / np.sqrt(of_x * of_s)
    found = hsic(x, s, kernel=kernel, gamma=GAMMA).cka
    sums = aligned_from(x, s, kernel)
    assert_close(found, expected, 16 * 16, largest=sums)
    assert 0.5 < expected < 1.0
    assert_close(hsic(x, x, kernel=kernel, gamma=GAMMA).cka, 1.0, 16 * 16, largest=sums)
    assert float(hsic(np.ones_like(x), s, kernel=kernel, gamma=GAMMA).cka) == 0.0  # equal rows align with nothing


@pytest.mark.parametrize("scale", [0.1, 0.3, 30.0])
def test_independent_sides_are_not_aligned(scale):
    """Neither with a living kernel nor with one near the identity, which the biased estimator calls the same: there it is 0."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(20):
        x, s = (scale * rng.standard_normal((128, 24)).astype(np.float32) for _ in range(2))
        found.append(float(hsic(x, s, gamma=GAMMA).cka))
    # Of n rows its standard deviation is about 1 / n where it is no constant.
    assert abs(np.mean(found)) < 4 / 128 / 20**0.5 * 4 and np.abs(found).max() < 0.1
    assert scale < 1 or found == [0.0] * 20


def test_diagnostics_tell_a_dead_gram_matrix():
    x, s = data(32, seed=5)
    apart, together = hsic(100 * x, s), hsic(1e-4 * x, s)
    assert float(apart.off_diagonal_x) < 1e-6 and float(apart.rank_x) == pytest.approx(32, abs=1e-3)
    assert float(together.off_diagonal_x) == pytest.approx(1, abs=1e-4) and float(together.rank_x) == pytest.approx(
        1, abs=1e-3
    )
    gram = naive_gram(s, "rbf", GAMMA)
    assert float(apart.off_diagonal_s) == pytest.approx((gram.sum() - 32) / (32 * 31), abs=1e-5)
    assert float(apart.rank_s) == pytest.approx(32**2 / (gram**2).sum(), rel=1e-5)
    # The median heuristic brings a kernel back to life at any scale: at the median distance it is exp(-1/2).
    alive = hsic(100 * x, s, gamma=0.0)
    assert 0.4 < float(alive.off_diagonal_x) < 0.8
    squares = [((a - b) ** 2).sum() for a, b in itertools.combinations(x.astype(np.float64), 2)]
    assert float(median_distance(x)) == pytest.approx(np.median(squares), rel=1e-4)
    for scale in (100, 0.01):
        inverse = hsic(scale * x, s, kernel="imq", gamma=0.0)
        assert 1.5 < float(inverse.rank_x) < 16
