"""The model card of an exported student: what it is, how to load it, and the figures that its run measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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

A sentence encoder of {params} parameters with {dim}-dimensional vectors, distilled by {method} from `{teacher}`
({teacher_params} parameters).

## Use

```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("{name}")
vectors = model.encode(["a sentence", "another one"])
```

`transformers.AutoModel` and `AutoTokenizer` load the folder too; a text's vector is then the {pooling} of its last
hidden states{after}. At most {max_length} tokens of a text are read.
"""


def write_card(workdir: Path, folder: Path) -> None:
    """README.md in an exported folder, from the run's config.json and, once there is one, its results.json."""
    config = _read(workdir / "config.json")
    results = _read(workdir / "results.json")
    model, pooling = _read(folder / "config.json"), _read(folder / "1_Pooling" / "config.json")
    dense = sorted(folder.glob("*_Dense"))
    dim = _read(dense[-1] / "config.json")["out_features"] if dense else pooling["word_embedding_dimension"]
    steps = ["projected by the Dense module"] * bool(dense) + ["scaled to length one"] * any(folder.glob("*_Normalize"))
    mode = (
        "mean"
        if pooling.get("pooling_mode_mean_tokens")
        else "maximum"
        if pooling.get("pooling_mode_max_tokens")
        else "first"
    )
    text = HEAD.format(
        name=workdir.name,
        params=_count(results, "student"),
        dim=dim,
        method=config.get("method", "jdistill"),
        teacher=config.get("teacher", "its teacher"),
        teacher_params=_count(results, "teacher"),
        pooling=mode,
        after=", " + ", then ".join(steps) if steps else "",
        max_length=_read(folder / "sentence_bert_config.json").get(
            "max_seq_length", model.get("max_position_embeddings")
        ),
    )
    text += _figures(results)
    beside = folder / "README.md.tmp"
    beside.write_text(text)
    beside.replace(folder / "README.md")


def _figures(results: dict[str, Any]) -> str:
    parts: list[str] = []
    sts, teacher = results.get("sts", {}), results.get("teacher_sts", {})
    if sts:
        rows = [
            f"| {task} | {value:.2f} | {teacher[task]:.2f} | {100 * value / teacher[task]:.1f} % |"
            if task in teacher
            else f"| {task} | {value:.2f} | | |"
            for task, value in sts.items()
        ]
        parts.append(
            "\n## Semantic textual similarity (Spearman x 100)\n\n| task | this model | teacher | kept |\n| --- | --- | --- | --- |\n"
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
            f"\n## Retrieval: {name}\n\n| metric | this model | teacher |\n| --- | --- | --- |\n" + "\n".join(rows)
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
            "\n## Agreement with the teacher on held-out text\n\n| figure | value |\n| --- | --- |\n" + "\n".join(rows)
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
