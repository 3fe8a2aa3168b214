#!/usr/bin/env bash
# Measures everything on a lent GPU in one command of at most nine minutes (bench/gpu.py), on a machine without a package registry.
#   bash bench/gpu.sh --pack                  # here: what that machine lacks, as wheels, into .gpu-wheels (git ignores it; under 60 MB)
#   bash bench/gpu.sh [--out FILE] [...]      # there, with .gpu-wheels beside: further arguments are bench/gpu.py's
#   bash bench/gpu.sh --cpu                   # a rehearsal with tiny models, anywhere
# PYTHON names another interpreter than python3; for --pack PYTHON_THERE the version there (3.12).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-python3}"
wheels=.gpu-wheels most=$((60 * 1000 * 1000))
# What a machine with JAX, torch, transformers and sentence-transformers lacks, with the versions that are installed here.
packages=(bm25s datasets dill faiss-cpu ml_collections multiprocess pytrec-eval-terrier tensorboardX)

if [ "${1:-}" = --pack ]; then
  rm -rf "$wheels" && mkdir "$wheels"
  names=$("$python" -c 'import sys; from importlib.metadata import version
for name in sys.argv[1:]: print(f"{name}=={version(name)}")' "${packages[@]}")
  mapfile -t pinned <<< "$names"
  platforms=()
  for tag in manylinux_2_{39,35,34,31,28,27,24,17}_x86_64 manylinux2014_x86_64 manylinux1_x86_64; do platforms+=(--platform "$tag"); done
  "$python" -m pip download -q --no-deps --only-binary=:all: --implementation cp --python-version "${PYTHON_THERE:-3.12}" \
    "${platforms[@]}" -d "$wheels" "${pinned[@]}"
  # The other machine has a copy of the working tree without git.
  PYTHONPATH=bench "$python" -c 'from record import COMMIT; print(COMMIT, end="")' > "$wheels/commit"
  size=$(du -sb "$wheels" | cut -f1)
  [ "$size" -le "$most" ] || { echo "$wheels has $size bytes, more than $most" >&2; exit 1; }
  echo "$wheels: ${#pinned[@]} wheels, $((size / 1000000)) MB; run bench/gpu.sh where the GPU is"
  exit
fi

source bench/gpu_wheels.sh
exec "$python" -u bench/gpu.py "$@"
