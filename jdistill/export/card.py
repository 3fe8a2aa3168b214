"""The model card of an exported student: what it is, how to load it, and the figures that its run measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jdistill.core.files import write_bytes
from jdistill.core.printable import printable
from jdistill.encoder.formats.body import body_of, split_modules
from jdistill.encoder.formats.modules import read_modules
from jdistill.encoder.formats.st_reader import read_pooler
from jdistill.encoder.formats.st_writer import TRANSFORMER, is_built_in
from jdistill.models.pooling import POOLERS

HEAD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
- feature-extraction
- jdistill
---

# {name}

A sentence encoder of {params} parameters with {dim}-dimensional vectors, {made} by {method} from {teacher}
({teacher_params} parameters).

## Use

```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({quoted}{trust})
vectors = model.encode(["a sentence", "another one"])
```

{loads}A text's vector is {pooling}{after}. At most {max_length} tokens of a text are read.
"""
LOADS = "`transformers.AutoModel` and `AutoTokenizer` load the folder too. "
BOTH_WAYS = (
    "`transformers.AutoModel` alone would read it left to right: that it reads both ways is in the folder's own code. "
)
TRUST = """
The folder carries code of its own ({files}), which sentence-transformers runs only with `trust_remote_code=True`, from a
local folder too.{plain}
"""
PLAIN = " `python -m jdistill.export --plain` writes the nearest pooler that needs none."
NOT_MEASURED = """
## Figures

None: the run measured {what}, which this is not. `python -m jdistill.evaluate` measures this folder.
"""
INT8 = """
## int8

{rows}
"""
INT8_GRAPH = "- `{file}`, for ONNX Runtime; tokens in, finished vectors out."
INT8_FOLDER = """- `{file}`, for torch on CPU: `SentenceTransformer("{name}/{file}", trust_remote_code=True)`; the folder carries
  `int8_transformer.py`."""
PAIRS = """
## Scores of pairs

The last module scores a query and a passage from their vectors, better than their cosine does:

```python
logits = model[-1].score(model, ["a query"], ["a passage"], symmetric=False)  # True: do the two say the same?
```
"""
JOINED = {"mean": "the mean of", "max": "the element-wise maximum over", "concat": "the concatenation of"}
TOKENS = {
    "mean": "the mean over its tokens",
    "max": "the maximum over its tokens",
    "cls": "the first token's",
    "lasttoken": "the last token's",
    "final": "the last token's forwards and the first token's backwards",
    "pma": "a learnt multihead attention (PMA) over its tokens",
}


def write_card(workdir: Path, folder: Path, measured: str = "", results: dict[str, Any] | None = None) -> None:
    """README.md in an exported folder, from the run's config.json and its results (None: its results.json, once there is one). measured: what
    the run's figures are of, where they are not of this folder."""
    config = _read(workdir / "config.json")
    results = _read(workdir / "results.json") if results is None else results
    modules = read_modules(folder)
    architecture, own, after = split_modules(folder, modules)
    sizes = architecture.read_config(body_of(own))
    pooling, rest = read_pooler(folder, after, sizes, own)
    limit = _read(own[0].folder / architecture.length_file).get("max_seq_length", sizes.usable_positions)
    dense = [module.folder for module in rest if module.kind == "Dense"]
    dim = _read(dense[-1] / "config.json")["out_features"] if dense else POOLERS[pooling].width(sizes.hidden_size)
    steps = ["projected by the Dense module"] * bool(dense) + ["scaled to length one"] * any(
        module.kind == "Normalize" for module in rest
    )
    code = sorted(path.name for path in folder.glob("*.py"))
    text = HEAD.format(
        name=plain(workdir.resolve().name),
        quoted=json.dumps(printable(workdir.resolve().name), ensure_ascii=False),
        params=_count(results, "student"),
        dim=dim,
        method=plain(str(config.get("method", "jdistill"))),
        made="distilled" if config.get("teacher", "teacher") else "trained, without a teacher,",
        teacher=code_span(str(config.get("teacher", "its teacher") or config.get("start", "its start"))),
        teacher_params=_count(results, "teacher"),
        pooling=described(pooling, sizes.num_layers),
        trust=", trust_remote_code=True" if code else "",
        after=", " + ", then ".join(steps) if steps else "",
        max_length=limit,
        loads="" if architecture.recurrent else BOTH_WAYS if TRANSFORMER in code else LOADS,
    )
    # A transformer of our own is none that another pooler would spare.
    spared = code and not is_built_in(pooling) and TRANSFORMER not in code
    text += TRUST.format(files=", ".join(code), plain=PLAIN if spared else "") if code else ""
    text += PAIRS if (folder / "interaction.py").is_file() else ""
    rows = [INT8_GRAPH.format(file=f"onnx/{path.name}") for path in sorted((folder / "onnx").glob("model_int8*.onnx"))]
    rows += [
        INT8_FOLDER.format(name=printable(workdir.resolve().name), file=path.name)
        for path in sorted(folder.glob("torch_int8*"))
    ]
    text += INT8.format(rows="\n".join(rows)) if rows else ""
    text += NOT_MEASURED.format(what=measured) if measured and results else _figures(results, config)
    write_bytes(folder / "README.md", text.encode("utf-8", "replace"))


