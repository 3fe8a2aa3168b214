"""D2LLM: a language model that judges pairs, distilled into a bi-encoder with an interaction module.

Paper: D2LLM: Decomposed and Distilled Large Language Models for Semantic Search, Liao et al., ACL 2024. Its student of Qwen-7B-Chat
beats five baselines of the same data on NLI (LLaRA, the second, by 14.39 %), and on most sets of STS and retrieval.

    python -m jdistill.main --config configs/d2llm.py --workdir runs/d2llm --config.teacher=FOLDER_OR_GGUF \\
        --config.symmetric=snli_pairs.jsonl --config.asymmetric=qnli_dev.jsonl

Qwen2.5-7B-Instruct on GPUs of 80 GB: --config.dtype=bfloat16 --config.remat=True --config.shard_frozen=True. Its 7.6 G parameters are float32,
30 GB, over the devices together; what is trained, adapters, PMA and IEM, is 0.07 G.

Stages: mine negatives, tune the judge, ask it for scores (kept by content), distil, export, evaluate. 
Cost and figures: docs/results/d2llm.md.
Variants, --config configs/d2llm.py:NAME, are the ablations of Table 3:

    contrastive   in CI, labels in the place of the judge's scores
    no_ri_ph, no_ri_hi, no_fi   without one of the terms
    mean, lasttoken   these poolers in the place of PMA; the paper's [EOS] row has an [EOS] token and contrastive tuning, lasttoken neither
    cosine        in the place of the interaction module
    calibrated    ours: logits that are to mean the same whatever the query, so that one threshold serves all
    beside_cosine ours: calibrated, with logits that start as the vectors' cosine and a module that adds to it, the vectors' own
                  InfoNCE, and the judge's order of a query's list
    labels        the control: calibrated's student, data and steps, trained on the labels (CI and cross entropy), no judge
    bi_encoder    the baseline of the paper's kind: last token, cosine, contrastive alone; adapters of rank 32, about as many
                  parameters in SmolLM2-135M (bench/d2llm_table.py takes the rank that fits the model)
"""

from ml_collections import ConfigDict

from configs import base

PLAIN: dict[str, object] = {
    "loss.imitate": False,
    "loss.alpha": 0.0,
    "loss.beta": 0.0,
    "loss.gamma": 0.0,
    "tune.epochs": 0.0,
}
CALIBRATED: dict[str, object] = {"loss.delta": 3.0, "loss.random_negatives": "asymmetric"}
VARIANTS: dict[str, dict[str, object]] = {
    "": {},
    "contrastive": {"loss.imitate": False},
    "no_ri_ph": {"loss.alpha": 0.0},
    "no_ri_hi": {"loss.beta": 0.0},
    "no_fi": {"loss.gamma": 0.0},
    "mean": {"pooling": "mean"},
    "lasttoken": {"pooling": "lasttoken"},
    "calibrated": CALIBRATED,
    "labels": CALIBRATED | PLAIN,
    "beside_cosine": CALIBRATED | {"iem_cosine": 20.0, "loss.vectors": 1.0, "loss.listed": 1.0},
    "cosine": {"interaction": "cosine", "iem_cosine": 0.0, "loss.temperature": 0.05},
    "bi_encoder": PLAIN
    | {
        "pooling": "lasttoken",
        "interaction": "cosine",
        "loss.temperature": 0.05,
        "lora.rank": 32,
        "lora.alpha": 64.0,
    },
}


def get_config(variant: str = "") -> ConfigDict:
    c = base.get_config()
    c.method = "d2llm"
    c.teacher = "Qwen/Qwen2.5-7B-Instruct"  # the judge, and what the student starts as; any Llama, SmolLM, Mistral, Qwen2 or Qwen3 model
    c.teacher_dtype = "bfloat16"
    c.text = ""
    c.evaluate_teacher = False

    # Labelled pairs: sentence1 (question), sentence2 (sentence), label, and split where there is one.
    c.symmetric = ""  # do the two say the same; empty: none
    c.asymmetric = ""  # does the second answer the first; empty: none
    c.train_split = "dev"  # of a file with splits, or of a datasets id that has both
    c.test_split = "test"  # likewise, whose pairs are the test ones
    c.held_out_queries = 1000  # of what has no such splits: queries whose pairs are the test ones
    c.dev_queries = 100  # of the training queries: their pairs choose the best checkpoint
    c.test_pairs = 0  # evaluate on the first so many; 0: all
    c.rescore = 100  # of beir, and of the asymmetric file's questions: documents proposed by the index that the interaction module ranks anew; 0: all
    c.threshold_pairs = 1000  # training pairs on which the threshold of accuracy is chosen; 0: all
    c.max_queries = 0  # train on the first so many of each file, those with a positive first; 0: all
    c.queries_without_positive = True  # take part; CI, which compares with a positive, learns nothing of them
    c.unlabelled_symmetric = ""  # a text source of queries without labels, whose mined passages (of these pairs) the judge alone scores; empty: none
    c.unlabelled_asymmetric = ""  # likewise
    c.unlabelled_queries = 0  # the first so many of each; 0: all
    c.query_length = 64  # tokens, as the student reads them
    c.document_length = 128  # likewise, of a passage

    set_judge(c)

    c.positives = 2  # of a query, at most
    c.hard_negatives = 8  # labelled ones first, then mined
    c.easy_negatives = 4  # drawn once for each query
    c.mining = ConfigDict()
    c.mining.encoder = ""  # a bi-encoder that mines in turn with BM25; empty: BM25 alone
    c.mining.first, c.mining.last = 0, 100  # ranks that negatives are taken from
    c.mining.relative_margin = 0.95  # by the bi-encoder: at most this share of the positive's cosine; 0: none

    set_tuning(c)
    set_student(c)

    c.loss = ConfigDict()
    c.loss.form = "joint"  # of CI: joint, code or paper
    c.loss.imitate = True  # False: labels in the place of the judge's scores in CI, and in SI if no term reads those
    c.loss.temperature = 1.0  # what logits are divided by in CI, RI_HI, SI and listed; RI_PH is the same for any
    c.loss.alpha, c.loss.beta, c.loss.gamma = 1.0, 0.3, 0.1  # of RI_PH, RI_HI and FI
    c.loss.delta = 0.0  # of SI, our term: logits of positives and hard negatives imitate the judge's probabilities
    c.loss.vectors = 0.0  # of InfoNCE on the vectors' cosines, our term
    c.loss.listed = 0.0  # of KL to the judge over a query's positives and hard negatives, our term
    # Tasks whose CI has easy negatives and other queries' passages in D-: both, symmetric, asymmetric or none.
    c.loss.random_negatives = "both"
    c.loss.hard_over_easy = "ndcg"  # weights of RI_HI: ndcg or difference

    c.batch_size = 32
    c.learning_rate = 1e-4
    c.warmup = 0.05
    c.epochs = 4.0
    c.patience = 0  # checkpoints; 0: to the end, since such dev sets move by two points and more from one to the next
    c.checkpoint_every = 100
    c.remat = False  # layers computed anew in the backward pass

    return base.apply_variant(c, variant, VARIANTS, "configs/d2llm.py")


