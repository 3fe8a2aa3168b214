"""JSON that a stranger wrote: parsed, and each value taken with its type and range; a fault names the file and the key."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError

INT32_LARGEST = 2**31 - 1  # bounds steps, and sizes and counts that nothing else bounds
REQUIRED: Any = object()
_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def parse_json(content: str | bytes, where: str) -> Any:
    """The value of JSON text in UTF-8. Raises UserError that begins with `where` for anything else."""
    try:
        return json.loads(content.decode("utf-8-sig") if isinstance(content, bytes) else content)
    except RecursionError:
        raise UserError(f"{where}: not valid JSON (nested too deep)") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not valid UTF-8 ({error.reason} at byte {error.start})") from None
    except ValueError as error:  # also a whole number of more than 4,300 digits
        raise UserError(f"{where}: not valid JSON ({error})") from None


def read_bytes(path: Path, default: Any = REQUIRED) -> Any:
    """A regular file's content; `default`, where there is one, if nothing lies there.

    Raises UserError for a file that is missing or cannot be read, and for a folder, a pipe or a device, which is never opened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path} is no file but a {'folder' if path.is_dir() else 'pipe or device'}")
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise UserError(f"{path} is a link to {path.readlink()}, which is not there; fetch it again") from None
        if default is REQUIRED:
            raise UserError(f"{path} is missing") from None
        return default
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        raise UserError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None


def read_json(path: Path, default: Any = REQUIRED) -> Any:
    """A file's JSON value, of any type; `default`, where there is one, if nothing lies there. Raises UserError as its parts do."""
    content = read_bytes(path, default=None if default is not REQUIRED else REQUIRED)
    return default if content is None else parse_json(content, str(path))


def read_settings(path: Path, optional: bool = False) -> Settings:
    """The object that a JSON file holds; optional: an empty one where there is no file. Raises UserError for another type."""
    values = read_json(path, {} if optional else REQUIRED)
    if not isinstance(values, dict):
        raise UserError(f"{path} holds {said(values)}, not an object like {{…}}")
    return Settings(values, path)


def said(value: Any) -> str:
    """What a value is, in a message: its type, and itself where it is short."""
    name = _NAMES.get(type(value), "null")
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of many digits"
    return shown if isinstance(value, int | float) else f"{name} ({shown[:40]})" if len(shown) <= 40 else name


class Settings:
    """A JSON object and the file it is from. A key whose value is null counts as one that is not there."""

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        self.values = values
        self.path = path

    def raw(self, key: str, default: Any = REQUIRED) -> Any:
        """The value as it is. Raises UserError where it is missing and has no default."""
        value = self.values.get(key)
        if value is not None:
            return value
        if default is REQUIRED:
            raise self.fault(key, "is null" if key in self.values else "is missing")
        return default

    def integer(self, key: str, low: int, high: int = INT32_LARGEST, default: Any = REQUIRED) -> int:
        """A whole number from low to high; the default is not checked."""
        value = self.raw(key, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fault(key, f"is {said(value)}; a whole number from {low} to {high} is needed")
        return value

    def number(self, key: str, low: float, high: float, default: Any = REQUIRED) -> float:
        """A finite number from low to high; the default is not checked."""
        value = self.raw(key, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not _within(value, low, high):
            raise self.fault(key, f"is {said(value)}; a number from {low:g} to {high:g} is needed")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, f"is {said(value)}; true or false is needed")
        return value

    def text(self, key: str, default: Any = REQUIRED, among: Sequence[str] = ()) -> str:
        """A string that can be written in UTF-8; among: the ones that there are."""
        value = self.raw(key, default)
        if value is default:
            return value
        if not isinstance(value, str):
            raise self.fault(key, f"is {said(value)}; a string is needed")
        if among and value not in among:
            raise self.fault(key, f"is {value[:60]!r}; supported is {', '.join(among)}")
        return self.plain(key, value)

    def part(self, key: str) -> Settings:
        """An object within this one, empty where there is none."""
        value = self.raw(key, {})
        if not isinstance(value, dict):
            raise self.fault(key, f"is {said(value)}; an object is needed")
        return Settings(value, self.path)

    def plain(self, key: str, text: str) -> str:
        """The text. Raises UserError for a lone surrogate, which no tokenizer takes."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.fault(key, f"holds a lone surrogate (broken Unicode): {text[:40]!r}") from None
        return text

    def fault(self, key: str, what: str) -> UserError:
        """The error for a key of this file."""
        return UserError(f"{self.path}: {key if key.isprintable() else ascii(key)} {what}")


def _within(value: float, low: float, high: float) -> bool:
    try:
        return math.isfinite(value) and low <= value <= high
    except OverflowError:  # an int beyond float64
        return False
