"""The golden numbers of tests/golden.py: every method trains and exports what it did when they were written down."""

from __future__ import annotations

import json
from pathlib import Path

import golden
import numpy as np
import pytest
from campaign.settings import write_inputs

CLOSE = 1e-5  # relative to the largest: sums in another order, on a machine that did not write the numbers
# Behind the first step, of methods whose steps make more of it. Half of D2LLM's interaction module starts exactly at ReLU's kink (the second
# layer is the identity without a bias, and of each pair of the first layer's units one is 0), so that after an update, whose entries Adam
# makes as large as the rate whatever their gradient, rounding decides which of those units are on: other flags of XLA on one machine move
# the loss by 2e-4 at the third step, and the vectors by 4.5e-4 after the last, of which this is ten times.
TRAINED = {"d2llm": 5e-3}


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
    same = found.pop("machine") == written.pop("machine")
    assert found == written, f"not as in {golden.GOLDEN / name}.json"
    for what, values in expected.items():
        close = 0 if same else CLOSE if what.startswith("first") else TRAINED.get(name, CLOSE)
        difference = np.abs(numbers[what] - values).max()
        assert difference <= close * np.abs(values).max(), f"{what} of {name} differs by {difference:g}"


def numbers_of(golden_file: dict) -> dict[str, np.ndarray]:
    """Takes the numbers out of what is compared to the letter."""
    losses: dict[str, np.ndarray] = {}
    for stage, of in golden_file["stages"].items():
        first, *later = of["losses"].values()
        losses |= {f"first loss of {stage}": np.array(first), f"later loss of {stage}": np.array(later)}
    for of in golden_file["stages"].values():
        of["losses"] = sorted(of["losses"])
    return losses | {"encoding": np.array(golden_file.pop("encoding"))}
