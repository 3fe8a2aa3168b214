"""How a card says that other tools load a student: a snippet for each server in whose table it stands (docs/serving.md) and that fits it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jdistill.export.card_text import code_span

PYTHON, SHELL, NODE = "python", "bash", "js"


@dataclass(frozen=True)
class ServedModel:
    """What decides which servers load a student, and how they are told to.

    Args:
      place: its folder, or its name on the hub.
      on_hub: whether `place` is the latter.
      has_graph: whether onnx/model.onnx lies in it.
      has_code: whether it carries Python files.
      pooling: "mean" or "cls" over the last layer and nothing after it but Normalize, as tools that pool by themselves can; "": any other.
      by_older_transformers: whether transformers 4 reads it too, with which Infinity comes.
      by_auto_model: whether transformers' AutoModel makes of the folder what computes its token states.
      last_layer: whether its pooler reads the last layer alone, as sentence-transformers' other backends give it.
      normalize: whether its vectors have length one.
      tokenizer_file: path of its tokenizer.json in the folder.
      max_length: tokens of a text that it reads.
      cut_at_front: whether of a longer text it reads the last tokens, not the first.
      hidden_size: of its layers.
      prompt: what stands before a text where the caller asks for nothing.
      prompts: by name, those that are not empty, such as what a search puts before its questions and passages.
    """

    place: str
    on_hub: bool
    has_graph: bool
    has_code: bool
    pooling: str
    by_older_transformers: bool
    by_auto_model: bool
    last_layer: bool
    normalize: bool
    tokenizer_file: str
    max_length: int
    cut_at_front: bool
    hidden_size: int
    prompt: str
    prompts: Mapping[str, str]

    @property
    def quoted(self) -> str:
        """`place` as Python and JavaScript write it."""
        return json.dumps(self.place, ensure_ascii=False)

    @property
    def by_backends(self) -> bool:
        """Whether sentence-transformers loads it by its onnx and openvino backends."""
        return self.by_auto_model and self.last_layer and not self.has_code

    def inside(self, name: str) -> str:
        """Python for the path of a folder in it, which on the hub is no model's name."""
        if self.on_hub:
            return f'snapshot_download({self.quoted}) + "/{name}"'
        return json.dumps(f"{self.place}/{name}", ensure_ascii=False)


def server_sections(model: ServedModel) -> str:
    """The section on servers; empty where no further one loads it."""
    snippets = list(_snippets(model))
    if not snippets:
        return ""
    parts = [f"{title}:\n\n```{language}\n{code.strip()}\n```\n" for title, language, code in snippets]
    prompt = "The prompt is put before a text by sentence-transformers, and by LangChain, which calls it so; others are given it with the text.\n"
    return "\n".join(["\n## Servers\n", *([prompt] if model.prompt else []), *_by_role(model), *parts])


def _by_role(model: ServedModel) -> Iterator[str]:
    """What tools that know no roles are told of a model's prompts; nothing of one that has none but its default."""
    prompts = sorted(model.prompts.items())
    shown = [f"{code_span(name)}: {code_span(json.dumps(text, ensure_ascii=False))}" for name, text in prompts]
    if set(model.prompts.values()) - {model.prompt}:
        yield f"Its prompts are {', '.join(shown)}; tools that know no roles are given them with the text.\n"


def _snippets(model: ServedModel) -> Iterator[tuple[str, str, str]]:
    """(title, language, code) of each server that loads the model."""
    if model.by_backends:
        if model.has_graph:
            yield "sentence-transformers by ONNX Runtime (`optimum-onnx[onnxruntime]`)", PYTHON, _backend(model, "onnx")
        yield "sentence-transformers by OpenVINO (`optimum-intel[openvino]`)", PYTHON, _backend(model, "openvino")
    if model.by_auto_model and model.pooling and not model.has_code:
        yield "transformers alone", PYTHON, _auto_model(model)
    if model.has_graph:
        yield "ONNX Runtime alone, which pools by the graph", PYTHON, _onnxruntime(model)
    if model.by_auto_model and model.has_graph and model.pooling and not model.cut_at_front:
        yield "fastembed", PYTHON, _fastembed(model)
        yield "transformers.js (`@huggingface/transformers`)", NODE, _transformers_js(model)
    if not model.has_code:
        yield "LangChain (`langchain-huggingface`)", PYTHON, _langchain(model)
        yield "LlamaIndex (`llama-index-embeddings-huggingface`)", PYTHON, _llama_index(model)
    if not model.has_code and model.by_older_transformers:
        yield "Infinity (`infinity-emb[server,torch]`)", SHELL, _infinity(model)


