"""What a language model's vectors are worth before any training: by its first layers, how they read, pooler, and whitened or as they are.

    python bench/untuned.py --start MODEL.gguf --text sentences.txt.gz --dev_pairs DEV --layers 1 2 3 4 8 [--senteval SENTEVAL] \\
        [--width 256] [--texts 4000] [--max_length 32] [--models RUN/export …]

The baselines that contrastive training has to be above, and that of words alone. Whitened: less the mean and by the axes along which
vectors of --texts of the text spread most, the first --width of them, each divided by the spread along it (Su et al. 2021, eq. 4 to 6);
no pair is looked at. --models: trained students, whitened and as they are, beside them. Average: STS12 to 15 and STS-B, as
bench/distilface_table.py has it. Writes each model's rows to bench/results/untuned.json when they are there.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from distilface_dev import TESTS
from record import command_line, keep_rows, shown, shown_model

sys.path.insert(0, str(Path(__file__).parents[1]))

import jdistill
from configs import distilface
from jdistill.core.errors import UserError
from jdistill.core.progress import log, setup_logging
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.order import sample_rows
from jdistill.data.sets.sts import sts_tasks
from jdistill.data.text.sources import read_texts
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.poolers import EveryPooler, pooler_names
from jdistill.evals.sts import evaluate_pairs, evaluate_sts, pairs_by_words, sts_by_words
from jdistill.students.transformer import make_student

ATTENTIONS = ("causal", "bidirectional")


class Whitened:
    """A text encoder whose vectors x become (x - mean) W, of which the covariance over `texts` is the identity."""

    def __init__(self, encoder: TextEncoder, texts: Sequence[str], width: int):
        self.encoder = encoder
        x_NxD = np.asarray(encoder.encode(texts), np.float64)
        self.mean_D = x_NxD.mean(0)
        _, spread, axes = np.linalg.svd((x_NxD - self.mean_D) / np.sqrt(len(texts)), full_matrices=False)
        rank = int((spread > spread[0] * np.finfo(np.float32).eps * max(x_NxD.shape)).sum())
        if rank < width:
            raise UserError(f"--width {width}: {len(texts)} texts' vectors spread along {rank} directions alone")
        self.W_DxE = axes[:width].T / spread[:width]

    @property
    def num_params(self) -> int:
        return self.encoder.num_params + self.W_DxE.size + self.mean_D.size

    @property
    def dim(self) -> int:
        return self.W_DxE.shape[1]

    @property
    def prompts(self) -> Any:
        return self.encoder.prompts

    def prompt_for(self, role: str) -> str | None:
        return self.encoder.prompt_for(role)

    def encode(self, texts: Sequence[str], **asked: Any) -> np.ndarray:
        return ((self.encoder.encode(texts, **asked) - self.mean_D) @ self.W_DxE).astype(np.float32)


def first_layers(start: Encoder, layers: int, attention: str) -> Encoder:
    """A student of the start's first layers, as configs/distilface.py makes it, not trained."""
    cfg = distilface.get_config()
    cfg.student.layers, cfg.student.attention = layers, attention
    no_text = TokenTable(np.zeros(0, np.int32), np.zeros(1, np.int64))  # it is read for a smaller token table alone
    return make_student(cfg, start, no_text)


def rows_of(model: Encoder, texts: Sequence[str], flags: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each pooler and for each pooler whitened."""
    views = EveryPooler(model, pooler_names("all", model.config.num_layers)).views()
    forms: dict[tuple[str, bool], TextEncoder] = {}
    for name, view in views.items():
        forms[name, False] = view
        try:
            forms[name, True] = Whitened(view, texts, flags.width)
        except UserError as error:  # such as the first token of a text where that is the same of all
            log.warning("pooler %s is not whitened: %s", name, error)
    dev = {key: evaluate_pairs(form, flags.dev_pairs) for key, form in forms.items()}
    rows = [{"pooler": name, "whitened": whitened, "dev": of} for (name, whitened), of in dev.items()]
    if flags.senteval:
        for row, form in zip(rows, forms.values(), strict=True):
            sts = evaluate_sts(form, flags.senteval)["sts"]
            row |= sts | {"average": float(np.mean([sts[task] for task in TESTS]))}
    return rows


def of_words(flags: argparse.Namespace) -> dict[str, Any]:
    """The row of no model at all: evals.word_cosines."""
    row: dict[str, Any] = {
        "model": "none",
        "layers": 0,
        "attention": "none",
        "pooler": "words by idf",
        "whitened": False,
    }
    row["dev"] = float(np.mean(list(pairs_by_words(flags.dev_pairs).values())))
    if flags.senteval:
        sts = sts_by_words(sts_tasks(flags.senteval))
        row |= sts | {"average": float(np.mean([sts[task] for task in TESTS]))}
    return row


def models_of(flags: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Encoder]]:
    """What names each model's rows, and the model."""
    start = dataclasses.replace(jdistill.load(flags.start), pooling="avg_last_hidden", max_length=flags.max_length)
    for layers in flags.layers:
        for attention in flags.attention:
            about = {"model": shown(flags.start), "layers": layers, "attention": attention}
            yield about, first_layers(start, layers, attention)
    for folder in flags.models:
        model = jdistill.load(str(folder))
        about = {"model": shown_model(folder), "layers": model.config.num_layers}
        yield about | {"attention": ATTENTIONS[not model.config.causal]}, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--dev_pairs", type=Path, required=True)
    parser.add_argument("--senteval", type=Path, help="tests are read where it is given")
    parser.add_argument("--layers", type=int, nargs="*", default=[1, 2, 3, 4, 8])
    parser.add_argument("--attention", nargs="+", choices=ATTENTIONS, default=list(ATTENTIONS))
    parser.add_argument("--models", type=Path, nargs="*", default=[])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--max_length", type=int, default=32)
    flags = parser.parse_args()
    setup_logging()
    lines = read_texts(flags.text).texts
    texts = [lines[row] for row in np.sort(sample_rows(np.random.default_rng(0), len(lines), flags.texts))]
    settings = {
        "text": shown(flags.text),
        "dev_pairs": shown(flags.dev_pairs),
        "width": flags.width,
        "texts": len(texts),
        "max_length": flags.max_length,
    }
    by = ("model", "layers", "attention", "pooler", "whitened")
    by_model = ([about | row for row in rows_of(model, texts, flags)] for about, model in models_of(flags))
    for rows in itertools.chain([[of_words(flags)]], by_model):
        keep_rows("untuned", command_line(), rows, by, unfinished=True, **settings)
        for row in sorted(rows, key=lambda row: -row["dev"])[:4]:
            log.info("%s", "  ".join(f"{x:.2f}" if isinstance(x, float) else str(x) for x in row.values()))


if __name__ == "__main__":
    main()
