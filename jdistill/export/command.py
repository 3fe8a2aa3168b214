"""Export: a run's student as a folder that transformers, sentence-transformers and ONNX Runtime load with no extra
code.

    python -m jdistill.export --workdir runs/simtde --out student [--format=onnx] [--quantize=int8 [--quantize_for=torch]]

The folder is written beside its place, encodes a fixed set of texts in every framework at hand, and takes its place
only if those agree with Flax.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from safetensors.numpy import save_file

from jdistill.core import files
from jdistill.core.errors import UserError, exits_cleanly
from jdistill.core.files import write_json
from jdistill.core.folders import check_out, replacing
from jdistill.core.progress import log, setup_logging
from jdistill.data.text.sources import read_texts
from jdistill.encoder import loading
from jdistill.encoder.classifier import load_classifier, save_head
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import bilstm as bilstm_files
from jdistill.encoder.formats import hf
from jdistill.encoder.formats.st_writer import (
    WRITTEN,
    custom_files,
    is_built_in,
    nearest_built_in,
    needs_all_layers,
    save_tokenizer,
    write_module_weights,
    write_modules,
)
from jdistill.encoder.pair_scorer import PairScorer, save_interaction
from jdistill.evals.collapse import effective_rank
from jdistill.export import torch_int8
from jdistill.export.card import write_card
from jdistill.export.onnx import graph as onnx_graph
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.quantize import KINDS, quantize
from jdistill.methods.d2llm import interaction_of
from jdistill.models.bilstm import BilstmConfig
from jdistill.models.decoder import DecoderConfig
from jdistill.retrieval.index import unit_rows
from jdistill.run.workdir import check_is_run
from jdistill.students.adapted import adapted_weights
from jdistill.train.checkpoint import Checkpoints

# Max abs, float32, between Flax and each other framework; a decoder's large activations round more.
TOLERANCE, DECODER_TOLERANCE = 1e-4, 1e-3
KIND = "export"  # of the seal
LEAST_COSINE = 0.99  # mean, between an int8 graph and Flax


def write_files(model: Encoder, folder: Path) -> None:
    """The encode contract in sentence-transformers' layout, weights excepted: architecture, tokenizer, pooling, prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    if not isinstance(model.config, BilstmConfig):
        all_layers = {"output_hidden_states": True} if needs_all_layers(model.pooling) else {}
        write_json(folder / "config.json", hf.write_config(model.config) | all_layers)
        save_tokenizer(model, folder)
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": model.max_length, "do_lower_case": False})
    write_modules(model, folder)
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": model.prompts, "default_prompt_name": model.default_prompt, "similarity_fn_name": "cosine"},
    )


def write_weights(model: Encoder, folder: Path) -> None:
    """model.safetensors of the encoder and of each module that has weights."""
    if isinstance(model.config, BilstmConfig):
        bilstm_files.write_weights(folder, model.params)
    else:
        save_file(hf.to_hf(model.config, model.params), folder / "model.safetensors", metadata={"format": "pt"})
    write_module_weights(model, folder)


def export(
    model: Encoder,
    out: Path,
    onnx: bool = False,
    add: Sequence[Callable[[Path], Mapping[str, float] | None]] = (),
    overwrite: bool = False,
    in_run: bool = False,
) -> dict[str, float]:
    """Writes `model` to the folder `out` and returns the checks: framework -> max abs difference from Flax.

    Args:
      out: a new folder, an empty one, or an export of ours, which is replaced.
      onnx: leave the graph (pooling and normalisation included) in out/onnx/model.onnx.
      add: functions that write further files into the folder before it takes its place; what they return joins the checks.
      overwrite: replace whatever is in `out`.
      in_run: `out` is a run's own, which may be from before exports had a seal.

    Raises: UserError, and leaves `out` as it was, if a check differs by more than 1e-4 (decoders: 1e-3) of the vectors' length, and if
    `out` holds anything that is not ours.
    """
    checks: dict[str, float] = {}
    legacy = WRITTEN if in_run else ()
    about = {"checks": checks, "settings": {"onnx": onnx}}
    with replacing(out, KIND, key="--out", overwrite=overwrite, legacy=legacy, **about) as beside:
        write_files(model, beside)
        write_weights(model, beside)
        checks |= check(model, beside, keep_onnx=onnx)
        for write in add:
            checks |= write(beside) or {}
    log.info(
        "exported to %s; max abs difference from Flax: %s",
        out,
        ", ".join(f"{name} {value:.1e}" for name, value in checks.items()),
    )
    if "sentence-transformers" not in checks:
        log.info(
            "torch and sentence-transformers are not installed, so the folder was checked through its ONNX graph alone"
        )
    return checks


