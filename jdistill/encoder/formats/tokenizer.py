"""A model folder's tokenizer: there, fast, run without anybody's code, and of the vocabulary that the token table has."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers

from jdistill.core.errors import UserError, first_line
from jdistill.core.json_files import read_settings
from jdistill.core.progress import log
from jdistill.models.registry import ModelConfig

# Files from which transformers makes a fast tokenizer; of a row all are needed. Without any it makes one of its special tokens alone.
VOCABULARIES = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"), ("*.model",), ("tekken.json",))
# Of those that transformers converts by another library: its module, the packages to install, and what a message calls the file.
CONVERTED = {
    "*.model": ("sentencepiece", "sentencepiece protobuf", "a SentencePiece file"),
    "tekken.json": ("mistral_common", "mistral-common", "Mistral's tekken.json"),
}
TRIAL = "A text, to try it."
SETTINGS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def load_tokenizer(folder: Path, config: ModelConfig) -> Any:
    """The fast tokenizer of a folder.

    Args:
      config: the model's sizes.

    Raises: UserError where it is missing, damaged, slow, asks for code of its own, or does not fit the token table.
    """
    if not _vocabularies(folder):
        files = ", ".join(" with ".join(row) for row in VOCABULARIES)
        raise UserError(f"{folder} holds no tokenizer: one of {files} is needed; copy it from where the model is from")
    for path in folder.iterdir():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"{path} is a pipe or a device, where a file of a tokenizer may be")
    for name in SETTINGS:
        read_settings(folder / name, optional=True)
    from transformers import AutoTokenizer  # here: it imports torch where that is installed, which takes seconds

    try:
        # False, not None: transformers would ask on the terminal whether to run the folder's code.
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)
    except (
        BaseException
    ) as error:  # of whatever kind: transformers and tokenizers check little, and the latter's Rust panics
        raise _unread(folder, error) from None
    if not tokenizer.is_fast:
        raise UserError(f"{folder}: only fast tokenizers (tokenizer.json) are supported")
    checked = checked_tokenizer(tokenizer, config, folder)
    _tell_lost_ends(checked, folder)
    return checked


def _tell_lost_ends(tokenizer: Any, folder: Path) -> None:
    """Warns where the settings ask for a token at a text's beginning or end that it does not get: transformers from 5 on leaves both to
    tokenizer.json, and tokenizers of the publisher's own added them."""
    settings = read_settings(folder / "tokenizer_config.json", optional=True)
    ids = tokenizer(TRIAL)["input_ids"]
    for key, token, place in (
        ("add_bos_token", tokenizer.bos_token_id, 0),
        ("add_eos_token", tokenizer.eos_token_id, -1),
    ):
        if settings.raw(key, None) is True and token is not None and ids and ids[place] != token:
            log.warning(
                "WARNING: %s: tokenizer_config.json asks for %s, which tokenizer.json does not do, and transformers reads there alone; texts are "
                "read without. If the model's vectors are that token's, put it into tokenizer.json's post-processor, or, where a tokenizer of the "
                "publisher's own adds it, have the model teach through st:SOURCE with that code permitted (torch extra)",
                folder, key,
            )  # fmt: skip


def _vocabularies(folder: Path) -> list[tuple[str, ...]]:
    """The rows of VOCABULARIES that a folder has."""
    return [row for row in VOCABULARIES if all(any(map(Path.is_file, folder.glob(name))) for name in row)]


def _unread(folder: Path, error: BaseException) -> BaseException:
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
        return error
    alone = [name for row in _vocabularies(folder) for name in row]
    module, packages, what = CONVERTED.get(alone[0], ("", "", "")) if len(alone) == 1 else ("", "", "")
    if module and importlib.util.find_spec(module) is None:
        return UserError(
            f"{folder}: its tokenizer is {what} alone, which transformers reads by a library that is not installed: pip install {packages}. Or "
            "convert it once where that is: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes tokenizer.json"
        )
    return UserError(f"{folder}: its tokenizer cannot be read ({first_line(error)[:300]}); fetch its files again")


