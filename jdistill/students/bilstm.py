"""A recurrent student before training: its vocabulary with word vectors, and an LSTM that starts at random."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers import models as token_models
from transformers import PreTrainedTokenizerFast

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.batching.batches import TokenTable
from jdistill.data.text.glove import read_glove
from jdistill.encoder.encoder import Encoder
from jdistill.models.bilstm import DIRECTIONS, BilstmConfig
from jdistill.models.registry import architecture_of

PAD_TOKEN, UNKNOWN_TOKEN, FIRST_TOKEN, MASK_TOKEN = SPECIAL = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[MASK]",
)  # the first rows of a vocabulary of words
# Words about as GloVe's own text was cut: don't is do n't, a number is one word. Signs stand alone, hyphens and dots too.
WORD_PATTERN = r"n't(?!\w)|'(?:s|re|ve|ll|d|m)(?!\w)|\d+(?:[.,]\d+)+|(?:(?!n't(?!\w))\w)+|[^\w\s]"


def make_tokenizer(cfg: ConfigDict, start: Encoder) -> Any:
    """The student's tokenizer: the start's word pieces, or the words of cfg.student.glove. Either puts one token first, so that no
    text is empty, and none last, so that cutting a long text is dropping its end."""
    if cfg.student.glove:
        words, _ = read_glove(Path(cfg.student.glove), cfg.student.embedding_size)
        vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words])}
        whole = Tokenizer(token_models.WordLevel(vocabulary, unk_token=UNKNOWN_TOKEN))
        cased = any(word != word.lower() for word in words)
        whole.normalizer = normalizers.BertNormalizer(lowercase=not cased, strip_accents=False)
        whole.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)
        special = {
            "pad_token": PAD_TOKEN,
            "unk_token": UNKNOWN_TOKEN,
            "cls_token": FIRST_TOKEN,
            "mask_token": MASK_TOKEN,
        }
    else:
        own = start.tokenizer
        whole = Tokenizer.from_str(own.backend_tokenizer.to_str())
        whole.no_truncation()
        whole.no_padding()
        special = {"pad_token": own.pad_token, "unk_token": own.unk_token, "cls_token": _first_token(start)}
    first = special["cls_token"]
    whole.post_processor = processors.TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, whole.token_to_id(first))]
    )
    # Of no class of its own: that of a BERT would put its [SEP] back when it is loaded.
    return PreTrainedTokenizerFast(tokenizer_object=whole, model_max_length=1_000_000, **special)


def check_bilstm(student: ConfigDict, start: Encoder, block: str) -> None:
    """Raises UserError for keys of `student`, called `block` in the config, that do not fit its word vectors or the start's word pieces."""
    if student.glove:
        read_glove(Path(student.glove), student.embedding_size)
    else:
        _check_table(start, student.embedding_size, block)
        _first_token(start)


def check_no_pooler(cfg: ConfigDict, block: str) -> None:
    """Raises UserError for a pooler in cfg: a recurrent student's states are pooled by the key over_time of `block`."""
    if cfg.pooling:
        raise UserError(
            f"--config.pooling={cfg.pooling}: a recurrent student pools its states by --config.{block}.over_time; leave pooling empty"
        )


def _check_table(start: Encoder, width: int, block: str) -> None:
    architecture = architecture_of(start.config)
    if architecture.decoder or architecture.recurrent:
        raise UserError(f"{start.source}: word pieces start as a BERT-like encoder's; name one in --config.start")
    if not 0 < width <= start.config.embedding_size:
        raise UserError(
            f"--config.{block}.embedding_size={width} must lie in 1..{start.config.embedding_size}, the width of the start's embeddings"
        )


def _first_token(start: Encoder) -> str:
    first = start.tokenizer.cls_token or start.tokenizer.bos_token
    if first is None:
        raise UserError(f"{start.source}: its tokenizer has no token for the beginning of a text")
    return str(first)


def make_bilstm(cfg: ConfigDict, start: Encoder, tokens: TokenTable, teacher_width: int) -> Encoder:
    """The student: embeddings, LSTM, pooling over time, a dense layer without bias to the teacher's width, tanh.

    start: with the tokenizer of make_tokenizer. tokens: the training text by it. Word pieces start as the leading principal axes
    of the start's table, words as their GloVe vectors; a word without one as their mean.
    """
    student, rng = cfg.student, np.random.default_rng([cfg.seed, 1])
    table_VxE = _glove_table(cfg, tokens) if student.glove else _reduced_table(start, student.embedding_size)
    E, H = student.embedding_size, student.lstm_size
    config = BilstmConfig(len(table_VxE), E, H, start.tokenizer.pad_token_id, student.dropout)

    def uniform(*shape: int) -> np.ndarray:
        return rng.uniform(-(H**-0.5), H**-0.5, shape).astype(np.float32)

    params: dict[str, Any] = {"word": {"embedding": table_VxE}}
    for name in DIRECTIONS:
        params[name] = {"input": uniform(E, 4 * H), "recurrent": uniform(H, 4 * H), "bias": np.zeros(4 * H, np.float32)}
        params[name]["bias"][H : 2 * H] = 1.0  # the forget gate begins open
    kernel = rng.normal(0, config.hidden_size**-0.5, (config.hidden_size, teacher_width)).astype(np.float32)
    return replace(
        start,
        config=config,
        params=params,
        pooling=student.over_time,
        dense=({"kernel": kernel},),
        dense_activations=("Tanh",),
        normalize=False,
        source="",
    )


def _reduced_table(start: Encoder, width: int) -> np.ndarray:
    """The start's token embeddings on their leading principal axes, scaled to a standard deviation of one: float32 [V, width]."""
    _check_table(start, width, "student")
    table_VxD = np.asarray(architecture_of(start.config).token_table(start.params), np.float64)
    centred = table_VxD - table_VxD.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    kept = centred @ axes[:, ::-1][:, :width]
    log.info(
        "word pieces: %d of %d dimensions, %.1f %% of the variance",
        width,
        len(values),
        100 * values[::-1][:width].sum() / values.sum(),
    )
    return (kept / kept.std()).astype(np.float32)


def _glove_table(cfg: ConfigDict, tokens: TokenTable) -> np.ndarray:
    words, vectors_NxE = read_glove(Path(cfg.student.glove), cfg.student.embedding_size)
    mean = vectors_NxE.mean(0, keepdims=True)
    counts, first = tokens.counts(len(SPECIAL) + len(words)), len(SPECIAL)
    in_table = counts[first:].sum()
    log.info(
        "words: %d; %.1f %% of the text's are among them, the others are one unknown word",
        len(words),
        100 * in_table / max(in_table + counts[SPECIAL.index(UNKNOWN_TOKEN)], 1),
    )
    of_special = [mean if token in (UNKNOWN_TOKEN, MASK_TOKEN) else np.zeros_like(mean) for token in SPECIAL]
    return np.concatenate([*of_special, vectors_NxE]).astype(np.float32)
