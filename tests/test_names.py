"""One name, one meaning: what a module of jdistill defines for others to import, no other module defines too."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = {path: ast.parse(path.read_text()) for path in sorted((ROOT / "jdistill").rglob("*.py"))}
# Names that several modules define with one meaning, and who asks them for it.
SHARED = {
    "main": "a command, which its module runs",
    "make_parser": "the flags of a command",
    "stages": "of a method, for METHODS",
    "build": "of a method, for Stage.build",
    "fits": "of a method, for Stage.fits",
    "represent": "of a method, for Method.represent",
    "objective": "of a method, for Method.objective",
    "encode": "of a form of the export, for Target.encode",
    "write_int8": "of a form of the export, for Target.write",
    "tensor_names": "of an architecture, for Architecture.names",
    "read_config": "of an architecture, for Architecture.read_config",
    "write_config": "of an architecture, for Transformer.config_keys",
    "to_gguf": "of an architecture, for Architecture.gguf_model",
    "onnx_states": "of an architecture, for Architecture.onnx_states",
}
# They say nothing of what they hold: a noun of the field does.
VAGUE = {"answers", "found", "from_first", "given", "judged", "known", "one", "places", "spread", "those"}


def defined(tree: ast.Module) -> Iterator[str]:
    """The public names that a module's own statements bind, imports excepted."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def test_no_public_name_has_two_meanings() -> None:
    modules = defaultdict(set)
    for path, tree in TREES.items():
        for name in defined(tree):
            modules[name].add(str(path.relative_to(ROOT)))
    several = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
    assert not (twice := {name: paths for name, paths in several.items() if name not in SHARED}), twice
    assert not (stale := SHARED.keys() - several.keys()), f"one module alone defines {stale}"


def bound(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of every function, class, argument and variable of a module, attributes of its objects too."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def test_names_are_nouns_of_the_field() -> None:
    vague = [(str(path), line, name) for path, tree in TREES.items() for line, name in bound(tree) if name in VAGUE]
    assert not vague, vague
