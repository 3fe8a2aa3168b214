"""The mesh: with core.absent and core.launchers the only file that names devices, axes and processes.

Data parallelism is global-view: one jitted program over one axis, "data". Arrays whose rows are texts are split over
it by rows, parameters are replicated or split, and the compiler inserts the collectives, so that a gradient is that of
the global batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jdistill.core.errors import UserError

AXIS = "data"
LONGEST_WAIT_MS = 20 * 24 * 3_600_000  # for another process, twenty days
_planned: ContextVar[Mesh | None] = ContextVar("planned mesh", default=None)


def global_mesh() -> Mesh:
    """All devices of all processes, as one axis; within `planning`, those that are planned for."""
    return _planned.get() or mesh_of(jax.devices())


def mesh_of(devices: Iterable[jax.Device]) -> Mesh:
    """These devices as one axis."""
    return Mesh(np.asarray([*devices]), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))


@contextmanager
def planning(mesh: Mesh) -> Iterator[None]:
    """Within it global_mesh() is this one, whose devices need not be there: programs are traced for them, and none is run."""
    token = _planned.set(mesh)
    try:
        yield
    finally:
        _planned.reset(token)


def platform() -> str:
    """What programs are traced for: "cpu" or "gpu"."""
    mesh = _planned.get()
    return jax.default_backend() if mesh is None else _platform_of(mesh)


def _platform_of(mesh: Mesh) -> str:
    """A topology's devices are of the platform "cuda", which JAX calls "gpu" elsewhere."""
    name = mesh.devices.flat[0].platform
    return "gpu" if name == "cuda" else name


def local_mesh() -> Mesh:
    """This process's own devices: for encoding, where every process works alone."""
    return Mesh(np.asarray(jax.local_devices()), (AXIS,))


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding of arrays that every device of the mesh holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def by_rows(mesh: Mesh) -> NamedSharding:
    """The sharding of arrays that are split over the devices by their first axis."""
    return NamedSharding(mesh, PartitionSpec(AXIS))


def replicate(tree: Any, mesh: Mesh) -> Any:
    """The same host arrays of every process as arrays that each device of the mesh holds whole."""
    sharding = replicated(mesh)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x), np.shape(x)), tree)


def split_longest(shape: tuple[int, ...], mesh: Mesh) -> NamedSharding:
    """The sharding of an array that is split over the devices by its longest axis that they divide, or else is whole on each."""
    axes = [axis for axis in range(len(shape)) if shape[axis] % mesh.size == 0]
    longest = max(axes, key=lambda axis: shape[axis], default=None)
    return replicated(mesh) if longest is None else NamedSharding(mesh, PartitionSpec(*[None] * longest, AXIS))


def layout(tree: Any, mesh: Mesh, split: bool) -> Any:
    """A tree of arrays as jax.ShapeDtypeStruct: how it is to lie on the devices; nothing is moved.

    Args:
      tree: of arrays, of the host or abstract.
      split: by split_longest; else whole on each.
    """

    def place(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            np.shape(x), x.dtype, sharding=split_longest(np.shape(x), mesh) if split else replicated(mesh)
        )

    return jax.tree.map(place, tree)


