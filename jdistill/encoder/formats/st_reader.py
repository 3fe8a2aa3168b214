"""The modules after a transformer in a sentence-transformers folder, each read and checked: the poolers, Dense, Normalize."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_settings, said
from jdistill.core.progress import log
from jdistill.encoder.formats.body import unread_modules
from jdistill.encoder.formats.modules import POOLER_MODULES, ModuleFolder
from jdistill.encoder.formats.st_settings import AS_TEACHER
from jdistill.encoder.formats.tensors import WEIGHTS_FILE, float_tensor, load_tensors
from jdistill.models.dense import DENSE_ACTIVATIONS
from jdistill.models.pooling import DISTILFACE, OVER_TOKENS
from jdistill.models.registry import ModelConfig

WITHOUT_SETTINGS = {"FinalStates": "final", "PmaPooling": "pma"}
VECTOR = "sentence_embedding"  # what sentence-transformers calls a text's vector between modules


def read_pooler(
    folder: Path, modules: list[ModuleFolder], config: ModelConfig, body: list[ModuleFolder]
) -> tuple[str, list[ModuleFolder]]:
    """(the pooler's name, the modules after it) of the modules behind the body.

    Args:
      modules: those behind the body.
      config: the model's sizes.
      body: the modules that compute token states.

    Raises: UserError for modules that are not Pooling, WeightedLayerPooling and Pooling, or one of our own, then Dense and Normalize, and
      for settings that no pooler of ours has.
    """
    if (
        modules and modules[-1].kind == "Interaction"
    ):  # scores pairs; a text's vector passes through it (jdistill.encoder.pair_scorer)
        modules = modules[:-1]
    kinds = [module.kind for module in modules]
    count = 2 if kinds[:1] == ["WeightedLayerPooling"] else 1
    pooling, rest = kinds[:count], modules[count:]
    _check_order(folder, [module.kind for module in body] + kinds, pooling, kinds[count:])
    first = modules[0].folder
    if pooling[0] in WITHOUT_SETTINGS:
        return WITHOUT_SETTINGS[pooling[0]], rest
    layers: tuple[int, ...] = (config.num_layers,)
    over_layers, over_tokens = "mean", "mean"
    if pooling == ["LayerPooling"]:
        layers, over_layers = _layer_pooling(first, config.num_layers)
    else:
        last = modules[count - 1]
        over_tokens = _pooling_mode(last.folder) if last.row else _usual_pooling(last.folder)
    if count == 2:
        layers = _weighted_layers(first, config.num_layers)
    if over_layers == "mean" and layers == (config.num_layers,):
        return over_tokens, rest
    _check_all_layers(body[0].folder, pooling[0])
    for name, pooler in DISTILFACE.items():
        if pooler.fewest_layers > config.num_layers:
            continue
        states = pooler.states(config.num_layers)
        if (states, pooler.over_layers, pooler.over_tokens) == (layers, over_layers, over_tokens):
            return name, rest
    raise UserError(
        f"{first} takes the hidden states {list(layers)} by {over_layers}, then {over_tokens} over tokens, as no pooler of "
        f"jdistill's does: {', '.join(DISTILFACE)}"
    )


def _check_order(folder: Path, kinds: list[str], pooling: list[str], after: list[str]) -> None:
    if pooling not in POOLER_MODULES or set(after) - {"Dense", "Normalize"}:
        raise unread_modules(folder, kinds)
    if "Normalize" in kinds[:-1]:
        raise UserError(
            f"{folder}/modules.json puts Normalize before {kinds[-1]}; jdistill reads it only as the last module"
        )


def _check_all_layers(folder: Path, kind: str) -> None:
    """Raises UserError where a model gives its last layer alone to the module that takes several, as sentence-transformers has it run."""
    settings = read_settings(folder / "config.json", optional=True)
    if not settings.flag("output_hidden_states", False):
        raise settings.fault(
            "output_hidden_states",
            f"is not true, by which sentence-transformers gives {kind} no layers but the last; set it to true to mean the layers that it takes",
        )


def _layer_pooling(folder: Path, num_layers: int) -> tuple[tuple[int, ...], str]:
    settings = read_settings(folder / "config.json")
    layers = settings.raw("layers")
    if not isinstance(layers, list) or not layers or not all(type(x) is int and 0 <= x <= num_layers for x in layers):
        raise settings.fault("layers", f"is {said(layers)}; a list of whole numbers from 0 to {num_layers} is needed")
    return tuple(layers), settings.text("over_layers")


def _weighted_layers(folder: Path, num_layers: int) -> tuple[int, ...]:
    """The hidden states to which a WeightedLayerPooling gives weight. Raises UserError where weights differ."""
    start = read_settings(folder / "config.json").integer("layer_start", 0, num_layers, default=4)
    weights = float_tensor(load_tensors(folder / WEIGHTS_FILE), "layer_weights", [None], folder / WEIGHTS_FILE)
    if len({float(weight) for weight in weights if weight}) != 1:
        raise UserError(
            f"{folder}: its layers have different weights {weights.tolist()[:20]}; jdistill reads equal ones only"
        )
    return tuple(start + i for i, weight in enumerate(weights) if weight)


def _pooling_mode(folder: Path) -> str:
    settings = read_settings(folder / "config.json")
    modes = settings.raw("pooling_mode", None)
    if modes is None:
        prefix = "pooling_mode_"
        on = [key for key in settings.values if key.startswith(prefix) and settings.flag(key, False)]
        modes = [key.removeprefix(prefix).removesuffix("_tokens").removesuffix("_token") for key in on]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in list(OVER_TOKENS):
        raise settings.fault("pooling_mode", f"asks for {modes}; supported is one of {sorted(OVER_TOKENS)}")
    return modes[0]


def _usual_pooling(folder: Path) -> str:
    """How sentence-transformers pools a Hugging Face folder: by the last token where it is a causal language model, else by the mean."""
    settings = read_settings(folder / "config.json")
    names = settings.raw("architectures", None)
    is_language_model = isinstance(names, list) and bool(names) and str(names[0]).endswith("ForCausalLM")
    if not is_language_model or not settings.flag("is_causal", True):
        log.info(
            "%s has no modules.json: its vectors are the mean of its tokens', as sentence-transformers takes them; --config.teacher_pooling names "
            "another pooler of a teacher",
            folder,
        )
        return "mean"
    log.info("%s has no modules.json and is a language model's, %s: its vectors are the last token's", folder, names[0])
    return "lasttoken"


def includes_prompt(modules: list[ModuleFolder]) -> bool:
    """Whether the pooler behind the body counts a prompt's tokens, as it does where its Pooling module does not say otherwise."""
    pooling = next((module for module in modules if module.kind == "Pooling"), None)
    return pooling is None or read_settings(pooling.folder / "config.json", optional=True).flag("include_prompt", True)


def check_steps(modules: list[ModuleFolder]) -> None:
    """Raises UserError for a Dense or a Normalize that does more, or takes or gives something else, than what is computed of a vector here."""
    for module in modules:
        settings = read_settings(module.folder / "config.json", optional=module.kind == "Normalize")
        if settings.flag("use_residual", False):
            raise settings.fault(
                "use_residual", f"is true, which adds a {module.kind}'s input to its output; {AS_TEACHER}"
            )
        for key in ("module_input_name", "module_output_name"):
            if (name := settings.text(key, None)) not in (None, VECTOR):
                raise settings.fault(
                    key,
                    f"is {name[:60]!r}; a {module.kind} of a text's vector, {VECTOR}, is computed here. {AS_TEACHER}",
                )


def read_activation(folder: Path) -> str:
    """The name of a Dense module's activation, in models.dense.DENSE_ACTIVATIONS. Raises UserError for another."""
    settings = read_settings(folder / "config.json")
    package, _, activation = settings.text("activation_function", "torch.nn.modules.activation.Tanh").rpartition(".")
    if activation not in DENSE_ACTIVATIONS or package.partition(".")[0] != "torch":
        raise UserError(
            f"{settings.path}: activation {activation} is not supported, only torch's {sorted(DENSE_ACTIVATIONS)}"
        )
    return activation


def read_dense(folder: Path, width: int) -> dict[str, np.ndarray]:
    """A Dense module's weights.

    Args:
      folder: of the module.
      width: of the vectors that it takes.

    Returns: "kernel" [width, out] and, where it has one, "bias" [out], float32.

    Raises: UserError for a tensor that is missing or of another shape.
    """
    path = folder / WEIGHTS_FILE
    tensors = load_tensors(path)
    kernel = float_tensor(tensors, "linear.weight", [None, width], path)
    weights = {"kernel": np.ascontiguousarray(kernel.T)}
    if "linear.bias" in tensors:
        weights["bias"] = float_tensor(tensors, "linear.bias", [len(kernel)], path)
    return weights


def read_denses(modules: list[ModuleFolder], width: int) -> dict[str, dict[str, np.ndarray]]:
    """The weights of all Dense modules among these, by "0", "1" and so on, as read_dense gives them.

    Args:
      width: of the vectors that the first takes.
    """
    layers: dict[str, dict[str, np.ndarray]] = {}
    for module in modules:
        if module.kind == "Dense":
            layers[str(len(layers))] = weights = read_dense(module.folder, width)
            width = weights["kernel"].shape[1]
    return layers
