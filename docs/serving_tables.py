"""docs/serving.md from bench/results/servers.json: a student in each server, as bench/servers.py measured it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markdown_parts import MADE, as_page, code, table

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results" / "servers.json"
# What was not run, and why. The lists were read in their sources, at commits 01a5125 (backends/candle/src/lib.rs) and 0002bff
# (vllm/model_executor/models/registry.py).
NOT_RUN = {
    "text-embeddings-inference": "its image needs Docker. Its sources list BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, MPNet, "
    "ModernBERT, NomicBERT, Gemma 3, Llama, Mistral, Qwen2 and Qwen3, some on GPUs alone, and no ELECTRA: a student of whole layers has a "
    "layout that it lists, a compact one has not. By its sources, too: a pooler of several layers it has not, and takes the first token in its "
    "place unless `onnx/model.onnx` lies in the folder; NomicBERT needs a version after 1.9.3",
    "vLLM": "its CPU build is compiled from source. Its sources list BERT, RoBERTa, XLM-RoBERTa, ModernBERT, NomicBERT, Gemma 3, Llama, "
    "Mistral and Qwen2, and no ELECTRA: likewise",
    "Ollama": "it runs llama.cpp, whose rows stand above",
    "Vespa": "by its pages its `hugging-face-embedder` takes `onnx/model.onnx` and `tokenizer.json`, pools the graph's `last_hidden_state` "
    "by mean or cls itself, and is told `max-tokens`, `normalize` and `prepend`: a student with a Dense does not fit",
    "Elasticsearch": "by its pages eland takes BERT, RoBERTa, MPNet and ELECTRA; else it stores vectors that were made elsewhere",
    "Qdrant": "it stores vectors that were made elsewhere; its fastembed stands above",
}
NOTES = [
    "OpenVINO computes in bfloat16 where the processor has it, unless it is told otherwise: "
    '`SentenceTransformer(..., backend="openvino", model_kwargs={"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}})`.',
    "The memory of transformers.js is to be measured again: what stood there was that of the process that started it.",
    "ONNX Runtime alone and fastembed pool by the graph or by themselves; both need no torch.",
    "llama.cpp reads no ELECTRA, and so not the first student: [export](export.md#llamacpp-and-ollama). Its rows are of untrained students, "
    "made by `bench/gguf_models.py`; it computes BERT's GELU by tanh, and keeps a decoder's keys and values in float16.",
]
HEAD = ["server", "loads", "largest difference", "memory, MB", "versions"]


def serving_page() -> str:
    """docs/serving.md."""
    measured = json.loads(RESULTS.read_text())
    parts = [
        "# Servers",
        MADE,
        "Where an exported student loads, each server really started in an environment of its own: the largest difference of a number "
        "of its vectors, of length one, from jdistill's own; and the most memory that its process held. "
        "Infinity and LlamaIndex scale all vectors to length one, also those of a student that does not: its inner products are cosines there.",
        f"<!-- not run: makes an environment for each server -->\n```bash\n{measured['command']}\n```",
        f"{measured['sentences']:,} sentences, {measured['machine']}, commit {code(measured['commit'])}. The bench writes rates too; they "
        "were taken beside other work here, and are not shown.",
    ]
    for student, servers in measured["students"].items():
        told = [figures for figures in servers.values() if "least_cosine" in figures]
        head = [*HEAD[:3], "least cosine", *HEAD[3:]] if told else HEAD
        parts += [f"## {student}"]
        if told:  # a row may be of another text and commit than the others
            of_rows = dict.fromkeys(
                f"{figures['sentences']:,} sentences, commit {code(figures['commit'])}" for figures in told
            )
            parts += [f"{', '.join(of_rows)}."]
        parts += [table(head, [_row(name, figures, bool(told)) for name, figures in servers.items()])]
        parts += [f"{name}: {figures['error']}" for name, figures in servers.items() if not figures["loads"]]
    rows = [[name, why] for name, why in NOT_RUN.items()]
    return as_page([*parts, *NOTES, "## Not run", table(["server", "why"], rows)])


def _row(name: str, figures: dict[str, Any], cosine: bool) -> list[str]:
    """cosine: whether the table has a column for it."""
    if not figures["loads"]:
        return [name, "no", *[""] * (len(HEAD) - 2 + cosine)]
    versions = ", ".join(f"{library} {version}" for library, version in figures["versions"].items())
    least = [f"{figures['least_cosine']:.6f}" if "least_cosine" in figures else ""] if cosine else []
    memory = f"{figures['peak_mb']:,.0f}" if "peak_mb" in figures else ""
    return [name, "yes", f"{figures['largest_difference']:.1e}", *least, memory, versions]
