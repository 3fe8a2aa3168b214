"""What tells a decoder's layers apart in config.json, both ways: which slide, how far they see, their rotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings, said

if TYPE_CHECKING:
    from jdistill.models.decoder.config import DecoderConfig

FULL, SLIDING = "full_attention", "sliding_attention"
GEMMA = "gemma3_text"
WINDOWED = ("mistral", "qwen2", "qwen3", GEMMA)  # the model types that may have sliding layers
# Where a file lacks the key, as transformers has it.
MISSING_WINDOW, FIRST_SLIDING, PATTERN = 4096, 28, 6  # Qwen's layers slide from one on; each sixth of Gemma's does not
THETA, GEMMA_THETA, GEMMA_LOCAL_THETA = 1e4, 1e6, 1e4
ORIGINAL = "original_max_position_embeddings"  # of Llama 3's scaling, among its keys or beside them
Scaling = tuple[float, float, float, int]


def read_sliding(hf: Settings, kind: str, num_layers: int, causal: bool) -> tuple[tuple[bool, ...], int]:
    """Which layers slide, () where none does, and how many positions to each side their tokens see.

    Args:
      kind: the model type.
      causal: as the file says it. A causal model's window counts the token itself, another's both of its sides.

    Raises: UserError for layers of another type or number, and a window that is missing or that such a model has not.
    """
    listed = _listed_types(hf, num_layers)
    uses = hf.flag("use_sliding_window", False)
    if kind not in WINDOWED or kind.startswith("qwen") and not uses:
        if uses or SLIDING in listed:
            raise hf.fault(
                "layer_types", f"or use_sliding_window ask for sliding-window attention, which no {kind} has"
            )
        return (), 0
    size = hf.integer("sliding_window", 1, default=None if "sliding_window" in hf.values else MISSING_WINDOW)
    usual = _usual_types(hf, kind, num_layers, size)
    if kind == "mistral" and listed and listed != usual:
        raise hf.fault("layer_types", "differ from sliding_window, by which all layers of a Mistral slide, or none")
    sliding = tuple(layer == SLIDING for layer in listed or usual)
    if not any(sliding):
        return (), 0
    if size is None:
        raise hf.fault("sliding_window", "is null, and some layers slide")
    return sliding, size - 1 if causal else size // 2


def _listed_types(hf: Settings, num_layers: int) -> list[str]:
    """layer_types, a type for each layer; [] where there is no such key."""
    listed = hf.raw("layer_types", [])
    if not isinstance(listed, list) or not all(layer in (FULL, SLIDING) for layer in listed):
        raise hf.fault("layer_types", f"is {said(listed)}; a list of {FULL} and {SLIDING} is needed")
    if listed and len(listed) != num_layers:
        raise hf.fault("layer_types", f"are {len(listed)}, but num_hidden_layers is {num_layers}")
    return listed


def _usual_types(hf: Settings, kind: str, num_layers: int, size: int | None) -> list[str]:
    """The types of a model whose file does not list them; size: of its window, None: it has none."""
    if kind == GEMMA:
        pattern = hf.integer("sliding_window_pattern", 1, default=PATTERN)
        return [SLIDING if (i + 1) % pattern else FULL for i in range(num_layers)]
    first = 0 if kind == "mistral" else hf.integer("max_window_layers", 0, default=FIRST_SLIDING)
    return [SLIDING if size is not None and i >= first else FULL for i in range(num_layers)]


def sliding_keys(config: DecoderConfig) -> dict[str, Any]:
    """The keys that read_sliding reads, of the types that have them."""
    c = config
    if c.model_type not in WINDOWED:
        return {}
    types = [SLIDING if c.window(i) is not None else FULL for i in range(c.num_layers)]
    both_ways = c.model_type == GEMMA and not c.causal
    size = max(1, 2 * c.sliding_window) if both_ways else c.sliding_window + 1
    if c.model_type == GEMMA:
        turns = [
            n
            for n in range(1, c.num_layers + 2)
            if types == [SLIDING if (i + 1) % n else FULL for i in range(c.num_layers)]
        ]
        # Text-embeddings-inference goes by this number, and loads no Gemma without it, of which it reads each both ways.
        by_turns = {"_sliding_window_pattern": turns[0]} if turns and both_ways else {}
        return {"sliding_window": size, "layer_types": types} | by_turns
    if SLIDING not in types:
        # Text-embeddings-inference loads no Qwen without the second key, and reads each from left to right.
        return {"sliding_window": None} | (
            {"use_sliding_window": False} if c.causal and c.model_type != "mistral" else {}
        )
    if c.model_type == "mistral":
        return {"sliding_window": size}
    return {
        "use_sliding_window": True,
        "sliding_window": size,
        "max_window_layers": types.index(SLIDING),
        "layer_types": types,
    }


def read_rope(hf: Settings, kind: str) -> tuple[float, Scaling | None, float]:
    """(theta, Llama 3's scaling or None, theta of sliding layers or 0) of a config.json, by new keys or old.

    Raises: UserError for a rotation of another kind.
    """
    new, scaling = hf.part("rope_parameters"), hf.part("rope_scaling").values
    if kind != GEMMA:
        old = {"rope_theta": hf.raw("rope_theta", THETA)}
        asked = scaling or new.values  # transformers asks in this order too
        if (whole := hf.raw(ORIGINAL, None)) is not None:
            if asked.get(ORIGINAL, whole) != whole:
                raise hf.fault(ORIGINAL, f"is {whole} beside the rotation's keys and {asked[ORIGINAL]} among them")
            old[ORIGINAL] = whole
        return *_rotation(Settings(old | asked, hf.path)), 0.0
    if new.values and not {FULL, SLIDING} & new.values.keys():
        raise hf.fault("rope_parameters", f"has neither {FULL} nor {SLIDING}; a {kind} has rotations by type of layer")
    full = {"rope_theta": hf.raw("rope_theta", GEMMA_THETA)} | new.part(FULL).values | scaling
    near = {"rope_theta": hf.number("rope_local_base_freq", 1.0, 1e12, default=GEMMA_LOCAL_THETA)}
    local, scaled = _rotation(Settings(near | new.part(SLIDING).values, hf.path))
    if scaled:
        raise hf.fault("rope_parameters", f"scales the rotation of {SLIDING}, which is not supported")
    return *_rotation(Settings(full, hf.path)), local


def _rotation(rope: Settings) -> tuple[float, Scaling | None]:
    """(theta, Llama 3's scaling) of one object of RoPE's keys."""
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in ("default", "llama3"):
        raise UserError(f"{rope.path}: RoPE of type {kind!r} is not supported, only default and llama3")
    theta = rope.number("rope_theta", 1.0, 1e12)
    if kind == "default":
        return theta, None
    if lacking := [key for key in ("factor", "low_freq_factor", "high_freq_factor") if key not in rope.values]:
        raise rope.fault("rope_parameters", f"of type llama3 has no {lacking[0]}")
    factor, low, high = (rope.number(f"{key}factor", 1e-6, 1e6) for key in ("", "low_freq_", "high_freq_"))
    if high <= low:
        raise rope.fault("high_freq_factor", f"is {high:g}, not above low_freq_factor, {low:g}")
    return theta, (factor, low, high, rope.integer(ORIGINAL, 1))


def rope_keys(config: DecoderConfig) -> dict[str, Any]:
    """The keys that read_rope reads, by their new names and the old ones."""
    c = config
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": c.rope_theta}
    if c.rope_scaling:
        factor, low, high, original = c.rope_scaling
        rope |= {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high}
        rope[ORIGINAL] = original
    if c.model_type != GEMMA:
        scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
        return {"rope_parameters": rope, "rope_theta": c.rope_theta} | (
            {"rope_scaling": scaling} if c.rope_scaling else {}
        )
    near = {"rope_type": "default", "rope_theta": c.local_rope_theta}
    old = {"rope_theta": c.rope_theta, "rope_local_base_freq": c.local_rope_theta}
    return {"rope_parameters": {FULL: rope, SLIDING: near}} | old
