"""What sentence-transformers' side of a comparison does: its trainer with MSELoss on three of a teacher's layers.

Imports nothing of ours, whose start would count in its time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

LAYERS = 3


def unnormalized(source: str, device: str | None = None) -> Any:
    """The teacher of a folder as sentence-transformers loads it, without its Normalize: ours learns the vectors before it too."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(source, device=device)
    if model[-1].__class__.__name__ == "Normalize":
        del model[-1]
    return model


def kept_layers(layers: int) -> list[int]:
    """Numbers, from 0, of the teacher's layers that the student keeps: those that configs/simtde.py's starts as."""
    return [round((k + 1) * layers / LAYERS) - 1 for k in range(LAYERS)]


def train_theirs(
    flags: argparse.Namespace, texts: list[str], vectors: np.ndarray, rate: float, out: Path
) -> tuple[Path, float]:
    """Trains the other side's student.

    Args:
      flags: teacher, a folder; batch_size, seed, st_bf16, st_dropout.
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
    layers = list(bert.encoder.layer)
    bert.encoder.layer = torch.nn.ModuleList(layers[number] for number in kept_layers(len(layers)))
    bert.config.num_hidden_layers = LAYERS
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = flags.st_dropout
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
        use_cpu=not torch.cuda.is_available(),  # else the trainer refuses bfloat16 on a processor
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


def train_theirs_from_text(flags: argparse.Namespace, student: Path) -> None:
    """The whole way, from workdir/sentences.txt to a saved student."""
    texts = (flags.workdir / "sentences.txt").read_text().splitlines()
    vectors = unnormalized(flags.teacher, "cpu").encode(texts, batch_size=flags.batch_size, convert_to_numpy=True)
    train_theirs(flags, texts, vectors, flags.st_learning_rate, student)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("teacher", "student"):
        parser.add_argument(f"--{name}", required=True, help="a folder")
    parser.add_argument("--workdir", type=Path, required=True, help="which has the sentences.txt")
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--st_learning_rate", type=float, required=True)
    parser.add_argument("--st_dropout", type=float, required=True)
    parser.add_argument("--st_bf16", action="store_true")
    parser.add_argument("--seed", type=int, required=True)
    flags = parser.parse_args()
    train_theirs_from_text(flags, Path(flags.student))


if __name__ == "__main__":
    main()
