"""A tokenizer as the fields of a GGUF file, in the form that llama.cpp computes."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

from transformers import PreTrainedTokenizerFast

from jdistill.core.errors import UserError
from jdistill.encoder.formats.gguf_cuts import BPE_CUTS, cut_of
from jdistill.encoder.formats.gguf_tokenizer import (
    ADDED,
    BERT,
    BERT_ROLES,
    BPE,
    CONTROL,
    PHANTOM,
    SPECIAL_ROLES,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
)  # fmt: skip

_PREFIX = "tokenizer.ggml."


def tokenizer_fields(tokenizer: PreTrainedTokenizerFast, rows: int) -> dict[str, Any]:
    """The fields of a tokenizer, by their whole names.

    Args:
      rows: of the token table; those beyond the vocabulary are marked as unused.

    Raises: UserError for a tokenizer that llama.cpp does not compute.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    model = state["model"]
    writers = {"WordPiece": _bert_fields, "BPE": _bpe_fields, "Unigram": _unigram_fields}
    if model["type"] not in writers:
        raise UserError(f"GGUF: the tokenizer is a {model['type']} model; written are {', '.join(writers)}")
    tokens, types = _tokens(tokenizer, rows)
    fields = writers[model["type"]](tokenizer, state, tokens, types) | {"tokens": tokens, "token_type": types}
    before, after = _special_ends(tokenizer)
    if fields["model"] == BERT and not (len(before) == len(after) == 1):
        raise UserError(
            f"GGUF: llama.cpp puts one token before and one behind a text of word pieces; this tokenizer puts {before} and {after}"
        )
    ids = {key: getattr(tokenizer, f"{role}_id") for role, key in (SPECIAL_ROLES | BERT_ROLES).items()}
    ids |= {"bos": before[0] if before else ids["bos"], "eos": after[0] if after else ids["eos"]}
    if fields["model"] == BERT:
        ids |= {"cls": before[0], "seperator": after[0]}
    fields |= {f"{key}_token_id": number for key, number in ids.items() if number is not None and number < rows}
    fields |= {"add_bos_token": bool(before), "add_eos_token": bool(after)}
    if twice := [token for token, count in Counter(tokens).items() if count > 1]:
        raise UserError(
            f"GGUF: the vocabulary has {twice[0]!r} twice in the form that llama.cpp reads, which ends by that; rename one of them"
        )
    return {_PREFIX + name: value for name, value in fields.items()}


def _tokens(tokenizer: PreTrainedTokenizerFast, rows: int) -> tuple[list[str], list[int]]:
    """The token and the type of each row of the table."""
    tokens, types = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows
    for token, i in tokenizer.get_vocab().items():
        if i < rows:
            tokens[i], types[i] = token, 1
    for i, added in tokenizer.added_tokens_decoder.items():
        if i < rows:
            types[i] = CONTROL if added.special else ADDED
    return tokens, types


def _special_ends(tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[int]]:
    """The tokens put before and behind each text. Raises UserError for more than one on a side."""
    text = "a text"
    whole, plain = (tokenizer(text, add_special_tokens=special)["input_ids"] for special in (True, False))
    start = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), None)
    before, after = (whole[:start], whole[start + len(plain) :]) if start is not None else (whole, [])
    if start is None or max(len(before), len(after)) > 1:
        ends = f"{tokenizer.convert_ids_to_tokens(whole)}"
        raise UserError(
            f"GGUF: llama.cpp puts at most one token before and behind a text; here {text!r} becomes {ends}"
        )
    return before, after


