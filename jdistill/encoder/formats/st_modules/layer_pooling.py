"""Pools the last layers of a transformer element by element, then the tokens: a module for sentence-transformers.

Part of a model that jdistill exported; needs torch and sentence-transformers only. config.json beside it says which hidden
states are taken ("layers", 0 being the embedding layer's output) and how ("over_layers": max or concat).
"""

import torch
from sentence_transformers.models import Module


class LayerPooling(Module):
    config_keys = ["embedding_dimension", "layers", "over_layers"]

    def __init__(self, embedding_dimension: int, layers: list, over_layers: str) -> None:
        super().__init__()
        if over_layers not in ("max", "concat"):
            raise ValueError(f"over_layers is {over_layers!r}; it must be max or concat")
        self.embedding_dimension, self.layers, self.over_layers = embedding_dimension, layers, over_layers

    def forward(self, features: dict, **kwargs) -> dict:
        taken = [features["all_layer_embeddings"][layer] for layer in self.layers]
        tokens = torch.cat(taken, dim=-1) if self.over_layers == "concat" else torch.stack(taken).amax(dim=0)
        mask = features["attention_mask"].unsqueeze(-1).to(tokens.dtype)
        features["sentence_embedding"] = (tokens * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9)
        return features

    def get_embedding_dimension(self) -> int:
        return self.embedding_dimension * (len(self.layers) if self.over_layers == "concat" else 1)

    get_sentence_embedding_dimension = get_embedding_dimension

    def save(self, output_path: str, *args, **kwargs) -> None:
        self.save_config(output_path)
