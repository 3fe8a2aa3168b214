"""The keys that each method reads beside those that every config has: a config of another method may lack them."""

from __future__ import annotations

from jdistill.students.shape import STUDENT_KEYS


def _keys(block: str, names: str) -> tuple[str, ...]:
    return tuple(f"{block}.{name}" if block else name for name in names.split())


TRANSFORMER_KEYS = _keys("student", " ".join(STUDENT_KEYS))
TRIPLET_KEYS = (
    *_keys("", "triplets negatives query_length document_length output_dim projection_start kernel"),
    *_keys("hsic", "gamma estimator unit_rows stop_input"),
    *_keys("loss", "temperature beta own_negatives align scores scores_weight scores_temperature in_batch"),
    *_keys("finetune", "batch_size"),
)

NEEDS: dict[str, tuple[str, ...]] = {
    "simtde": (*TRANSFORMER_KEYS[:-1], *_keys("loss", "alpha token sentence normalize hidden")),  # of no decoder
    "ibkd": (*TRANSFORMER_KEYS, *TRIPLET_KEYS, *_keys("loss", "similarity")),
    "ckd": (*TRANSFORMER_KEYS, *TRIPLET_KEYS, *_keys("loss", "similarity")),
    "mse": (*TRANSFORMER_KEYS, *TRIPLET_KEYS),
    "crd": (*TRANSFORMER_KEYS, *TRIPLET_KEYS, *_keys("loss", "buffer_per_text critic_dim")),
    "hpd": (*TRANSFORMER_KEYS, *TRIPLET_KEYS),
    "supervised": (*TRANSFORMER_KEYS, *TRIPLET_KEYS),
    "distilface": (*TRANSFORMER_KEYS, *_keys("loss", "temperature distil align"), "loss_scaling"),
    "bilstm_sra": (*_keys("student", "embedding_size lstm_size over_time glove dropout"), *_keys("loss", "target")),
    "classify": (
        *_keys("", "student task task_dir label_fraction split_seed kd head_size"),
        *_keys("scratch", "embedding_size lstm_size over_time glove dropout"),
        *_keys("loss", "hard"),
    ),
    "d2llm": (
        *_keys("", "symmetric asymmetric train_split test_split held_out_queries dev_queries test_pairs rescore"),
        *_keys("", "queries_without_positive unlabelled_symmetric unlabelled_asymmetric unlabelled_queries"),
        *_keys("", "threshold_pairs max_queries query_length document_length positives hard_negatives easy_negatives"),
        *_keys("", "interaction iem_size iem_cosine heads_start remat"),
        *_keys("judge", "symmetric asymmetric yes no adapter query_tokens passage_tokens"),
        *_keys("mining", "encoder first last relative_margin"),
        *_keys("tune", "epochs max_steps prompts patience"),
        *TRANSFORMER_KEYS,
        *_keys("lora", "paths rank alpha"),
        *_keys(
            "loss", "form imitate temperature alpha beta gamma delta vectors listed random_negatives hard_over_easy"
        ),
    ),
}
