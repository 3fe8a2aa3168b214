"""A student in the servers that people run: does it load, are its vectors those of Flax, how fast is it, how much memory does it take.

    python bench/servers.py --model simtde=runs/simtde/export --text sentences.txt.gz [--only NAME ...] [--envs FOLDER]

llama.cpp reads the folder's gguf forms: python -m jdistill.export --target gguf gguf-float16 gguf-q8_0, or bench/gguf_models.py.

Each server has an environment of its own (bench/serving/NAME_client.py runs in it), made by pip or npm under --envs when it is first asked
for. 1,000 sentences, 32 at a time and one at a time; the largest difference from jdistill's own vectors, of length one. Writes
bench/results/servers.json, from which docs/serving.md has its table. What does not load stays in the table, with the error. The row of int8
needs a student exported with --quantize=int8, and its difference is that of rounding.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
from record import COMMIT, RESULTS, made_by, processor

CLIENTS = Path(__file__).parent / "serving"
SENTENCES = 1000
HANG, BUILD = 1200, 7200  # seconds
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Server:
    """client: the file in bench/serving that asks it. environment: its name. requirements: of pip; of npm for a .mjs. arguments: of the client.
    build: environment variables while they are installed, of what is compiled."""

    client: str
    environment: str
    requirements: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    build: tuple[tuple[str, str], ...] = ()


NEW = (TORCH, "sentence-transformers>=5", "transformers>=5")
OLD = (TORCH, "sentence-transformers>=5", "transformers>=4.57,<5", "optimum-onnx[onnxruntime]")
INTEL = (TORCH, "sentence-transformers>=5", "optimum-intel[openvino]")
# Compiled from source: what images need is left out, and one compiler runs at a time.
LLAMA_CPP = (("CMAKE_ARGS", "-DLLAVA_BUILD=OFF"), ("CMAKE_BUILD_PARALLEL_LEVEL", "1"))
SENTENCE_TRANSFORMERS = "sentence_transformers_client.py"
SERVERS = {
    "sentence-transformers, torch, transformers 5": Server(SENTENCE_TRANSFORMERS, "st-new", NEW, ("torch",)),
    "sentence-transformers, torch, transformers 4.57": Server(SENTENCE_TRANSFORMERS, "st-old", OLD, ("torch",)),
    "sentence-transformers, onnx": Server(SENTENCE_TRANSFORMERS, "st-old", OLD, ("onnx",)),
    "sentence-transformers, onnx in int8": Server(SENTENCE_TRANSFORMERS, "st-old", OLD, ("onnx-int8",)),
    "sentence-transformers, openvino": Server(SENTENCE_TRANSFORMERS, "st-intel", INTEL, ("openvino",)),
    "sentence-transformers, openvino in float32": Server(
        SENTENCE_TRANSFORMERS, "st-intel", INTEL, ("openvino-float32",)
    ),
    "transformers 5, AutoModel": Server("auto_model_client.py", "st-new", NEW),
    "transformers 4.57, AutoModel": Server("auto_model_client.py", "st-old", OLD),
    "ONNX Runtime alone": Server("onnxruntime_client.py", "ort", ("onnxruntime", "tokenizers", "numpy")),
    "fastembed": Server("fastembed_client.py", "fastembed", ("fastembed",)),
    "transformers.js, Node": Server("transformers_js_client.mjs", "node", ("@huggingface/transformers",)),
    "LangChain": Server(
        "langchain_client.py", "langchain", (TORCH, "langchain-huggingface", "sentence-transformers>=5")
    ),
    "LlamaIndex": Server("llama_index_client.py", "llama-index", (TORCH, "llama-index-embeddings-huggingface")),
    "Infinity": Server(
        "infinity_client.py",
        "infinity",
        (TORCH, "infinity-emb[server,torch]", "openai", "transformers<4.50"),
        ("torch",),
    ),
    **{
        f"llama.cpp, {weights}": Server(
            "llama_cpp_client.py", "llama-cpp", ("llama-cpp-python", "numpy"), (file,), LLAMA_CPP
        )
        for weights, file in (("float32", "model.gguf"), ("float16", "model-f16.gguf"), ("Q8_0", "model-q8_0.gguf"))
    },
}


class Failed(Exception):
    """What a server, or the making of its environment, said in its last line."""


def environment(server: Server, folder: Path) -> Path:
    """Makes the server's environment where it is not there, and returns its interpreter, or for node its folder."""
    place = folder / server.environment
    node = server.client.endswith(".mjs")
    done = place / "made"
    if not done.exists() or done.read_text() != repr(server.requirements):
        place.mkdir(parents=True, exist_ok=True)
        if node:
            checked(
                [
                    "npm",
                    "install",
                    "--no-fund",
                    "--no-audit",
                    "--ignore-scripts",
                    "--prefix",
                    str(place),
                    *server.requirements,
                ]
            )
        else:
            checked([sys.executable, "-m", "venv", "--clear", str(place)])
            pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q"]
            if TORCH in server.requirements:  # by this spelling alone, lest a wheel for GPUs comes
                checked([*pip, TORCH])
            checked([*pip, *server.requirements], BUILD, **dict(server.build))
            if (
                TORCH in server.requirements
            ):  # torchvision's wheel is built for another torch, and breaks transformers' import
                checked([*pip[:-2], "uninstall", "-q", "-y", "torchvision"])
        done.write_text(repr(server.requirements))
    return place if node else place / "bin" / "python"


