"""A model's states, a method's loss and its gradient, each one compiled program as in the loop: outside jit every operation of every shape is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jdistill.models import registry
from jdistill.models.token_batch import by_text
from jdistill.train.method import Method
from jdistill.train.step import make_gradient

Batch = dict[str, np.ndarray]
hidden_states = jax.jit(registry.hidden_states, static_argnames=("config", "dtype", "remat"))


def loss_of(method: Method) -> Callable[..., tuple[Any, dict[str, Any], Any]]:
    """Of `params`, a batch and a key for dropout (None: without): the loss, its metrics and the representations."""

    @jax.jit
    def loss(params: Any, frozen: Any, batch: Batch, key: Any) -> tuple[Any, dict[str, Any], Any]:
        reps = method.represent(params, frozen, batch, key)
        return *method.objective(params, frozen, by_text(reps, batch), by_text(batch, batch)), reps

    return lambda params, batch, key=None: loss(params, method.frozen, batch, key)


def gradient_of(method: Method, batch: Batch, chunk_size: int = 0) -> tuple[Any, dict[str, Any]]:
    """The gradient without dropout, and the metrics."""
    gradient = jax.jit(make_gradient(method, 0, dropout=False, chunk_size=chunk_size))
    return gradient(method.params, method.frozen, batch, np.int32(0))
