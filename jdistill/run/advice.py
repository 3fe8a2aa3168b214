"""Which keys of a config make a step fit a device that it does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ml_collections import ConfigDict

from jdistill.core.stage_keys import key_of_stage

WORTH_IT = 0.1  # of the device's memory: a part below it is not worth a key


@dataclass(frozen=True)
class Needs:
    """What a step takes of a device.

    Args:
      memory: bytes by what for: state, frozen, batch, scratch and all.
      there: bytes that the device has.
      devices: of the machine.
      largest: sizes of the largest array that the step makes.
    """

    memory: dict[str, int]
    there: int
    devices: int
    largest: tuple[int, ...]


def suggestions(cfg: ConfigDict, needs: Needs, stage: str = "") -> Iterator[str]:
    """Keys to set, the most useful first, each with its reason; none where the step fits. cfg: of the stage of this name."""
    if needs.memory["all"] <= needs.there:
        return
    parts = {name: size for name, size in needs.memory.items() if name != "all" and size > WORTH_IT * needs.there}
    tried = False
    for part in sorted(parts, key=lambda name: parts[name], reverse=True):
        for advice in _ADVICE.get(part, lambda cfg, needs: iter(()))(cfg, needs):
            tried = True
            yield advice
    if not tried:
        key = key_of_stage(cfg, stage, "batch_size")
        yield f"a smaller --config.{key} than {cfg.batch_size}, or more devices than {needs.devices}"


def _for_scratch(cfg: ConfigDict, needs: Needs) -> Iterator[str]:
    """A matrix of all pairs, activations, layers."""
    pairs = sum(size >= cfg.batch_size // needs.devices for size in needs.largest) > 1
    if pairs and not cfg.block_size:
        yield f"--config.block_size={_part(cfg.batch_size, 64)}: the largest array, {list(needs.largest)}, is of pairs of texts"
    room = max(needs.there - needs.memory["all"] + needs.memory["scratch"], needs.there // 4)
    parts = max(2, -(-needs.memory["scratch"] * 2 // room))
    fewer = _part(cfg.chunk_size or cfg.batch_size, parts)
    if needs.devices <= fewer < (cfg.chunk_size or cfg.batch_size):
        yield f"--config.chunk_size={fewer}: activations of so many rows stand in memory at once, the gradient stays the same"
    if "remat" in cfg and not cfg.remat:
        yield "--config.remat=True: activations of a layer are computed anew in the backward pass"


def _for_frozen(cfg: ConfigDict, needs: Needs) -> Iterator[str]:
    if needs.devices > 1 and not cfg.shard_frozen:
        yield f"--config.shard_frozen=True: what is not trained is split over the {needs.devices} devices"


def _for_state(cfg: ConfigDict, needs: Needs) -> Iterator[str]:
    if needs.devices > 1 and not cfg.shard_params:
        yield f"--config.shard_params=True: parameters and optimiser are split over the {needs.devices} devices"


_ADVICE = {"scratch": _for_scratch, "frozen": _for_frozen, "state": _for_state}


def _part(rows: int, parts: int) -> int:
    """The largest power of two within rows / parts."""
    return 1 << max(0, (rows // parts).bit_length() - 1)
