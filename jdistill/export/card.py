"""The model card of an exported student: what it is, how to load it, and the figures that its run measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jdistill.core.files import write_bytes
from jdistill.core.printable import printable, without_secrets
from jdistill.encoder.formats.body import body_of, split_modules
from jdistill.encoder.formats.modules import read_modules
from jdistill.encoder.formats.st_reader import read_pooler
from jdistill.encoder.formats.st_writer import BIDIRECTIONAL_FILE, is_built_in
from jdistill.encoder.text_encoder import prompt_named
from jdistill.export.card_folder import max_length, served_model
from jdistill.export.card_metadata import UNRELEASED, Release, metadata
from jdistill.export.card_servers import ServedModel, server_sections
from jdistill.export.card_text import code_span, figure_sections, plain
from jdistill.export.onnx.runtime import INT8_NAMES
from jdistill.models.pooling import POOLERS
from jdistill.report.facts import of_search

HEAD = """
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
{vocabulary}"""
VOCABULARY = """
Its vocabulary is {pieces:,} of the {of:,} pieces that it started from, {which}, which leaves out {saved_percent:.0f} %
of the parameters. Other text is read by smaller pieces, or as unknown.
"""
LOADS = "`transformers.AutoModel` and `AutoTokenizer` load the folder too. "
OF_A_SEARCH = "Of a search `model.encode_query` encodes the questions and `model.encode_document` the passages, each with its own prompt. "
OF_ONE_SIDE = "Of a search `model.{method}` puts a prompt before the {what}; the {others} have none of their own. "
SIDES = {"query": ("encode_query", "questions"), "document": ("encode_document", "passages")}
RECURRENT = (
    "`encode_query` and `encode_document` hand a role to its tokenizer, which fails on it; `encode` with `prompt_name` puts "
    "the same prompt before the texts. "
)
BOTH_WAYS = (
    "`transformers.AutoModel` alone reads it both ways from transformers 5 on; older ones may read it left to right. "
)
BOTH_WAYS_BY_CODE = (
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
ONNX_INT8_ROW = "- `{file}`, for ONNX Runtime; tokens in, finished vectors out."
BY_BACKEND = """ sentence-transformers takes it by
  `backend="onnx", model_kwargs={{"file_name": "{file}"}}`."""
TORCH_INT8_ROW = """- `{file}`, for torch on CPU: `SentenceTransformer({path}, trust_remote_code=True)`, from sentence-transformers 5.4 on; the
  folder carries `int8_transformer.py`."""
ONNX_DATA = """
## ONNX

