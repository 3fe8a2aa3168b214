"""The two final states of a bidirectional LSTM, a text's last token forwards and its first backwards: a module for
sentence-transformers.

Part of a model that jdistill exported; needs torch and sentence-transformers only.
"""

import torch
from sentence_transformers.models import Module


class FinalStates(Module):
    config_keys = ["embedding_dimension"]

    def __init__(self, embedding_dimension: int) -> None:
        super().__init__()
        self.embedding_dimension = embedding_dimension

    def forward(self, features: dict, **kwargs) -> dict:
        tokens, half = features["token_embeddings"], self.embedding_dimension // 2
        last = features["attention_mask"].sum(dim=1).clamp(min=1) - 1
        forwards = tokens[torch.arange(len(tokens), device=tokens.device), last, :half]
        features["sentence_embedding"] = torch.cat([forwards, tokens[:, 0, half:]], dim=-1)
        return features

    def get_embedding_dimension(self) -> int:
        return self.embedding_dimension

    get_sentence_embedding_dimension = get_embedding_dimension

    def save(self, output_path: str, *args, **kwargs) -> None:
        self.save_config(output_path)