def check(model: Encoder, folder: Path, keep_onnx: bool) -> dict[str, float]:
    """Encodes the probe texts from the files of `folder` with each framework at hand: name -> max abs difference from Flax.

    Raises UserError where one is more than float32 explains.
    """
    texts = list(PROBE_TEXTS)
    expected = model.encode(texts)
    if not effective_rank(expected):
        log.warning("WARNING: the model gives the same vector for each of %d different texts", len(texts))
    graph = onnx_graph.save(folder)
    checks = {"ONNX Runtime": _max_abs(onnx_graph.run(graph, _tokens(model, texts)), expected)}
    if not keep_onnx:
        shutil.rmtree(graph.parent)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        pass
    else:
        # Code of ours in the folder runs only if sentence-transformers is told so.
        loaded = SentenceTransformer(str(folder), device="cpu", trust_remote_code=bool(custom_files(model)))
        checks["sentence-transformers"] = _max_abs(loaded.encode(texts, show_progress_bar=False), expected)
    # float32 rounds in proportion to the numbers' size, and vectors that are not normalised may have any length.
    length = float(np.sqrt(np.square(expected).sum(1).mean()))
    tolerance = length * (DECODER_TOLERANCE if isinstance(model.config, DecoderConfig) else TOLERANCE)
    for framework, difference in checks.items():
        if not difference <= tolerance:
            raise UserError(
                f"the export encodes the {len(texts)} probe texts differently in {framework} than in Flax: max abs {difference:.2e}, "
                f"more than {tolerance:.0e}; nothing was written"
            )
    return checks


def quantized_for_torch(model: Encoder, folder: Path, kind: str, texts: list[str]) -> Path:
    """Writes the int8 form of an exported folder for torch, the folder torch_int8 or torch_int8_calibrated in it.

    Raises UserError, and writes nothing, as quantized() does, and where the torch extra is missing.
    """
    out = torch_int8.save(model, folder, folder / f"torch_{kind.replace('-', '_')}", texts)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        shutil.rmtree(out)
        raise UserError("--quantize for torch needs the torch extra: pip install 'jdistill[torch]'") from None
    loaded = SentenceTransformer(str(out), device="cpu", trust_remote_code=True)  # code that we have just written
    theirs = loaded.encode(list(PROBE_TEXTS), show_progress_bar=False)
    sizes = (folder / "model.safetensors").stat().st_size, (out / "int8.safetensors").stat().st_size
    return _close_enough(model, theirs, sizes, out, f"{kind} for torch")


def quantized(model: Encoder, folder: Path, kind: str, texts: list[str]) -> Path:
    """Writes the int8 graph of an exported folder (quantize.KINDS), for which texts are needed if it is calibrated.

    Raises UserError, and writes nothing, where its vectors of the probe texts have a mean cosine to Flax's below 0.99.
    """
    out = folder / "onnx" / f"model_{kind.replace('-', '_')}.onnx"
    graph = folder / "onnx" / "model.onnx"
    keep_graph = graph.is_file()
    if not keep_graph:
        graph = onnx_graph.save(folder)
    batches = (
        [_tokens(model, texts[i : i + 16]) for i in range(0, len(texts), 16)] if KINDS[kind] == "calibrated" else []
    )
    try:
        quantize(graph, out, batches)
        theirs = onnx_graph.run(out, _tokens(model, list(PROBE_TEXTS)))
        sizes = graph.stat().st_size, out.stat().st_size
    finally:
        if not keep_graph:
            graph.unlink()
    return _close_enough(model, theirs, sizes, out, kind)


def _close_enough(model: Encoder, theirs: np.ndarray, sizes: tuple[int, int], out: Path, kind: str) -> Path:
    """The int8 form `out`, or, where its vectors of the probe texts stray, a UserError and nothing. sizes: bytes before, after."""
    cosine = float((unit_rows(model.encode(list(PROBE_TEXTS))) * unit_rows(theirs)).sum(1).mean())
    if cosine < LEAST_COSINE:
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        raise UserError(
            f"the vectors of {kind} have a mean cosine of {cosine:.4f} to Flax's, below {LEAST_COSINE}; nothing was written"
            + ("; --quantize=int8 scales each text by itself and is closer" if "calibrated" in kind else "")
        )
    log.info(
        "%s: %.1f MB, %.0f %% smaller than float32; mean cosine to it %.4f",
        out, sizes[1] / 1e6, 100 * (1 - sizes[1] / sizes[0]), cosine,
    )  # fmt: skip
    return out


def _tokens(model: Encoder, texts: list[str]) -> dict[str, np.ndarray]:
    tokens = model.tokenizer(
        [model.prompts.get(model.default_prompt or "", "") + text for text in texts],
        truncation=True,
        max_length=model.max_length,
        padding=True,
        return_tensors="np",
    )
    return {name: np.asarray(value, np.int64) for name, value in tokens.items()}


def load_student(workdir: Path, stage: str = "", step: int | None = None) -> Encoder:
    """The student of a stage (empty: the one that began last) at a checkpoint (None: the one with the best dev score).

    From its Orbax checkpoints and the encode contract beside them; the teacher is not needed, but for a student that is adapters on
    the teacher's own weights.
    """
    return load_trained(workdir, stage, step)[0]


