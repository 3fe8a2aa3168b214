"""bench/suite.py: what it counts in the output of several calls of pytest."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / "bench")]  # behind tests: bench has a parity.py too

from suite import counts


def test_it_adds_up_the_calls_of_pytest_and_nothing_else() -> None:
    printed = [
        "All checks passed!\n",
        "Success: no issues found in 412 source files\n",
        "======= 57 passed in 61.02s (0:01:01) =======\n",
        "tests/test_docs.py::test_7_passed PASSED\n",
        "==== 3893 passed, 12 skipped, 57 deselected in 1001.30s (0:16:41) ====\n",
    ]
    assert counts(printed) == {"passed": 3950, "skipped": 12}
    assert counts(["1 failed in 0.10s\n"]) == {"passed": 0, "skipped": 0}
