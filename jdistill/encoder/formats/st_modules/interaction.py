"""Scores a query and a passage from their vectors by a small network (IEM, of D2LLM): a module for sentence-transformers.

Part of a model that jdistill exported; needs torch and sentence-transformers only. Vectors pass through it as they are:

    model = SentenceTransformer(folder, trust_remote_code=True)
    logits = model[-1].score(model, queries, passages, symmetric=False)   # one for each pair; sigmoid of it: a probability
"""

import torch
from sentence_transformers.models import Module
from torch import nn


class Interaction(Module):
    """symmetric: whether the two texts say the same; else whether the passage answers the query. interaction: dual has a branch for each
    question, single the first one for both. beside_cosine: the vectors' cosine, scaled, is added to the logits."""

    config_keys = ["embedding_dimension", "hidden", "interaction", "beside_cosine"]

    def __init__(self, embedding_dimension: int, hidden: int, interaction: str, beside_cosine: bool = False) -> None:
        super().__init__()
        self.embedding_dimension, self.hidden, self.interaction = embedding_dimension, hidden, interaction
        self.beside_cosine = beside_cosine
        self.first = nn.Linear(2 * embedding_dimension, hidden)
        self.symmetric, self.asymmetric = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, 1)
        if beside_cosine:
            self.cosine = nn.Parameter(torch.zeros(()))

    def forward(self, features: dict, **kwargs) -> dict:
        return features

    def of_vectors(self, queries: torch.Tensor, passages: torch.Tensor, symmetric: bool = True) -> torch.Tensor:
        """Logits [...] of vectors [..., D]."""
        branch = self.symmetric if symmetric or self.interaction == "single" else self.asymmetric
        first = torch.relu(self.first(torch.cat([queries, passages], dim=-1)))
        logits = self.output(torch.relu(branch(first))).squeeze(-1)
        if self.beside_cosine:
            logits = logits + self.cosine * nn.functional.cosine_similarity(queries, passages, dim=-1, eps=1e-12)
        return logits

    @torch.no_grad()
    def score(self, model, queries: list, passages: list, symmetric: bool = True, **encode) -> torch.Tensor:
        """Logits [N] of pairs of texts."""
        settings = {"convert_to_tensor": True, "show_progress_bar": False} | encode
        return self.of_vectors(
            model.encode_query(queries, **settings), model.encode_document(passages, **settings), symmetric
        )

    def get_embedding_dimension(self) -> int:
        return self.embedding_dimension

    get_sentence_embedding_dimension = get_embedding_dimension

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs) -> "Interaction":
        where = {
            name: kwargs[name] for name in ("token", "cache_folder", "revision", "local_files_only") if name in kwargs
        }
        model = cls(**cls.load_config(model_name_or_path, subfolder=subfolder, **where))
        return cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=model, **where)

    def save(self, output_path: str, *args, safe_serialization: bool = True, **kwargs) -> None:
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)