def load_trained(workdir: Path, stage: str = "", step: int | None = None) -> tuple[Encoder, dict[str, Any]]:
    """As load_student, and all parameters that were trained."""
    begun = sorted(workdir.glob("*/student/modules.json"), key=lambda path: path.stat().st_mtime_ns)
    stage = stage or (begun[-1].parts[-3] if begun else "distil")
    folder = workdir / stage
    if not (folder / "student" / "modules.json").is_file():
        raise UserError(f"{workdir} holds no stage {stage!r} with a student; is it the --workdir of a run?")
    if files.read_seal(folder / "student", "student") and (wrong := files.damage(folder / "student", "student")):
        raise UserError(
            f"{folder / 'student'} is damaged ({', '.join(wrong)}); the run's own command, python -m jdistill.main, writes it again"
        )
    checkpoints = Checkpoints(folder / "checkpoints", keep_last=1_000_000)
    if step is not None and step not in checkpoints.steps():
        raise UserError(f"{folder} keeps no checkpoint of step {step}; it has {checkpoints.steps()}")
    # The best, and where it is damaged, which is told, the next best; without dev scores the newest.
    _, state, _ = checkpoints.restore(None, (checkpoints.best_first() or None) if step is None else [step])
    checkpoints.close()
    params = state["params"]
    weights = params["student"] if "student" in params else adapted_weights(workdir, params)
    return loading.load(str(folder / "student"), key="workdir", weights=weights), params


def _max_abs(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(np.asarray(a, np.float32) - b).max())


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jdistill.export", description=__doc__)
    parser.add_argument("--workdir", type=Path, required=True, help="of the run whose best checkpoint is exported")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument(
        "--format", choices=("safetensors", "onnx"), default="safetensors", help="onnx adds onnx/model.onnx"
    )
    parser.add_argument(
        "--quantize", choices=KINDS, default="", help="adds onnx/model_int8.onnx, a byte a weight, embeddings included"
    )
    parser.add_argument(
        "--quantize_for",
        choices=("onnx", "torch"),
        default="onnx",
        help="torch adds torch_int8, a folder for sentence-transformers with trust_remote_code, in place of the graph",
    )
    parser.add_argument(
        "--calibrate", default="", metavar="TEXTS", help="for int8-calibrated: any text source, of which 512 are read"
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="a pooler that sentence-transformers lacks becomes the mean over the same layers, for loading without trust_remote_code",
    )
    parser.add_argument("--stage", default="", help="the stage whose student is exported; without it, the last one")
    parser.add_argument("--step", type=int, help="of a kept checkpoint to export instead of the best")
    parser.add_argument("--overwrite", action="store_true", help="replace --out whatever it holds")
    flags = parser.parse_args(argv)
    setup_logging()
    measured = "" if flags.step is None else "its best checkpoint"
    if (KINDS.get(flags.quantize) == "calibrated") != bool(flags.calibrate):
        raise UserError("--quantize=int8-calibrated and --calibrate=TEXTS go together")
    check_is_run(flags.workdir)
    in_run = flags.out.resolve() == (flags.workdir / "export").resolve()
    check_out(flags.out, KIND, "--out", flags.overwrite, None if in_run else flags.workdir)
    student, params = load_trained(flags.workdir, flags.stage, flags.step)
    if flags.plain and not is_built_in(student.pooling):
        if student.dense:
            raise UserError(
                f"--plain: the student projects what {student.pooling} gives, so its pooler cannot be changed"
            )
        log.info("pooler %s becomes %s", student.pooling, nearest_built_in(student.pooling))
        measured = f"pooler {student.pooling}"
        student = replace(student, pooling=nearest_built_in(student.pooling))
    texts = read_texts(flags.calibrate, key="calibrate").texts[:512] if flags.calibrate else []
    of_run = flags.workdir / "export"
    kind = (
        interaction_of(ConfigDict(json.loads((flags.workdir / "config.json").read_text()))) if "iem" in params else ""
    )

    def add(folder: Path) -> None:
        if "iem" in params and not flags.plain:
            save_interaction(PairScorer(student, params["iem"], kind), folder)
        if "head" in params and (of_run / "head.json").is_file():  # a classifier's, which names its labels
            save_head(replace(load_classifier(str(of_run)), encoder=student, head=params["head"]), folder)
        if flags.quantize:
            (quantized_for_torch if flags.quantize_for == "torch" else quantized)(
                student, folder, flags.quantize, texts
            )
        write_card(flags.workdir, folder, measured)

    if "iem" in params and flags.plain:
        log.info("the interaction module was trained on PMA's vectors, and is left out")
    export(student, flags.out, flags.format == "onnx", [add], flags.overwrite, in_run)
    if flags.plain and (code := custom_files(student)):
        log.warning(
            "the folder still needs trust_remote_code: a decoder that reads both ways carries %s", ", ".join(code)
        )
    return 0
