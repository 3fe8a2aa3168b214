"""The golden numbers of tests/golden.py: every method trains and exports what it did when they were written down."""

from __future__ import annotations

import json
from pathlib import Path

import golden
import numpy as np
import pytest
from campaign.settings import write_inputs

OF_KEYS = "a new key that changes no number belongs to LATER in tests/golden.py"
CLOSE = 1e-5  # relative to the largest: sums in another order, on a machine that did not write the numbers


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "inputs"
    write_inputs(folder)()
    return folder


@pytest.mark.parametrize("name", golden.NAMES)
def test_numbers_are_those_written_down(name: str, inputs: Path, tmp_path: Path) -> None:
    written = json.loads((golden.GOLDEN / f"{name}.json").read_text())
    found = golden.measure(name, inputs, tmp_path)
    numbers, expected = numbers_of(found), numbers_of(written)
    close = 0 if found.pop("machine") == written.pop("machine") else CLOSE
    assert found == written, (
        f"not as in {golden.GOLDEN / name}.json; where the digest of config alone differs, {OF_KEYS}"
    )
    for what, values in expected.items():
        difference = np.abs(numbers[what] - values).max()
        assert difference <= close * np.abs(values).max(), f"{what} of {name} differs by {difference:g}"


def numbers_of(golden_file: dict) -> dict[str, np.ndarray]:
    """Takes the numbers out of what is compared to the letter."""
    losses = {f"loss of {stage}": np.array(list(of["losses"].values())) for stage, of in golden_file["stages"].items()}
    for of in golden_file["stages"].values():
        of["losses"] = sorted(of["losses"])
    return losses | {"encoding": np.array(golden_file.pop("encoding"))}
