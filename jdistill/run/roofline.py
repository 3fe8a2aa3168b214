"""The least time that a program can take on a machine: by its products, its memory and what its devices exchange."""

from __future__ import annotations

from dataclasses import dataclass

from jdistill.core.machines import Machine
from jdistill.run.program_costs import Costs


@dataclass(frozen=True)
class Roofline:
    """Seconds of one run, by what takes them: products, memory, and NVLink, PCIe or network, by its name.

    Nothing is as fast as its data sheet: programs for one device come to a third or two thirds of it.
    """

    seconds: dict[str, float]

    @property
    def bound(self) -> str:
        """What takes longest."""
        return max(self.seconds, key=lambda name: self.seconds[name])

    @property
    def least(self) -> float:
        """Seconds at least, if all that is done at once hides behind what takes longest."""
        return self.seconds[self.bound]

    def in_words(self, rows: int) -> str:
        """The time, its bound, and rows a second at best."""
        parts = ", ".join(f"{name} {1e3 * seconds:,.3g} ms" for name, seconds in self.seconds.items() if seconds)
        most = f"{rows / self.least:,.0f} rows/s at most" if self.least else "no work"
        return f"{1e3 * self.least:,.3g} ms at least, bound by {self.bound}: {most} ({parts})"


def roofline_of(costs: Costs, machine: Machine) -> Roofline:
    """The roofline of a program's costs.

    Source: Williams, Waterman and Patterson 2009.
    """
    gpu, (way, speed) = machine.gpu, machine.exchange
    rates = {"bf16": gpu.flops_bf16, "tf32": gpu.flops_tf32, "f32": gpu.flops_f32}
    return Roofline(
        {
            "products": sum(flops / rates[rate] for rate, flops in costs.flops.items()),
            "memory": costs.memory / gpu.memory_bandwidth,
            way: costs.sent / speed,
        }
    )
