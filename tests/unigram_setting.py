"""Pieces of a Unigram model learnt from made-up sentences, as sentencepiece's vocabularies have them."""

from __future__ import annotations

import json
from functools import cache

from conftest import sentences
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

FOREIGN = ["Wo steht das Haus am Fluss?", "Où est la maison ?", "Дом стоит у реки."]


@cache
def unigram_pieces(special: tuple[str, ...], unknown: str = "<unk>") -> list[tuple[str, float]]:
    """(piece, its log probability) of some 400, the special ones first."""
    learnt = Tokenizer(models.Unigram())
    learnt.normalizer = normalizers.Lowercase()
    learnt.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=list(special), unk_token=unknown, show_progress=False
    )
    learnt.train_from_iterator([*sentences(300), *FOREIGN], trainer)
    return [(piece, score) for piece, score in json.loads(learnt.to_str())["model"]["vocab"]]
