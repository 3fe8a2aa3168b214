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
        out = super().forward({**features, "attention_mask": self.by_layer_type(hidden)}, **kwargs)
        out["attention_mask"] = mask
        return out

    def by_layer_type(self, hidden: torch.Tensor) -> torch.Tensor | dict:
        """What hides tokens, [B, 1, L, L]; where some layers slide, of each type of layer."""
        window = getattr(self.auto_model.config, "sliding_window", None)
        if window is None:
            return hidden
        place = torch.arange(hidden.shape[-1], device=hidden.device)
        far = (place[:, None] - place[None, :]).abs() >= window
        near = hidden.masked_fill(far, torch.finfo(hidden.dtype).min)
        if getattr(self.auto_model.config, "layer_types", None) is None:
            return near
        return {"full_attention": hidden, "sliding_attention": near}
