"""The interaction module (IEM) in an exported folder: written as one more of its modules, and read."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.encoder.formats.modules import read_modules
from jdistill.encoder.formats.pma import read_iem, to_torch
from jdistill.encoder.formats.st_writer import CUSTOM
from jdistill.encoder.formats.tensors import write_tensors


def add_interaction(folder: Path, params: Mapping[str, Any], width: int, interaction: str) -> None:
    """Adds the interaction module to an exported folder, as the last of its modules.

    Args:
      params: of the module (models.interaction.random_iem), float32.
      width: of the encoder's vectors.
      interaction: of models.interaction.INTERACTIONS.
    """
    modules = [module.row for module in read_modules(folder) if module.kind != "Interaction"]
    path = f"{len(modules)}_Interaction"
    (folder / path).mkdir(exist_ok=True)
    settings = {
        "embedding_dimension": width,
        "hidden": int(np.shape(params["score"]["kernel"])[0]),
        "interaction": interaction,
        "beside_cosine": "cosine" in params,
    }
    write_json(folder / path / "config.json", settings)
    write_tensors(to_torch(params), folder / path / "model.safetensors")
    shutil.copyfile(CUSTOM / "interaction.py", folder / "interaction.py")
    row = {"idx": len(modules), "name": str(len(modules)), "path": path, "type": "interaction.Interaction"}
    write_json(folder / "modules.json", [*modules, row])


def remove_interaction(folder: Path) -> None:
    """Takes the interaction module out of an exported folder, which need not have one.

    Raises: UserError for a module whose path is not a folder of its own in there: it would be removed.
    """
    modules = read_modules(folder)
    kept = [module.row for module in modules if module.kind != "Interaction"]
    for module in modules:
        if module.kind != "Interaction":
            continue
        if module.folder.is_symlink() or module.folder.resolve().parent != folder.resolve():
            raise UserError(f"{folder}/modules.json: {module.folder} is no folder in it, and is not removed")
        write_json(folder / "modules.json", kept)
        shutil.rmtree(module.folder)
        (folder / "interaction.py").unlink(missing_ok=True)


def read_interaction(folder: Path, kinds: Sequence[str]) -> tuple[dict[str, Any], str] | None:
    """(parameters float32, kind) of a folder's interaction module; None where it has none.

    Args:
      kinds: that there are, models.interaction.INTERACTIONS.

    Raises: UserError as read_iem does.
    """
    for module in read_modules(folder):
        if module.kind == "Interaction":
            return read_iem(module.folder, kinds)
    return None
