"""A transformer whose linear layers and embeddings are int8, for sentence-transformers on CPU.

Part of a model that jdistill exported; needs torch, transformers and sentence-transformers only. int8.safetensors beside it
holds, for each such layer, weight int8 and scale float32, one for each row; bias; and, if its inputs were calibrated,
input_scale, one for each channel, by which weight is multiplied already. Without it each token's vector is scaled by its own
largest magnitude. Where torch's int8 product is a plain loop (multiplies_int8), weights are made float32 as they are loaded, and
inputs are not rounded.
"""

from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers.models import Transformer
from torch import nn


class Int8Embedding(nn.Module):
    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.weight[ids].float() * self.scale[ids].unsqueeze(-1)


class Int8Linear(nn.Module):
    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None
    input_scale: torch.Tensor | None

    def __init__(
        self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, input_scale: torch.Tensor | None
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight.t().contiguous())
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.register_buffer("input_scale", input_scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if self.input_scale is None:
            by_token = rows.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 127
            out = torch._int_mm((rows / by_token).round().to(torch.int8), self.weight) * by_token
        else:
            out = torch._int_mm((rows / self.input_scale).round().clamp(-127, 127).to(torch.int8), self.weight)
        out = out * self.scale
        if self.bias is not None:
            out = out + self.bias
        return out.reshape(*x.shape[:-1], -1)


def multiplies_int8() -> bool:
    """Whether torch has a quick int8 product here. On a processor without VNNI it is a plain loop, far slower than float32's."""
    has_vnni = getattr(torch.cpu, "_is_vnni_supported", None)
    return has_vnni is None or bool(has_vnni())


def float_linear(
    weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, input_scale: torch.Tensor | None
) -> nn.Linear:
    """The layer of these int8 weights in float32. Arguments as of Int8Linear."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    exact = weight.float() * scale.unsqueeze(-1)
    layer.weight = nn.Parameter(exact if input_scale is None else exact / input_scale, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


class Int8Transformer(Transformer):
    def _load_model(self, model_name_or_path: str, transformer_task: str, config, *args, **kwargs) -> nn.Module:
        tensors = load_file(Path(model_name_or_path) / "int8.safetensors")
        # By its own name: AutoModel's of a T5 has a decoder too.
        model = getattr(transformers, config.architectures[0])(config).eval()
        words = model.get_input_embeddings()
        for name, layer in list(model.named_modules()):
            scale = tensors.pop(f"{name}.scale", None)
            if scale is None:
                continue
            weight = tensors.pop(f"{name}.weight")
            small: nn.Module
            if isinstance(layer, nn.Embedding):
                # Gemma's table multiplies what it gives.
                small = Int8Embedding(weight, scale * float(getattr(layer, "embed_scale", 1.0)))
            else:
                bias, input_scale = (tensors.pop(f"{name}.{key}", None) for key in ("bias", "input_scale"))
                small = (Int8Linear if multiplies_int8() else float_linear)(weight, scale, bias, input_scale)
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, small)
            if layer is words:  # which some models hold twice
                model.set_input_embeddings(small)
        left = model.load_state_dict(tensors, strict=False)
        if left.unexpected_keys:
            raise ValueError(f"int8.safetensors holds tensors that the model lacks: {left.unexpected_keys}")
        return model
