"""The student's architecture, as the keys of cfg.student change its start's, and which of them its start does not allow."""

from __future__ import annotations

from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.models.bert.student import SENSITIVE_STARTS
from jdistill.models.cutting import COPIED
from jdistill.models.pooling import LAST, POOLERS
from jdistill.models.registry import ModelConfig, architecture_of

# Of cfg.student, what a student that starts as a transformer is made by; "attention" of a decoder alone.
STUDENT_KEYS = (
    "embedding_size", "layers", "hidden_size", "intermediate_size", "start", "copy_layers", "vocabulary", "dropout", "attention",
)  # fmt: skip
OF_DECODERS = "attention"


def check_student(cfg: ConfigDict, start: Encoder) -> ModelConfig:
    """The architecture that make_student gives. Raises UserError for keys of cfg.student that do not fit the start, or are not there."""
    architecture = architecture_of(start.config)
    missing = [key for key in STUDENT_KEYS if key not in cfg.student and (key != OF_DECODERS or architecture.decoder)]
    if missing:
        raise UserError(
            f"this config lacks student.{', student.'.join(missing)}, which a student that starts as a transformer is made by; take "
            "c.student as configs/ibkd.py has it"
        )
    if architecture.recurrent:
        raise UserError(f"{start.source} is a recurrent encoder, and this method's student starts as a transformer")
    over_tokens = POOLERS[start.pooling].over_tokens
    if over_tokens in ("cls", "max") and not start.tokenizer("")["input_ids"]:
        raise UserError(
            f"pooler {start.pooling!r}: the start's tokenizer gives an empty text no token, of which sentence-transformers and "
            "ONNX make vectors of their own, so that the student could not be exported; mean, lasttoken and avg_* fit"
        )
    if cfg.student.intermediate_size and not architecture.narrows:
        raise UserError(
            f"--config.student.intermediate_size={cfg.student.intermediate_size}: {start.source} is a {start.config.model_type}, whose "
            "layers a student takes as wide as they are; set --config.student.intermediate_size=0"
        )
    config: ModelConfig = architecture.student_config(start.config, cfg.student)
    if cfg.student.copy_layers not in COPIED:
        raise UserError(f"--config.student.copy_layers={cfg.student.copy_layers!r} is not one of {', '.join(COPIED)}")
    check_pooler(start, config.num_layers)
    if start.pooler and config.hidden_size != start.config.hidden_size:
        raise UserError(
            f"--config.student.hidden_size={config.hidden_size}: the start's pooler {start.pooling!r} has parameters of width "
            f"{start.config.hidden_size}; set --config.student.hidden_size=0 or another --config.pooling"
        )
    block_start = cfg.student.start
    if start.pooler and block_start in SENSITIVE_STARTS and config.embedding_size < start.config.embedding_size:
        raise UserError(
            f"--config.student.start={block_start} weighs by a pooler without parameters, and the start's {start.pooling!r} has some; take svd"
        )
    return config


def check_pooler(encoder: Encoder, num_layers: int) -> None:
    """Raises UserError for a pooler that an encoder of so many layers cannot have."""
    name, recurrent = encoder.pooling, architecture_of(encoder.config).recurrent
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
