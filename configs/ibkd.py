"""IBKD for similarity: InfoNCE with an HSIC information bottleneck on unlabelled text, then fine-tuning on triplets.

Paper: Text Representation Distillation via Information Bottleneck Principle, Zhang et al., EMNLP 2023. Its figures:
MiniLM from SimCSE-RoBERTa-large 82.01 of 83.76 after stage 1, 82.69 after stage 2.

    python -m jdistill.main --config configs/ibkd.py --workdir runs/ibkd \\
        --config.teacher=FOLDER --config.text=sentences.txt.gz --config.triplets=triplets.jsonl --config.senteval=SENTEVAL

The paper's stage 1 reads all sentences of NLI, 1,196,755, and variants of them by WordNet and back translation, 3,590,265 in all. A table
gives one column, here the premises; docs/methods/ibkd.md tells how to come nearer.

Cost and figures: docs/results/ibkd.md. Variants, --config configs/ibkd.py:NAME, are the methods it is compared with, at the same
budget:

    ckd         IBKD without HSIC (the paper's ablation)
    mse         the projected student to the teacher
    crd         contrastive against the teacher, with a buffer of negatives (Tian et al. 2020)
    hpd         the projected student to the teacher's 128 principal axes (Zhao et al. 2022)
    supervised  no teacher, stage 2 alone; start names the student, and text may be empty
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS: dict[str, dict[str, object]] = {
    "": {},
    "ckd": {"loss.beta": 0.0, "finetune.loss.beta": 0.0},
    "mse": {"finetune.loss.beta": 0.0},
    "crd": {"finetune.loss.beta": 0.0},
    "hpd": {"output_dim": 128, "finetune.loss.beta": 0.0},
    "supervised": {"teacher": "", "finetune.loss.beta": 0.0},
}


def get_config(variant: str = "") -> ConfigDict:
    c = base.get_config()
    c.method = "ibkd"  # ibkd, ckd, mse, crd, hpd or supervised; by the variant, which sets the keys that go with it
    c.teacher = "princeton-nlp/sup-simcse-roberta-large"
    c.start = "nreimers/MiniLM-L6-H384-uncased"
    c.text = "sentence-transformers/all-nli:triplet"
    c.text_column = "anchor"
    c.triplets = "sentence-transformers/all-nli:triplet"  # stage 2: anchor or query, positive, negative(s), perhaps scores; empty: stage 1 only
    c.negatives = 0  # of a triplet's negatives use the first so many; 0: as many as the longest row has
    c.query_length = 0  # tokens of an anchor; 0: as max_length
    c.document_length = 0  # tokens of a positive or negative; 0: as max_length

    c.student = ConfigDict()
    c.student.embedding_size = -1  # compact width E; -1: the start's own, 0: the hidden size
    c.student.layers = 0  # 0: all of the start's
    c.student.hidden_size = 0  # 0: the start's
    c.student.intermediate_size = (
        0  # a layer's inner neurons, of BERT's kind; -1: as many as it is wide, -2: half as many again; 0: the start's
    )
    c.student.start = "svd"  # compact block: svd (fitted to the start's), weighted (by what vectors feel), tempered (rare tokens more) or random
    c.student.copy_layers = "last"  # which of the start's layers: last, first, spread, none (random)
    c.student.vocabulary = ""  # pieces of the token table: text (those that the text uses) or the most used so many; empty: its start's all
    c.student.dropout = 0.0  # of its hidden states and attention
    c.student.attention = "causal"  # of a decoder: causal or bidirectional
    c.output_dim = 0  # width of the student's vectors, by a projection learnt in stage 2 (hpd: in stage 1); 0: its own
    c.projection_start = (
        "pca"  # of stage 2's projection: pca (the student's own principal axes) or random; hpd's has none of it
    )

    c.kernel = "rbf"  # of HSIC: rbf, imq (inverse multiquadric) or linear (cosine)
    c.hsic = ConfigDict()
    c.hsic.gamma = 0.5  # 0: the median heuristic
    c.hsic.estimator = (
        "unbiased"  # biased (1/n², eq. 6), n_minus_1 (1/(n-1)², the authors' code), unbiased (Song et al. 2012)
    )
    c.hsic.unit_rows = True  # rows to length one first
    c.hsic.stop_input = False  # no gradient through X, the student's embedding layer

    c.loss = ConfigDict()
    c.loss.beta = 1.0  # weight of HSIC(X, S): eq. 8, in stage 2 eq. 9
    c.loss.temperature = 0.1  # what similarities are divided by
    c.loss.similarity = "cosine"  # of W s and t: cosine (as the authors run it) or bilinear (s W t, as printed)
    c.loss.own_negatives = False  # stage 2: eq. 10 as printed, dot products and the anchor's own negatives only
    c.loss.scores = ""  # stage 2: imitate the triplets' scores (jdistill.mine --score_by) by margin_mse or kl; empty: they are not read
    c.loss.scores_weight = 1.0  # stage 2: weight of the loss of scores
    c.loss.scores_temperature = 1.0  # stage 2: what scores are divided by; similarities are divided by loss.temperature
    c.loss.in_batch = 1.0  # stage 2: weight of InfoNCE beside the loss of scores; 0: none
    c.loss.align = (
        0.0  # weight of |W s - t|² of unit vectors, W exported: the student stays in the teacher's space; not of hpd
    )
    c.loss.buffer_per_text = 32  # crd: teacher vectors of other texts a text of the batch
    c.loss.critic_dim = 128  # crd

    c.batch_size = 256
    c.learning_rate = 1e-4
    c.schedule = "linear"
    c.warmup = 0.0
    c.weight_decay = 0.0  # Adam
    c.epochs = 10.0

    c.finetune = ConfigDict()  # what stage 2 changes
    c.finetune.batch_size = 256
    c.finetune.learning_rate = 3e-5
    c.finetune.epochs = 3.0
    c.finetune.max_steps = 0
    c.finetune.loss = ConfigDict({"beta": 0.5, "temperature": 0.05})
    c.finetune.checkpoint_every = 100
    c.finetune.packed = True  # the texts of triplets too; --config.packed=False leaves both stages padded

    c.method = variant or "ibkd"
    return base.apply_variant(c, variant, VARIANTS, "configs/ibkd.py")
