"""One training step: its state, the gradient of the whole batch, plain or in chunks, and the program compiled for a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.types import Array, Tree
from jdistill.losses.embedding import from_blocks, number_of_blocks, to_blocks
from jdistill.models.token_batch import by_text, rows_and_texts
from jdistill.train.average import averaged
from jdistill.train.dataset import check_divides
from jdistill.train.loss_scale import all_finite, scale_of
from jdistill.train.method import Method


class TrainState(NamedTuple):
    """What a step changes: all of it is in a checkpoint.

    Args:
      step: int32 scalar, steps done, hence also the position in the data and the dropout key.
      params: Method.params, float32.
      opt_state: the optimiser's.
    """

    step: Array
    params: Tree
    opt_state: Tree


def make_gradient(
    method: Method, seed: int, dropout: bool, chunk_size: int = 0
) -> Callable[..., tuple[Tree, dict[str, Array]]]:
    """The gradient of the global batch's loss, whole or in chunks.

    Args:
      method: whose represent and objective are differentiated.
      seed: of dropout, with the step's number.
      dropout: whether there is any.
      chunk_size: rows whose activations stand in memory at once; 0, or a batch within it: all. In chunks the gradient is the same:
        represent without activations, objective on all rows, then chunk by chunk represent again and pull the objective's gradient
        through.

    Returns: (params, frozen, batch, step int32 scalar, scale) -> (gradient, like params, of the loss times scale, float32 scalar or None
      for 1; metrics, scalars by name).

    Source: GradCache, Gao et al. 2021.
    """

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array], scale: Array | None
    ) -> tuple[Array, dict[str, Array]]:
        loss, metrics = method.objective(params, frozen, by_text(reps, batch), by_text(batch, batch))
        metrics = {"loss": loss} | metrics
        return (loss if scale is None else loss * scale), metrics

    def whole(
        params: Tree, frozen: Tree, batch: dict[str, Array], step: Array, scale: Array | None = None
    ) -> tuple[Tree, dict[str, Array]]:
        rng = jax.random.fold_in(jax.random.key(seed), step) if dropout else None

        def loss(params: Tree) -> tuple[Array, dict[str, Array]]:
            return objective(params, frozen, method.represent(params, frozen, batch, rng), batch, scale)

        return jax.grad(loss, has_aux=True)(params)

    def chunked(
        params: Tree, frozen: Tree, batch: dict[str, Array], step: Array, scale: Array | None = None
    ) -> tuple[Tree, dict[str, Array]]:
        rows, texts = rows_and_texts(batch)
        count = number_of_blocks(rows, max(1, chunk_size // texts))
        if count == 1:
            return whole(params, frozen, batch, step, scale)
        chunks = to_blocks(batch, count), jnp.arange(count)
        key = jax.random.fold_in(jax.random.key(seed), step)

        def represent(params: Tree, chunk: tuple[dict[str, Array], Array]) -> dict[str, Array]:
            rng = jax.random.fold_in(key, chunk[1]) if dropout else None
            return method.represent(params, frozen, chunk[0], rng)

        reps = from_blocks(jax.lax.map(lambda chunk: represent(params, chunk), chunks))
        (from_objective, from_reps), metrics = jax.grad(
            lambda params, reps: objective(params, frozen, reps, batch, scale), argnums=(0, 1), has_aux=True
        )(params, reps)

        def add(total: Tree, chunk_and_gradient: tuple[Any, dict[str, Array]]) -> tuple[Tree, None]:
            chunk, gradient = chunk_and_gradient
            _, pull = jax.vjp(lambda params: represent(params, chunk), params)
            return jax.tree.map(jnp.add, total, pull(gradient)[0]), None

        return jax.lax.scan(add, from_objective, (chunks, to_blocks(from_reps, count)))[0], metrics

    return chunked if chunk_size else whole


def make_step(
    method: Method,
    optimizer: optax.GradientTransformation,
    seed: int,
    dropout: bool,
    chunk_size: int = 0,
    over: jax.sharding.Mesh | None = None,
) -> Callable[..., Any]:
    """The training step, a pure function that `jit_step` compiles.

    Args:
      method, seed, dropout, chunk_size: as make_gradient has them.
      optimizer: applied to the gradient.
      over: the devices that parameters and optimiser are split over; None: each device holds all of them.

    Returns: (TrainState, frozen, batch) -> (TrainState, metrics: scalars by name, "grad_norm" and, with loss scaling, "loss_scale" and
      "skipped" among them).
    """
    gradient = make_gradient(method, seed, dropout, chunk_size)

    def step(state: TrainState, frozen: Tree, batch: dict[str, Array]) -> tuple[TrainState, dict[str, Array]]:
        scale = scale_of(state.opt_state)
        # Split ones are gathered as a whole, or the compiler might send activations about in their place, and of their gradient each
        # device takes its part of the sum.
        params = state.params if over is None else sharding.gathered(state.params, over)
        grads, metrics = gradient(params, frozen, batch, state.step, scale)
        grads = grads if over is None else sharding.split(grads, over)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics |= {"grad_norm": optax.global_norm(grads)}
        if scale is not None:
            # A skipped step counts as zeros in the metrics, and as skipped.
            metrics["grad_norm"] = metrics["grad_norm"] / scale
            finite = all_finite(grads)
            metrics = {name: jnp.where(finite, value, 0.0) for name, value in metrics.items()}
            metrics |= {"loss_scale": scale, "skipped": 1.0 - finite}
        return TrainState(state.step + 1, params, opt_state), metrics

    return step


def configured_step(
    cfg: ConfigDict, method: Method, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh
) -> Callable[..., Any]:
    """make_step with what a stage's config says of it: seed, dropout, chunk_size, shard_params.

    Raises: UserError for a batch whose rows cannot be split evenly over the devices.
    """
    check_divides(cfg.batch_size, mesh.size)
    over = mesh if cfg.shard_params else None
    return make_step(method, optimizer, cfg.seed, cfg.student.dropout > 0, cfg.chunk_size, over)


def jit_step(step: Callable[..., Any], mesh: jax.sharding.Mesh, state: TrainState | None = None) -> jax.stages.Wrapped:
    """The step compiled for a mesh: the batch is split by rows, the state stays as it lies and its buffers are used again. What is frozen
    stays as it was placed.

    Args:
      state: of arrays or abstract ones, which lie as the step is to find them and leave them; None: whole on each device.
    """
    whole, rows = sharding.replicated(mesh), sharding.by_rows(mesh)
    lies = whole if state is None else sharding.shardings_of(state)
    return jax.jit(
        step,
        in_shardings=(lies, None, rows),
        out_shardings=(lies, whole),
        donate_argnums=0,
        compiler_options=sharding.compiler_options(mesh),
    )


def place_frozen(cfg: ConfigDict, method: Method, mesh: jax.sharding.Mesh) -> Tree:
    """What the method does not train, on the devices: split over them where cfg.shard_frozen says so, else on each whole."""
    return (sharding.shard_params if cfg.shard_frozen else sharding.replicate)(method.frozen, mesh)


def frozen_layout(cfg: ConfigDict, method: Method, mesh: jax.sharding.Mesh) -> Tree:
    """place_frozen's arrays, abstract: nothing is moved."""
    return sharding.layout(method.frozen, mesh, cfg.shard_frozen)


