"""Models, a tokenizer and texts that are made up: what is timed does not depend on what they say, and nothing must be fetched."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from gpu.parts import Setting
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.models.bert import BertConfig
from jdistill.models.decoder import DecoderConfig
from jdistill.models.registry import ModelConfig, parameter_shapes

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CHARACTERS = [*string.ascii_lowercase, *string.digits, *"?.,:!"]
ANSWERS = ["yes", "no"]
MEAN_WORDS, SPREAD, MOST_WORDS = 20, 0.5, 120  # of a text: a mean, the width of a log-normal, and a bound


def vocabulary(size: int) -> list[str]:
    """So many distinct entries: special ones, characters, the two answers and words of letters."""
    pieces = [*SPECIAL, *CHARACTERS, *(f"##{character}" for character in CHARACTERS), *ANSWERS]
    letters = string.ascii_lowercase
    words = (
        f"{letters[n // 17576 % 26]}{letters[n // 676 % 26]}{letters[n // 26 % 26]}{letters[n % 26]}"
        for n in range(size - len(pieces))
    )
    return [*pieces, *words]


def make_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Word pieces as a BERT reads them, over vocabulary(size)."""
    entries = {entry: row for row, entry in enumerate(vocabulary(size))}
    whole = Tokenizer(models.WordPiece(entries, unk_token="[UNK]"))
    whole.normalizer = normalizers.BertNormalizer(lowercase=True)
    whole.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, entries[name]) for name in ("[CLS]", "[SEP]")]
    whole.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    named = {name: f"[{name.removesuffix('_token').upper()}]" for name in ("pad_token", "cls_token", "sep_token")}
    return PreTrainedTokenizerFast(
        tokenizer_object=whole, unk_token="[UNK]", mask_token="[MASK]", model_max_length=512, **named
    )


def random_params(config: ModelConfig) -> dict[str, Any]:
    """Parameters of a model at random, float32: norms about one, all else wide enough that two texts get unlike vectors."""
    rng, flat = np.random.default_rng(0), {}
    for path, shape in parameter_shapes(config).items():
        noise = rng.standard_normal(shape, np.float32) * np.float32(0.05)
        flat[path] = noise + 1 if path.endswith("scale") else noise
    return unflatten_dict(flat, sep="/")


def make_encoder(setting: Setting) -> Encoder:
    """A teacher of all-MiniLM-L6-v2's shape; in a rehearsal 32 wide."""
    size = setting.pick(30_522, 500)
    config = BertConfig(
        model_type="bert", vocab_size=size, embedding_size=setting.pick(384, 32), hidden_size=setting.pick(384, 32),
        num_layers=setting.pick(6, 3), num_heads=setting.pick(12, 2), intermediate_size=setting.pick(1536, 64), max_positions=512,
        type_vocab_size=2, layer_norm_eps=1e-12, activation="gelu", pad_token_id=0, hidden_dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    params = random_params(config)
    return Encoder(config, params, make_tokenizer(size), normalize=True, max_length=128, source="made up")


def make_decoder(setting: Setting) -> Encoder:
    """A judge of SmolLM2-135M's shape; in a rehearsal 32 wide."""
    size = setting.pick(49_152, 500)
    config = DecoderConfig(
        model_type="llama", vocab_size=size, hidden_size=setting.pick(576, 32), num_layers=setting.pick(30, 2),
        num_heads=setting.pick(9, 4), num_kv_heads=setting.pick(3, 2), head_size=setting.pick(64, 8),
        intermediate_size=setting.pick(1536, 64), max_positions=1024, rms_norm_eps=1e-5, rope_theta=1e5, rope_scaling=None,
        activation="silu", qkv_bias=False, out_bias=False, mlp_bias=False, qk_norm=False, tied=True, pad_token_id=0,
    )  # fmt: skip
    return Encoder(config, random_params(config), make_tokenizer(size), max_length=1024, source="made up")


def save(model: Encoder, folder: Path) -> Path:
    """The model as a folder that jdistill, transformers and sentence-transformers load; as it is where it was made before."""
    if not folder.is_dir():
        beside = folder.with_name(f"{folder.name}.part")
        write_files(model, beside)
        write_weights(model, beside)
        beside.rename(folder)
    return folder


def text_lengths(count: int) -> np.ndarray:
    """Words of each text, int64 [count]."""
    drawn = np.random.default_rng(1).lognormal(np.log(MEAN_WORDS) - SPREAD**2 / 2, SPREAD, count)
    return np.clip(drawn, 3, MOST_WORDS).astype(np.int64)


def make_texts(count: int, size: int) -> list[str]:
    """Distinct texts, but for chance, of words of vocabulary(size), each a token."""
    words = np.array(vocabulary(size)[len(SPECIAL) + 2 * len(CHARACTERS) + len(ANSWERS) :])
    lengths = text_lengths(count)
    drawn = words[np.random.default_rng(2).integers(0, len(words), int(lengths.sum()))]
    return [" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]


def make_tokens(count: int, size: int) -> TokenTable:
    """The tokens of such texts, the two at its ends included, without the texts."""
    lengths = text_lengths(count) + 2
    first = len(SPECIAL) + 2 * len(CHARACTERS)
    return TokenTable(
        np.random.default_rng(2).integers(first, size, int(lengths.sum()), np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
    )
