"""IBKD for dense retrieval: stage 1 on passages, stage 2 on queries with hard negatives.

Paper: Zhang et al., EMNLP 2023. Its figures on MS MARCO, MRR@10: MiniLM 30.31 after stage 1, 37.49 after stage 2, of
CoCondenser's 38.21.

    python -m jdistill.mine --pairs pairs.jsonl --by TEACHER --count 8 --out triplets.jsonl
    python -m jdistill.main --config configs/ibkd_retrieval.py --workdir runs/ibkd-retrieval \\
        --config.teacher=FOLDER --config.text=passages-and-queries.txt.gz --config.triplets=triplets.jsonl \\
        --config.beir=BEIR

The paper's stage 1 reads the training queries too, and stage 2 has 8 negatives of each query that CoCondenser mined. The defaults name
passages alone, and the first 8 of BM25's 50 negatives (about 10 GB of memory as they are read):
--config.pairs=sentence-transformers/msmarco-bm25:triplet --config.text_role=document reads the queries beside the passages, and the first
command mines by the teacher.

Cost and figures: docs/results/retrieval.md. Variants as in configs/ibkd.py.
"""

from ml_collections import ConfigDict

from configs import ibkd

VARIANTS = ibkd.VARIANTS


def get_config(variant: str = "") -> ConfigDict:
    c = ibkd.get_config(variant)
    if c.teacher:  # "supervised" has none
        c.teacher = "Luyu/co-condenser-marco-retriever"
    c.text = "sentence-transformers/msmarco:corpus"
    c.text_column = "passage"
    c.triplets = "sentence-transformers/msmarco-bm25:triplet-50"
    c.negatives = 8
    c.batch_size = 128
    c.epochs = 3.0
    c.finetune.batch_size = 128
    c.finetune.learning_rate = 1e-5
    return c