def plain(text: str) -> str:
    """A name of somebody else's as Markdown that shows it letter by letter, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&])", r"\\\1", printable(text))


def code_span(text: str) -> str:
    """The same as code, fenced by more backticks than it holds in a row."""
    shown = printable(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    space = " " if "`" in shown else ""
    return f"{fence}{space}{shown}{space}{fence}"


def described(pooling: str, num_layers: int) -> str:
    """A pooler in words."""
    pooler = POOLERS[pooling]
    layers = pooler.states(num_layers)
    tokens = TOKENS[pooler.over_tokens]
    if layers == (num_layers,):
        return f"{tokens} of the last hidden state" if "over" in tokens else f"{tokens} last hidden state"
    return f"{tokens} of {JOINED[pooler.over_layers]} hidden states {', '.join(map(str, layers))} (0: the embedding layer's output)"


def _figures(results: dict[str, Any], config: dict[str, Any]) -> str:
    parts: list[str] = []
    other = "teacher" if config.get("teacher", "teacher") else "its start"  # without a teacher, what stands beside it
    sts, teacher = results.get("sts", {}), results.get("teacher_sts", {})
    if sts:
        rows = [
            f"| {task} | {value:.2f} | {teacher[task]:.2f} | {100 * value / teacher[task]:.1f} % |"
            if task in teacher
            else f"| {task} | {value:.2f} | | |"
            for task, value in sts.items()
        ]
        parts.append(
            f"\n## Semantic textual similarity (Spearman x 100)\n\n| task | this model | {other} | of it |\n| --- | --- | --- | --- |\n"
            + "\n".join(rows)
        )
    for name, scores in results.get("retrieval", {}).items():
        theirs = results.get("teacher_retrieval", {}).get(name, {})
        rows = [
            f"| {metric} | {value:.4f} | {theirs[metric]:.4f} |"
            if metric in theirs
            else f"| {metric} | {value:.4f} | |"
            for metric, value in scores.items()
        ]
        parts.append(
            f"\n## Retrieval: {plain(name)}\n\n| metric | this model | {other} |\n| --- | --- | --- |\n"
            + "\n".join(rows)
        )
    for name, found in results.get("pairs", {}).items():
        lines = [
            f"| {row} | {of['accuracy']:.2f} | {of['ap']:.2f} | {of['precision']:.2f} | {of['recall']:.2f} |"
            for row, of in found.items()
        ]
        parts.append(
            f"\n## Labelled pairs: {plain(name)}\n\n"
            f"{found['student']['prior']:.1f} % of them are positives, the least average precision there is.\n\n"
            "| | accuracy | average precision | precision | recall |\n| --- | --- | --- | --- | --- |\n"
            + "\n".join(lines)
        )
    agreement = results.get("agreement", {})
    if agreement:
        rows = [
            f"| {label} | {agreement[key]:.4f} |"
            for key, label in (
                ("mean_cosine", "mean cosine"),
                ("spearman", "Spearman of pair cosines x 100"),
                ("pearson", "Pearson of pair cosines x 100"),
                ("top10_overlap", "overlap of the ten nearest, %"),
            )
            if agreement.get(key) is not None
        ]
        parts.append(
            f"\n## Agreement with {other.replace('teacher', 'the teacher')} on held-out text\n\n| figure | value |\n| --- | --- |\n"
            + "\n".join(rows)
        )
    training = results.get("training", {})
    if training:
        parts.append(
            f"\n## Training\n\n{training['sentences']:,} sentences of {training['texts']:,} distinct texts in "
            f"{training['steps']:,} steps on {training['devices']}; {training['removed_evaluation_texts']:,} texts of "
            "evaluation sets were removed first."
        )
    return "\n".join(parts) + "\n" if parts else ""


def _count(results: dict[str, Any], who: str) -> str:
    count = results.get(who, {}).get("num_params")
    return f"{count / 1e6:.1f} million" if count else "an unknown number of"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}
