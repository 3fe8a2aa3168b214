"""The ONNX nodes of NomicBERT, from the files of a folder."""

from __future__ import annotations

from pathlib import Path

from jdistill.models.architecture import ReadTensors
from jdistill.models.nomicbert.config import NomicBertConfig
from jdistill.models.onnx_nodes import ONNX_ACTIVATIONS, Graph, OnnxBody, Weights
from jdistill.models.rotary_onnx import hidden_scores, rotary_attention, shape_and_mask, turn_of


def onnx_states(graph: Graph, config: NomicBertConfig, root: Path, read: ReadTensors) -> OnnxBody:
    """All hidden states of the encoder in the folder root."""
    states = nomicbert_nodes(graph, config, Weights(root, read(root), "nomic_bert."))
    return OnnxBody(states, config.hidden_size, config.model_type, takes_types=True)


def nomicbert_nodes(graph: Graph, config: NomicBertConfig, weights: Weights) -> list[str]:
    """Adds `mask`, float32 [batch, sequence], and `shape`.

    Returns: all hidden states, [batch * sequence, hidden].
    """
    op, hidden, inner, c = graph.op, config.hidden_size, config.intermediate_size, config

    def linear(x: str, name: str, out: int, into: int) -> str:
        return graph.gemm(x, name, weights.take(f"{name}.weight", out, into))

    def norm(x: str, name: str) -> str:
        both = [graph.constant(weights.take(part, hidden), part) for part in (f"{name}.weight", f"{name}.bias")]
        return op("LayerNormalization", x, *both, axis=-1, epsilon=c.layer_norm_eps)

    place, seen = shape_and_mask(graph)
    hide, turn = hidden_scores(graph, seen), turn_of(graph, place, c.rope_theta, hidden // c.num_heads)
    words = weights.take("embeddings.word_embeddings.weight", c.vocab_size, hidden)
    types = weights.take("embeddings.token_type_embeddings.weight", c.type_vocab_size, hidden)
    x = op("Add", op("Gather", words, "input_ids"), op("Gather", types, "token_type_ids"))
    x = norm(op("Reshape", x, [-1, hidden]), "emb_ln")
    states = [x]
    for i in range(c.num_layers):
        name = f"encoder.layers.{i}"
        kernel = weights.take(f"{name}.attn.Wqkv.weight", 3 * hidden, hidden)
        mixed = rotary_attention(graph, x, f"{name}.attn.Wqkv", kernel, [], c.num_heads, turn, hide)
        x = norm(op("Add", x, linear(mixed, f"{name}.attn.out_proj", hidden, hidden)), f"{name}.norm1")
        gate = ONNX_ACTIVATIONS[c.activation](graph, linear(x, f"{name}.mlp.fc12", inner, hidden))
        wide = op("Mul", linear(x, f"{name}.mlp.fc11", inner, hidden), gate)
        x = norm(op("Add", x, linear(wide, f"{name}.mlp.fc2", hidden, inner)), f"{name}.norm2")
        states.append(x)
    return states
