"""SimTDE-128-L3(384) from all-MiniLM-L6-v2: 9.3 million parameters, 41 % of the teacher's.

Paper: SimTDE: Simple Transformer Distillation for Sentence Embeddings, Xie et al., SIGIR 2023. Its figure for this
pair: 78.09 of 78.87. (It counts BERT's pooler too: 9.5 million.)

    python -m jdistill.main --config configs/simtde.py --workdir runs/simtde \\
        --config.teacher=FOLDER --config.text=sentences.txt.gz --config.senteval=SENTEVAL

Cost and figures: docs/results/simtde.md; why alpha is not the paper's: docs/methods/simtde.md.
Variants, --config configs/simtde.py:NAME, are the paper's own alpha and the rows of its
Table 2:

    paper      the teacher's last layers and alpha 0.5, the paper's; batch 128 at 3e-4, which the paper does not print
    last       the paper's layers alone: the teacher's last K
    deep       no layer reduction: all of the teacher's layers behind the compact embedding
    matched    the last K layers start at random and are matched to the teacher's hidden states instead of copied
    no_token   no token embedding loss
    lrn        layer-reduction KD: the teacher's own embedding table and last two layers; sentence loss only, as we read it
    lmx        learnable-matrix KD: half as wide, all layers, one matrix a layer
    random     the compact block starts at random, not from the SVD
    kl, pair_mse, pair_mae    the other output losses it tries, each with an alpha for its size
    normalized the sentence loss on unit vectors
    table      the token loss on the whole vocabulary
    thin       all layers, each with a quarter of its inner neurons, and a start weighed by the sentence vector: not the
               paper's; configs/search.py's (docs/results/search.md)
    tiny64, tiny32    two layers, 128 wide, compact 64 or 32: the entity-resolution students (teacher: a 128-wide BERT)
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS: dict[str, dict[str, object]] = {
    "": {},
    "paper": {"student.copy_layers": "last", "loss.alpha": 0.5, "batch_size": 128, "learning_rate": 3e-4},
    "last": {"student.copy_layers": "last"},
    "deep": {"student.layers": 0},
    "matched": {"student.copy_layers": "none", "loss.hidden": 1.0},
    "no_token": {"loss.token": "none"},
    "lrn": {"student.embedding_size": -1, "student.layers": 2, "student.copy_layers": "last", "loss.token": "none"},
    "lmx": {
        "student.embedding_size": 0,
        "student.layers": 0,
        "student.hidden_size": 192,
        "loss.token": "none",
        "loss.hidden": 1.0,
    },
    "random": {"student.start": "random"},
    # alpha: at a mean cosine of 0.9 to the teacher these are 0.5, 0.5 and 6 times mse, and the token term keeps the share beside each
    # that it has beside mse.
    "kl": {"loss.sentence": "kl", "loss.alpha": 0.05},
    "pair_mse": {"loss.sentence": "pair_mse", "loss.alpha": 0.05},
    "pair_mae": {"loss.sentence": "pair_mae", "loss.alpha": 0.4},
    "normalized": {"loss.normalize": True},
    "table": {"loss.token": "table"},
    "thin": {
        "student.layers": 0,
        "student.intermediate_size": -1,
        "student.start": "weighted",
        "loss.normalize": True,
        "learning_rate": 7e-4,
    },
    "tiny64": {"student.embedding_size": 64, "student.layers": 2},
    "tiny32": {"student.embedding_size": 32, "student.layers": 2},
}


def get_config(variant: str = "") -> ConfigDict:
    c = base.get_config()
    c.method = "simtde"
    c.teacher = "sentence-transformers/all-MiniLM-L6-v2"
    c.text = "sentence-transformers/wikipedia-en-sentences"
    c.text_column = "sentence"
    c.batch_size = 64
    c.learning_rate = 5e-4
    c.length_buckets = 12
    c.epochs = 4.0  # passes
    c.checkpoint = (
        "auto"  # where no collection chooses the last: some hundred scored pairs tell late ones apart by chance
    )

    c.student = ConfigDict()
    c.student.embedding_size = 128  # compact width E; 0: the hidden size, no projection
    c.student.layers = 3  # K; 0: all of the teacher's
    c.student.hidden_size = 0  # 0: the teacher's
    c.student.intermediate_size = 0  # a layer's inner neurons, of BERT's kind; -1: as many as it is wide, -2: half as many again; 0: the teacher's
    c.student.start = "svd"  # compact block: svd (fitted to the teacher's), weighted (by what vectors feel), tempered (rare tokens more) or random
    # Which teacher layers the K start as: last, first, spread, none (random). Spread: nearer to the teacher, by one seed (docs/results/simtde.md).
    c.student.copy_layers = "spread"
    c.student.vocabulary = ""  # pieces of the token table: text (those that the text uses) or the most used so many; empty: its start's all
    c.student.dropout = 0.0  # of its hidden states and attention

    c.loss = ConfigDict()
    c.loss.alpha = 0.1  # eq. 5: weight of the token term, at most 1; the paper's is 0.5
    c.loss.token = (
        "block"  # eq. 3 on the block's output for the batch's tokens (block), the whole vocabulary (table), or none
    )
    c.loss.sentence = "mse"  # eq. 4: mse, kl, pair_mse, pair_mae
    c.loss.normalize = False  # sentence vectors to unit length first
    c.loss.hidden = 0.0  # weight of matching hidden states, each layer's to that of the layer which it starts as, else to the last K

    return base.apply_variant(c, variant, VARIANTS, "configs/simtde.py")
