"""ONNX Runtime and tokenizers alone: the graph pools, projects and normalises."""

import json

import numpy as np
import onnxruntime
from measure import FOLDER, measure
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
tokenizer.enable_truncation(json.loads((FOLDER / "sentence_bert_config.json").read_text())["max_seq_length"])
tokenizer.enable_padding(pad_id=json.loads((FOLDER / "config.json").read_text()).get("pad_token_id") or 0)
session = onnxruntime.InferenceSession(str(FOLDER / "onnx" / "model.onnx"), providers=["CPUExecutionProvider"])
taken = {item.name for item in session.get_inputs()}


def encode(texts: list[str], batch: int) -> np.ndarray:
    """The vectors of texts, so many at a time."""
    vectors = []
    for start in range(0, len(texts), batch):
        rows = tokenizer.encode_batch(texts[start : start + batch])
        feeds = {
            "input_ids": np.array([row.ids for row in rows]),
            "attention_mask": np.array([row.attention_mask for row in rows]),
            "token_type_ids": np.array([row.type_ids for row in rows]),
        }
        vectors.append(session.run(["sentence_embedding"], {name: feeds[name] for name in taken})[0])
    return np.concatenate(vectors)


measure(encode, "onnxruntime", "tokenizers")
