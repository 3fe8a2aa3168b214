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

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.digest import digest
from jdistill.core.errors import UserError, exits_cleanly, leave
from jdistill.core.files import TEMPORARY, naming, seal, write_json
from jdistill.core.folders import own_folder
from jdistill.core.help import CommandHelp
from jdistill.core.left_over import clear_left_over
from jdistill.core.locks import only_one
from jdistill.core.progress import log, setup_logging
from jdistill.core.remote import local_only
from jdistill.data.sets.sts import sts_digest
from jdistill.data.text.sources import read_texts
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.evals.geometry import COVARIANCE_SAMPLE, evaluate_geometry, pairs_alike
from jdistill.evals.sts import evaluate_sts
from jdistill.report.comparison import write_comparison_page
from jdistill.report.facts import read_json_object

COMPARISON_SEAL = "comparison"  # of its folder's seal
SHOWN = 16  # dimensions of a covariance matrix that are drawn, as in the paper's figure 4


def score_model(model: Encoder, senteval: Path, texts: list[str]) -> dict[str, Any]:
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


def compare_models(models: dict[str, str], senteval: Path, text: str, out: Path) -> dict[str, dict[str, Any]]:
    """name -> figures of score_model(), those of OUT/compare.json where model, texts and STS sets are the same; then writes the page."""
    path = out / "compare.json"
    texts = read_texts(text, key="texts", at_most=COVARIANCE_SAMPLE).texts
    # A file or folder of the same name may hold others by now.
    about = {"texts": text, "digest": digest(texts), "sts_digest": sts_digest(senteval)}
    pairs_alike(senteval)  # or refused, before minutes of scoring
    # Each is read, and let go of again, before the first is scored: the last may be none.
    fingerprints = {name: loading.load(source, key="models").fingerprint() for name, source in models.items()}
    earlier = read_kept(path, about)
    scored = {kept["fingerprint"]: kept for kept in earlier.values()}  # a model may have another name by now
    figures: dict[str, dict[str, Any]] = {}
    for name, source in models.items():
        if fingerprints[name] in scored:
            figures[name] = scored[fingerprints[name]] | {"source": source}
            continue
        log.info("%s: %s", name, source)
        figures[name] = scored[fingerprints[name]] = score_model(loading.load(source, key="models"), senteval, texts)
        write_kept(path, about | {"models": earlier | figures})
    write_kept(path, about | {"models": earlier | figures})  # those that another name had, too
    write_comparison_page(figures, out)
    return figures


def write_kept(path: Path, content: dict[str, Any]) -> None:
    """The figures with a checksum of their own: a process may be killed before the folder's seal knows of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content | {"checksum": _checksum(content)})
    seal(path.parent, COMPARISON_SEAL, [path.name])


def _checksum(content: dict[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True))


def read_kept(path: Path, about: dict[str, str]) -> dict[str, Any]:
    """name -> figures of an earlier comparison on the same texts and STS sets, by their digests in `about`; none where there is none, or its
    file is damaged, which is said."""
    if not path.is_file():
        return {}
    kept = read_json_object(path)[0]
    if kept.pop("checksum", None) != _checksum(kept):
        log.warning("%s is not as it was written; all models are scored again", path)
        return {}
    return kept["models"] if all(kept.get(name) == about[name] for name in ("digest", "sts_digest")) else {}


@exits_cleanly(resumes=True)
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.compare`; returns its exit status."""
    parser = argparse.ArgumentParser(
        formatter_class=CommandHelp, prog="python -m jdistill.compare", description=__doc__
    )
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=SOURCE", help="in the order of the table")
    parser.add_argument("--senteval", type=local_only, required=True, help="a SentEval folder")
    parser.add_argument("--texts", required=True, help="texts of the covariance, the first 10,000: any text source")
    parser.add_argument("--out", type=local_only, required=True, help="a folder")
    parser.add_argument("--overwrite", action="store_true", help="write into --out whatever it holds")
    flags = parser.parse_args(argv)
    keep_compiled_programs()
    setup_logging()
    models: dict[str, str] = {}
    for argument in flags.models:
        name, equals, source = argument.partition("=")
        if not (name and equals and source) or name in models:
            raise UserError(f"--models {argument}: each is NAME=SOURCE, with a name of its own")
        models[name] = source
    own_folder(flags.out, COMPARISON_SEAL, "--out", flags.overwrite)
    with naming(flags.out), only_one(flags.out / f"{TEMPORARY}lock", flags.out, "a comparison"):
        clear_left_over(flags.out)
        compare_models(models, flags.senteval, flags.texts, flags.out)
    log.info("written to %s", flags.out / "compare.html")
    return 0


if __name__ == "__main__":
    leave(main())