def rows_layout(tree: Any, mesh: Mesh) -> Any:
    """The host arrays [n, ...] of a whole global batch as jax.ShapeDtypeStruct, split by rows."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=by_rows(mesh)), tree)


def shardings_of(tree: Any) -> Any:
    """The sharding of each array, of the devices or abstract."""
    return jax.tree.map(lambda x: x.sharding, tree)


def shard_params(tree: Any, mesh: Mesh) -> Any:
    """A tree of the same host arrays in every process, each split over the devices by split_longest.

    So a model which no device can hold whole is gathered where it is used.
    """

    def place(x: Any) -> jax.Array:
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, split_longest(host.shape, mesh), lambda index: host[index])

    return jax.tree.map(place, tree)


def gathered(tree: Any, mesh: Mesh) -> Any:
    """Within a jitted function: the arrays whole on each device from here on."""
    return jax.lax.with_sharding_constraint(tree, replicated(mesh))


def split(tree: Any, mesh: Mesh) -> Any:
    """Within a jitted function: each array split over the devices by split_longest from here on."""
    return jax.lax.with_sharding_constraint(tree, jax.tree.map(lambda x: split_longest(x.shape, mesh), tree))


def to_host(x: Any) -> np.ndarray:
    """An array whole on the host, wherever its parts are; all processes call it together for one that is split over several."""
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
        return np.asarray(x)
    if x.is_fully_replicated:
        return np.asarray(x.addressable_data(0))
    return np.asarray(multihost_utils.process_allgather(x, tiled=True))


def shard_rows(tree: Any, mesh: Mesh) -> Any:
    """Host arrays [n, ...] that hold this process's rows of a global batch, as global arrays split by rows.

    Where the rows do not divide by the devices (a small last batch on a local mesh) every device gets all of them.
    """

    def put(x: np.ndarray) -> jax.Array:
        rows = x.shape[0] * processes_of(mesh)
        sharding = by_rows(mesh) if rows % mesh.size == 0 else replicated(mesh)
        return jax.make_array_from_process_local_data(sharding, x, (rows, *x.shape[1:]))

    return jax.tree.map(put, tree)


def compiler_options(mesh: Mesh) -> dict[str, bool]:
    """What jit is told for devices of this kind: on CPU, run operations one after another, each on all cores.

    Two matrix products at once, XLA's default, fight for the same cache, which costs a tenth of the step.
    """
    return {"xla_cpu_enable_concurrency_optimized_scheduler": False} if _platform_of(mesh) == "cpu" else {}


def fast_type_of_device() -> str | None:
    """The type that this kind of device computes products fast in, where its kind tells: bfloat16 on TPUs and on GPUs from Ampere on,
    float32 on older ones; None for a CPU, which is to be measured."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return None
    capability = str(
        getattr(device, "compute_capability", "") or "8.0"
    )  # of AMD's it is a name, and of TPUs there is none
    major = capability.partition(".")[0]
    return "float32" if major.isdigit() and int(major) < 8 else "bfloat16"


def processes_of(mesh: Mesh) -> int:
    """How many processes the mesh's devices belong to."""
    return len({device.process_index for device in mesh.devices.flat})


def process_index() -> int:
    """The number of this process, from 0."""
    return jax.process_index()


def process_count() -> int:
    """How many processes the run has."""
    return jax.process_count()


def is_first_process() -> bool:
    """True for the one process that writes logs, reports and exports."""
    return jax.process_index() == 0


def broadcast(tree: Any) -> Any:
    """The first process's host arrays in every process, all of which call it, with trees of the same shapes and as many devices each.

    What each computed by itself may differ in its last bits.
    """
    return multihost_utils.broadcast_one_to_all(tree) if jax.process_count() > 1 else tree


def agreed(figures: dict[str, float]) -> dict[str, float]:
    """The first process's figures, to the last bit, in every process, all of which call it with the same names."""
    if jax.process_count() == 1:
        return figures
    bits = np.array(list(figures.values()), np.float64).view(np.uint32)  # JAX would make float32 of them
    return dict(zip(figures, broadcast(bits).view(np.float64).tolist(), strict=True))


def barrier(what: str) -> None:
    """Blocks until every process has come here, days if need be, where a CPU's collective gives up. what: the place, for messages."""
    if jax.process_count() > 1:
        from orbax.checkpoint import multihost  # by the service that finds lost processes, and no device

        multihost.get_barrier_sync_fn()(key=f"jdistill: {what}", timeout_ms=LONGEST_WAIT_MS)


def any_process(flag: bool) -> bool:
    """True if `flag` is true in any process: how all agree to stop at the same step."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def by_first_process(check: Callable[[], None], what: str) -> None:
    """Runs a check in the first process alone, for all of them, which call it together: what it looks at may look otherwise elsewhere.

    what: the check, for the others' message. Raises: in the first process what `check` raises, in the others UserError.
    """
    failed: Exception | None = None
    if is_first_process():
        try:
            check()
        except Exception as error:
            failed = error
    barrier("the first process")
    if any_process(failed is not None):
        raise failed or UserError(f"the first process did not pass {what}, see its message")


def describe_devices(devices: Iterable[jax.Device] | None = None) -> str:
    """The devices in words: "2 x cpu", "8 x NVIDIA H200"."""
    kinds = [device.device_kind for device in (devices or jax.devices())]
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
