"""An Encoder's pooling, projections and normalisation as the modules that sentence-transformers loads."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.files import write_json
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.pma import to_torch
from jdistill.encoder.formats.tensors import write_tensors
from jdistill.encoder.formats.tokenizer import begins_in_lower_case
from jdistill.encoder.text_encoder import PROMPT_NAMES
from jdistill.models.architecture import BUILT_IN
from jdistill.models.pma import heads_for
from jdistill.models.pooling import POOLERS
from jdistill.models.registry import architecture_of

MODES = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "lasttoken": "lasttoken"}
TORCH_ACTIVATIONS = {"Identity": "torch.nn.modules.linear.Identity", "Tanh": "torch.nn.modules.activation.Tanh"}
# What transformers takes from the truncation and padding in a start's tokenizer.json; others cut at a max_length before model_max_length.
# auto_map names a class of the start's own, which was not run here, and which an export is not to have run elsewhere.
OF_ITS_START = ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of", "auto_map")
CUSTOM = Path(__file__).parent / "st_modules"  # modules of ours that sentence-transformers runs from the folder


# Names of the files that an export may hold.
WRITTEN = (
    "*.safetensors", "*.py", "README.md", "config.json", "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json",
    "*tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "*.jinja",
    "head.json", "[0-9]_*/*.json", "[0-9]_*/vocab.txt", "[0-9]_*/merges.txt", "onnx/*.onnx", "onnx/*.onnx_data", "gguf/*.gguf",
    "torch_int8*/*",
)  # fmt: skip


@dataclass(frozen=True)
class ModuleContent:
    """One row of modules.json, and what its folder holds.

    Args:
      type: as modules.json has it.
      settings: the content of its config.json; None: it has none.
      tensors: float32, by torch's names.
    """

    type: str
    settings: dict[str, Any] | None = None
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The last part of the type."""
        return self.type.rsplit(".", 1)[-1]


BIDIRECTIONAL_FILE = "bidirectional_transformer.py"  # what a decoder that reads both ways carries


def is_built_in(pooling: str) -> bool:
    """Whether sentence-transformers computes this pooler without code of ours, and so without trust_remote_code."""
    return POOLERS[pooling].over_layers == "mean" and POOLERS[pooling].over_tokens in MODES


def nearest_built_in(pooling: str) -> str:
    """The pooler itself if it is built in, else the mean over the same layers (or tokens), or an LSTM's maximum over time."""
    if is_built_in(pooling):
        return pooling
    if pooling in ("final", "pma"):
        return "max" if pooling == "final" else "mean"
    return pooling.replace("max_", "avg_", 1).replace("concat_", "avg_", 1)


def save_tokenizer(model: Encoder, folder: Path) -> None:
    """The tokenizer's files, the same whatever it was used for before, and cut at the model's length alone."""
    tokenizer = model.tokenizer
    tokenizer.backend_tokenizer.no_truncation()  # both are the state of the last call, such as one of the teacher's length
    tokenizer.backend_tokenizer.no_padding()
    longest, settings = tokenizer.model_max_length, tokenizer.init_kwargs
    try:
        tokenizer.model_max_length = model.max_length
        tokenizer.init_kwargs = {name: value for name, value in settings.items() if name not in OF_ITS_START}
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length, tokenizer.init_kwargs = longest, settings
    _name_as_before(folder / "tokenizer_config.json")