def state_layout(
    method: Method, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh, split: bool = False
) -> TrainState:
    """The state before the first step, abstract: shapes, types and how they lie on the devices.

    Args:
      split: parameters and optimiser are split over the devices (sharding.split_longest); else each device holds all.
    """
    params = sharding.layout(method.params, mesh, split)
    opt_state = sharding.layout(jax.eval_shape(optimizer.init, params), mesh, split)
    return TrainState(sharding.layout(np.zeros((), np.int32), mesh, False), params, opt_state)


def init_state(
    method: Method, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh, split: bool = False
) -> TrainState:
    """The state before the first step, on the devices of the mesh; of several processes the first one's parameters count. split: as of
    state_layout."""
    like = state_layout(method, optimizer, mesh, split)
    place = sharding.shard_params if split else sharding.replicate
    # Array by array: each is whole on every device while it is handed out, and a model that is split need not fit there.
    params = jax.tree.map(lambda x: place(sharding.broadcast(x), mesh), method.params)
    opt_state = jax.jit(optimizer.init, out_shardings=sharding.shardings_of(like.opt_state))(params)
    return TrainState(sharding.replicate(np.zeros((), np.int32), mesh), params, opt_state)


def host_params(state: TrainState) -> Tree:
    """The parameters, or their average where the optimiser keeps one, as numpy arrays on the host. All processes of a run call it
    together."""
    return jax.tree.map(sharding.to_host, averaged(state.params, state.opt_state))
