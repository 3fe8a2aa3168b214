"""Infinity's server in a process of its own, asked through its OpenAI-compatible endpoint by the openai client."""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import openai
from measure import FOLDER, measure

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [
    str(Path(sys.executable).with_name("infinity_emb")),
    "v2",
    "--model-id",
    str(FOLDER),
    "--engine",
    sys.argv[3],
]
server = subprocess.Popen(
    [
        *command,
        "--device",
        "cpu",
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "--batch-size",
        "32",
        "--no-bettertransformer",
    ]
)
try:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read()
            break
        except OSError:
            if server.poll() is not None:
                raise SystemExit(f"the server ended with {server.returncode}") from None
            time.sleep(1)
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}", api_key="none")

    def encode(texts, batch):
        """The vectors of texts, so many a request."""
        parts = [texts[i : i + batch] for i in range(0, len(texts), batch)]
        found = [
            client.embeddings.create(input=part, model=FOLDER.name, encoding_format="float").data for part in parts
        ]
        return [row.embedding for part in found for row in part]

    measure(encode, "infinity-emb", "transformers", server=server.pid)
finally:
    server.terminate()
    server.wait()
