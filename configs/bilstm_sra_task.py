"""Fine-tuning on a task: BiLSTM-SRA's second half, and the rows it is compared with.

Paper: Towards Non-task-specific Distillation of BERT via Sentence Representation Approximation, Wu et al., AACL 2020.

    python -m jdistill.main --config configs/bilstm_sra_task.py --workdir runs/sst2 \\
        --config.teacher=TEACHER --config.student=runs/bilstm --config.task=sst2 --config.task_dir=SENTEVAL
    python -m jdistill.sweep --config configs/bilstm_sra_task.py --workdir runs/sst2-lr \\
        --grid learning_rate=2e-4,3e-4,5e-4,1e-3 --config.student=runs/bilstm …  # the paper chooses the rate on dev

Rows of its Table 1: student=scratch (a BiLSTM that nobody taught), student=runs/bilstm (SRA), either with kd=RUN (KD), RUN being
a fine-tuned teacher, this config with student=TEACHER, batch_size=32 and learning_rate=5e-5. Cost and figures:
docs/results/bilstm.md.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.method = "classify"
    c.teacher = "sentence-transformers/all-MiniLM-L6-v2"  # whose word pieces and embeddings a student from scratch has; read beside any student
    c.student = "scratch"  # a run's folder or an export that is fine-tuned, recurrent or transformer; or scratch
    c.task = "sst2"  # sst2, mrpc, trec, mr, cr, subj, mpqa (SentEval); qqp, mnli (both dev splits), rte, qnli, … (GLUE); any name for own files
    c.task_dir = (
        ""  # a SentEval folder; a folder with train and dev as .tsv or .jsonl; or a datasets id such as nyu-mll/glue
    )
    c.label_fraction = 1.0  # of the training rows that are used
    c.split_seed = 0  # draws them, and dev and test where a task comes without: for every seed of a run the same
    c.augment = (
        ""  # with kd, ts: up to 800,000 variants of the training rows for the teacher to answer (the augment extra)
    )
    c.kd = ""  # a run or export of a classifier of the same task, whose logits are learnt too; empty: labels alone

    c.scratch = ConfigDict()  # of a student from scratch, as in configs/bilstm_sra.py
    c.scratch.embedding_size = 300  # of a word piece or word
    c.scratch.lstm_size = 512  # of a direction
    c.scratch.over_time = "max"  # max, or final: the two directions' last states
    c.scratch.glove = (
        ""  # a file of word vectors in GloVe's text format; empty: the teacher's word pieces, reduced by PCA
    )
    c.scratch.dropout = 0.1  # of any student's, from scratch or not

    c.loss = ConfigDict()
    c.loss.hard = 0.5  # a of a CE + (1 - a) MSE(logits), with kd
    c.head_size = 256  # width of the classifier's hidden layer

    c.batch_size = 64
    c.learning_rate = 5e-4
    c.schedule = "linear"
    c.warmup = 0.0
    c.weight_decay = 0.0
    c.epochs = 10.0
    c.checkpoint_every = 200
    c.patience = 5
    c.held_out = 0
    c.latency_texts = 0
    c.index_texts = 0
    return c