def checked(command: list[str], limit: float = HANG, **variables: str) -> None:
    """Runs a command for `limit` seconds at most. Raises Failed with its last line, or where there is no such command."""
    env = os.environ | {"HF_HUB_OFFLINE": "1"} | variables
    try:
        ran = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
        )
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not installed") from None
    try:
        printed, errors = ran.communicate(timeout=limit)
    except BaseException as stopped:
        os.killpg(ran.pid, signal.SIGKILL)  # with what it has started: a server, compilers
        ran.communicate()
        if isinstance(stopped, subprocess.TimeoutExpired):
            raise Failed(f"stopped after {limit:.0f} s") from None
        raise
    if ran.returncode:
        lines = (errors.strip() or printed.strip()).splitlines() or [f"ended with {ran.returncode}"]
        raise Failed(lines[-1][:200])


def ask(server: Server, folder: Path, texts: list[str], reference: np.ndarray, envs: Path) -> dict[str, Any]:
    """One cell of the table: figures of a student in a server."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "texts.json").write_text(json.dumps(texts))
        try:
            by = environment(server, envs)
            if server.client.endswith(".mjs"):
                checked(["node", str(CLIENTS / server.client), str(folder), str(work)], NODE_ENVIRONMENT=str(by))
                vectors = np.array(json.loads((work / "vectors.json").read_text()), np.float32)
            else:
                checked([str(by), str(CLIENTS / server.client), str(folder), str(work), *server.arguments])
                vectors = np.load(work / "vectors.npy")
        except Failed as error:
            return {"loads": False, "error": str(error)}
        difference, cosine = float(np.abs(vectors - reference).max()), float((vectors * reference).sum(1).min())
        found = {
            "loads": True,
            "sentences": len(texts),
            "commit": COMMIT,
            "machine": processor(),
            "largest_difference": difference,
            "least_cosine": cosine,
        }
        return found | json.loads((work / "times.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", required=True, metavar="NAME=FOLDER", help="exported students")
    parser.add_argument("--text", required=True)
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="so many of the text's first")
    parser.add_argument(
        "--only", nargs="*", default=[], help="servers by their names; the others' figures stay as they are"
    )
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir()) / "jdistill-servers")
    flags = parser.parse_args()
    if unknown := set(flags.only) - SERVERS.keys():
        parser.error(f"there is no server {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")

    import jdistill
    from jdistill.core.files import write_json
    from jdistill.data.text.sources import read_texts

    texts = read_texts(flags.text, key="text").texts[: flags.sentences]
    path = RESULTS / "servers.json"
    before = json.loads(path.read_text()) if path.is_file() else {}
    models = dict(item.split("=", 1) for item in flags.model)
    rows: dict[str, dict[str, Any]] = before.get("students", {})
    about = made_by("python bench/servers.py --model NAME=FOLDER --text sentences.txt.gz", sentences=len(texts))
    if before:  # rows say themselves what is not as of the others
        about |= {key: before[key] for key in about if key in before}
    for model, source in models.items():
        folder = Path(source).resolve()
        reference = jdistill.load(str(folder)).encode(texts, normalize=True)
        of_model = rows.setdefault(model, {})
        for name, server in SERVERS.items():
            if not flags.only or name in flags.only:
                of_model[name] = ask(server, folder, texts, reference, flags.envs)
                print(f"{model}, {name}: {of_model[name]}", flush=True)
                rows[model] = {name: of_model[name] for name in SERVERS if name in of_model}  # in their order
                write_json(path, about | {"students": rows})


if __name__ == "__main__":
    main()
