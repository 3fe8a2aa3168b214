"""Pools a text's tokens by multihead attention with one learnt query (PMA, of D2LLM): a module for sentence-transformers.

Part of a model that jdistill exported; needs torch and sentence-transformers only.
"""

import torch
from sentence_transformers.models import Module
from torch import nn


class PmaPooling(Module):
    config_keys = ["embedding_dimension", "heads"]

    def __init__(self, embedding_dimension: int, heads: int) -> None:
        super().__init__()
        self.embedding_dimension, self.heads = embedding_dimension, heads
        self.query = nn.Parameter(torch.zeros(embedding_dimension))
        self.to_query, self.key, self.value, self.out, self.feed = (
            nn.Linear(embedding_dimension, embedding_dimension) for _ in range(5)
        )
        self.norm_1, self.norm_2 = nn.LayerNorm(embedding_dimension), nn.LayerNorm(embedding_dimension)

    def forward(self, features: dict, **kwargs) -> dict:
        tokens, mask = features["token_embeddings"].float(), features["attention_mask"].bool().unsqueeze(-1)
        batch, length, width = tokens.shape
        query = self.to_query(self.query).reshape(self.heads, -1)
        key, value = (layer(tokens).reshape(batch, length, self.heads, -1) for layer in (self.key, self.value))
        scores = torch.einsum("hk,blhk->blh", query, key) * (width // self.heads) ** -0.5
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=1) * mask  # a text without a token has none
        mixed = torch.einsum("blh,blhk->bhk", weights, value).reshape(batch, width)
        h = self.norm_1(self.out(mixed) + self.query)
        features["sentence_embedding"] = self.norm_2(h + torch.relu(self.feed(h)))
        return features

    def get_embedding_dimension(self) -> int:
        return self.embedding_dimension

    get_sentence_embedding_dimension = get_embedding_dimension

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs) -> "PmaPooling":
        where = {
            name: kwargs[name] for name in ("token", "cache_folder", "revision", "local_files_only") if name in kwargs
        }
        model = cls(**cls.load_config(model_name_or_path, subfolder=subfolder, **where))
        return cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=model, **where)

    def save(self, output_path: str, *args, safe_serialization: bool = True, **kwargs) -> None:
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)
