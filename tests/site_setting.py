"""A finished run to make a search page of, without training, and stand-ins for the packages of npm."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import make_encoder, sentences

import jdistill
from jdistill.encoder.encoder import Encoder
from jdistill.export.folder import export
from jdistill.export.site.web_runtime import PACKAGES
from jdistill.retrieval.index import build_index

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script> river & stone"


def searchable_run(folder: Path, seed: int = 0, texts: list[str] | None = None, student: Encoder | None = None) -> Path:
    """A run's config, export and index. student: None: a random compact one, 32 wide."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"method": "simtde", "teacher": "", "text": ""}))
    model = student or make_encoder(seed, model_type="electra", embedding_size=12, num_layers=2)
    export(model, folder / "export")
    loaded = jdistill.load(str(folder / "export"))
    texts = [*sentences(60), HOSTILE, "two\nlines", "مرحبا بالعالم"] if texts is None else texts
    build_index(loaded.encode(texts)).save(folder / "index", texts, loaded.fingerprint())
    return folder


def npm_packages(folder: Path) -> Path:
    """A folder node_modules with files of the names that a page takes, for whoever does not run them."""
    for package in PACKAGES:
        place = folder / "node_modules" / package.name
        for path in package.files.values():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(f"{package.name} {path}")
        (place / "package.json").write_text(json.dumps({"name": package.name, "version": "0.0.1", "license": "MIT"}))
    (place / "LICENSE").write_text("as it likes")
    return folder / "node_modules"
