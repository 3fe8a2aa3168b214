"""A recurrent encoder's sizes, and its files as sentence-transformers has them: WordEmbeddings, then LSTM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.json_files import REQUIRED, read_settings
from jdistill.models.conversion import Names

DIRECTIONS = ("forward", "backward")
TOKENIZER = "sentence_transformers.models.tokenizer.WordTokenizer.TransformersTokenizerWrapper"
WORDS, LSTM = "0_WordEmbeddings", "1_LSTM"
SUFFIX = dict(zip(DIRECTIONS, ("", "_reverse"), strict=True))


@dataclass(frozen=True)
class BilstmConfig:
    """The architecture of a recurrent encoder; hashable, so that it can be a static argument of jit."""

    vocab_size: int
    embedding_size: int  # E
    lstm_size: int  # H
    pad_token_id: int = 0
    dropout: float = 0.0  # of the embeddings and of the LSTM's channels, while training
    model_type: str = "bilstm"
    num_layers: int = 1

    @property
    def hidden_size(self) -> int:
        """D, the width of a token's state: both directions."""
        return 2 * self.lstm_size

    @property
    def causal(self) -> bool:
        return False

    @property
    def usable_positions(self) -> int:
        """No table of positions limits the length."""
        return 1_000_000


def tensor_names() -> Names:
    """Flax path -> (name on disk, whether to transpose). A bias is the first of torch's two."""
    names: Names = {"word/embedding": ("emb_layer.weight", False)}
    for name, suffix in SUFFIX.items():
        names[f"{name}/input"] = (f"encoder.weight_ih_l0{suffix}", True)
        names[f"{name}/recurrent"] = (f"encoder.weight_hh_l0{suffix}", True)
        names[f"{name}/bias"] = (f"encoder.bias_ih_l0{suffix}", False)
    return names


def read_config(lstm: Path) -> BilstmConfig:
    """The sizes of an LSTM module's folder; the words are as many as their table has rows, and padding is the tokenizer's. Raises
    UserError for an LSTM that is not one layer in both directions."""
    settings = read_settings(lstm / "lstm_config.json")
    if settings.integer("num_layers", 1, default=1) != 1 or not settings.flag("bidirectional", True):
        raise UserError(
            f"{settings.path}: jdistill reads an LSTM of one layer in both directions, and found {settings.values}"
        )
    old = settings.integer("word_embedding_dimension", 1, default=None)
    width = settings.integer("embedding_dimension", 1, default=REQUIRED if old is None else old)
    return BilstmConfig(0, width, settings.integer("hidden_dim", 1), pad_token_id=-1)


def files(config: BilstmConfig, max_length: int) -> dict[str, dict[str, Any]]:
    """JSON files of an export, by their path in it."""
    of_words = {"tokenizer_class": TOKENIZER, "update_embeddings": False, "max_seq_length": max_length}
    of_lstm = {
        "word_embedding_dimension": config.embedding_size,  # sentence-transformers' name up to 5.3, which later ones read too
        "hidden_dim": config.lstm_size,
        "num_layers": 1,
        "dropout": 0,
        "bidirectional": True,
    }
    return {f"{WORDS}/wordembedding_config.json": of_words, f"{LSTM}/lstm_config.json": of_lstm}
