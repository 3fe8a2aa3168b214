"""What a page needs to know of a tokenizer beside its own files: how a text is cut, and texts with their ids to check itself by."""

from __future__ import annotations

from typing import Any

from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.export.probe_texts import PROBE_TEXTS


def page_tokens(model: Encoder) -> dict[str, Any]:
    """The rule by which a page makes token ids of a question: `before`, as many of the text's own as fit, `after`.

    Returns: prompt (text put before a question), lower (whether the tokenizer makes a text lower case), max_length, before, after and pad
      (token ids), and probes: texts with their ids under the prompt, by which a page holds its own tokenizer to ours before it answers.

    Raises: UserError for a tokenizer that adds or cuts in another way.
    """
    prompt = model.prompt_text(model.prompt_for("query"))
    tokenizer = model.tokenizer
    content = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    start = next((i for i in range(len(whole)) if whole[i : i + len(content)] == content), 0)
    before, after = whole[:start], whole[start + len(content) :]
    room = model.max_length - len(before) - len(after)
    expected = model.tokenize(list(PROBE_TEXTS), model.prompt_for("query"))
    for text, ids in zip(PROBE_TEXTS, expected, strict=True):
        of_text = tokenizer(prompt + text, add_special_tokens=False, verbose=False)["input_ids"][:room]
        if [*before, *of_text, *after] != ids:
            raise UserError(
                f"--format=site: the model's tokenizer does not cut {text[:40]!r} at its end, or adds more than tokens around it, "
                "which a page cannot do"
            )
    probes = [{"text": text, "ids": ids} for text, ids in zip(PROBE_TEXTS, expected, strict=True)]
    return {
        "prompt": prompt,
        "lower": _lowers(tokenizer),
        "max_length": model.max_length,
        "before": before,
        "after": after,
        "pad": model.config.pad_token_id,
        "probes": probes,
    }


def _lowers(tokenizer: Any) -> bool:
    """Whether a tokenizer makes a text lower case, letter by letter, as the tokenizers library does."""
    steps = tokenizer.backend_tokenizer.normalizer
    return steps is not None and "σ" in steps.normalize_str("Σ")
