#!/usr/bin/env bash
# Makes the environment with the test extra and runs the checks and tests. Arguments go to pytest.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" test
ruff check .
mypy
python -m pytest "$@"
