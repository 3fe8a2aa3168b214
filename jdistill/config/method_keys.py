"""The type and range of every key that some methods read; those of every config are in jdistill/config/keys.py."""

from __future__ import annotations

from jdistill.config.budget_keys import BUDGET_KEYS
from jdistill.config.rules import (
    Rule,
    above,
    at_least,
    below,
    between,
    flag,
    named,
    neurons_or_width,
    one_of,
    pattern,
    share,
    size_or_own,
    template,
    text,
    vocabulary_size,
    whole_number,
    zero_or_whole,
)
from jdistill.feeds.judge_tuning import PROMPTS
from jdistill.losses.hsic import ESTIMATORS, KERNELS
from jdistill.losses.imitation import FORMS, WEIGHTS
from jdistill.losses.listed import SCORE_LOSSES
from jdistill.methods.bilstm_sra import LOSS_TARGETS, OVER_TIME
from jdistill.methods.d2llm import TASKS
from jdistill.methods.finetune import PROJECTION_STARTS
from jdistill.methods.ibkd import SIMILARITIES
from jdistill.methods.simtde import SENTENCE_LOSSES, TOKEN_LOSSES
from jdistill.models.bert.student import BLOCK_STARTS
from jdistill.models.cutting import COPIED
from jdistill.models.decoder.architecture import ATTENTIONS
from jdistill.models.interaction import INTERACTIONS
from jdistill.students.pma import STARTS
from jdistill.teachers.judge_prompt import PASSAGE, QUERY

FEWEST_TOKENS = 3  # of a text: one of its own between a BERT's two; with fewer all vectors are equal

# Of some methods. What a method allows beyond it or less of it, its stages() and the fit to the start refuse.
OF_METHODS: dict[str, Rule] = {
    # The student: a block of keys, or, of classify, where a trained one lies.
    "student": named(),
    "student.embedding_size": size_or_own(),
    "student.layers": whole_number(0),
    "student.hidden_size": whole_number(0),
    "student.intermediate_size": neurons_or_width(),
    "student.start": one_of(BLOCK_STARTS),
    "student.copy_layers": one_of(COPIED),
    "student.vocabulary": vocabulary_size(),
    "student.dropout": below(0, 1),
    "student.attention": one_of(ATTENTIONS),
    "student.lstm_size": whole_number(1),
    "student.over_time": one_of(OVER_TIME),
    "student.glove": text(),
    "scratch.embedding_size": whole_number(1),
    "scratch.lstm_size": whole_number(1),
    "scratch.over_time": one_of(OVER_TIME),
    "scratch.glove": text(),
    "scratch.dropout": below(0, 1),
    # Losses.
    "loss.alpha": at_least(0),
    "loss.beta": at_least(0),
    "loss.gamma": at_least(0),
    "loss.delta": at_least(0),
    "loss.vectors": at_least(0),
    "loss.listed": at_least(0),
    "loss.temperature": above(0),
    "loss.token": one_of(TOKEN_LOSSES),
    "loss.sentence": one_of(SENTENCE_LOSSES),
    "loss.normalize": flag(),
    "loss.hidden": at_least(0),
    "loss.similarity": one_of(SIMILARITIES),
    "loss.own_negatives": flag(),
    "loss.scores": one_of(SCORE_LOSSES, or_empty=True),
    "loss.scores_weight": above(0),
    "loss.scores_temperature": above(0),
    "loss.in_batch": at_least(0),
    "loss.buffer_per_text": whole_number(1),
    "loss.critic_dim": whole_number(1),
    "loss.distil": at_least(0),
    "loss.align": at_least(0),
    "loss.target": one_of(LOSS_TARGETS),
    "loss.hard": between(0, 1),
    "loss_scaling": flag(),
    "loss.form": one_of(FORMS),
    "loss.imitate": flag(),
    "loss.random_negatives": one_of(TASKS),
    "loss.hard_over_easy": one_of(WEIGHTS),
    "kernel": one_of(KERNELS),
    "hsic.gamma": at_least(0),
    "hsic.estimator": one_of(ESTIMATORS),
    "hsic.unit_rows": flag(),
    "hsic.stop_input": flag(),
    # Triplets.
    "triplets": text(),
    "negatives": whole_number(0),
    "query_length": zero_or_whole(FEWEST_TOKENS),
    "document_length": zero_or_whole(FEWEST_TOKENS),
    "output_dim": whole_number(0),
    "projection_start": one_of(PROJECTION_STARTS),
    # A task.
    "task": named(),
    "task_dir": text(),
    "label_fraction": share(),
    "split_seed": whole_number(0, 2**32 - 1),
    "kd": text(),
    "head_size": whole_number(1),
    # Judged pairs.
    "symmetric": text(),
    "asymmetric": text(),
    "train_split": text(),
    "test_split": text(),
    "held_out_queries": whole_number(0),
    "dev_queries": whole_number(0),
    "test_pairs": whole_number(0),
    "rescore": whole_number(0),
    "threshold_pairs": whole_number(0),
    "max_queries": whole_number(0),
    "queries_without_positive": flag(),
    "unlabelled_symmetric": text(),
    "unlabelled_asymmetric": text(),
    "unlabelled_queries": whole_number(0),
    "positives": whole_number(1),
    "hard_negatives": whole_number(0),
    "easy_negatives": whole_number(0),
    "judge.symmetric": template(QUERY, PASSAGE),
    "judge.asymmetric": template(QUERY, PASSAGE),
    "judge.yes": named(),
    "judge.no": named(),
    "judge.adapter": text(),
    "judge.query_tokens": whole_number(1),
    "judge.passage_tokens": whole_number(1),
    "mining.encoder": text(),
    "mining.first": whole_number(0),
    "mining.last": whole_number(1),
    "mining.relative_margin": between(0, 1),
    "tune.prompts": one_of(PROMPTS),
    "tune.lora.rank": whole_number(1),  # a judge without adapters would have nothing to tune
    "interaction": one_of(INTERACTIONS),
    "iem_size": whole_number(1),
    "iem_cosine": at_least(0),
    "heads_start": one_of(STARTS),
    "lora.paths": pattern(),
    "lora.rank": whole_number(0),
    "lora.alpha": above(0),
    "remat": flag(),
    **BUDGET_KEYS,
}
