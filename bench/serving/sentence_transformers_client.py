"""sentence-transformers, by the backend that the third argument names: torch, onnx or openvino."""

import sys

from measure import FOLDER, measure
from sentence_transformers import SentenceTransformer

BACKEND = sys.argv[3]
ONNX = {"provider": "CPUExecutionProvider", "file_name": "onnx/model.onnx"}
model = SentenceTransformer(str(FOLDER), device="cpu", backend=BACKEND, model_kwargs=ONNX if BACKEND == "onnx" else {})
measure(
    lambda texts, batch: model.encode(texts, batch_size=batch, show_progress_bar=False),
    "sentence-transformers",
    "transformers",
)
