"""Token ids of many texts by the tokenizers library's own batch path, which spares each text the parts of a call that nobody reads."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from transformers import PreTrainedTokenizerFast

AT_ONCE = 4096  # texts whose encodings are in memory at once
_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_making = threading.Lock()


def batch_ids(tokenizer: Any, texts: list[str], max_length: int) -> list[list[int]]:
    """What the tokenizer's own call gives, truncated: the token ids of each text, special tokens included.

    The first text goes by that call, which also tells the library how to truncate; the others by `encode_batch_fast`, where the tokenizer has
    it and its class changes nothing about encoding.
    """
    whole = len(texts) if not _is_plain(tokenizer) else 1
    with _alone(tokenizer):
        ids: list[list[int]] = tokenizer(
            texts[:whole],
            truncation=True,
            max_length=max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        for start in range(whole, len(texts), AT_ONCE):
            encodings = tokenizer.backend_tokenizer.encode_batch_fast(texts[start : start + AT_ONCE])
            ids += [encoding.ids for encoding in encodings]
    return ids


@dataclass(frozen=True)
class IdsOfTexts:
    """The token ids of texts, made when they are asked for, some at a time.

    Args:
      tokenizer, texts, max_length: as batch_ids has them.
    """

    tokenizer: Any
    texts: list[str]
    max_length: int

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, part: slice) -> list[list[int]]:
        return batch_ids(self.tokenizer, self.texts[part], self.max_length)


def truncating_json(tokenizer: Any, max_length: int) -> str | None:
    """The library's own tokenizer as JSON, told to truncate as batch_ids does; None where the tokenizer has a way of its own, by its class or
    by split_special_tokens, which JSON does not hold."""
    if not _is_plain(tokenizer) or tokenizer.split_special_tokens:
        return None
    with _alone(tokenizer):
        batch_ids(tokenizer, [""], max_length)  # which tells the library
        state: str = tokenizer.backend_tokenizer.to_str()
    return state


def prompt_tokens(tokenizer: Any, prompt: str, max_length: int) -> int:
    """How many tokens a prompt takes at the beginning of a text, special ones before it included, as sentence-transformers counts them."""
    (ids,) = batch_ids(tokenizer, [prompt], max_length)
    return len(ids) - int(bool(ids) and ids[-1] in tokenizer.all_special_ids)


def room_beside(tokenizer: Any, prompt: str, max_length: int) -> int:
    """Tokens that a length leaves to a text beside a prompt and the special ones; less than 1: nothing of the text would be read."""
    with _alone(tokenizer):
        return max_length - len(tokenizer(prompt, truncation=False)["input_ids"])


def _alone(tokenizer: Any) -> threading.RLock:
    """What a thread holds while it tells a tokenizer how to truncate and asks it: models of several lengths may share one."""
    with _making:
        return _locks.setdefault(tokenizer, threading.RLock())


def _is_plain(tokenizer: Any) -> bool:
    """Whether a tokenizer encodes as PreTrainedTokenizerFast does, by a library that has encode_batch_fast."""
    inherits = all(
        getattr(type(tokenizer), name, None) is getattr(PreTrainedTokenizerFast, name)
        for name in ("__call__", "_encode_plus", "_convert_encoding")
    )
    return inherits and hasattr(getattr(tokenizer, "backend_tokenizer", None), "encode_batch_fast")