{rows}
"""
ONNX_DATA_ROW = "- `onnx/{graph}` keeps its weights in `onnx/{data}` beside it: a copy needs both files."
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


def write_card(
    workdir: Path,
    folder: Path,
    measured: str = "",
    results: dict[str, Any] | None = None,
    release: Release = UNRELEASED,
    num_params: int = 0,
) -> None:
    """Writes README.md into an exported folder.

    Args:
      workdir: the run's folder, of which config.json is read.
      folder: the export.
      measured: what the run's figures are of, where they are not of this folder; the card then has none.
      results: of the run; None: its results.json, once there is one.
      release: what no run knows, such as the licence.
      num_params: of the folder's model, where the run's results are not of it; 0: they say it.
    """
    config = _read(workdir / "config.json")
    results = of_search(_read(workdir / "results.json") if results is None else results, config)
    modules = read_modules(folder)
    architecture, own, after = split_modules(folder, modules)
    sizes = architecture.read_config(body_of(own))
    pooling, rest = read_pooler(folder, after, sizes, own)
    dense = [module.folder for module in rest if module.kind == "Dense"]
    dim = _read(dense[-1] / "config.json")["out_features"] if dense else POOLERS[pooling].width(sizes.hidden_size)
    steps = ["projected by the Dense module"] * bool(dense) + ["scaled to length one"] * any(
        module.kind == "Normalize" for module in rest
    )
    code = sorted(path.name for path in folder.glob("*.py"))
    place = release.repository or f"path/to/{printable(workdir.resolve().name)}"
    served = served_model(folder, release.repository, place)
    own_results = {name: results[name] for name in ("base_model",) if name in results} if measured else results
    name = workdir.resolve().name
    text = metadata(name, config, own_results, release) + HEAD.format(
        name=plain(name),
        quoted=json.dumps(place, ensure_ascii=False),
        params=_millions(num_params or results.get("student", {}).get("num_params")),
        dim=dim,
        method=plain(str(config.get("method", "jdistill"))),
        made="distilled" if config.get("teacher", "teacher") else "trained, without a teacher,",
        teacher=code_span(
            without_secrets(str(config.get("teacher", "its teacher") or config.get("start", "its start")))
        ),
        teacher_params=_millions(results.get("teacher", {}).get("num_params")),
        pooling=described(pooling, sizes.num_layers),
        trust=", trust_remote_code=True" if code else "",
        after=", " + ", then ".join(steps) if steps else "",
        max_length=max_length(own[0].folder / architecture.length_file, sizes.usable_positions),
        vocabulary=VOCABULARY.format(**cut, which=_kept_pieces(config))
        if (cut := results.get("student", {}).get("vocabulary"))
        else "",
        loads=_loads(architecture.recurrent, _both_ways(folder) if BIDIRECTIONAL_FILE in code else "", served),
    )
    # A transformer of our own is none that another pooler would spare.
    spared = code and not is_built_in(pooling) and BIDIRECTIONAL_FILE not in code
    text += TRUST.format(files=", ".join(code), plain=PLAIN if spared else "") if code else ""
    text += PAIRS if (folder / "interaction.py").is_file() else ""
    text += server_sections(served) + _further_files(folder, served)
    text += NOT_MEASURED.format(what=measured) if measured and results else figure_sections(own_results, config)
    write_bytes(folder / "README.md", text.encode("utf-8", "replace"))


def _kept_pieces(config: dict[str, Any]) -> str:
    """Which pieces a cut vocabulary has: those of the text, or as many as a size allows."""
    asked = str(config.get("student", {}).get("vocabulary", ""))
    return "those that its training text used most" if asked.isdecimal() else "those that its training text used"


def _both_ways(folder: Path) -> str:
    """What AutoModel makes of a decoder that reads both ways by code in the folder: by its config too, unless it has windows."""
    return BOTH_WAYS if _read(folder / "config.json").get("is_causal") is False else BOTH_WAYS_BY_CODE


def _loads(recurrent: bool, both_ways: str, served: ServedModel) -> str:
    """What other than SentenceTransformer's encode loads the folder, or would be thought to. both_ways: _both_ways, "": it has no such code."""
    if recurrent:
        return RECURRENT
    roles = _of_a_search(served.prompts)
    if both_ways:
        return roles + both_ways
    return roles + (LOADS if served.by_auto_model else "")


def _of_a_search(prompts: Mapping[str, str]) -> str:
    """Which sides of a search have a prompt; empty where none has."""
    named = [role for role in SIDES if prompt_named(prompts, role)]
    if len(named) == 1:
        (method, what), (other,) = SIDES[named[0]], SIDES.keys() - named
        return OF_ONE_SIDE.format(method=method, what=what, others=SIDES[other][1])
    return OF_A_SEARCH if named else ""


def _further_files(folder: Path, served: ServedModel) -> str:
    """The sections on int8 forms and on data files of ONNX graphs, as far as the folder holds any."""
    graphs = sorted(path for name in INT8_NAMES for path in (folder / "onnx").glob(f"{name}*.onnx"))
    row = ONNX_INT8_ROW + (BY_BACKEND if served.by_backends else "")
    int8 = [row.format(file=f"onnx/{path.name}") for path in graphs]
    int8 += [
        TORCH_INT8_ROW.format(path=served.inside(path.name), file=path.name)
        for path in sorted(folder.glob("torch_int8*"))
    ]
    data = [
        ONNX_DATA_ROW.format(graph=path.name.removesuffix("_data"), data=path.name)
        for path in sorted((folder / "onnx").glob("*.onnx_data"))
    ]
    sections = ((INT8, int8), (ONNX_DATA, data))
    return "".join(section.format(rows="\n".join(rows)) for section, rows in sections if rows)


def described(pooling: str, num_layers: int) -> str:
    """A pooler in words."""
    pooler = POOLERS[pooling]
    layers = pooler.states(num_layers)
    tokens = TOKENS[pooler.over_tokens]
    if layers == (num_layers,):
        return f"{tokens} of the last hidden state" if "over" in tokens else f"{tokens} last hidden state"
    return f"{tokens} of {JOINED[pooler.over_layers]} hidden states {', '.join(map(str, layers))} (0: the embedding layer's output)"


def _millions(count: int | None) -> str:
    return f"{count / 1e6:.1f} million" if count else "an unknown number of"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}
