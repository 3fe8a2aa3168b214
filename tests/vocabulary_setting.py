"""Small tokenizers of every model that can be cut, learnt from words that share their stems and ends, and encoders that read by them."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from conftest import random_params, tiny_config, tiny_decoder_config
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaTokenizer, XLMRobertaTokenizer

from jdistill.encoder.encoder import Encoder

STEMS = [
    "read",
    "write",
    "teach",
    "learn",
    "garden",
    "water",
    "stone",
    "paper",
    "light",
    "house",
    "straße",
    "маши",
    "книг",
    "дерев",
    "été",
    "cœur",
    "北京",
    "東京",
]
ENDS = [
    "er",
    "ing",
    "ed",
    "s",
    "ness",
    "less",
    "ful",
    "en",
    "able",
    "ische",
    "ами",
    "ого",
    "ées",
    "市",
    "都",
    "ly",
    "est",
]
BYTES = [f"<0x{number:02X}>" for number in range(256)]
UNKNOWN = "ß→∞"  # characters that no text below has


def made_up_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 1 to 9 words, each of one or two stems with up to two ends."""
    rng = np.random.default_rng(seed)

    def word() -> str:
        return "".join([*rng.choice(STEMS, rng.integers(1, 3)), *rng.choice(ENDS, rng.integers(0, 3))])

    return [" ".join(word() for _ in range(rng.integers(1, 10))) for _ in range(count)]


def _bert_like(learnt: Tokenizer, special: dict[str, str], outside: bool = False) -> PreTrainedTokenizerFast:
    if outside:  # behind the model's pieces, as ModernBERT and the decoders have them
        learnt.add_special_tokens([AddedToken(token) for token in special.values()])
    ends = [(special[name], learnt.token_to_id(special[name])) for name in ("cls_token", "sep_token")]
    single = f"{special['cls_token']} $A {special['sep_token']}"
    template = processors.TemplateProcessing(single=single, pair=None, special_tokens=ends)
    learnt.post_processor = processors.Sequence([template]) if outside else template
    return PreTrainedTokenizerFast(tokenizer_object=learnt, model_max_length=60, **special)


NAMES = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


def word_pieces(texts: list[str]) -> PreTrainedTokenizerFast:
    learnt = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learnt.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=list(NAMES.values()), show_progress=False)
    learnt.train_from_iterator(texts, trainer)
    return _bert_like(learnt, NAMES)


def unigram_pieces(texts: list[str], special: list[str]) -> list[list]:
    learnt = Tokenizer(models.Unigram())
    learnt.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=500, special_tokens=special, unk_token="<unk>", show_progress=False)
    learnt.train_from_iterator(texts, trainer)
    return json.loads(learnt.to_str())["model"]["vocab"]


def unigram(texts: list[str]) -> XLMRobertaTokenizer:
    pieces = unigram_pieces(texts, ["<s>", "<pad>", "</s>", "<unk>"])
    return XLMRobertaTokenizer(vocab=[*map(tuple, pieces), ("<mask>", 0.0)], model_max_length=60)


def unigram_over_bytes(texts: list[str]) -> PreTrainedTokenizerFast:
    special = {name: token for name, token in NAMES.items() if name != "unk_token"} | {"unk_token": "<unk>"}
    pieces = [(token, 0.0) for token in special.values()] + [(piece, -20.0) for piece in BYTES]
    pieces += [(piece, score) for piece, score in unigram_pieces(texts, ["<unk>"]) if piece != "<unk>"]
    unknown = [piece for piece, _ in pieces].index("<unk>")
    whole = Tokenizer(models.Unigram(pieces, unk_id=unknown, byte_fallback=True))
    whole.pre_tokenizer, whole.decoder = pre_tokenizers.Metaspace(), decoders.ByteFallback()
    whole.add_special_tokens([AddedToken(token) for token in special.values()])
    return _bert_like(whole, special)


def byte_pairs(texts: list[str]) -> PreTrainedTokenizerFast:
    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learnt.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    return _bert_like(learnt, NAMES, outside=True)


def roberta(texts: list[str]) -> RobertaTokenizer:
    model = json.loads(byte_pairs(texts).backend_tokenizer.to_str())["model"]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(model["vocab"], key=model["vocab"].get), "<mask>"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return RobertaTokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in model["merges"]], model_max_length=60)


def _marked_pairs(texts: list[str], **marks: str) -> PreTrainedTokenizerFast:
    learnt = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True, **marks))
    learnt.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=list(NAMES.values()), show_progress=False, **marks)
    learnt.train_from_iterator(texts, trainer)
    return _bert_like(learnt, NAMES)


def pairs_with_ends(texts: list[str]) -> PreTrainedTokenizerFast:
    return _marked_pairs(texts, end_of_word_suffix="</w>")


def pairs_within_words(texts: list[str]) -> PreTrainedTokenizerFast:
    return _marked_pairs(texts, continuing_subword_prefix="##")


def pairs_over_bytes(texts: list[str]) -> PreTrainedTokenizerFast:
    """As Llama's: a character that is no piece is read as bytes, and a piece is merged from any two that make it up."""
    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.Metaspace()
    learnt.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=400, show_progress=False))
    model = json.loads(learnt.to_str())["model"]
    order = sorted(model["vocab"], key=model["vocab"].get)
    merges = [
        (p[:i], p[i:]) for p in order for i in range(1, len(p)) if p[:i] in model["vocab"] and p[i:] in model["vocab"]
    ]
    vocabulary = {piece: i for i, piece in enumerate(["<unk>", *BYTES, *order])}
    whole = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True, ignore_merges=True)
    )
    whole.pre_tokenizer = pre_tokenizers.Metaspace()
    return _bert_like(whole, NAMES | {"unk_token": "<unk>"}, outside=True)


KINDS: dict[str, Callable[[list[str]], PreTrainedTokenizerFast]] = {
    "word pieces": word_pieces,
    "unigram": unigram,
    "unigram over bytes": unigram_over_bytes,
    "byte pairs": byte_pairs,
    "roberta": roberta,
    "pairs with ends": pairs_with_ends,
    "pairs within words": pairs_within_words,
    "pairs over bytes": pairs_over_bytes,
}


def encoder_of(kind: str, texts: list[str]) -> Encoder:
    """A tiny model with such a tokenizer: RoBERTas for those that have their class, a decoder for those that decoders have, else a BERT."""
    tokenizer = KINDS[kind](texts)
    rows, padding = len(tokenizer), tokenizer.pad_token_id
    if kind == "pairs over bytes":
        config = tiny_decoder_config(vocab_size=rows + 3, pad_token_id=padding)  # padded, as published tables are
    elif kind in ("unigram", "roberta"):
        model_type = {"unigram": "xlm-roberta"}.get(kind, kind)
        config = tiny_config(
            model_type=model_type, type_vocab_size=1, pad_token_id=padding, vocab_size=rows, num_layers=1
        )
    else:
        config = tiny_config(vocab_size=rows, pad_token_id=padding, num_layers=1)
    return Encoder(config, random_params(config), tokenizer, normalize=True, max_length=60, source=kind)
