"""The tokenizer of a GGUF file: byte-level BPE from its vocabulary and merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerFast

from jdistill.core.errors import UserError, first_line
from jdistill.core.json_files import Settings, said

CONTROL = 3  # token_type of special tokens

# How the text is cut before BPE, by tokenizer.ggml.pre; None: as GPT-2's.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3, _QWEN2 = _WORDS.replace("NUMBERS", "{1,3}"), _WORDS.replace("NUMBERS", "")
_CUTS: dict[str, str | None] = {
    "gpt-2": None,
    "smollm": r"\p{N}",  # each digit by itself, then as GPT-2's
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
}
SPECIAL_TOKENS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def read_tokenizer(fields: dict[str, Any], path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a file's fields. Raises UserError for one of another kind, and naming the field that is damaged."""
    settings = Settings(fields, path)
    kind, cut = settings.raw("tokenizer.ggml.model", None), settings.text("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or cut not in _CUTS:
        raise UserError(
            f"{path}: its tokenizer is {kind!r} with pre-tokenizer {cut!r}; jdistill builds byte-level BPE ('gpt2') with "
            f"{', '.join(_CUTS)}. Load the model from its Hugging Face folder, which brings the tokenizer along"
        )
    tokens = _strings(settings, "tokenizer.ggml.tokens")
    merges = [tuple(pair.split(" ", 1)) for pair in _strings(settings, "tokenizer.ggml.merges")]
    types = settings.raw("tokenizer.ggml.token_type", None) or [1] * len(tokens)
    if not isinstance(types, list) or len(types) != len(tokens):
        raise settings.fault(
            "tokenizer.ggml.token_type", f"is {said(types)}; one number for each of {len(tokens)} tokens is needed"
        )
    ids = {
        role: settings.integer(f"tokenizer.ggml.{key}_token_id", 0, len(tokens) - 1, default=None)
        for role, key in SPECIAL_TOKENS.items()
    }
    named = {role: tokens[i] for role, i in ids.items() if i is not None}
    special = [AddedToken(t, special=True) for t, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    bos = ""
    if settings.flag("tokenizer.ggml.add_bos_token", False):
        if "bos_token" not in named:
            raise settings.fault("tokenizer.ggml.bos_token_id", "is missing, and add_bos_token is set")
        bos = named["bos_token"]
    try:
        bpe = _bpe(tokens, merges, cut, special, bos)
    except Exception as error:  # the library raises Exception itself
        raise UserError(f"{path}: its tokenizer is damaged ({first_line(error)}); fetch the file again") from None
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, chat_template=settings.text("tokenizer.chat_template", None), **named
    )


def _strings(settings: Settings, key: str) -> list[str]:
    values = settings.raw(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise settings.fault(key, f"is {said(values)}; a list of strings is needed")
    return values


def _bpe(tokens: list[str], merges: list[Any], cut: str, special: list[AddedToken], bos: str) -> Tokenizer:
    """bos: the token put before every text, empty for none."""
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in ("gpt-2", "smollm"))
    pattern = _CUTS[cut]
    bpe.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain]) if pattern else plain
    )
    bpe.decoder = ByteLevel()
    if cut == "qwen2":
        bpe.normalizer = normalizers.NFC()
    bpe.add_special_tokens(special)
    if bos:
        bpe.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, bpe.token_to_id(bos))]
        )
    return bpe
