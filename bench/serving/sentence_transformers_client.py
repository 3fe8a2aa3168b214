"""sentence-transformers, by the backend that the third argument names: torch, onnx, onnx in int8, openvino, openvino in float32."""

import sys
from typing import Any

from measure import FOLDER, measure
from sentence_transformers import SentenceTransformer

KEYWORDS: dict[str, dict[str, Any]] = {
    "torch": {},
    "onnx": {"provider": "CPUExecutionProvider", "file_name": "onnx/model.onnx"},
    "onnx-int8": {"provider": "CPUExecutionProvider", "file_name": "onnx/model_quint8_avx2.onnx"},
    "openvino": {},
    "openvino-float32": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}},
}
backend: Any = sys.argv[3].partition("-")[0]
model = SentenceTransformer(str(FOLDER), device="cpu", backend=backend, model_kwargs=KEYWORDS[sys.argv[3]])
measure(
    lambda texts, batch: model.encode(texts, batch_size=batch, show_progress_bar=False),
    "sentence-transformers",
    "transformers",
)
