"""Code that a model's folder carries or names: where it is, what it is known by, and whether the user has permitted it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.files import some_of
from jdistill.core.json_files import read_bytes, read_json
from jdistill.data.text.locations import HUB_ID, local_path, resolve
from jdistill.encoder.formats.modules import THEIR_OWN

COMMIT = re.compile(r"[0-9a-f]{40}")
OTHER_MODELS = ("tokenizer_name_or_path", "base_model_name_or_path")
MODULE_LISTS = ("modules.json", "router_config.json")


def split_commit(source: str, key: str) -> tuple[str, str]:
    """(source, commit) of `OWNER/NAME@COMMIT`; (source, "") of any other.

    Raises: UserError where what follows the @ of a hub id is no commit.
    """
    name, _, commit = source.rpartition("@")
    if not HUB_ID.fullmatch(name) or Path(source).exists():
        return source, ""
    if not COMMIT.fullmatch(commit):
        raise UserError(f"--{key}={source}: after the @ of a hub id comes a commit, 40 hexadecimal digits")
    return name, commit


def permitted_folder(source: str, key: str, permission: str) -> tuple[Path, bool]:
    """(a model's folder, whether code in it is to be run).

    Args:
      source: a path, `pkg:import_name/sub/folder`, or a hub id `OWNER/NAME` or `OWNER/NAME@COMMIT`.
      key: what error messages call it.
      permission: the commit whose code may be run; of a folder on this machine the digest of its code (code_digest). Empty: none may.

    Raises: UserError for code that is not permitted, for code elsewhere, which nothing pins, and where source and permission differ.
    """
    name, commit = split_commit(source, key)
    is_hub = local_path(name, key) is None
    if is_hub and permission and (not COMMIT.fullmatch(permission) or commit not in ("", permission)):
        raise UserError(
            f"--config.trust_remote_code={permission}: of {source} a commit is needed, 40 hexadecimal digits, and the one after its @"
        )
    folder = resolve(name, key, revision=(commit or permission) if is_hub else "")
    if not folder.is_dir():
        return folder, False
    files, modules, mapped = code_files(folder), module_classes(folder), mapped_classes(folder)
    if not files and not modules and not (mapped and permission):
        return folder, False  # what auto_map names is not run: most of it transformers has itself
    needed = folder.name if is_hub else code_digest(folder)
    if permission != needed:
        carried = f"carries code ({some_of(files)})" if files else f"names code ({some_of([*modules, *mapped])})"
        but = f", which --config.trust_remote_code={permission} does not permit" if permission else ""
        raise UserError(
            f"--{key}={source} {carried}{but}. Read it in {folder}; then --config.trust_remote_code={needed} lets it run"
        )
    if elsewhere := [name for name in (*modules, *mapped) if "--" in name] + other_models(folder):
        raise UserError(
            f"--{key}={source} names code of another repository ({some_of(elsewhere)}), which no commit of this one pins. Keep a copy "
            "of the model here with that code in its folder, and name the classes without what stands before --"
        )
    return folder, True


def code_files(folder: Path) -> list[str]:
    """The Python files in a folder and below, by their paths in it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))


def code_digest(folder: Path) -> str:
    """What a folder's code is known by, 32 hexadecimal digits: the names and bytes of its Python files, and the classes that it names."""
    parts = [part for name in code_files(folder) for part in (name, read_bytes(folder / name))]
    return digest(module_classes(folder), mapped_classes(folder), *parts)


def module_classes(folder: Path) -> list[str]:
    """The classes of a folder's modules of sentence-transformers, a Router's too, that are not the library's own."""
    names: set[str] = set()
    for content in _contents(folder, *MODULE_LISTS):
        listed = content.get("types") if isinstance(content, dict) else content
        rows = listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else ()
        types = [row.get("type") if isinstance(row, dict) else row for row in rows]
        names.update(name for name in types if isinstance(name, str) and not name.startswith(THEIR_OWN))
    return sorted(names)


def mapped_classes(folder: Path) -> list[str]:
    """The classes that `auto_map` names in a folder's JSON, which transformers loads where it is trusted."""
    names: set[str] = set()
    for content in _contents(folder, "*.json"):
        listed = content.get("auto_map") if isinstance(content, dict) else None
        for value in listed.values() if isinstance(listed, dict) else [listed]:
            names.update(name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str))
    return sorted(names)


def other_models(folder: Path) -> list[str]:
    """The tokenizers and bases of adapters that a folder's JSON names, which sentence-transformers loads with the same trust."""
    names: set[str] = set()
    for content in _contents(folder, "*.json"):
        named = [content.get(key) for key in OTHER_MODELS] if isinstance(content, dict) else []
        names.update(name for name in named if isinstance(name, str) and name)
    return sorted(names)


def _contents(folder: Path, *patterns: str) -> Iterator[Any]:
    """The values of those JSON files in a folder and below that can be read; what cannot be, their reader refuses."""
    for path in sorted(path for pattern in patterns for path in folder.rglob(pattern)):
        with suppress(UserError):
            yield read_json(path)
