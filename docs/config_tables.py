"""docs/configs.md from configs/*.py: a key's explanation is the comment beside it there, its range the rule that every run is checked by."""

from __future__ import annotations

import ast
import importlib
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_parts import MADE, as_page, code, table

from jdistill.config.keys import STAGES, rule_of
from jdistill.config.rules import text
from jdistill.core.files import flat

ROOT = Path(__file__).resolve().parents[1]
ORDER = (
    "base", "quickstart", "simtde", "search", "budget", "ibkd", "ibkd_retrieval", "distilface", "bilstm_sra", "bilstm_sra_task", "d2llm",
)  # of the page; configs that are not in it come behind  # fmt: skip
PARENTS = {
    "search": "simtde:thin",
    "budget": "simtde:thin",
}  # whose variant they change; the others change a config as it is


@dataclass(frozen=True)
class Explained:
    """keys: dotted names that one statement of a config file sets. comment: what the file says of them. heading: the comment that opens
    the block of lines in which they stand."""

    keys: tuple[str, ...]
    comment: str
    heading: str


def explained(source: str) -> Iterator[Explained]:
    """The statements `c.key = …` of a config file's get_config and of the file's functions that it calls, in order, each with its comments."""
    comments = {
        token.start[0]: (token.string.lstrip("# ").rstrip(), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines = source.splitlines()
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    heading = ""
    for node in _assignments(functions["get_config"].body, functions):
        keys = tuple(key for target in node.targets for key in _keys(target))
        first = node.lineno
        while first - 1 in comments and comments[first - 1][1]:
            first -= 1
        above = " ".join(comments[line][0] for line in range(first, node.lineno))
        opens = not lines[first - 2].strip()
        if opens:
            heading = above
        beside = [
            comments[line][0] for line in range(node.lineno, (node.end_lineno or node.lineno) + 1) if line in comments
        ]
        if keys:
            yield Explained(keys, " ".join([*([] if opens or not above else [above]), *beside]), heading)


def _assignments(body: Iterable[ast.stmt], functions: dict[str, ast.FunctionDef]) -> Iterator[ast.Assign]:
    """Of a function's lines and those under an `if` of its, with those of each function that a line calls, as `set_student(c)`."""
    for node in body:
        match node:
            case ast.Assign():
                yield node
            case ast.If(body=inner):
                yield from _assignments(inner, functions)
            case ast.Expr(value=ast.Call(func=ast.Name(id=called))) if called in functions:
                yield from _assignments(functions[called].body, functions)


def _keys(target: ast.expr) -> list[str]:
    """Of `c.a.b`, or of a tuple of such."""
    if isinstance(target, ast.Tuple):
        return [key for part in target.elts for key in _keys(part)]
    names = []
    while isinstance(target, ast.Attribute):
        names.append(target.attr)
        target = target.value
    return [".".join(reversed(names))] if names and isinstance(target, ast.Name) else []


def config_page() -> str:
    """docs/configs.md."""
    parts = [
        "# Configs",
        MADE,
        "Which keys a run has, what each may be, and what the files of `configs/` set them to.",
        "A config is a Python file. Any key is overridden on the command line as `--config.key=value`; a variant is named "
        "behind a colon, as in `--config configs/simtde.py:paper`. A value of the wrong type, or out of its range, is "
        "refused before the first text is read: the first of the wrong type by itself, those out of range in one message.",
    ]
    for name in config_files():
        module = importlib.import_module(f"configs.{name}")
        values = flat(module.get_config().to_dict())
        parts += [f"## configs/{name}.py", *docstring(ast.get_docstring(ast.parse(_source(name))) or "")]
        rows = list(explained(_source(name)))
        own = {key: row.comment for row in rows for key in row.keys}
        if name == "base":
            for heading in dict.fromkeys(row.heading for row in rows):
                keys = [key for row in rows if row.heading == heading for key in row.keys]
                parts += [*([f"**{_title(heading)}**"] if heading else []), key_table(keys, values, meanings(name))]
            continue
        parent = parent_of(name)
        file, _, variant = parent.partition(":")
        parents = importlib.import_module(f"configs.{file}")
        others = flat((parents.get_config(variant) if variant else parents.get_config()).to_dict())
        order = {key: place for place, key in enumerate(own)}
        changed = [key for key, value in values.items() if own.get(key) or key not in others or others[key] != value]
        if said := [f"`{key}.*`: {own[key]}." for key in own if key not in values and own[key]]:
            parts += ["Blocks of keys: " + " ".join(said)]
        parts += [f"What it sets; every other key is as in `configs/{file}.py{':' if variant else ''}{variant}`."]
        changed.sort(key=lambda key: order.get(_set_by(key, own), len(order)))
        parts += [key_table(changed, values, meanings(name))]
    return as_page(parts)


def config_files() -> list[str]:
    """The names of all files of configs/, in the page's order."""
    names = {path.stem for path in (ROOT / "configs").glob("*.py")} - {"__init__"}
    return [*ORDER, *sorted(names - set(ORDER))]


def parent_of(name: str) -> str:
    """The config that a file changes: with its variant, or the one whose get_config it calls."""
    called = re.search(r"\b(\w+)\.get_config\(", _source(name))
    return PARENTS.get(name) or (called[1] if called else "base")


def meanings(name: str) -> dict[str, str]:
    """Key -> its explanation in a config file, or else in the file that it changes."""
    inherited = meanings(parent_of(name).partition(":")[0]) if name != "base" else {}
    return inherited | {key: row.comment for row in explained(_source(name)) for key in row.keys if row.comment}


def _set_by(key: str, own: Iterable[str]) -> str:
    """Which of a file's own keys sets this one: itself, or the block in which it stands; "" where none does."""
    return next((name for name in own if name == key), next((name for name in own if key.startswith(name + ".")), ""))


def key_table(keys: Iterable[str], values: dict[str, Any], said: dict[str, str]) -> str:
    rows = []
    for key in keys:
        rule, (block, _, rest) = rule_of(key), key.partition(".")
        meaning = said.get(key, "") or (said.get(rest, "") if block in STAGES else "")
        rows.append(
            [code(key), code(_literal(values[key])), rule.must.replace(text().must, "text") if rule else "", meaning]
        )
    return table(["key", "value", "must be", "what it is"], rows)


def docstring(whole: str) -> Iterator[str]:
    """A docstring as Markdown: paragraphs; indented commands as code, other indented lines as a table of names."""
    for part in re.split(r"\n\s*\n", whole):
        if not part.startswith("    "):
            yield re.sub(r"docs/([\w/]+\.md)", r"[\g<0>](\1)", " ".join(part.split()))
        elif part.split()[0] in ("python", "bash"):
            yield "<!-- not run: needs your teacher and text -->\n```bash\n" + textwrap.dedent(part) + "\n```"
        else:
            rows: list[list[str]] = []
            for line in textwrap.dedent(part).splitlines():
                if line.startswith(" "):
                    rows[-1][1] += " " + line.strip()
                else:
                    names, what = (
                        re.split(r"(?<!,) +", line, maxsplit=1)
                        if "  " not in line
                        else re.split(" {2,}", line, maxsplit=1)
                    )
                    rows.append([", ".join(code(name) for name in names.split(", ")), what.strip()])
            yield table(["variant", "what it is"], rows)


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _title(heading: str) -> str:
    return heading if heading.endswith(".") else heading + "."


def _source(name: str) -> str:
    return (ROOT / "configs" / f"{name}.py").read_text()
