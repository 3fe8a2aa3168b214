"""Two models in one folder, sentence-transformers' Router: queries go to the student, documents to the model that fills the index.

The folder holds both whole, `query/` and `document/`, each a model that loads by itself.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.core.folders import replacing
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import CUSTOM, custom_files, write_files, write_weights
from jdistill.encoder.torch_backend import has_sentence_transformers
from jdistill.evals.shared_space import check_one_space
from jdistill.export.folder import EXPORT_SEAL, check_folder
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.targets import tolerance_of
from jdistill.export.written_folder import load_written
from jdistill.models.architecture import BUILT_IN
from jdistill.models.precision import exact_products
from jdistill.models.registry import architecture_of

ROUTES = ("query", "document")
DEFAULT_ROUTE = "document"  # of a text without a task, which is read by its prompt too


def export_router(queries: Encoder, documents: Encoder, out: Path, overwrite: bool = False) -> dict[str, float]:
    """Writes both models to the folder `out`, and holds what sentence-transformers makes of it against Flax.

    A text without a task is a document, which both models' spaces allow.

    Args:
      queries: the student.
      documents: whose index it asks.
      out: as export.folder.export has it.

    Returns: max abs difference from Flax by role and framework.

    Raises: UserError for models that do not share a space, for recurrent ones, and where a check fails; `out` is then as it was.
    """
    for what, model in (("the student", queries), (f"--documents={documents.source}", documents)):
        if architecture_of(model.config).recurrent:
            raise UserError(
                f"{what} is recurrent, and a Router hands the role of a text to its tokenizer, which fails on it in sentence-transformers; "
                'export it without --documents, and encode by encode(texts, prompt_name="query")'
            )
    check_one_space(queries, documents, list(PROBE_TEXTS), f"--documents={documents.source}")
    checks: dict[str, float] = {}
    with replacing(
        out, EXPORT_SEAL, key="--out", overwrite=overwrite, checks=checks, settings={"router": True}
    ) as beside:
        _write(queries, documents, beside)
        for role, model in zip(ROUTES, (queries, documents), strict=True):
            differences = check_folder(model, beside / role, keep_onnx=False)
            checks |= {f"{role}, {framework}": value for framework, value in differences.items()}
        if has_sentence_transformers():
            checks |= _check_routes(queries, documents, beside)
    shown = ", ".join(f"{name} {value:.1e}" for name, value in checks.items())
    log.info("exported to %s, queries and documents by a model each; max abs difference from Flax: %s", out, shown)
    return checks


def _write(queries: Encoder, documents: Encoder, folder: Path) -> None:
    """Both models, and what routes a text to one of them."""
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for role, model in zip(ROUTES, (queries, documents), strict=True):
        write_files(model, folder / role)
        write_weights(model, folder / role)
        rows: Sequence[dict[str, Any]] = json.loads((folder / role / "modules.json").read_text())
        structure[role] = [f"{role}/{row['path']}".rstrip("/") for row in rows]
        types |= {place: row["type"] for place, row in zip(structure[role], rows, strict=True)}
        for name in custom_files(model):  # found beside modules.json alone
            shutil.copyfile(CUSTOM / name, folder / name)
    parameters = {"default_route": DEFAULT_ROUTE, "allow_empty_key": True}
    write_json(folder / "router_config.json", {"types": types, "structure": structure, "parameters": parameters})
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": f"{BUILT_IN}Router"}])
    prompts = {
        role: model.prompt_text(model.prompt_for(role))
        for role, model in zip(ROUTES, (queries, documents), strict=True)
    }
    default = DEFAULT_ROUTE if prompts[DEFAULT_ROUTE] else None
    about = {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", about)


def _check_routes(queries: Encoder, documents: Encoder, folder: Path) -> dict[str, float]:
    """The vectors of both routes, and of texts without one, as sentence-transformers gives them. Raises UserError where float32 does not
    explain a difference."""
    loaded = load_written(folder)
    texts, checks = list(PROBE_TEXTS), {}
    for what, role, model, method in (
        ("query", "query", queries, "encode_query"),
        ("document", "document", documents, "encode_document"),
        ("no task", DEFAULT_ROUTE, documents, "encode"),
    ):
        with exact_products():
            expected = model.encode(texts, prompt=model.prompt_for(role))
        vectors = getattr(loaded, method)(texts, show_progress_bar=False)
        bound = tolerance_of(model, expected)
        difference = float(np.abs(vectors - expected).max())
        if not difference <= bound:
            raise UserError(
                f"the folder's {what} vectors differ from Flax's by {difference:.2e} in sentence-transformers, more than {bound:.0e}; "
                "nothing was written"
            )
        checks[f"{what}, Router"] = difference
    return checks
