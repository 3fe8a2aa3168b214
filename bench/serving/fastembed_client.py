"""fastembed, with the folder as a model of the user's own."""

import json

import numpy as np
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from measure import FOLDER, measure

TextEmbedding.add_custom_model(
    model="local/student",
    pooling=PoolingType.MEAN,
    normalization=True,
    sources=ModelSource(url="https://localhost/never-asked"),
    dim=json.loads((FOLDER / "config.json").read_text())["hidden_size"],
    model_file="onnx/model.onnx",
)
model = TextEmbedding("local/student", specific_model_path=str(FOLDER))
measure(lambda texts, batch: np.array(list(model.embed(texts, batch_size=batch))), "fastembed", "onnxruntime")
