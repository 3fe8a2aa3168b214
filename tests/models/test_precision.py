"""dtype=auto: what it stands for here, kept for a machine, and for a run that goes on elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.models import precision
from jdistill.models.precision import AUTO, VARIABLE, measure_bfloat16, settled_dtype


@pytest.fixture
def unsettled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that nothing is known of; the folder of what will be."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    precision._is_fast.cache_clear()
    yield tmp_path / "jdistill" / "measured"
    precision._is_fast.cache_clear()


def test_a_type_is_itself_and_the_variable_decides_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [settled_dtype(name) for name in precision.COMPUTE_TYPES] == list(precision.COMPUTE_TYPES)
    monkeypatch.setenv(VARIABLE, "bfloat16")
    assert settled_dtype(AUTO) == "bfloat16" and settled_dtype("float32") == "float32"
    monkeypatch.setenv(VARIABLE, "float8")
    with pytest.raises(UserError, match="JDISTILL_DTYPE=float8 is not one of float32, bfloat16, float16"):
        settled_dtype(AUTO)


@pytest.mark.parametrize("times, chosen", [(precision.ENOUGH * 1.01, "bfloat16"), (precision.ENOUGH * 0.99, "float32")])
def test_a_machine_is_measured_once(
    unsettled: Path, monkeypatch: pytest.MonkeyPatch, times: float, chosen: str
) -> None:
    asked = []
    monkeypatch.setattr(precision, "measure_bfloat16", lambda: asked.append(1) or times)
    assert settled_dtype(AUTO) == settled_dtype(AUTO) == chosen
    precision._is_fast.cache_clear()  # another process
    assert settled_dtype(AUTO) == chosen and len(asked) == 1
    (kept,) = unsettled.iterdir()
    for content in (
        "{",
        "[]",
        "{}",
        json.dumps(json.loads(kept.read_text()) | {"jax": "0.0"}),
    ):  # damaged, or of before
        kept.write_text(content)
        precision._is_fast.cache_clear()
        assert settled_dtype(AUTO) == chosen
    assert len(asked) == 5


def test_a_home_that_cannot_be_written_to_costs_a_measurement(unsettled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsettled.parent.parent.joinpath("jdistill").write_text("a file")
    monkeypatch.setattr(precision, "measure_bfloat16", lambda: 9.0)
    assert settled_dtype(AUTO) == "bfloat16"


def test_measuring_works_inside_a_step_that_is_traced() -> None:
    measured = []

    def step(x: jax.Array) -> jax.Array:
        measured.append(measure_bfloat16(rows=8, width=4, inner=4, rounds=1))
        return x + 1

    assert jax.jit(step)(jnp.zeros(())) == 1 and measured[0] > 0


@pytest.mark.parametrize("platform, capability, kind", [
    ("cpu", None, None), ("gpu", "9.0", "bfloat16"), ("gpu", "8.0", "bfloat16"), ("gpu", "7.5", "float32"),
    ("gpu", "gfx942", "bfloat16"), ("tpu", None, "bfloat16"),
])  # fmt: skip
def test_what_a_kind_of_device_is_fast_in(
    monkeypatch: pytest.MonkeyPatch, platform: str, capability: str | None, kind: str | None
) -> None:
    device = type("Device", (), {"platform": platform, "compute_capability": capability})()
    monkeypatch.setattr(sharding.jax, "local_devices", lambda: [device])
    assert sharding.fast_type_of_device() == kind
