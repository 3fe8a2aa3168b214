#!/usr/bin/env bash
# Makes the environment with the test extra and runs the checks and tests. --fast: without a subprocess, in a minute and a half (tests/fast.txt).
# Further arguments go to pytest. A skip for a reason that is not in tests/skips.txt fails.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" test
export JDISTILL_ONLY_LISTED_SKIPS=1
# Some 75 processes of the tests import JAX or torch, which compiled anew take thrice as long; beside the sources no bytecode is left.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$PWD/.venv/bytecode"
ruff check .
if [ "${1:-}" = --fast ]; then
  shift
  mapfile -t files < <(grep -v '^#' tests/fast.txt)
  exec python -m pytest -n 2 --dist load "${files[@]/#/tests/}" "$@"
fi
mypy &  # on what the tests leave of two cores
types=$!
mapfile -t as_users < <(grep -v '^#' tests/users_flags.txt)
XLA_FLAGS="" python -m pytest -n 2 --dist load "${as_users[@]/#/tests/}"
wait "$types"
python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "${as_users[@]/#/--deselect=tests/}" "$@"  # two workers: most tests wait for one core that starts or compiles
