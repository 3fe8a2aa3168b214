"""The ONNX nodes of models.rotary: self-attention whose queries, keys and values come of one kernel.

As in models.bert.onnx, tokens lie flat between attention blocks, [batch * sequence, width].
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from jdistill.models.onnx_nodes import Graph
from jdistill.models.rotary import rotary_frequencies

Turn = tuple[str, str]  # cosine and sine of each position's angles, [sequence, width of a head / 2]


def shape_and_mask(graph: Graph) -> tuple[str, str]:
    """Adds `shape` and `mask`, float32 [batch, sequence], which pooling reads.

    Returns: the place of each token in its row, int64 [sequence]; which keys are tokens, bool [batch, 1, 1, sequence].
    """
    op = graph.op
    op("Shape", "input_ids", name="shape")
    op("Cast", "attention_mask", to=TensorProto.FLOAT, name="mask")
    place = op("Range", np.int64(0), op("Squeeze", op("Slice", "shape", [1], [2])), np.int64(1))
    return place, op("Cast", op("Unsqueeze", "mask", [1, 2]), to=TensorProto.BOOL)


def hidden_scores(graph: Graph, seen: str) -> str:
    """What is added to the scores: 0 for a key that is seen, else the lowest float, which is finite."""
    return graph.op("Where", seen, np.float32(0), np.finfo(np.float32).min)


def turn_of(graph: Graph, place: str, theta: float, width: int) -> Turn:
    """Cosine and sine of the angles at each place of a row. width: of a head."""
    position = graph.op("Unsqueeze", graph.op("Cast", place, to=TensorProto.FLOAT), [1])
    angle = graph.op("Mul", position, rotary_frequencies(theta, width))
    return graph.op("Cos", angle), graph.op("Sin", angle)


def rotary_attention(
    graph: Graph, x: str, name: str, kernel: np.ndarray, bias: list[np.ndarray], heads: int, turn: Turn, hide: str
) -> str:
    """The mixture of values of each head, before the output projection: [batch * sequence, D].

    Args:
      x: [batch * sequence, D].
      name: of the projection's constants.
      kernel: torch's, float32 [3 D, D]: queries, keys, values.
      bias: [3 D] if there is one.
      heads: how many.
      turn: of turn_of.
      hide: of hidden_scores.
    """
    op, hidden = graph.op, kernel.shape[1]
    head = hidden // heads
    # The scale 1 / sqrt(head) is folded into the query's weights.
    scale = np.repeat(np.array([head**-0.5, 1, 1], np.float32), hidden)
    qkv = graph.gemm(x, name, kernel * scale[:, None], *[part * scale for part in bias])
    qkv = op("Reshape", qkv, op("Concat", "shape", np.array([3, heads, head]), axis=0))
    q, k, v = (op("Gather", op("Transpose", qkv, perm=[2, 0, 3, 1, 4]), np.int64(part), axis=0) for part in range(3))

    def rotated(part: str) -> str:
        cos, sin = turn
        first, second = op("Slice", part, [0], [head // 2], [3]), op("Slice", part, [head // 2], [head], [3])
        turned = op("Sub", op("Mul", first, cos), op("Mul", second, sin))
        return op("Concat", turned, op("Add", op("Mul", second, cos), op("Mul", first, sin)), axis=3)

    scores = op("Add", op("MatMul", rotated(q), op("Transpose", rotated(k), perm=[0, 1, 3, 2])), hide)
    mixed = op("Transpose", op("MatMul", op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return op("Reshape", mixed, [-1, hidden])
