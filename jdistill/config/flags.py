"""The flags of the commands that train: --config with any of its keys, and --workdir."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from absl import app, flags
from ml_collections import config_flags

from jdistill.config.file import EXAMPLE, ConfigFile
from jdistill.config.keys import rule_of
from jdistill.core.errors import UserError, leave
from jdistill.core.printable import printable


def define_config(values: flags.FlagValues = flags.FLAGS) -> flags.FlagHolder:
    """The flag --config among these flags."""
    holder = config_flags.DEFINE_config_file(
        "config",
        help_string="configs/NAME.py or configs/NAME.py:VARIANT; keys as --config.key=value",
        flag_values=values,
    )
    values["config"].parser = ConfigFile()
    return holder


CONFIG = define_config()
WORKDIR = flags.DEFINE_string(
    "workdir", None, "the run's folder: config, checkpoints, metrics, export, results, report"
)


def run_command(command: Callable[[list[str]], int]) -> None:
    """Parses the flags, runs a command and ends the process with its exit status.

    Args:
      command: the arguments that are no flags -> exit status.
    """
    try:
        app.run(command, flags_parser=parse)
    except SystemExit as end:
        leave(end.code)


def parse(argv: list[str], values: flags.FlagValues = flags.FLAGS) -> list[str]:
    """For absl's app.run: a mistake in the flags is one line on standard error and exit status 2."""
    try:
        return _parsed(argv, values)
    except UserError as error:
        print(printable(f"error: {error}", keep="\n"), file=sys.stderr)
    except (flags.Error, AttributeError, KeyError, ValueError, TypeError, OSError) as error:
        print(printable(f"error: {_in_words(error)}", keep="\n"), file=sys.stderr)
    raise SystemExit(2)


def _parsed(argv: list[str], values: flags.FlagValues) -> list[str]:
    try:
        rest = values(argv)
    except flags.UnrecognizedFlagError as error:
        if error.flagname.removeprefix("no").startswith("config."):  # which are known once the file is
            if values["config"].value is None:
                raise _config_is_missing() from None
            raise UserError(
                f"--{error.flagname}: there is no such key of True or False; write --config.KEY=VALUE"
            ) from None
        raise
    if values["config"].value is None:
        raise _config_is_missing()
    if len(rest) > 1:
        raise UserError(f"{rest[1]!r} is no flag: write --config.KEY=VALUE, with = also for True and False")
    return rest


def _config_is_missing() -> UserError:
    return UserError(f"--config is missing: {EXAMPLE}")


def _in_words(error: Exception) -> str:
    """The error in one line; of a config key's value what it must be."""
    message = " ".join(str(error).split())
    refused = re.match(r"flag --config\.([^=]+)=(.*?): ", message)
    rule = rule_of(refused[1]) if refused else None
    return f"--config.{refused[1]}={refused[2]}: must be {rule.must}" if refused and rule else message
