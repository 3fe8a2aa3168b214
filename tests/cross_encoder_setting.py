"""A tiny cross-encoder of sentence-transformers, random, with MiniLM's tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import real_teacher_folder


def save_cross_encoder(folder: Path, seed: int = 0, id2label: dict[int, str] | None = None, **settings: Any) -> Any:
    """Saves it to the folder, one layer and 32 wide, and gives what sentence-transformers loads from there."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    st = pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    import transformers

    labels = id2label or {0: "LABEL_0"}
    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64,
        initializer_range=0.5, num_labels=len(labels), id2label=labels, label2id={label: i for i, label in labels.items()},
    )  # fmt: skip
    torch.manual_seed(seed)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(real_teacher_folder(), model_max_length=64)
    tokenizer.save_pretrained(folder)
    st.CrossEncoder(str(folder), **settings).save_pretrained(str(folder))
    return st.CrossEncoder(str(folder))
