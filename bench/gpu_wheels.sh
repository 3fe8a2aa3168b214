# What a lent machine lacks, from .gpu-wheels (bench/gpu.sh --pack): to be sourced in the checkout's root, with $python set.
wheels=.gpu-wheels site=.gpu-site
lacks='import sys; from importlib.util import find_spec; sys.exit(all(map(find_spec, sys.argv[1:])))'
if ls "$wheels"/*.whl > /dev/null 2>&1 && "$python" -c "$lacks" bm25s datasets faiss ml_collections pytrec_eval tensorboardX; then
  # Into a folder, not a virtual environment: where python3 is one itself, one made from it would not see its packages.
  if [ ! -d "$site" ]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site.part" "$wheels"/*.whl
    mv "$site.part" "$site"
  fi
  export PYTHONPATH="$PWD/$site${PYTHONPATH:+:$PYTHONPATH}"
fi
if [ -f "$wheels/commit" ]; then JDISTILL_COMMIT=$(cat "$wheels/commit") && export JDISTILL_COMMIT; fi