def _bert_fields(tokenizer: Any, state: dict, tokens: list[str], types: list[int]) -> dict[str, Any]:
    """BERT's. Rewrites the tokens: a piece that begins a word has a phantom space before it, any other loses its ##."""
    steps, cut = state["normalizer"] or {}, (state["pre_tokenizer"] or {}).get("type")
    usual = steps.get("type") == "BertNormalizer" and steps.get("clean_text") and steps.get("handle_chinese_chars")
    if not usual or cut != "BertPreTokenizer":
        raise UserError(
            f"GGUF: the word pieces' text is prepared by {steps.get('type')} and cut by {cut}; llama.cpp does so as BERT alone "
            "(BertNormalizer with clean_text and handle_chinese_chars, BertPreTokenizer)"
        )
    inner = state["model"]["continuing_subword_prefix"]
    for i, (token, number) in enumerate(zip(tokens, types, strict=True)):
        if number == 1:
            tokens[i] = token.removeprefix(inner) if token.startswith(inner) else PHANTOM + token
    lowercase, strip = bool(steps["lowercase"]), steps.get("strip_accents")
    return {
        "model": BERT,
        "pre": "default",
        "normalizer.lowercase": lowercase,
        "normalizer.strip_accents": lowercase if strip is None else bool(strip),
    }


def _bpe_fields(tokenizer: Any, state: dict, tokens: list[str], types: list[int]) -> dict[str, Any]:
    marks = ("byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")
    cut = None if any(map(state["model"].get, marks)) else cut_of(tokenizer.backend_tokenizer)
    if cut is None:
        raise UserError(
            f"GGUF: the text is cut before byte pairs in a way that is none of {', '.join(BPE_CUTS)}, which are written; "
            "serve this student by sentence-transformers"
        )
    pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in state["model"]["merges"]]
    return {"model": BPE, "pre": cut, "merges": pairs}


def _unigram_fields(tokenizer: Any, state: dict, tokens: list[str], types: list[int]) -> dict[str, Any]:
    listed = state["model"]["vocab"]
    scores = [-10000.0] * len(tokens)
    for i, (_, score) in enumerate(listed[: len(tokens)]):
        scores[i] = float(score)
    unknown = state["model"].get("unk_id")
    if unknown is None or unknown >= len(tokens):
        raise UserError("GGUF: the Unigram model has no token for what it does not know, which llama.cpp needs")
    if state["model"].get("byte_fallback"):
        raise UserError("GGUF: the Unigram model falls back on bytes, which llama.cpp's does not")
    types[unknown] = UNKNOWN
    fields = {"model": UNIGRAM, "pre": "default", "scores": scores, "unknown_token_id": unknown}
    fields |= _spaces(state) | {"add_sep_token": False}
    return fields | {"precompiled_charsmap": list(_charsmap(state["normalizer"]))}


def _parts(step: dict | None, inner: str) -> list[dict]:
    """The steps of a normalizer or pre-tokenizer, a Sequence's one after another."""
    if step is None:
        return []
    return [part for each in step[inner] for part in _parts(each, inner)] if step["type"] == "Sequence" else [step]


def _charsmap(normalizer: dict | None) -> bytes:
    """sentencepiece's table of characters. Raises UserError where there is none, and for another step but taking away spaces."""
    table = b""
    for step in _parts(normalizer, "normalizers"):
        if step["type"] == "Precompiled":
            table = base64.b64decode(step["precompiled_charsmap"])
        elif step["type"] not in ("Strip", "Replace") or step.get("content", " ") not in (" ", PHANTOM):
            raise UserError(f"GGUF: the text is prepared by {step['type']}; llama.cpp has sentencepiece's table alone")
    if not table:
        raise UserError(
            "GGUF: without sentencepiece's table of characters llama.cpp does not read a newline as a space"
        )
    return table


def _spaces(state: dict) -> dict[str, Any]:
    """How spaces are treated. Raises UserError for a text that is not cut as sentencepiece does."""
    cuts = {step["type"]: step for step in _parts(state["pre_tokenizer"], "pretokenizers")}
    if "Metaspace" not in cuts or not cuts.keys() <= {"Metaspace", "WhitespaceSplit"}:
        raise UserError(
            f"GGUF: the text is cut by {', '.join(cuts) or 'nothing'}; written is sentencepiece's cut alone"
        )
    prefix = cuts["Metaspace"].get("prepend_scheme", "always") != "never"
    squeezed = any(step["type"] in ("Strip", "Replace") for step in _parts(state["normalizer"], "normalizers"))
    return {"add_space_prefix": prefix, "remove_extra_whitespaces": squeezed or "WhitespaceSplit" in cuts}