def _name_as_before(path: Path) -> None:
    """Gives a tokenizer's settings the names that transformers 4 knows, which servers run; transformers 5 reads either."""
    settings = json.loads(path.read_text())
    renamed = dict(settings)
    if renamed.get("tokenizer_class") == "TokenizersBackend":
        renamed["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(renamed.get("extra_special_tokens"), list):
        renamed["additional_special_tokens"] = renamed.pop("extra_special_tokens")
    if renamed != settings:
        write_json(path, renamed)


def custom_files(model: Encoder) -> list[str]:
    """Names of the Python files that the export carries; with any, sentence-transformers asks for trust_remote_code."""
    of_pooler = {"final": "final_states.py", "pma": "pma_pooling.py"}.get(model.pooling, "layer_pooling.py")
    files = [] if is_built_in(model.pooling) else [of_pooler]
    kinds = [kind for kind, _ in architecture_of(model.config).modules(model.config)]
    return files + [f"{kind.partition('.')[0]}.py" for kind in kinds if not kind.startswith(BUILT_IN)]


def needs_all_layers(pooling: str) -> bool:
    """Whether it takes more than the last hidden state, so that config.json must ask for all of them."""
    return POOLERS[pooling].layers != (-1,)


def pooling_modules(pooling: str, num_layers: int, hidden_size: int, params: dict[str, Any]) -> list[ModuleContent]:
    """The modules that a pooler is written as: Pooling alone, WeightedLayerPooling and Pooling, or one of our own.

    Args:
      pooling: a name in models.pooling.POOLERS.
      num_layers, hidden_size: of the model.
      params: the pooler's, {} for one without.
    """
    pooler = POOLERS[pooling]
    if pooling == "pma":
        about = {"embedding_dimension": hidden_size, "heads": heads_for(hidden_size)}
        return [ModuleContent("pma_pooling.PmaPooling", about, to_torch(params))]
    layers = pooler.states(num_layers)
    if pooling == "final":
        return [ModuleContent("final_states.FinalStates", {"embedding_dimension": hidden_size})]
    if not is_built_in(pooling):
        settings = {"embedding_dimension": hidden_size, "layers": list(layers), "over_layers": pooler.over_layers}
        return [ModuleContent("layer_pooling.LayerPooling", settings)]
    flags = {f"pooling_mode_{name}": mode == pooler.over_tokens for mode, name in MODES.items()}
    last = ModuleContent(f"{BUILT_IN}Pooling", {"word_embedding_dimension": hidden_size} | flags)
    if not needs_all_layers(pooling):
        return [last]
    weights = np.zeros(num_layers + 1, np.float32)
    weights[list(layers)] = 1.0
    settings = {"word_embedding_dimension": hidden_size, "num_hidden_layers": num_layers, "layer_start": 0}
    return [ModuleContent(f"{BUILT_IN}WeightedLayerPooling", settings, {"layer_weights": weights}), last]


def modules_of(model: Encoder) -> list[ModuleContent]:
    """Everything after the transformer, in order."""
    modules = pooling_modules(model.pooling, model.config.num_layers, model.config.hidden_size, model.pooler)
    if not model.include_prompt and modules[-1].kind == "Pooling":  # the only one that can leave a prompt out
        modules[-1] = replace(modules[-1], settings=(modules[-1].settings or {}) | {"include_prompt": False})
    width = model.pooled_width
    for layer, activation in zip(model.dense, model.dense_activations, strict=True):
        kernel = np.asarray(layer["kernel"], np.float32)
        settings = {
            "in_features": width,
            "out_features": kernel.shape[1],
            "bias": "bias" in layer,
            "activation_function": TORCH_ACTIVATIONS[activation],
        }
        tensors = {"linear.weight": np.ascontiguousarray(kernel.T)}
        if "bias" in layer:
            tensors["linear.bias"] = np.asarray(layer["bias"], np.float32)
        modules.append(ModuleContent(f"{BUILT_IN}Dense", settings, tensors))
        width = kernel.shape[1]
    return [*modules, ModuleContent(f"{BUILT_IN}Normalize")] if model.normalize else modules


def special_ids(model: Encoder) -> dict[str, int]:
    """config.json's ids of the architecture's special_ids; of one that the tokenizer lacks its like at a text's same end, or padding's."""
    like = {"bos": "cls", "cls": "bos", "eos": "sep", "sep": "eos"}
    ids: dict[str, int] = {}
    for name in architecture_of(model.config).special_ids:
        either = [getattr(model.tokenizer, f"{each}_token_id", None) for each in (name, like[name])]
        ids[f"{name}_token_id"] = next((each for each in either if each is not None), max(model.config.pad_token_id, 0))
    return ids


def write_body(model: Encoder, folder: Path) -> None:
    """The files of what computes token states, and its tokenizer, weights excepted."""
    architecture = architecture_of(model.config)
    for name, content in architecture.files(model.config, model.max_length).items():
        if name == "config.json":
            content = content | special_ids(model)
        if name == "config.json" and needs_all_layers(model.pooling):
            content = content | {"output_hidden_states": True}
        if "do_lower_case" in content:
            content = content | {"do_lower_case": begins_in_lower_case(model.tokenizer)}
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / name, content)
    save_tokenizer(model, folder / architecture.modules(model.config)[0][1])


def write_modules(model: Encoder, folder: Path) -> None:
    """modules.json and a folder for each module after those that compute token states, weights excepted."""
    body = architecture_of(model.config).modules(model.config)
    rows = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (kind, path) in enumerate(body)]
    for idx, module in enumerate(modules_of(model), len(rows)):
        path = f"{idx}_{module.kind}"
        rows.append({"idx": idx, "name": str(idx), "path": path, "type": module.type})
        (folder / path).mkdir(exist_ok=True)
        if module.settings is not None:
            write_json(folder / path / "config.json", module.settings)
        if module.kind == "WeightedLayerPooling":  # not trained: part of the contract, and so written with it
            write_tensors(module.tensors, folder / path / "model.safetensors")
    for name in custom_files(model):
        shutil.copyfile(CUSTOM / name, folder / name)
    write_json(folder / "modules.json", rows)


def write_module_weights(model: Encoder, folder: Path) -> None:
    """The tensors of every module that has some."""
    for idx, module in enumerate(modules_of(model), len(architecture_of(model.config).modules(model.config))):
        if module.tensors:
            path = folder / f"{idx}_{module.kind}" / "model.safetensors"
            write_tensors(module.tensors, path)


def prompts_by_role(model: Encoder) -> dict[str, str]:
    """The model's prompts with those of the roles under the names by which sentence-transformers' encode_query and encode_document take them,
    "query" and "document": it knows both of any model, so that "passage" alone would never be asked for.

    Where there is a default, a role without a prompt has an empty one, which releases before 6 need to leave the default out.
    """
    prompts = dict(model.prompts)
    for role in PROMPT_NAMES:
        if (text := model.prompt_text(model.prompt_for(role))) or model.default_prompt:
            prompts[role] = text
    return prompts


def write_files(model: Encoder, folder: Path) -> None:
    """The encode contract in sentence-transformers' layout, weights excepted: architecture, tokenizer, pooling, prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    write_body(model, folder)
    write_modules(model, folder)
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "prompts": prompts_by_role(model),
            "default_prompt_name": model.default_prompt,
            "similarity_fn_name": "cosine",
        },
    )


def write_weights(model: Encoder, folder: Path) -> None:
    """model.safetensors of the encoder and of each module that has weights."""
    for name, tensors in architecture_of(model.config).tensor_files(model.config, model.params).items():
        write_tensors(tensors, folder / name)
    write_module_weights(model, folder)
