"""The student's architecture, as the keys of cfg.student change its start's, and which of them its start does not allow."""

from __future__ import annotations

import dataclasses

from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.models.bert import BertConfig
from jdistill.models.bilstm import BilstmConfig
from jdistill.models.decoder import DecoderConfig
from jdistill.models.pooling import LAST, POOLERS
from jdistill.models.registry import ModelConfig

ATTENTIONS = ("causal", "bidirectional")
BLOCK_STARTS = ("svd", "random")
COPIED = ("last", "first", "spread", "none")


def check_student(cfg: ConfigDict, start: Encoder) -> ModelConfig:
    """The architecture that make_student gives. Raises UserError for keys of cfg.student that do not fit the start."""
    if isinstance(start.config, BilstmConfig):
        raise UserError(f"{start.source} is a recurrent encoder, and this method's student starts as a transformer")
    over_tokens = POOLERS[start.pooling].over_tokens
    if over_tokens in ("cls", "max") and not start.tokenizer("")["input_ids"]:
        raise UserError(
            f"pooler {start.pooling!r}: the start's tokenizer gives an empty text no token, of which sentence-transformers and "
            "ONNX make vectors of their own, so that the student could not be exported; mean, lasttoken and avg_* fit"
        )
    config: ModelConfig
    if isinstance(start.config, DecoderConfig):
        config = _decoder_config(cfg.student, start.config)
    else:
        config = student_config(start.config, cfg.student)
        _check_block(cfg.student, config, start.config)
    if cfg.student.copy_layers not in COPIED:
        raise UserError(f"--config.student.copy_layers={cfg.student.copy_layers!r} is not one of {', '.join(COPIED)}")
    check_pooler(start, config.num_layers)
    if start.pooler and config.hidden_size != start.config.hidden_size:
        raise UserError(
            f"--config.student.hidden_size={config.hidden_size}: the start's pooler {start.pooling!r} has parameters of width "
            f"{start.config.hidden_size}; set --config.student.hidden_size=0 or another --config.pooling"
        )
    return config


def check_pooler(encoder: Encoder, num_layers: int) -> None:
    """Raises UserError for a pooler that an encoder of so many layers cannot have."""
    name, recurrent = encoder.pooling, isinstance(encoder.config, BilstmConfig)
    if name == "final" and not recurrent:
        raise UserError("pooler 'final' takes the two final states of an LSTM, which a transformer has not")
    if name == "pma" and not encoder.pooler:
        raise UserError("pooler 'pma' has parameters, which D2LLM trains; this method's student cannot start with it")
    if recurrent and POOLERS[name].layers != LAST:
        raise UserError(f"pooler {name!r} takes other states than the last, and a recurrent encoder has no more")
    if (needed := POOLERS[name].fewest_layers) > num_layers:
        raise UserError(
            f"pooler {name!r} takes the {needed} last layers, of which --config.student.layers leaves {num_layers}; "
            "take more layers or another --config.pooling"
        )


def _check_block(student: ConfigDict, config: BertConfig, start: BertConfig) -> None:
    """The SVD of the start's token embeddings has as many axes as these are wide."""
    if student.start not in BLOCK_STARTS:
        raise UserError(f"--config.student.start={student.start!r} is not one of {', '.join(BLOCK_STARTS)}")
    width = start.embedding_size
    by_svd = student.start == "svd" and config.hidden_size == start.hidden_size == width
    if by_svd and config.embedding_size > width:
        raise UserError(
            f"--config.student.embedding_size={config.embedding_size}: the compact block is fitted to the token embeddings of the "
            f"start, which are {width} wide; set --config.student.embedding_size={max(1, width // 2)}, another width below {width}, "
            "or 0 for a table of the layers' own width"
        )


def _decoder_config(student: ConfigDict, whole: DecoderConfig) -> DecoderConfig:
    """Some layers of a decoder, seeing both ways if student.attention says so."""
    if student.embedding_size not in (-1, 0, whole.hidden_size) or student.hidden_size not in (0, whole.hidden_size):
        raise UserError(
            "the start is a decoder, of which a student takes whole layers: set --config.student.embedding_size=-1 and "
            "--config.student.hidden_size=0"
        )
    if student.attention not in ATTENTIONS:
        raise UserError(f"--config.student.attention={student.attention!r} is not one of {', '.join(ATTENTIONS)}")
    if student.copy_layers == "none":
        raise UserError("--config.student.copy_layers=none: a decoder's layers start as its own")
    return dataclasses.replace(
        whole,
        num_layers=_checked_layers(student, whole),
        causal=student.attention == "causal",
        hidden_dropout=student.dropout,
        attention_dropout=student.dropout,
    )


def student_config(teacher: BertConfig, student: ConfigDict) -> BertConfig:
    """The student's architecture: its start's, with another embedding_size (0: the hidden size; -1: the start's own),
    layers (0: all) and hidden_size (0: the start's). Where tokens are narrower than the layers it is an ELECTRA."""
    hidden = student.hidden_size or teacher.hidden_size
    if hidden % teacher.num_heads:
        raise UserError(
            f"--config.student.hidden_size={hidden} does not divide into the start's {teacher.num_heads} heads"
        )
    config = dataclasses.replace(
        teacher,
        embedding_size=teacher.embedding_size if student.embedding_size == -1 else student.embedding_size or hidden,
        hidden_size=hidden,
        num_layers=_checked_layers(student, teacher),
        intermediate_size=hidden * teacher.intermediate_size // teacher.hidden_size,
        hidden_dropout=student.dropout,
        attention_dropout=student.dropout,
    )
    if config.embedding_size == hidden or teacher.model_type == "electra":
        return config
    return dataclasses.replace(
        config,
        model_type="electra",
        max_positions=teacher.usable_positions,
        type_vocab_size=max(1, teacher.type_vocab_size),
    )


def _checked_layers(student: ConfigDict, start: ModelConfig) -> int:
    layers = student.layers or start.num_layers
    if not 1 <= layers <= start.num_layers:
        raise UserError(f"--config.student.layers={layers} must lie in 1..{start.num_layers}, the start's layers")
    return int(layers)
