"""How text is cut before byte-level BPE, by the names that llama.cpp has for it (tokenizer.ggml.pre), and the name of a tokenizer's cut."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3, _QWEN2 = _WORDS.replace("NUMBERS", "{1,3}"), _WORDS.replace("NUMBERS", "")
# name -> what is cut first; None: nothing, as in GPT-2. Of names for one cut, the first is written.
BPE_CUTS: dict[str, str | None] = {
    "gpt-2": None,
    "smollm": r"\p{N}",  # each digit by itself, then as GPT-2's
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "modern-bert": None,
}
COMPOSED = ("qwen2", "modern-bert")  # at Hugging Face the text is composed (NFC) first, which llama.cpp leaves out
IGNORE_MERGES = ("llama-bpe", "llama3")  # a word that is a token is that token, whatever the merges say
GPT2_NEXT = ("gpt-2", "smollm", "modern-bert")
_TRIAL = "I'm IT'S don't 1234567 3.14 abc  def\n\n x\t\r\n  日本語 cafe\u0301 naïve — ½ Ⅷ… Hello,World!! _a-b_ (x) \n "


def pre_tokenizer_of(cut: str) -> Any:
    """The pre-tokenizer. cut: a name in BPE_CUTS."""
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in GPT2_NEXT)
    pattern = BPE_CUTS[cut]
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain]) if pattern else plain


def normalizer_of(cut: str) -> Any:
    """The normalizer, None where there is none. cut: a name in BPE_CUTS."""
    return normalizers.NFC() if cut in COMPOSED else None


def cut_of(tokenizer: Tokenizer) -> str | None:
    """The name in BPE_CUTS of what treats a text full of cases as this BPE tokenizer does; None: there is none."""
    ignores = bool(json.loads(tokenizer.to_str())["model"].get("ignore_merges"))

    def pieces(normalizer: Any, cutter: Any) -> list[str]:
        text = normalizer.normalize_str(_TRIAL) if normalizer else _TRIAL
        return [piece for piece, _ in cutter.pre_tokenize_str(text)]

    if tokenizer.pre_tokenizer is None:
        return None
    asked = pieces(tokenizer.normalizer, tokenizer.pre_tokenizer)
    for cut in BPE_CUTS:
        if ignores == (cut in IGNORE_MERGES) and pieces(normalizer_of(cut), pre_tokenizer_of(cut)) == asked:
            return cut
    return None
