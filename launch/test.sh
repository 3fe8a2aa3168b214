#!/usr/bin/env bash
# Makes the environment with the test extra and runs the checks and tests. Arguments go to pytest.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" test
ruff check .
mypy
python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"  # two workers: most tests wait for one core that starts or compiles
