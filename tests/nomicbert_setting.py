"""A small random NomicBERT with BERT's tokenizer, which NomicBERT's is, and the keys of the published files."""

from __future__ import annotations

from typing import Any

from conftest import random_params, real_teacher_folder
from transformers import AutoTokenizer

from jdistill.encoder.encoder import Encoder
from jdistill.models.nomicbert import NomicBertConfig

# As nomic-embed-text-v1 has them, but for the sizes: GPT-2's names, and those of the code that came with it.
PUBLISHED: dict[str, Any] = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertModel"],
    "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "stranger/code--modeling.NomicBertModel"},
    "bos_token_id": None,
    "causal": False,
    "embd_pdrop": 0.0,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 32,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 32,
    "n_head": 4,
    "n_inner": 48,
    "n_layer": 4,
    "n_positions": 96,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "type_vocab_size": 2,
    "use_rms_norm": False,
    "vocab_size": 30528,
}


def tiny_nomicbert_config(**changes: object) -> NomicBertConfig:
    """4 layers, 32 wide; the table has some rows more than the vocabulary, as the published one."""
    settings: dict = dict(
        model_type="nomic_bert",
        vocab_size=30528,
        embedding_size=32,
        hidden_size=32,
        num_layers=4,
        num_heads=4,
        intermediate_size=48,
        max_positions=96,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
        activation="silu",
        pad_token_id=0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        rope_theta=1000.0,
    )
    return NomicBertConfig(**(settings | changes))


def make_nomicbert(seed: int = 0, **changes: object) -> Encoder:
    config = tiny_nomicbert_config(**changes)
    tokenizer = AutoTokenizer.from_pretrained(real_teacher_folder())
    tokenizer.model_max_length = config.usable_positions
    params = random_params(config, seed)
    return Encoder(config, params, tokenizer, normalize=True, max_length=config.usable_positions, source="tiny")
