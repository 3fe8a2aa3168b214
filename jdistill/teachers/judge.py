"""A language model that judges pairs: it reads a query, a passage and an instruction, and answers yes or no (D2LLM, 3.1.1).

From the last position of the rendered prompt: z = logit(yes) - logit(no), s = sigmoid(z), and y, that position's last hidden state
(eq. 1 to 3). Texts may be cut, each to its own budget; the instruction and the place of the answer never are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.data.batching.padding import batches_by_length
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.gguf import read_gguf
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.losses.imitation import judge_logits
from jdistill.models.registry import ModelConfig, architecture_of, hidden_states
from jdistill.models.segments import Segments
from jdistill.teachers.judge_prompt import PASSAGE, QUERY, asked, first_of_answer, own_ids, tokenised_with_text
from jdistill.teachers.prefix_packing import pack, padded

JUDGE_BATCH = 16  # pairs of a batch, about

# The instruction first, so that a query's pairs share it: what stands behind the passage is computed for each pair.
SYMMETRIC = (
    "Does text 2 follow from text 1, so that both say the same? Answer yes or no.\nText 1: {query}\nText 2: {passage}"
)
ASYMMETRIC = "Does the passage answer the question? Answer yes or no.\nQuestion: {query}\nPassage: {passage}"


@dataclass(frozen=True)
class Judge:
    """A decoder that answers whether a query and a passage belong together.

    Args:
      model: the decoder, all its layers.
      template: the instruction with {query} and {passage}, each once, in this order, the passage best last.
      yes, no: the answers.
      query_tokens, passage_tokens: that are read of either text, at most.
      head: its output layer, float32 [D, V]; None where that is the token table.

    Raises: UserError for an encoder, a template without its places, answers that begin alike, and an instruction too long for the model.
    """

    model: Encoder
    template: str = SYMMETRIC
    yes: str = "yes"
    no: str = "no"
    query_tokens: int = 64
    passage_tokens: int = 192
    head: np.ndarray | None = None

    def __post_init__(self) -> None:
        config = self.model.config
        if not config.causal:
            raise UserError(f"{self.model.source}: a judge is a causal decoder, and this is {config.model_type}")
        if self.template.count(QUERY) != 1 or self.template.count(PASSAGE) != 1:
            raise UserError(f"a judge's template holds {QUERY} and {PASSAGE} once each: {self.template!r}")
        if self.template.index(QUERY) > self.template.index(PASSAGE):
            raise UserError(f"a judge's template has {QUERY} before {PASSAGE}, so that a query's pairs begin alike")
        if (architecture_of(config).output_layer(config) is None) != (self.head is None):
            raise UserError(
                f"{self.model.source}: the output layer of a judge is needed where it is not the token table (load_judge)"
            )
        length = sum(map(len, self.pieces)) + self.query_tokens + self.passage_tokens
        if length > config.usable_positions:
            raise UserError(
                f"the instruction with {self.query_tokens} and {self.passage_tokens} tokens of the texts is {length} tokens long, "
                f"more than the model's {config.usable_positions}"
            )
        self.answer_tokens  # noqa: B018 - refuses equal first tokens now

    @cached_property
    def _asked(self) -> tuple[tuple[str, str], tuple[str, str], str]:
        """As `asked`; what stands before either text is a piece, and a lead that is tokenised with the text."""
        before, between, after = asked(tokenizer := self.model.tokenizer, self.template)
        return tokenised_with_text(tokenizer, before), tokenised_with_text(tokenizer, between), after

    @cached_property
    def pieces(self) -> tuple[list[int], list[int], list[int]]:
        """Tokens before the query, between the texts, and from the passage's end to the answer's place, which are some."""
        (before, _), (between, _), after = self._asked
        first, *rest = (own_ids(self.model.tokenizer, text) for text in (before, between, after))
        bos = self.model.tokenizer.bos_token_id
        if not self.model.tokenizer.chat_template and bos is not None and first[:1] != [bos]:
            first = [bos, *first]
        return first, rest[0], rest[1]

    @cached_property
    def answer_tokens(self) -> tuple[int, int]:
        """The first tokens of yes and no, as they stand at the answer's place."""
        tokens = [first_of_answer(self.model.tokenizer, self.template, answer) for answer in (self.yes, self.no)]
        if not all(tokens) or tokens[0] == tokens[1]:
            raise UserError(
                f"the tokenizer of {self.model.source} begins {self.yes!r} and {self.no!r} with the same token {tokens}: "
                "other words for the answers are needed"
            )
        return tokens[0][0], tokens[1][0]

    @property
    def answer_rows(self) -> np.ndarray:
        """The output layer's rows of yes and no, float32 [2, D]."""
        table = architecture_of(self.model.config).token_table(self.model.params) if self.head is None else self.head.T
        return np.asarray(table)[list(self.answer_tokens)]

    def prompts(self, queries: Sequence[str], passages: Sequence[str]) -> list[list[int]]:
        """Token ids of each pair's prompt: N lists of N queries and N passages."""
        return [[*beginning, *end] for beginning, end in zip(*self._halves(queries, passages), strict=True)]

    def _halves(self, queries: Sequence[str], passages: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Each prompt in two: up to the passage, which all pairs of a query share, and from there."""
        before, between, after = self.pieces
        (_, of_query), (_, of_passage), _ = self._asked
        of_queries = self._cut(queries, of_query, self.query_tokens)
        of_passages = self._cut(passages, of_passage, self.passage_tokens)
        return [[*before, *q, *between] for q in of_queries], [[*p, *after] for p in of_passages]

    def _cut(self, texts: Sequence[str], lead: str, limit: int) -> list[list[int]]:
        if not len(texts):
            return []
        texts = [lead + text for text in texts]
        ids = self.model.tokenizer(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return [row[:limit] for row in ids]

    def score(
        self, queries: Sequence[str], passages: Sequence[str], batch_size: int = JUDGE_BATCH
    ) -> tuple[np.ndarray, np.ndarray]:
        """What it says of pairs, in their order.

        Args:
          queries, passages: N strings each.
          batch_size: pairs of a batch, about.

        Returns: z = logit(yes) - logit(no), float32 [N], and y, the last hidden state of the answer's place, float32 [N, D].

        Raises: UserError for sides of different lengths.

        Source: D2LLM eq. 1 to 3.
        """
        z = np.empty(len(queries), np.float32)
        y = np.empty((len(queries), self.model.config.hidden_size), np.float32)
        for pairs, found_z, found_y in self.by_batch(queries, passages, batch_size):
            z[pairs], y[pairs] = found_z, found_y
        return z, y

    def by_batch(
        self, queries: Sequence[str], passages: Sequence[str], batch_size: int = JUDGE_BATCH
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """As score, batch by batch, the longest pairs first.

        Returns: of each batch the numbers of its pairs, int64 [n], their z [n] and y [n, D], float32.
        """
        if len(queries) != len(passages):
            raise UserError(f"{len(queries)} queries and {len(passages)} passages are no pairs")
        config = self.model.config
        sequences = pack(*self._halves(queries, passages))
        mesh = sharding.local_mesh()
        answers_2xD = self.answer_rows
        judge = partial(_judge, self.model.on_device()[0], answers_2xD, config=config, dtype=self.model.dtype)
        # So many sequences as have about batch_size pairs; a power of two, so that two calls of unlike pairs share their programs.
        height = 1 << max(1, batch_size * len(sequences) // max(len(queries), 1)).bit_length() - 1
        height = -(-height // mesh.size) * mesh.size
        tokens_of = [packed.tokens for packed in sequences]
        longest = config.usable_positions
        for rows, tokens, mask in batches_by_length(tokens_of, config.pad_token_id, longest, height, room=longest):
            of_batch = [sequences[row] for row in rows]
            inputs = (tokens, mask, *padded(of_batch, *tokens.shape))
            z_BxS, y_BxSxD = map(np.asarray, judge(*sharding.shard_rows(inputs, mesh)))
            r = np.repeat(np.arange(len(of_batch)), [len(packed.ends) for packed in of_batch])
            s = np.concatenate([np.arange(len(packed.ends)) for packed in of_batch])
            yield np.concatenate([packed.prompts for packed in of_batch]), z_BxS[r, s], y_BxSxD[r, s]

    def fingerprint(self) -> str:
        """A hash, 32 hexadecimal digits, of all that decides a pair's score: model, template, answers, budgets. What is an encoder's alone, such
        as its length and its pooler, does not.
        """
        return self._fingerprint

    @cached_property  # all weights are read for it
    def _fingerprint(self) -> str:
        bare = replace(
            self.model, max_length=0, pooling="mean", normalize=False, prompts={}, default_prompt=None, pooler={}, dense=(),
            dense_activations=(),
        )  # fmt: skip
        digest = hashlib.blake2b(bare.fingerprint().encode(), digest_size=16)
        if self.head is not None:
            digest.update(np.ascontiguousarray(self.head).tobytes())
        digest.update(repr((self.pieces, self.answer_tokens, self.query_tokens, self.passage_tokens)).encode())
        (_, of_query), (_, of_passage), _ = self._asked
        if (of_query, of_passage) != (" ", " "):  # those of the templates that answers were first kept by
            digest.update(repr((of_query, of_passage)).encode())
        return digest.hexdigest()


@partial(jax.jit, static_argnames=("config", "dtype"))
def _judge(
    params: Any,
    answers_2xD: jax.Array,
    ids_BxL: jax.Array,
    mask_BxL: jax.Array,
    segments_BxL: jax.Array,
    positions_BxL: jax.Array,
    ends_BxS: jax.Array,
    *,
    config: ModelConfig,
    dtype: str,
) -> tuple[jax.Array, jax.Array]:
    """z [B, S] and y [B, S, D] at the ends. answers_2xD: the output layer's rows of yes and no; of a vocabulary of 49,152 no other logit
    is looked at."""
    segments = Segments(segments_BxL, positions_BxL)
    state_BxLxD = hidden_states(config, params, ids_BxL, mask_BxL, jnp.dtype(dtype), segments=segments)[-1]
    y_BxSxD = jnp.take_along_axis(state_BxLxD, ends_BxS[:, :, None], axis=1).astype(jnp.float32)
    return judge_logits(y_BxSxD, answers_2xD), y_BxSxD


def load_judge(source: str, key: str = "teacher", **settings: Any) -> Judge:
    """A judge with its output layer.

    Args:
      source: a path, a hub id, `pkg:import_name/sub/folder` or a .gguf file.
      key: what error messages call it.
      settings: Judge's own.

    Raises: UserError for a model without an output layer, and as Judge.
    """
    return judge_of(loading.load(source, key=key), key, **settings)


def judge_of(model: Encoder, key: str = "teacher", **settings: Any) -> Judge:
    """As load_judge, of a model that is loaded already, from model.source."""
    source = model.source
    output_layer = architecture_of(model.config).output_layer(model.config)
    if output_layer is None:
        return Judge(model, **settings)
    place = loading.folder_of(source, key)
    tensors = read_gguf(place)[1] if place.suffix == ".gguf" else read_tensors(place)
    if output_layer not in tensors:
        raise UserError(f"--{key}={source} has no output layer ({output_layer}), so it cannot answer")
    return Judge(model, head=np.ascontiguousarray(tensors[output_layer].T), **settings)
