"""Low-rank adapters in a folder as PEFT writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.core.json_files import read_settings
from jdistill.core.types import Array
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.modules import ADAPTER_FILE
from jdistill.encoder.formats.tensors import float_tensor, load_tensors, write_tensors
from jdistill.models.lora import Adapters, merge
from jdistill.models.registry import ModelConfig, architecture_of, names_of

# Settings of PEFT's of adapters that compute something else.
OTHER_KINDS = (
    "use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "alora_invocation_tokens", "use_qalora", "use_bdlora", "kasa_config",
    "monteclora_config", "velora_config", "arrow_config",
)  # fmt: skip
BASE_KEEPING = (
    None,
    True,
    False,
    "gaussian",
    "orthogonal",
    "eva",
)  # init_lora_weights that leave the base's weights as they are


def torch_names(config: ModelConfig) -> dict[str, str]:
    """Flax path -> the tensor's name in torch, of every parameter: what PEFT's names of adapters are made of."""
    return {path: name for path, (name, _) in names_of(config).items()}


def save_adapters(
    folder: Path, adapters: Mapping[str, Mapping[str, Array]], alpha: float, names: Mapping[str, str]
) -> None:
    """Writes adapter_model.safetensors and adapter_config.json as PEFT has them for a causal language model, whose body is called model.

    Args:
      folder: made if absent.
      adapters: Flax path of a kernel -> {"A" [in, rank], "B" [rank, out]}.
      alpha: their scale times their rank.
      names: torch_names of the model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors, modules, rank = {}, set(), 0
    for path, adapter in adapters.items():
        module = names[path].removesuffix(".weight")
        modules.add(module)
        rank = int(np.shape(adapter["A"])[1])
        for letter in ("A", "B"):
            tensors[f"base_model.model.model.{module}.lora_{letter}.weight"] = np.ascontiguousarray(
                np.asarray(adapter[letter]).T
            )
    write_tensors(tensors, folder / "adapter_model.safetensors")
    about = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": _targets(modules, [name.removesuffix(".weight") for name in names.values()]),
        "bias": "none",
        "lora_dropout": 0.0,
        "fan_in_fan_out": False,
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
    }
    write_json(folder / ADAPTER_FILE, about)


def _targets(adapted: set[str], modules: list[str]) -> list[str]:
    """target_modules of PEFT: a module's last name where all of that name are adapted, else the whole names of those that are."""
    last_names = {module.rpartition(".")[2] for module in adapted}
    everywhere = {
        name for name in last_names if adapted >= {module for module in modules if _is_target(module, [name])}
    }
    return sorted(everywhere | {module for module in adapted if module.rpartition(".")[2] not in everywhere})


def _is_target(module: str, targets: list[str]) -> bool:
    """Whether PEFT adapts a module by these target_modules."""
    return any(module == target or module.endswith("." + str(target)) for target in targets)


def load_adapters(folder: Path, names: Mapping[str, str]) -> tuple[Adapters, float]:
    """(adapters, alpha) from PEFT's files, of a causal language model or of its body alone; arrays as save_adapters takes them, float32.

    Args:
      names: torch_names of the model.

    Raises: UserError for files that are missing or damaged, adapters of another model, and scales of another kind than alpha / rank.
    """
    path, about = folder / "adapter_model.safetensors", folder / ADAPTER_FILE
    if not path.is_file() or not about.is_file():
        raise UserError(f"{folder} holds no adapter_model.safetensors and adapter_config.json")
    settings, tensors = read_settings(about), load_tensors(path)
    alpha = settings.number("lora_alpha", 0.0, 1e9)
    for key in OTHER_KINDS:
        if settings.raw(key, None):
            raise UserError(f"{about}: {key} is set; adapters are read that scale by lora_alpha / r alone")
    if (begins := settings.raw("init_lora_weights", None)) not in BASE_KEEPING:
        raise UserError(
            f"{about}: init_lora_weights is {begins!r}, for which PEFT may change the base; merge them with PEFT"
        )
    flax_of = {name.removesuffix(".weight"): flax for flax, name in names.items()}
    adapters: Adapters = {}
    for name in tensors:
        match = re.fullmatch(r"base_model\.model\.(?:model\.)?(.+)\.lora_([AB])\.weight", name)
        if match is None or match[1] not in flax_of:
            raise UserError(f"{path}: {name!r} is no adapter of this model; is it of another base?")
        adapters.setdefault(flax_of[match[1]], {})[match[2]] = float_tensor(tensors, name, [None, None], path).T
    targets = settings.raw("target_modules", None)
    fewer = any(settings.raw(key, None) for key in ("layers_to_transform", "exclude_modules"))
    if isinstance(targets, list) and not fewer:
        missing = {flax for name, flax in flax_of.items() if _is_target(name, targets)} - adapters.keys()
        if missing:
            raise UserError(f"{path} has no adapter of {names[min(missing)]}; is it of another base, of fewer layers?")
    for flax, adapter in adapters.items():
        if adapter.keys() != {"A", "B"}:
            raise UserError(f"{path}: {names[flax]} has its lora_{next(iter(adapter))} alone; the file is not whole")
        if adapter["A"].shape[1] != adapter["B"].shape[0]:
            ranks = adapter["A"].shape[1], adapter["B"].shape[0]
            raise UserError(
                f"{path}: {names[flax]} has lora_A of rank {ranks[0]}, lora_B of {ranks[1]}; the file is damaged"
            )
        adapters[flax] = {letter: np.ascontiguousarray(tensor) for letter, tensor in adapter.items()}
    return adapters, alpha


def with_adapter(model: Encoder, folder: str) -> Encoder:
    """The model with a LoRA folder of PEFT's merged in; with "" as it is, and so is one that is no decoder. Raises UserError for another base's."""
    if not folder or not architecture_of(model.config).decoder:
        return model
    adapters, alpha = load_adapters(Path(folder), torch_names(model.config))
    return model.with_weights({"model": merge(model.params, adapters, alpha)})
