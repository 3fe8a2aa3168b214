"""A config file as --config names it: read, its variant applied, the keys of the command line held against it.

ml_collections does the same, but tells of a file that is not there when its first key is read, and of an unknown key only its name.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from absl import flags
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.files import flat

EXAMPLE = "--config configs/NAME.py or configs/NAME.py:VARIANT"


class ConfigFile(flags.ArgumentParser):
    """The parser of the flag --config; every fault is a UserError that names the file or key."""

    def parse(self, path: str) -> ConfigDict:
        """The locked config of FILE or FILE:VARIANT, if it has all keys that the command line sets."""
        config = read_config_file(path)
        config.lock()
        # sys.argv, as ml_collections' own flag, which then sets the keys.
        check_keys(config, flags.FLAGS.read_flags_from_files(sys.argv, force_gnu=False))
        return config

    def flag_type(self) -> str:
        return "config file"


def read_config_file(source: str) -> ConfigDict:
    """The config of FILE or FILE:VARIANT.

    Raises UserError for a file that is not there, is no Python, fails, or gives no ConfigDict, and for an unknown variant.
    """
    name, colon, variant = source.partition(":")
    path = Path(os.path.expanduser(name))
    if not name or not path.is_file():
        raise UserError(
            f"--config={source}: {_not_there(path) if name else 'no file is named'}; give {EXAMPLE}{_others(path)}"
        )
    module = _within(path, lambda: _run(path))
    get_config = getattr(module, "get_config", None)
    if not callable(get_config):
        raise UserError(f"--config={source}: {path} has no function get_config(), which is to return a ConfigDict")
    arguments = [variant] if colon else []
    try:
        inspect.signature(get_config).bind(*arguments)
    except TypeError:
        what = f"has no variants; leave :{variant} away" if colon else f"needs a variant: --config={path}:VARIANT"
        raise UserError(f"--config={source}: {path} {what}") from None
    config = _within(path, lambda: get_config(*arguments))
    if not isinstance(config, ConfigDict):
        raise UserError(f"--config={source}: get_config() of {path} returns {type(config).__name__}, not a ConfigDict")
    return config


def _run(path: Path) -> ModuleType:
    """The file as a module. Not by import, whose compiled copy would stand for a file that was changed in the same second."""
    module = sys.modules["config_file"] = ModuleType("config_file")
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module


def _within(path: Path, run: Callable[[], object]) -> object:
    """What a config's own code gives; whatever it raises is the user's to mend."""
    try:
        return run()
    except UserError:
        raise
    except SyntaxError as error:
        raise UserError(f"{error.filename or path}, line {error.lineno or 1}: this is no Python: {error.msg}") from None
    except Exception as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
        line = f", line {own[-1].lineno}" if own else ""
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name == "configs":
            hint = f"; run the command in the folder that holds configs/, of jdistill's repository, and not in {Path.cwd()}"
        raise UserError(f"{path}{line}: {type(error).__name__}: {' '.join(str(error).split())}{hint}") from None


def _not_there(path: Path) -> str:
    if path.is_dir():
        return "this is a folder, not a config file"
    return "this is no file" if path.exists() else "there is no such file"


def _others(path: Path) -> str:
    """The configs in the folder configs, those of a like name if there are any."""
    configs = [config for config in sorted(Path("configs").glob("*.py")) if config.stem not in ("base", "__init__")]
    near = [config for config in configs if difflib.get_close_matches(config.stem, [path.stem], cutoff=0.5)]
    return f"; {'near it' if near else 'there are'}: {', '.join(map(str, near or configs))}" if configs else ""


def check_keys(config: ConfigDict, argv: list[str]) -> None:
    """Raises UserError for a key that the command line sets and the config has not, and for a block of keys set as a whole."""
    keys = list(flat(config.to_dict()))
    for number, argument in enumerate(argv):
        match = re.match(r"--?(?:no)?config\.([^=]+)(=?)(.*)", argument, re.DOTALL)
        if match is None:
            continue
        if (key := match[1]) in keys:
            _check_has_value(config, key, match[2], argv[number + 1 :])
            continue
        within = [name for name in keys if name.startswith(f"{key}.")]
        if within:  # {…} too, which would take the others of the block away
            raise UserError(
                f"--config.{key} is a block of keys; set one of them: {', '.join(f'--config.{name}' for name in within)}"
            )
        if not within:
            near = near_keys(key, keys)
            hint = f"near it: {', '.join(f'--config.{name}' for name in near)}" if near else "docs/configs.md lists all"
            if key in flags.FLAGS:
                hint = f"--{key} is a flag of the command, without config."
            raise UserError(f"--config.{key}: this config has no such key; {hint}")


def _check_has_value(config: ConfigDict, key: str, equals: str, after: list[str]) -> None:
    """Raises UserError for a key of text without a value that would take the next flag for it."""
    text = isinstance(flat(config.to_dict())[key], str)
    if text and not equals and after and after[0].startswith("--"):
        raise UserError(
            f"--config.{key} has no value, and {after[0]} is a flag; write --config.{key}= for an empty one"
        )


def near_keys(key: str, keys: list[str]) -> list[str]:
    """At most three of the keys that one may have meant: alike as a whole, or by the last of their names."""
    of_last: dict[str, list[str]] = {}
    for dotted in sorted(keys, key=lambda key: key.count(".")):
        of_last.setdefault(dotted.rpartition(".")[2], []).append(dotted)
    last = difflib.get_close_matches(key.rpartition(".")[2], of_last, n=3)
    whole_keys = difflib.get_close_matches(key, keys, n=3)
    return list(dict.fromkeys([*(dotted for name in last for dotted in of_last[name]), *whole_keys]))[:3]
