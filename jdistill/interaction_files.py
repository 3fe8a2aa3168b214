"""The interaction module (IEM) in an exported folder: written as one more of its modules, and read."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from jdistill.encoder_files import read_json, read_tensors_of
from jdistill.export_modules import CUSTOM
from jdistill.files import write_json
from jdistill.pma_tensors import from_torch, to_torch


def add_interaction(folder: Path, params: Mapping[str, Any], width: int, interaction: str) -> None:
    """Adds the interaction module to an exported folder, as the last of its modules. width: of the encoder's vectors."""
    modules = [row for row in read_json(folder / "modules.json", []) if not row["type"].endswith("Interaction")]
    path = f"{len(modules)}_Interaction"
    (folder / path).mkdir(exist_ok=True)
    settings = {
        "embedding_dimension": width,
        "hidden": int(np.shape(params["score"]["kernel"])[0]),
        "interaction": interaction,
    }
    write_json(folder / path / "config.json", settings)
    save_file(to_torch(params), folder / path / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(CUSTOM / "interaction.py", folder / "interaction.py")
    row = {"idx": len(modules), "name": str(len(modules)), "path": path, "type": "interaction.Interaction"}
    write_json(folder / "modules.json", [*modules, row])


def remove_interaction(folder: Path) -> None:
    """Takes the interaction module out of an exported folder, which need not have one."""
    modules = read_json(folder / "modules.json", [])
    for row in [row for row in modules if row["type"].endswith("Interaction")]:
        modules.remove(row)
        write_json(folder / "modules.json", modules)
        shutil.rmtree(folder / row["path"])
        (folder / "interaction.py").unlink(missing_ok=True)


def read_interaction(folder: Path) -> tuple[dict[str, Any], str] | None:
    """(parameters, kind) of a folder's interaction module; None where it has none."""
    for row in read_json(folder / "modules.json", []):
        if row["type"].endswith("Interaction"):
            settings = read_json(folder / row["path"] / "config.json", {})
            return from_torch(read_tensors_of(folder / row["path"])), settings["interaction"]
    return None
