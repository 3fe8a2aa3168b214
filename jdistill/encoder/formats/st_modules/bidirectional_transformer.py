"""A decoder whose tokens see the whole text, before and after: a transformer module for sentence-transformers.

Part of a model that jdistill exported; needs torch, transformers and sentence-transformers only. The weights are those of
the plain decoder beside it; only the attention mask differs.
"""

import torch
from sentence_transformers.models import Transformer


class BidirectionalTransformer(Transformer):
    def forward(self, features: dict, **kwargs) -> dict:
        mask = features["attention_mask"]
        dtype = next(self.parameters()).dtype
        hidden = torch.zeros(mask.shape[0], 1, mask.shape[1], mask.shape[1], dtype=dtype, device=mask.device)
        hidden = hidden.masked_fill(mask[:, None, None, :] == 0, torch.finfo(dtype).min)
        out = super().forward({**features, "attention_mask": hidden}, **kwargs)
        out["attention_mask"] = mask
        return out
