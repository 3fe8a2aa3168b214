"""The command python -m jdistill.compare: several encoders side by side, in one table and the pictures of IBKD 4.7.

python -m jdistill.compare --models teacher=SOURCE CKD=runs/ckd/export IBKD=runs/ibkd/export \\
    --senteval DIR --texts sentences.txt.gz --out runs/compare

Writes OUT/compare.html, OUT/report/*.png and OUT/compare.json; models that are in there already are not scored again.
"""

from __future__ import annotations

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.digest import digest
from jdistill.core.errors import UserError, exits_cleanly, leave
from jdistill.core.files import (
    TEMPORARY,
    clear_left_over,
    damage,
    naming,
    read_seal,
    seal,
    write_json,
)
from jdistill.core.folders import own_folder
from jdistill.core.locks import only_one
from jdistill.core.progress import log, setup_logging
from jdistill.data.text.sources import read_texts
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.evals.geometry import evaluate_geometry
from jdistill.evals.sts import evaluate_sts
from jdistill.report.page import BLUE, Page, num

KIND = "comparison"  # of its folder's seal
SHOWN = 16  # dimensions of a covariance matrix that are drawn, as in the paper's figure 4
GEOMETRY = ("alignment", "uniformity", "off_diagonal")


def score(model: Encoder, senteval: Path, texts: list[str]) -> dict[str, Any]:
    """One model: its size, "sts" (evals.sts), "geometry" (evals.geometry) and "covariance" of its first dimensions."""
    geometry = evaluate_geometry(model, senteval, texts)
    return {
        "source": model.source,
        "fingerprint": model.fingerprint(),
        "num_params": model.num_params,
        "dim": model.dim,
        "sts": evaluate_sts(model, senteval)["sts"],
        "geometry": geometry.figures,
        "covariance": geometry.covariance[:SHOWN, :SHOWN].tolist(),
    }


def compare(models: dict[str, str], senteval: Path, text: str, out: Path) -> dict[str, dict[str, Any]]:
    """name -> figures of score(), those of OUT/compare.json where model and texts are the same; then writes the page."""
    path = out / "compare.json"
    texts = read_texts(text, key="texts").texts
    of_texts = digest(texts)  # a file of the same name may have other texts by now
    known = read_kept(path, of_texts)
    found: dict[str, dict[str, Any]] = {}
    for name, source in models.items():
        model = loading.load(source, key="models")
        if known.get(name, {}).get("fingerprint") == model.fingerprint():
            found[name] = known[name]
            continue
        log.info("%s: %s", name, source)
        found[name] = score(model, senteval, texts)
        write_kept(path, {"texts": text, "digest": of_texts, "models": known | found})
    write_kept(path, {"texts": text, "digest": of_texts, "models": found})
    write_page(found, out)
    return found


def write_kept(path: Path, found: dict[str, Any]) -> None:
    """The figures, which the folder's seal vouches for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, found)
    seal(path.parent, KIND, [path.name])


def read_kept(path: Path, of_texts: str) -> dict[str, Any]:
    """name -> figures of an earlier comparison on the same texts; none where there is none, or its file is damaged, which is said."""
    if not path.is_file():
        return {}
    if read_seal(path.parent, KIND) is None or damage(path.parent, KIND):
        log.warning("%s is not as it was written; all models are scored again", path)
        return {}
    kept = json.loads(path.read_text())
    return kept["models"] if kept.get("digest") == of_texts else {}


def write_page(found: dict[str, dict[str, Any]], out: Path) -> None:
    """OUT/compare.html from the figures of score()."""
    page = Page(out)
    page.put("h1", "Encoders side by side")
    tasks = list(next(iter(found.values()))["sts"])
    page.table(
        "STS, Spearman x 100",
        ["Model", "Parameters", "Width", *tasks],
        [
            [name, num(of["num_params"], 1, 1e-6, " M"), str(of["dim"]), *(num(of["sts"][task]) for task in tasks)]
            for name, of in found.items()
        ],
    )
    page.table(
        "Geometry: alignment and uniformity on STS-B, mean absolute covariance off the diagonal; all three lower is better",
        ["Model", "Alignment", "Uniformity", "Off-diagonal"],
        [[name, *(num(of["geometry"][key], 4) for key in GEOMETRY)] for name, of in found.items()],
    )
    page.html.append('<div class="plots">')
    page.plot(
        "alignment-uniformity",
        alignment_plot(found),
        "Alignment against uniformity, a point a model, coloured by its STS average.",
        "Both lower is better; the colour is the STS average. IBKD, figure 5.",
    )
    page.html.append("</div>")
    page.plot(
        "covariance",
        covariance_plot(found),
        f"Covariance of the first {SHOWN} dimensions of each model.",
        f"Absolute covariance of the first {SHOWN} dimensions, unit vectors, scaled so that isotropic vectors have 1 on the "
        "diagonal. IBKD, figure 4.",
    )
    page.save("compare.html", "Encoders side by side")


def alignment_plot(found: dict[str, dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(5.6, 4.2), dpi=200, layout="constrained")
    axes = figure.subplots()
    x, y = ([of["geometry"][key] for of in found.values()] for key in ("uniformity", "alignment"))
    averages = [of["sts"].get("Avg") for of in found.values()]  # where a task is missing there is none
    if None in averages:
        axes.scatter(x, y, color=BLUE, s=60, zorder=3)
    else:
        dots = axes.scatter(x, y, c=averages, cmap="viridis", s=60, zorder=3)
        figure.colorbar(dots, label="STS average")
    for name, at in zip(found, zip(x, y, strict=True), strict=True):
        axes.annotate(name, at, xytext=(6, 4), textcoords="offset points", fontsize=8, parse_math=False)
    axes.set(xlabel="uniformity", ylabel="alignment")
    axes.margins(0.18)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def covariance_plot(found: dict[str, dict[str, Any]]) -> Figure:
    columns = min(4, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(2.4 * columns + 0.8, 2.5 * rows), dpi=200, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    for panel, (name, of) in zip(panels.flat, found.items(), strict=False):
        panel.imshow(np.abs(of["covariance"]), cmap="Blues", vmin=0, vmax=1)
        panel.set_title(name, fontsize=9, parse_math=False)
    figure.colorbar(ScalarMappable(Normalize(0, 1), "Blues"), ax=panels, shrink=0.7)
    return figure


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jdistill.compare", description=__doc__)
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=SOURCE", help="in the order of the table")
    parser.add_argument("--senteval", type=Path, required=True, help="a SentEval folder")
    parser.add_argument("--texts", required=True, help="texts of the covariance, the first 10,000: any text source")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--overwrite", action="store_true", help="write into --out whatever it holds")
    flags = parser.parse_args(argv)
    keep_compiled_programs()
    setup_logging()
    models: dict[str, str] = {}
    for given in flags.models:
        name, equals, source = given.partition("=")
        if not (name and equals and source) or name in models:
            raise UserError(f"--models {given}: each is NAME=SOURCE, with a name of its own")
        models[name] = source
    own_folder(flags.out, KIND, "--out", flags.overwrite)
    with naming(flags.out), only_one(flags.out / f"{TEMPORARY}lock", flags.out, "a comparison"):
        clear_left_over(flags.out)
        compare(models, flags.senteval, flags.texts, flags.out)
    log.info("written to %s", flags.out / "compare.html")
    return 0


if __name__ == "__main__":
    leave(main())
