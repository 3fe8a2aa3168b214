"""Export: a run's student as a folder that transformers, sentence-transformers and ONNX Runtime load with no extra
code.

    python -m jdistill.export --workdir runs/simtde --out student [--format=onnx|gguf] [--quantize=int8 [--quantize_for=torch]]
    python -m jdistill.export --workdir runs/simtde --out search --documents TEACHER
    python -m jdistill.export --workdir runs/simtde --out student --push OWNER/NAME [--license=apache-2.0 --language en]
    python -m jdistill.export --workdir runs/simtde --out page --format=site --web_runtime=node_modules

The folder is written beside its place, encodes a fixed set of texts in every framework at hand, and takes its place
only if those agree with Flax.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ml_collections import ConfigDict

from jdistill.core.errors import UserError, exits_cleanly
from jdistill.core.fetched import path_here
from jdistill.core.folders import check_out
from jdistill.core.help import CommandHelp
from jdistill.core.json_files import read_json
from jdistill.core.progress import log, setup_logging
from jdistill.core.remote import local_only
from jdistill.core.run_folder import check_is_run
from jdistill.core.types import Tree
from jdistill.data.text.sources import read_texts
from jdistill.encoder.classifier import load_classifier, save_head
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import custom_files
from jdistill.encoder.loading import load
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.export.card import write_card
from jdistill.export.card_metadata import Release, language_code, license_name
from jdistill.export.folder import EXPORT_SEAL, export
from jdistill.export.interaction import save_interaction
from jdistill.export.onnx_forms import INT8_GRAPH
from jdistill.export.plain import with_built_in_pooler, without_unfit
from jdistill.export.push import plan_push, push_folder
from jdistill.export.quantize import QUANTIZATIONS
from jdistill.export.router import export_router
from jdistill.export.site.folder import SITE_SEAL, write_site
from jdistill.export.targets import TARGETS, add_form, target_of
from jdistill.export.trained import last_stage, load_trained, measured_instead, tell_unfinished
from jdistill.models.interaction import interaction_of

CALIBRATION_TEXTS = 512
# Of --format, which are added as --target adds them.
FORMATS_ADDED = tuple(name for name in TARGETS if name.startswith("gguf"))


@exits_cleanly(resumes=False)
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.export`; returns its exit status."""
    flags = make_parser().parse_args(argv)
    setup_logging()
    if flags.format == "site" or flags.web_runtime:
        flags.workdir = path_here(flags.workdir, "workdir")
        check_is_run(flags.workdir)
        export_site(flags)
        return 0
    of_format = [flags.format] if flags.format in FORMATS_ADDED else []
    if flags.quantize_for and not flags.quantize:
        raise UserError(f"--quantize_for={flags.quantize_for} says what --quantize is for, and that is not given")
    quantized = [f"{flags.quantize_for or 'onnx'}-{flags.quantize}"] if flags.quantize else []
    forms = [*flags.target, *of_format, *quantized]
    if any([target_of(form).calibrated for form in forms]) != bool(flags.calibrate):
        raise UserError("--quantize=int8-calibrated and --calibrate=TEXTS go together")
    if flags.documents and (forms or flags.plain or flags.format != "safetensors"):
        raise UserError(
            "--documents writes two models for sentence-transformers; their other forms are those of an export of their own"
        )
    if flags.documents and (flags.license or flags.language):
        raise UserError(
            "--license and --language stand in a student's card, and --documents writes two models without one"
        )
    if flags.push_public and not flags.push:
        raise UserError("--push_public says who may read what --push=OWNER/NAME sends, and that is not given")
    push = plan_push(flags.push, flags.push_public) if flags.push else None
    release = Release(flags.push, flags.license or "", tuple(flags.language))
    flags.workdir = path_here(flags.workdir, "workdir")
    check_is_run(flags.workdir)
    in_run = flags.out.resolve() == (flags.workdir / "export").resolve()
    check_out(flags.out, EXPORT_SEAL, "--out", flags.overwrite, None if in_run else flags.workdir)
    stage = flags.stage or last_stage(flags.workdir)
    config = read_json(flags.workdir / "config.json", {})
    if in_run:
        check_own_export(flags, forms, "budget" in config)
    student, params, taken = load_trained(flags.workdir, stage, flags.step)
    tell_unfinished(flags.workdir, taken)
    if flags.documents:
        export_router(student, load(flags.documents, key="documents"), flags.out, flags.overwrite)
        if push:
            push_folder(push, flags.out)
        return 0
    plain = with_built_in_pooler(student) if flags.plain else student
    if flags.plain:
        params = without_unfit(params, plain is not student)
    measured = measured_instead(flags.workdir, stage, taken, flags.step is not None)
    if plain is not student:
        measured = f"pooler {student.pooling}"
    texts = read_texts(flags.calibrate, key="calibrate", at_most=CALIBRATION_TEXTS).texts if flags.calibrate else []

    def add(folder: Path) -> None:
        add_modules(plain, params, flags.workdir, folder)
        for form in forms:
            add_form(plain, folder, form, texts)
        of_folder = plain.num_params if measured else 0
        write_card(flags.workdir, folder, measured, release=release, num_params=of_folder)

    with_graph = flags.format == "onnx" or (in_run and config.get("onnx", False))
    export(plain, flags.out, with_graph, [add], flags.overwrite, in_run)
    if flags.plain and (code := custom_files(plain)):
        log.warning(
            "the folder still needs trust_remote_code: a decoder that reads both ways carries %s", ", ".join(code)
        )
    if push:
        push_folder(push, flags.out)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(formatter_class=CommandHelp, prog="python -m jdistill.export", description=__doc__)
    parser.add_argument(
        "--workdir",
        required=True,
        help="of the run whose student is exported, at the checkpoint that its config names",
    )
    parser.add_argument("--out", type=local_only, required=True, help="the folder to write")
    parser.add_argument(
        "--format",
        choices=("safetensors", "onnx", *FORMATS_ADDED, "site"),
        default="safetensors",
        help="onnx adds onnx/model.onnx; gguf a file for llama.cpp, gguf/model.gguf, in float32, float16 or Q8_0; site writes a page in its "
        "place, which searches the run's texts in a browser",
    )
    parser.add_argument(
        "--quantize",
        choices=QUANTIZATIONS,
        default="",
        help=f"adds onnx/{INT8_GRAPH}, a byte a weight, embeddings included",
    )
    parser.add_argument(
        "--quantize_for",
        choices=("onnx", "torch"),
        default="",
        help="of --quantize: torch adds torch_int8, a folder for sentence-transformers with trust_remote_code, in place of the graph",
    )
    parser.add_argument(
        "--target", nargs="+", default=[], metavar="FORM", help=f"adds further forms: {', '.join(TARGETS)}"
    )
    parser.add_argument(
        "--calibrate",
        default="",
        metavar="TEXTS",
        help=f"for int8-calibrated: any text source, of which {CALIBRATION_TEXTS} are read",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="a pooler that sentence-transformers lacks becomes the mean over the same layers, for loading without trust_remote_code",
    )
    parser.add_argument(
        "--documents",
        default="",
        metavar="MODEL",
        help="writes a Router of sentence-transformers: queries by the student, documents by this model, as a rule the teacher",
    )
    _add_release(parser)
    parser.add_argument(
        "--web_runtime",
        default="",
        metavar="PLACE",
        help="for site: the folder node_modules that holds onnxruntime-web and @huggingface/tokenizers, or the https address of a CDN",
    )
    parser.add_argument("--stage", default="", help="the stage whose student is exported; without it, the last one")
    parser.add_argument(
        "--step", type=int, help="of a kept checkpoint to export instead of the one that the config names"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace --out whatever it holds")
    return parser


def _add_release(parser: argparse.ArgumentParser) -> None:
    """The flags of who gets the student, and of what its card says that no run knows."""
    parser.add_argument(
        "--push",
        default="",
        metavar="OWNER/NAME",
        help="sends the folder to the Hugging Face hub, once it has passed its check; a repository that is new is private",
    )
    parser.add_argument("--push_public", action="store_true", help="of --push: anybody may read the repository")
    parser.add_argument("--license", type=license_name, help="of the student, as the hub names it, such as apache-2.0")
    parser.add_argument(
        "--language", type=language_code, nargs="+", default=[], help="that it is for, such as en de; or multilingual"
    )


def export_site(flags: argparse.Namespace) -> None:
    """Writes a search page of the run's own export and index. Raises UserError beside flags of other formats."""
    if flags.format != "site":
        raise UserError(f"--web_runtime={flags.web_runtime} is of --format=site")
    others = "target quantize quantize_for calibrate plain documents stage step push license language"
    for name in others.split():
        if getattr(flags, name) not in ("", [], False, None):
            raise UserError(f"--format=site is made of the run's own export and index; leave --{name} out")
    check_out(flags.out, SITE_SEAL, "--out", flags.overwrite, flags.workdir)
    write_site(flags.workdir, flags.out, flags.web_runtime, flags.overwrite)


def check_own_export(flags: argparse.Namespace, forms: Sequence[str], has_budget: bool) -> None:
    """Refuses what would put another model in the place of the run's own export, which its figures and its index are of; and further forms,
    which the run's own command would take away with the next export."""
    if forms or has_budget:
        what = f"{forms[0]} is another form" if forms else "the run has a budget, whose form is in its export"
        raise UserError(
            f"--out={flags.out} is the run's own export, and {what}: name another --out. The run's own command, python -m "
            "jdistill.main, writes its export again where that is missing"
        )
    own = {"documents": "", "plain": False, "step": None, "stage": last_stage(flags.workdir) if flags.stage else ""}
    for name, value in own.items():
        if getattr(flags, name) != value:
            raise UserError(
                f"--{name} is for a folder of its own: --out={flags.out} is the run's export, which its figures and its index are of; "
                f"leave --{name} out, or name another --out"
            )


def add_modules(student: Encoder, params: Tree, workdir: Path, folder: Path) -> None:
    """Writes what was trained beside the student: an interaction module, and a classifier's head, which names its labels."""
    if "iem" in params:
        interaction = interaction_of(ConfigDict(json.loads((workdir / "config.json").read_text())))
        save_interaction(PairScorer(student, params["iem"], interaction), folder)
    of_run = workdir / "export"
    if "head" in params:
        if not (of_run / "head.json").is_file():
            raise UserError(
                f"{of_run / 'head.json'} is missing, which names the labels that the head tells apart: the run's own command, "
                "python -m jdistill.main, writes it as the run ends"
            )
        save_head(replace(load_classifier(str(of_run)), encoder=student, head=params["head"]), folder)