def set_judge(c: ConfigDict) -> None:
    """What the judge is asked."""
    c.judge = ConfigDict()
    # Of the task of equal meaning: a template; the passage last, since all before it is computed once for the pairs of a query.
    c.judge.symmetric = "Does text 2 follow from text 1, so that both say the same? Answer yes or no.\nText 1: {query}\nText 2: {passage}"
    # Likewise, of the task of questions and their passages.
    c.judge.asymmetric = (
        "Does the passage answer the question? Answer yes or no.\nQuestion: {query}\nPassage: {passage}"
    )
    c.judge.yes, c.judge.no = "yes", "no"  # the two answers
    c.judge.adapter = ""  # a tuned judge, with tune.epochs=0: a LoRA folder of PEFT's, such as RUN/tune/adapter
    c.judge.query_tokens = 64  # of a query in the judge's prompt; longer ones are cut
    c.judge.passage_tokens = 192  # likewise of a passage


def set_tuning(c: ConfigDict) -> None:
    """The judge's tuning, and what it changes of the keys beside it."""
    c.tune = ConfigDict()  # the judge, Appendix D; what it changes
    c.tune.epochs = 1.0  # 0: not tuned
    c.tune.max_steps = 0
    # It learns from: labelled, all labelled pairs; drawn, after Appendix D: a query's positives, at most as many as the student has
    # (the paper: all), and as many hard negatives.
    c.tune.prompts = "labelled"
    c.tune.batch_size = 16
    c.tune.learning_rate = 1e-4
    c.tune.lora = ConfigDict()
    c.tune.lora.rank = 32  # of its adapters, without which there would be nothing to tune
    c.tune.lora.alpha = 64.0
    c.tune.checkpoint_every = 100
    c.tune.patience = 0  # checkpoints without a better average precision on dev, after which tuning ends; 0: to its end


def set_student(c: ConfigDict) -> None:
    """The bi-encoder: where it starts, its adapters, pooler and interaction module."""
    c.student = ConfigDict()
    c.student.embedding_size = -1  # the start's own
    c.student.layers = 0  # 0: all of the start's
    c.student.hidden_size = 0  # 0: the start's
    c.student.intermediate_size = (
        0  # a layer's inner neurons, of BERT's kind; -1: as many as it is wide, -2: half as many again; 0: the start's
    )
    c.student.start = "svd"  # compact block: svd (fitted to the start's), weighted (by what vectors feel), tempered (rare tokens more) or random
    c.student.copy_layers = "first"  # which of the start's layers: first, last, spread
    c.student.vocabulary = ""  # pieces of the token table: text (those that the text uses) or the most used so many; empty: its start's all
    c.student.dropout = 0.0  # of the adapters' inputs
    c.student.attention = "causal"  # or bidirectional
    c.pooling = "pma"  # or mean, lasttoken
    c.interaction = "dual"  # the module with a branch for each task; single, or cosine without a module
    c.iem_size = 512  # width of the module
    c.iem_cosine = 0.0  # so many times the vectors' cosine is added to its logits (a parameter, which such rates hardly move); 0: none
    c.heads_start = (
        "similarity"  # the pooler starts as a mean, the module as a similarity of its two vectors; or random
    )
    c.lora = ConfigDict()
    c.lora.paths = "attention/(query|key|value|out)"  # a regular expression over the kernels' names
    c.lora.rank = 8  # 0: no adapters
    c.lora.alpha = 16.0  # adapters are scaled by alpha / rank
