"""The flags of the commands that train: --config with any of its keys, and --workdir."""

from __future__ import annotations

import sys

from absl import flags
from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file(
    "config", help_string="configs/NAME.py or configs/NAME.py:VARIANT; keys as --config.key=value"
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "the run's folder: config, checkpoints, metrics, export, results, report"
)


def parse(argv: list[str]) -> list[str]:
    """For absl's app.run: a mistake in the flags is one line on standard error and exit status 2."""
    try:
        return flags.FLAGS(argv)
    except (flags.Error, AttributeError, KeyError, ValueError, TypeError, FileNotFoundError) as error:
        print(f"error: {str(error).strip()}", file=sys.stderr)
        raise SystemExit(2) from None
