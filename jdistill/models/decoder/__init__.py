"""Llama, SmolLM2, Mistral, Qwen2, Qwen3 and Gemma 3: module, config, names, ONNX, and how a student is cut from one."""

from jdistill.models.decoder.architecture import DecoderArchitecture
from jdistill.models.decoder.config import DecoderConfig
from jdistill.models.decoder.module import Decoder, next_token_logits, rope_frequencies

__all__ = ["Decoder", "DecoderArchitecture", "DecoderConfig", "next_token_logits", "rope_frequencies"]
