"""BiLSTM-SRA: a bidirectional LSTM of 512 a direction that approximates the teacher's vectors, for any later task.

Paper: Towards Non-task-specific Distillation of BERT via Sentence Representation Approximation, Wu et al., AACL 2020.

    python -m jdistill.main --config configs/bilstm_sra.py --workdir runs/bilstm \\
        --config.teacher=FOLDER --config.text=sentences.txt.gz --config.text_column= --config.senteval=SENTEVAL

Cost and figures: docs/results/bilstm.md. configs/bilstm_sra.py:cls is the paper's own target, the last layer's [CLS] of a BERT that was never
tuned for similarity; as configured the target is the teacher's pooled vector. configs/bilstm_sra.py:own_pairs is what the paper
compares with in table 5: the cosine of each of a task's pairs (config.pairs) in the place of the vectors; :pairs learns those of all pairs of
a batch of text.
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS: dict[str, dict[str, object]] = {
    "": {},
    "cls": {"teacher": "google-bert/bert-base-uncased", "teacher_pooling": "cls"},
    "pairs": {"loss.target": "pairs"},
    "own_pairs": {"loss.target": "own_pairs", "text": "", "text_column": ""},
}


def get_config(variant: str = "") -> ConfigDict:
    c = base.get_config()
    c.method = "bilstm_sra"
    c.teacher = "sentence-transformers/all-MiniLM-L6-v2"
    c.text = "sentence-transformers/wikipedia-en-sentences"
    c.text_column = "sentence"

    c.student = ConfigDict()
    c.student.embedding_size = 300  # of a word piece or word
    c.student.lstm_size = 512  # of a direction
    c.student.over_time = "max"  # max, or final: the two directions' last states
    c.student.glove = (
        ""  # a file of word vectors in GloVe's text format; empty: the start's word pieces, reduced by PCA
    )
    c.student.dropout = 0.0  # of the embeddings and of the LSTM's channels

    c.loss = ConfigDict()
    c.loss.target = "vectors"  # the teacher's vectors; pairs: cosines of a batch's alone; own_pairs: of config.pairs' rows (table 5's rival)

    c.batch_size = 1024
    c.learning_rate = 1e-3
    c.schedule = "cosine"
    c.weight_decay = 0.0  # Adam
    c.epochs = 10.0
    c.checkpoint_every = 200

    return base.apply_variant(c, variant, VARIANTS, "configs/bilstm_sra.py")
