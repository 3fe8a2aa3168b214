"""How long the tests take on this machine: launch/test.sh, by the clock, with what it counted.

    python bench/suite.py [-- --fast]

What stands behind -- goes to launch/test.sh. Shows its output and ends with its status; adds to bench/results/suite.json
where nothing failed. Load beside it is in the file, not taken out of the time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from record import command_line, keep_rows

ROOT = Path(__file__).parents[1]


def counts(output: list[str]) -> dict[str, int]:
    """Tests that passed and tests that were skipped, summed over the last lines of all calls of pytest.

    Args:
      output: lines that launch/test.sh printed.
    """
    ends = [line for line in output if re.search(r"\bpassed\b.* in [\d.]+s", line)]
    return {
        what: sum(int(found[1]) for line in ends if (found := re.search(rf"(\d+) {what}", line)))
        for what in ("passed", "skipped")
    }


def main() -> int:
    arguments = sys.argv[1:]
    if arguments and arguments[0] != "--":
        print(__doc__, file=sys.stdout if arguments[0] in ("-h", "--help") else sys.stderr)
        return 0 if arguments[0] in ("-h", "--help") else 2
    begun, output = time.monotonic(), []
    with subprocess.Popen(
        ["bash", "launch/test.sh", *arguments[1:]],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as suite:
        assert suite.stdout is not None
        for line in suite.stdout:
            print(line, end="", flush=True)
            output.append(line)
    if suite.returncode == 0:
        row = {"arguments": " ".join(arguments[1:])} | counts(output) | {"minutes": (time.monotonic() - begun) / 60}
        keep_rows("suite", command_line(), [row], ("arguments",))
    return suite.returncode


if __name__ == "__main__":
    sys.exit(main())
