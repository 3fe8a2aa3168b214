"""Many short runs, to choose the values of a config."""

from importlib.util import find_spec

if find_spec("optuna") is None:  # asked before anything imports it, which would start numpy's threads
    raise SystemExit('error: a sweep needs optuna: pip install -e ".[sweep]"')
