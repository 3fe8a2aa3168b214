"""transformers' AutoModel alone, its last hidden states averaged over the tokens and brought to length one, as model cards show it."""

import json

import numpy as np
import torch
from measure import FOLDER, measure
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained(FOLDER), AutoModel.from_pretrained(FOLDER).eval()
length = json.loads((FOLDER / "sentence_bert_config.json").read_text())["max_seq_length"]


@torch.no_grad()
def encode(texts: list[str], batch: int) -> np.ndarray:
    """The vectors of texts, so many at a time."""
    vectors = []
    for start in range(0, len(texts), batch):
        some = texts[start : start + batch]
        tokens = tokenizer(some, padding=True, truncation=True, max_length=length, return_tensors="pt")
        mask = tokens["attention_mask"].unsqueeze(-1)
        mean = (model(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)
        vectors.append(torch.nn.functional.normalize(mean).numpy())
    return np.concatenate(vectors)


measure(encode, "transformers", "torch")
