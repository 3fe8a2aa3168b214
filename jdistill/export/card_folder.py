"""What of an exported folder decides which servers load it, as its card tells them."""

from __future__ import annotations

from pathlib import Path

from jdistill.core.json_files import read_settings
from jdistill.encoder.formats.body import body_of, split_modules
from jdistill.encoder.formats.modules import read_modules
from jdistill.encoder.formats.st_reader import read_pooler
from jdistill.encoder.formats.st_settings import read_prompts
from jdistill.export.card_servers import ServedModel
from jdistill.models.pooling import POOLERS


def served_model(folder: Path, repository: str, place: str) -> ServedModel:
    """What of a folder decides which servers load it. repository: of the hub that it is sent to, or empty. place: what a snippet names."""
    architecture, own, after = split_modules(folder, read_modules(folder))
    sizes = architecture.read_config(body_of(own))
    pooling, rest = read_pooler(folder, after, sizes, own)
    projected = any(module.kind == "Dense" for module in rest)
    of_text = read_settings(own[0].folder / architecture.length_file, optional=True)
    of_tokenizer = read_settings(own[0].folder / "tokenizer_config.json", optional=True)
    prompts, default = read_prompts(folder)
    lowered = of_text.values.get("do_lower_case")  # which AutoTokenizer may leave out
    return ServedModel(
        place=place,
        on_hub=bool(repository),
        has_graph=(folder / "onnx" / "model.onnx").is_file(),
        has_code=any(folder.glob("*.py")),
        pooling=pooling if pooling in ("mean", "cls") and not projected else "",
        by_older_transformers=architecture.in_older_transformers(sizes),
        by_auto_model=not architecture.recurrent and _is_what_auto_model_makes(own[0].folder) and not lowered,
        last_layer=POOLERS[pooling].states(sizes.num_layers) == (sizes.num_layers,),
        normalize=any(module.kind == "Normalize" for module in rest),
        tokenizer_file=(own[0].folder / "tokenizer.json").relative_to(folder).as_posix(),
        max_length=max_length(own[0].folder / architecture.length_file, sizes.usable_positions),
        cut_at_front=of_tokenizer.values.get("truncation_side") == "left",
        hidden_size=sizes.hidden_size,
        prompt=prompts.get(default or "", ""),
        prompts={name: text for name, text in prompts.items() if text},
    )


def max_length(path: Path, usable_positions: int) -> int:
    """Tokens of a text that are read. path: the file that says so."""
    return read_settings(path, optional=True).values.get("max_seq_length", usable_positions)


def _is_what_auto_model_makes(folder: Path) -> bool:
    """Whether transformers' AutoModel, which goes by model_type, makes the class that config.json names: of T5 it makes more."""
    return not any(
        str(name).endswith("EncoderModel")
        for name in read_settings(folder / "config.json", optional=True).values.get("architectures", [])
    )