def checked_tokenizer(tokenizer: Any, config: ModelConfig, where: Path) -> Any:
    """The tokenizer with a padding token, without special tokens that the token table has no row for, tried on a text.

    Raises: UserError where it has more ids than the token table has rows, or fewer than half as many, and no token to pad with.
    """
    drop_special_tokens(tokenizer, config.vocab_size, where)
    if (
        not config.causal
    ):  # whose positions count from the first column; here and in an export's graph texts begin there
        tokenizer.padding_side = tokenizer.init_kwargs["padding_side"] = "right"
    if tokenizer.pad_token is None:  # most decoders have none; what stands in padding is never looked at
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.bos_token
    if tokenizer.pad_token is None:
        raise UserError(
            f"{where}: the tokenizer names no pad, eos, unk or bos token, so that texts cannot be padded; "
            "name one as pad_token in tokenizer_config.json"
        )
    ids = set(tokenizer.get_vocab().values())
    highest = max(ids, default=0)
    if highest >= config.vocab_size:
        raise UserError(
            f"{where}: the tokenizer has ids up to {highest}, but the embedding only {config.vocab_size} rows; "
            "they do not belong together"
        )
    # Tables are padded, to multiples of 64 or 128 and to make room for tokens to come, by a few per cent of a vocabulary. One with more
    # than twice as many rows as there are ids is another model's, or the vocabulary is damaged: most words would be unknown.
    if config.vocab_size > 2 * len(ids):
        raise UserError(
            f"{where}: the tokenizer has {len(ids)} tokens, but the embedding {config.vocab_size} rows; "
            "they do not belong together, or the tokenizer's files are damaged"
        )
    try:
        tokens = tokenizer(TRIAL)["input_ids"]
    except BaseException as error:
        raise _unread(where, error) from None
    if max(tokens, default=0) >= config.vocab_size:
        raise UserError(f"{where}: its tokenizer makes of a plain text the ids {tokens[:8]}, which are no use")
    return tokenizer


def checked_limit(limit: int, tokenizer: Any, where: Path) -> int:
    """`limit`, a maximum length in tokens.

    Raises: UserError where the special tokens of a text leave no room for its own: all would be alike.
    """
    special = tokenizer.num_special_tokens_to_add()
    if limit <= special:
        raise UserError(
            f"{where}: the maximum length (max_seq_length, model_max_length or the model's positions) is {limit} tokens, "
            f"of which a text's special tokens take {special}; it must be more"
        )
    return limit


def drop_special_tokens(tokenizer: Any, rows: int, where: Path) -> None:
    """Takes special tokens out of a tokenizer that the token table has no row for, so that they are read as any text.

    Gemma 3's models for text have the tokenizer of those for images, with one token more than their tables have rows.
    """
    added = tokenizer.added_tokens_decoder
    beyond = {index: str(token) for index, token in added.items() if index >= rows and token.special}
    if not beyond:
        return
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] not in beyond]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(state))
    dropped = set(beyond.values())  # by whose names in its settings a saved tokenizer would have them again
    for name in [name for name, token in tokenizer.special_tokens_map.items() if token in dropped]:
        setattr(tokenizer, name, None)
    tokenizer.extra_special_tokens = [of for of in tokenizer.extra_special_tokens if str(of) not in dropped]
    for settings in (tokenizer.init_kwargs, tokenizer.init_kwargs.get("model_specific_special_tokens") or {}):
        for name in [name for name, of in settings.items() if str(of) in dropped]:
            del settings[name]
    log.warning("%s: no row of the token table is of %s; read as plain text", where, ", ".join(beyond.values()))


def lower_case(tokenizer: Any) -> None:
    """Has a fast tokenizer make a text lower case first, as sentence-transformers does by do_lower_case, where it does not do so anyhow."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    steps = _steps(normalizer)
    if not any(isinstance(step, normalizers.Lowercase) or getattr(step, "lowercase", False) for step in steps):
        tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])


def begins_in_lower_case(tokenizer: Any) -> bool:
    """Whether it makes a text lower case before anything else, as of lower_case; not every class of tokenizers keeps that in its files."""
    return isinstance(next(iter(_steps(tokenizer.backend_tokenizer.normalizer)), None), normalizers.Lowercase)


def _steps(normalizer: Any) -> list[Any]:
    if normalizer is None:
        return []
    several = isinstance(normalizer, normalizers.Sequence)
    return [normalizer[i] for i in range(len(normalizer))] if several else [normalizer]
