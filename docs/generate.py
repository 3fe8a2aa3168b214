"""Writes the pages that are made from other files: docs/configs.md from configs/*.py, docs/results/index.md from bench/results/*.json.

    python docs/generate.py            # writes them
    python docs/generate.py --check    # exit code 1 where one is out of date

A key's explanation is the comment beside it in its config file; its range is the rule that every run is checked by.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import json
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from jdistill.config.keys import STAGES, rule_of  # noqa: E402
from jdistill.config.rules import text  # noqa: E402
from jdistill.core.files import flat  # noqa: E402

FILES = (
    "base", "quickstart", "simtde", "ibkd", "ibkd_retrieval", "distilface", "bilstm_sra", "bilstm_sra_task", "d2llm",
)  # fmt: skip
PARENTS = {"quickstart": "simtde", "ibkd_retrieval": "ibkd"}  # whose config they change; the others that of base
MADE = "<!-- made by docs/generate.py; do not edit -->"
WIDTH = 118
# Figures of a bench that say how it was made rather than what came out.
ABOUT = ("command", "commit", "date", "machine", "device", "devices", "seed")


@dataclass(frozen=True)
class Explained:
    """keys: dotted names that one statement of a config file sets. comment: what the file says of them. heading: the comment that opens
    the block of lines in which they stand."""

    keys: tuple[str, ...]
    comment: str
    heading: str


def explained(source: str) -> Iterator[Explained]:
    """The statements `c.key = …` of a config file's get_config, in order, each with its comments."""
    comments = {
        token.start[0]: (token.string.lstrip("# ").rstrip(), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines = source.splitlines()
    tree = ast.parse(source)
    body = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_config").body
    heading = ""
    for node in body:
        if not isinstance(node, ast.Assign):
            continue
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
        "behind a colon, as in `--config configs/simtde.py:paper`. A value of the wrong type or out of its range is refused "
        "before the first text is read, with all faults in one message.",
    ]
    for name in FILES:
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
        parent = PARENTS.get(name, "base")
        others = flat(importlib.import_module(f"configs.{parent}").get_config().to_dict())
        order = {key: place for place, key in enumerate(own)}
        changed = [
            key for key, value in values.items() if _set_by(key, own) and (key not in others or others[key] != value)
        ]
        if said := [f"`{key}.*`: {own[key]}." for key in own if key not in values and own[key]]:
            parts += ["Blocks of keys: " + " ".join(said)]
        parts += [f"What it sets; every other key is as in `configs/{parent}.py`."]
        parts += [key_table(sorted(changed, key=lambda key: order[_set_by(key, own)]), values, meanings(name))]
    return _page(parts)


def meanings(name: str) -> dict[str, str]:
    """Key -> its explanation in a config file, or else in the file that it changes."""
    inherited = meanings(PARENTS.get(name, "base")) if name != "base" else {}
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
            [_code(key), _code(_literal(values[key])), rule.must.replace(text().must, "text") if rule else "", meaning]
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
                    rows.append([", ".join(_code(name) for name in names.split(", ")), what.strip()])
            yield table(["variant", "what it is"], rows)


def results_page() -> str:
    """docs/results/index.md."""
    parts = [
        "# Results",
        MADE,
        "What was measured, by which command. Each page of figures answers one question; the tables below are read from the "
        "files that the benches write into `bench/results`.",
        pages_of_figures(),
    ]
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        found = json.loads(path.read_text())
        parts += [f"## bench/results/{path.name}"]
        if not isinstance(found, dict):
            found = {"rows": found}
        if command := found.get("command"):
            parts += [f"<!-- not run: a measurement -->\n```bash\n{command}\n```"]
        about = [f"{key} `{_short(found[key])}`" for key in ABOUT[1:] if key in found]
        if about:
            parts += [_sentence(", ".join(about))]
        parts += figures({key: value for key, value in found.items() if key not in ABOUT})
    return _page(parts)


def pages_of_figures() -> str:
    """A list of the other pages of the folder, each with its first sentence."""
    rows = []
    for path in sorted((ROOT / "docs" / "results").glob("*.md")):
        if path.name != "index.md":
            lines = path.read_text().splitlines()
            first = " ".join(" ".join(lines[2:]).split(". ")[0].split())
            rows.append([f"[{lines[0].removeprefix('# ')}]({path.name})", first.rstrip(".")])
    return table(["page", "what it tells"], rows)


def figures(found: dict[str, Any], under: str = "") -> list[str]:
    """Tables of a JSON object: its scalars in one, each object of objects or list of objects in one of its own."""
    scalars = {key: value for key, value in found.items() if not isinstance(value, (dict, list))}
    parts = (
        [table(["figure", "value"], [[_words(key), _short(value)] for key, value in scalars.items()])]
        if scalars
        else []
    )
    for key, value in found.items():
        title = f"{under}{_words(key)}"
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            columns = list(dict.fromkeys(name for row in value for name in row))
            parts += [
                f"**{title}**",
                table(map(_words, columns), [[_short(row.get(c, "")) for c in columns] for row in value]),
            ]
        elif isinstance(value, list) and value:
            parts += [f"**{title}**: {_short(value)}"]
        elif isinstance(value, dict) and value and all(isinstance(row, dict) for row in value.values()):
            columns = list(dict.fromkeys(name for row in value.values() for name in row))
            columns = [c for c in columns if any(row.get(c) not in (0, None, "") for row in value.values())]
            rows = [[name, *(_short(row.get(c, "")) for c in columns)] for name, row in value.items()]
            parts += [f"**{title}**", table(["", *map(_words, columns)], rows)]
        elif isinstance(value, dict) and any(isinstance(row, (dict, list)) for row in value.values()):
            parts += [f"**{title}**", *figures(value, f"{title}, ")]
        elif isinstance(value, dict) and value:
            parts += [f"**{title}**", table(["", "value"], [[name, _short(row)] for name, row in value.items()])]
    return parts


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(content: str) -> str:
    return " ".join(content.replace("|", "&#124;").split())


def _code(name: str) -> str:
    """As code; by HTML where the text holds what a table's cell may not."""
    return f"<code>{name}</code>" if "|" in name else f"`{name}`"


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _short(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (
        f"{value:,}"
        if isinstance(value, int) and abs(value) >= 10_000
        else f"{value:.6g}"
        if isinstance(value, float)
        else str(value)
    )


def _words(key: str) -> str:
    return key.replace("_", " ")


def _title(heading: str) -> str:
    return heading if heading.endswith(".") else heading + "."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."


def _source(name: str) -> str:
    return (ROOT / "configs" / f"{name}.py").read_text()


def _page(parts: Iterable[str]) -> str:
    """Paragraphs end by WIDTH characters; tables and code stay as they are."""
    return "\n\n".join(
        part if part.startswith(("|", "<!--", "#")) else
        "\n".join(textwrap.wrap(part, WIDTH, break_long_words=False, break_on_hyphens=False))
        for part in parts if part
    ) + "\n"  # fmt: skip


PAGES = {"docs/configs.md": config_page, "docs/results/index.md": results_page}


def out_of_date() -> list[str]:
    """The pages that differ from what their sources make."""
    return [path for path, make in PAGES.items() if not (ROOT / path).is_file() or (ROOT / path).read_text() != make()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page is out of date")
    if parser.parse_args().check:
        for path in (old := out_of_date()):
            print(f"{path} is out of date: python docs/generate.py")
        return int(bool(old))
    for path, make in PAGES.items():
        (ROOT / path).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())
