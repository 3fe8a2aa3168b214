"""The type and range of every key of every config, and the check that all commands make of them before anything else.

A method of your own may have keys that stand in neither table; they are left alone.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from jdistill.config.budget_keys import budget_faults
from jdistill.config.method_keys import FEWEST_TOKENS, OF_METHODS
from jdistill.config.rules import (
    Rule,
    above,
    at_least,
    below,
    between,
    commit,
    flag,
    named,
    one_of,
    text,
    whole_number,
    zero_or_whole,
)
from jdistill.core.errors import UserError
from jdistill.core.files import flat
from jdistill.data.text.text_sources import ROLES
from jdistill.methods import METHODS
from jdistill.methods.needs import NEEDS
from jdistill.models.attention import ATTENTION_PROGRAMS
from jdistill.models.pooling import POOLERS
from jdistill.models.precision import AUTO, COMPUTE_TYPES
from jdistill.retrieval.index import INDEX_OWNERS
from jdistill.train.checkpoint import BEST_CHECKPOINT, LAST_CHECKPOINT
from jdistill.train.optimizer import OPTIMIZERS, SCHEDULES

# Of every config, in the order of configs/base.py, which explains them.
OF_ALL: dict[str, Rule] = {
    "method": one_of(METHODS),
    "teacher": text(),
    "teacher_dtype": one_of((AUTO, "float32", "bfloat16")),
    "teacher_pooling": one_of(POOLERS, or_empty=True),
    "trust_remote_code": commit(),
    "start": text(),
    "pooling": one_of(POOLERS, or_empty=True),
    "text": text(),
    "text_role": one_of(ROLES, or_empty=True),
    "text_column": text(),
    "pairs": text(),
    "text_pairs": text(),
    "split_sentences": flag(),
    "max_texts": whole_number(0),
    "augment": text(),
    "held_out": whole_number(0),
    "max_length": zero_or_whole(FEWEST_TOKENS),
    "query_prompt": text(),
    "document_prompt": text(),
    "answers_ahead": whole_number(0),
    "cache_dir": text(),
    # Evaluation.
    "senteval": text(),
    "beir": text(),
    "dev_pairs": text(),
    "dev_retrieval": text(),
    "evaluate_teacher": flag(),
    "latency_texts": whole_number(0),
    # Optimisation.
    "epochs": at_least(0),
    "max_steps": whole_number(0),
    "batch_size": whole_number(1),
    "chunk_size": whole_number(0),
    "optimizer": one_of(OPTIMIZERS),
    "learning_rate": above(0),
    "block_size": whole_number(0),
    "schedule": one_of(SCHEDULES),
    "warmup": between(0, 1),
    "weight_decay": at_least(0),
    "adam_b1": below(0, 1),
    "adam_b2": below(0, 1),
    "adam_eps": above(0),
    "clip_norm": at_least(0),
    "average": below(0, 1),
    "shard_frozen": flag(),
    "shard_params": flag(),
    "dtype": one_of((AUTO, *COMPUTE_TYPES)),
    "attention": one_of(ATTENTION_PROGRAMS),
    "seed": whole_number(0, 2**32 - 1),
    # Batches.
    "packed": flag(),
    "prefetch": whole_number(0, 1000),
    "steps_per_call": whole_number(1, 1000),
    "length_buckets": whole_number(1),
    "topics": whole_number(0),
    "length_multiple": whole_number(1),
    # The run.
    "log_every": whole_number(1),
    "checkpoint_every": whole_number(1),
    "checkpoint_minutes": at_least(0),
    "checkpoint": one_of((BEST_CHECKPOINT, LAST_CHECKPOINT, AUTO)),
    "patience": whole_number(0),
    "keep_last": whole_number(1),
    "onnx": flag(),
    "index_texts": whole_number(0),
    "index": named(),
    "index_effort": text(),
    "index_by": one_of(INDEX_OWNERS),
}

STAGES = ("finetune", "tune")  # blocks of keys that take the place of the run's own in a stage, and have their rules


def rule_of(key: str) -> Rule | None:
    """The rule of a dotted key; None for a key that is none of ours."""
    rules = OF_ALL | OF_METHODS
    block, _, rest = key.partition(".")
    return rules.get(key) or (rules.get(rest) if block in STAGES else None)


def check_config(cfg: ConfigDict) -> None:
    """Raises one UserError that lists every key whose value has the wrong type or lies out of its range, those that only together are
    wrong, and those that the config's method reads and the config lacks."""
    values = flat(cfg.to_dict())
    faults = [
        f"--config.{key}={value if isinstance(value, str) and value.isidentifier() else repr(value)}: {fault}"
        for key, value in values.items()
        if (rule := rule_of(key)) is not None and (fault := rule.fault(value))
    ]
    missing = [key for key in (*OF_ALL, *NEEDS.get(str(values.get("method")), ())) if key not in values]
    if missing:
        faults.append(
            f"--config.method={values.get('method')}: this config lacks {', '.join(missing)}, which the method reads; begin with "
            "the file of configs/ that is made for it"
        )
    if not faults:
        faults = _together(values)
    if faults:
        raise UserError("; ".join(faults))


def _together(values: dict[str, Any]) -> list[str]:
    """Faults of keys that are each in their range."""
    faults = []
    for block in ("", *(["finetune."] if values.get("triplets") else [])):  # tune.epochs=0: no tuning
        epochs, max_steps = (values.get(block + name, values[name]) for name in ("epochs", "max_steps"))
        if not epochs and not max_steps:
            faults.append(
                f"--config.{block}epochs=0: must be more than 0 where --config.{block}max_steps is 0: no step would be made"
            )
    first, last = values.get("mining.first", 0), values.get("mining.last", 1)
    if first >= last:
        faults.append(f"--config.mining.first={first}: must be less than --config.mining.last={last}")
    return faults + budget_faults(values)