def _backend(model: ServedModel, backend: str) -> str:
    keywords = {
        "onnx": '{"provider": "CPUExecutionProvider", "file_name": "onnx/model.onnx"}',
        "openvino": '{"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}',
    }
    return f"""
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({model.quoted}, backend="{backend}", model_kwargs={keywords[backend]})
vectors = model.encode(["a sentence", "another one"])
"""


def _folder(model: ServedModel) -> str:
    """Lines that give `folder`."""
    if model.on_hub:
        return f"from huggingface_hub import snapshot_download\nfolder = snapshot_download({model.quoted})"
    return f"folder = {model.quoted}"


def _auto_model(model: ServedModel) -> str:
    pooled = {
        "mean": "(states * mask).sum(1) / mask.sum(1)",
        "cls": "states[:, 0]",
    }[model.pooling]
    scaled = "\nvectors = torch.nn.functional.normalize(vectors)" if model.normalize else ""
    return f"""
import torch
from transformers import AutoModel, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained({model.quoted}), AutoModel.from_pretrained({model.quoted}).eval()
texts = ["a sentence", "another one"]
tokens = tokenizer(texts, padding=True, truncation=True, max_length={model.max_length}, return_tensors="pt")
with torch.no_grad():
    states, mask = model(**tokens).last_hidden_state, tokens["attention_mask"].unsqueeze(-1)
vectors = {pooled}{scaled}
"""


def _onnxruntime(model: ServedModel) -> str:
    return f"""
import numpy as np
import onnxruntime
from tokenizers import Tokenizer
{_folder(model)}
tokenizer = Tokenizer.from_file(f"{{folder}}/{model.tokenizer_file}")
tokenizer.enable_truncation({model.max_length}{', direction="left"' if model.cut_at_front else ""})
session = onnxruntime.InferenceSession(f"{{folder}}/onnx/model.onnx")
ids = np.array([tokenizer.encode("a sentence").ids])
feeds = {{"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}}
names = [taken.name for taken in session.get_inputs()]
vectors = session.run(["sentence_embedding"], {{name: feeds[name] for name in names}})[0]
"""


def _fastembed(model: ServedModel) -> str:
    return f"""
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
{_folder(model)}
TextEmbedding.add_custom_model(
    model="local/student", pooling=PoolingType.{model.pooling.upper()}, normalization={model.normalize}, dim={model.hidden_size},
    sources=ModelSource(url="https://localhost/never-asked"), model_file="onnx/model.onnx",
)
model = TextEmbedding("local/student", specific_model_path=folder)
vectors = list(model.embed(["a sentence", "another one"]))
"""


def _transformers_js(model: ServedModel) -> str:
    name, local = model.quoted, ""
    if not model.on_hub:
        above, _, last = model.place.rpartition("/")
        name = json.dumps(last, ensure_ascii=False)
        local = f"env.allowRemoteModels = false;\nenv.localModelPath = {json.dumps(above + '/', ensure_ascii=False)};\n"
    options = f'{{ pooling: "{model.pooling}", normalize: {str(model.normalize).lower()} }}'
    return f"""
import {{ pipeline{"" if model.on_hub else ", env"} }} from "@huggingface/transformers";
{local}const extract = await pipeline("feature-extraction", {name}, {{ dtype: "fp32" }});
const vectors = await extract(["a sentence", "another one"], {options});
"""


def _langchain(model: ServedModel) -> str:
    return f"""
from langchain_huggingface import HuggingFaceEmbeddings
vectors = HuggingFaceEmbeddings(model_name={model.quoted}).embed_documents(["a sentence", "another one"])
"""


def _llama_index(model: ServedModel) -> str:
    return f"""
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
vectors = HuggingFaceEmbedding(model_name={model.quoted}).get_text_embedding_batch(["a sentence", "another one"])
"""


def _infinity(model: ServedModel) -> str:
    return f"infinity_emb v2 --model-id {shlex.quote(model.place)} --engine torch --port 7997 --no-bettertransformer"
