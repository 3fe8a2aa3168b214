"""modules.json of a sentence-transformers folder: which modules there are, and where, never outside the folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings, read_json, said

MODULES_FILE = "modules.json"
ADAPTER_FILE = "adapter_config.json"  # PEFT's
THEIR_OWN = "sentence_transformers."  # what the types of the library's own modules begin with
# The types of modules whose code an export carries (st_modules), and that are read.
OUR_OWN = (
    "bidirectional_transformer.BidirectionalTransformer",
    "final_states.FinalStates",
    "interaction.Interaction",
    "layer_pooling.LayerPooling",
    "pma_pooling.PmaPooling",
)
# The kinds that together make a pooler.
POOLER_MODULES = (["Pooling"], ["WeightedLayerPooling", "Pooling"], ["LayerPooling"], ["FinalStates"], ["PmaPooling"])


ROUTER = "Router"  # the module that sends a text to one of several models, by its role


@dataclass(frozen=True)
class ModuleFolder:
    """A module of a folder as modules.json lists it.

    Args:
      kind: the last part of its type where that is sentence-transformers' or ours; else the whole type, whose code nobody here reads.
      folder: where its files lie.
      row: as modules.json has it.
    """

    kind: str
    folder: Path
    row: dict


def read_modules(folder: Path) -> list[ModuleFolder]:
    """The modules in their order; of a folder without modules.json the transformer and, in the same place and without a row, a pooler.

    Raises UserError where it is no list of objects with a type and a path, and for a path that leads out of the folder.
    """
    path = folder / MODULES_FILE
    rows = read_json(path, None)
    if rows is None:
        return [ModuleFolder(kind, folder, {}) for kind in ("Transformer", "Pooling")]
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{path} holds {said(rows)}, not a list of modules")
    return [_module(folder, path, i, row) for i, row in enumerate(rows)]


def refuse_router(folder: Path, modules: list[ModuleFolder], label: str) -> None:
    """Raises UserError for a folder of two models, queries by one and documents by another, where one model is needed.

    Args:
      folder: the model's.
      modules: as read_modules gives them.
      label: what the message calls it, such as --model=SOURCE.
    """
    if modules[0].kind.rsplit(".", 1)[-1] != ROUTER:
        return
    hint = "jdistill reads folders of one model; as a teacher it can be asked through st:SOURCE (torch extra)"
    if all((folder / role / MODULES_FILE).is_file() for role in ("query", "document")):
        hint = (
            "each loads by itself: its folder query is the model that asks, document the one that fills the index, as in "
            f"jdistill.evaluate --model {folder}/query --corpus_model {folder}/document"
        )
    raise UserError(f"{label} is two models, a Router that sends queries to one and documents to the other; {hint}")


def refuse_adapter(module: ModuleFolder, label: str) -> None:
    """Raises UserError where a PEFT adapter lies with a transformer: sentence-transformers puts it on its base, whatever lies beside it.

    label: as refuse_router has it.
    """
    if (module.folder / ADAPTER_FILE).exists():
        raise UserError(
            f"{label} is an adapter ({ADAPTER_FILE}) of another model; jdistill reads whole ones: merge it into its base and save that "
            "(peft's merge_and_unload), or let it teach through st:SOURCE (torch extra, and peft)"
        )


def _module(folder: Path, path: Path, place: int, row: object) -> ModuleFolder:
    if not isinstance(row, dict):
        raise UserError(f"{path}: module {place} is {said(row)}, not an object with type and path")
    settings = Settings(row, path)
    kind, inside = (settings.text(key) for key in ("type", "path"))
    if inside and not _is_inside(folder, inside):
        raise settings.fault(
            "path", f"of module {place} is {inside[:80]!r}, which leads out of the folder, or nowhere; refused"
        )
    is_read = kind.startswith(THEIR_OWN) or kind in OUR_OWN
    return ModuleFolder(kind.rsplit(".", 1)[-1] if is_read else kind, folder / inside, row)


def _is_inside(folder: Path, inside: str) -> bool:
    """Whether a path leads to the folder or into it, links followed. In a folder of links, such as a cache's, the files that the links
    lead to may lie elsewhere, but together: then what lies beside the file behind modules.json is inside too."""
    if "\0" in inside or Path(inside).is_absolute() or ".." in Path(inside).parts:
        return False
    try:
        target = (folder / inside).resolve()
        target.exists()  # raises for a name that no file can have
        homes = (folder.resolve(), (folder / MODULES_FILE).resolve().parent)
    except (OSError, RuntimeError):  # a link that leads to itself, a name too long
        return False
    return any(target.is_relative_to(home) for home in homes)
