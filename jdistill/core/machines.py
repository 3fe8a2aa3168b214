"""Machines by name, also those that nobody here has: what public data sheets say of their GPUs, and how many there are.

A GPU is a file of core/machines, NAME.json: a file more is a GPU more.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from jdistill.core.errors import UserError

GRAMMAR = "NAME, NAMExGPUS or HOSTSxNAMExGPUS, as in h200, h200x8 and 2xh200x8"


@dataclass(frozen=True)
class Gpu:
    """What a data sheet says of a GPU. Rates are dense, a second.

    Args:
      name: of its file.
      description: as its driver names it.
      source: where the figures are from, in words.
      core_count: streaming multiprocessors.
      fpus_per_core: float32 units of one.
      clock_rate_ghz: the highest.
      memory_bandwidth, device_memory_size: of its memory, bytes a second and bytes.
      l2_cache_size, shared_memory_per_core, shared_memory_per_block_optin: bytes.
      threads_per_core_limit: threads of a multiprocessor.
      cuda_compute_capability: major and minor.
      flops_bf16, flops_tf32, flops_f32: floating-point operations of matrix products in bfloat16, in TF32 and in true float32.
      link: what joins the GPUs of a host, NVLink or PCIe.
      link_bytes: over it, each way.
      network_bytes: between hosts, each way, a GPU's share.
    """

    name: str
    description: str
    source: str
    core_count: int
    fpus_per_core: int
    clock_rate_ghz: float
    memory_bandwidth: int
    device_memory_size: int
    l2_cache_size: int
    shared_memory_per_core: int
    shared_memory_per_block_optin: int
    threads_per_core_limit: int
    cuda_compute_capability: tuple[int, int]
    flops_bf16: float
    flops_tf32: float
    flops_f32: float
    link: str
    link_bytes: float
    network_bytes: float

    def target(self) -> str:
        """The GPU as XLA's compiler is told of it: the text of its GpuTargetConfigProto."""
        major, minor = self.cuda_compute_capability
        sizes = {
            "threads_per_block_limit": 1024,
            "threads_per_warp": 32,
            "shared_memory_per_block": 49152,
            "shared_memory_per_core": self.shared_memory_per_core,
            "threads_per_core_limit": self.threads_per_core_limit,
            "core_count": self.core_count,
            "fpus_per_core": self.fpus_per_core,
            "block_dim_limit_x": 2147483647,
            "block_dim_limit_y": 65535,
            "block_dim_limit_z": 65535,
            "memory_bandwidth": self.memory_bandwidth,
            "l2_cache_size": self.l2_cache_size,
            "clock_rate_ghz": self.clock_rate_ghz,
            "device_memory_size": self.device_memory_size,
            "shared_memory_per_block_optin": self.shared_memory_per_block_optin,
            "registers_per_core_limit": 65536,
            "registers_per_block_limit": 65536,
        }
        lines = [f"  {key}: {value}" for key, value in sizes.items()]
        lines.append(f"  cuda_compute_capability {{ major: {major} minor: {minor} }}")
        about = [
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 7 }",
            "runtime_version { major: 13 minor: 0 patch: 0 }",
            f'device_description_str: "{self.description}"',
        ]
        return "\n".join(["gpu_device_info {", *lines, "}", *about]) + "\n"


@dataclass(frozen=True)
class Machine:
    """So many hosts, each with so many GPUs of one kind."""

    gpu: Gpu
    hosts: int
    gpus: int

    @property
    def devices(self) -> int:
        """The GPUs of all hosts."""
        return self.hosts * self.gpus

    @property
    def exchange(self) -> tuple[str, float]:
        """What a collective of all devices is bounded by, in words, and its bytes a second each way: the link within a host, or, of
        several hosts, the network adapters of one, all used at once, where they are slower."""
        network = self.gpus * self.gpu.network_bytes
        if self.hosts > 1 and network < self.gpu.link_bytes:
            return "network", network
        return self.gpu.link, self.gpu.link_bytes

    @property
    def fast_type(self) -> str:
        """What dtype=auto stands for there: bfloat16 from Ampere on."""
        return "bfloat16" if self.gpu.cuda_compute_capability >= (8, 0) else "float32"

    def __str__(self) -> str:
        each = f"{self.gpus} x {self.gpu.description}"
        return each if self.hosts == 1 else f"{self.hosts} hosts, each of {each}"


@cache
def known_gpus() -> dict[str, Gpu]:
    """The GPUs that there is a file of, by name."""
    files = sorted(resources.files("jdistill.core").joinpath("machines").iterdir(), key=lambda file: file.name)
    gpus = {}
    for file in files:
        name, values = file.name.removesuffix(".json"), json.loads(file.read_text())
        gpus[name] = Gpu(name, **values | {"cuda_compute_capability": tuple(values["cuda_compute_capability"])})
    return gpus


def machine_named(text: str) -> Machine:
    """The machine of a text in GRAMMAR. Raises UserError for a GPU that there is no file of, and for a count that is none."""
    gpus = known_gpus()
    longest_first = "|".join(re.escape(name) for name in sorted(gpus, key=len, reverse=True))
    match = re.fullmatch(rf"(?:(\d{{1,4}})x)?({longest_first})(?:x(\d{{1,3}}))?", text.strip().lower())
    if match is None:
        raise UserError(f"--machine={text}: is {GRAMMAR}; the names are {', '.join(gpus)}")
    hosts, each = (int(count or 1) for count in (match[1], match[3]))
    if not hosts or not each:
        raise UserError(f"--machine={text}: a machine has at least one host and one GPU")
    return Machine(gpus[match[2]], hosts, each)
