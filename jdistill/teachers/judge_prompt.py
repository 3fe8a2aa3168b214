"""What a judge is asked, as text: a template as the model's own chat template writes it, and how an answer goes on after it."""

from __future__ import annotations

from typing import Any

QUERY, PASSAGE = "{query}", "{passage}"
CUE = "\nAnswer:"  # where a model without a chat template would not know that the passage has ended
FIRST_WORDS = ("What", "the", "A")  # that texts may begin with, to see how a tokenizer joins

# Templates that write the day would make another judge of each. This one is Llama 3.2's own, where it is told none.
SAME_DAY = "{%- macro strftime_now(form) -%}26 Jul 2024{%- endmacro -%}"


def asked(tokenizer: Any, template: str) -> tuple[str, str, str]:
    """The prompt: what stands before the query, between the texts, and from the passage's end to where the answer begins.

    On every day the same; a model that would think first is told not to.

    Args:
      tokenizer: transformers'.
      template: with QUERY and PASSAGE, once each.
    """
    if tokenizer.chat_template:
        whole = _in_chat(tokenizer, [{"role": "user", "content": template}], add_generation_prompt=True)
    else:
        whole = template + CUE if template.endswith(PASSAGE) else template
    before, _, rest = whole.partition(QUERY)
    between, _, after = rest.partition(PASSAGE)
    return before, between, after


def tokenised_with_text(tokenizer: Any, before: str) -> tuple[str, str]:
    """What stands before a text, in two, so that the text's tokens are those that the model has read behind it.

    Most tokenizers write the space of "Question: " with the word that follows it: alone it would be a token that hardly occurs.

    Args:
      tokenizer: transformers'.
      before: as `asked` gives it.

    Returns: a piece that is tokenised alone, and a lead that is put before the text and tokenised with it.
    """
    bare = before.rstrip(" ")
    for piece, lead in ((bare, before[len(bare) :]), (bare, ""), (before, "")):
        if all(
            own_ids(tokenizer, piece) + own_ids(tokenizer, lead + word) == own_ids(tokenizer, before + word)
            for word in FIRST_WORDS
        ):
            return piece, lead
    return before, ""


def first_of_answer(tokenizer: Any, template: str, answer: str) -> list[int]:
    """The first token of an answer where it stands, behind the prompt: " yes" after "Answer:", "yes" on a line of its own; a list of one,
    of none for an answer that has no token."""
    after = asked(tokenizer, template)[2]
    goes_on = _goes_on(tokenizer, template, answer, after)
    ids, whole = (own_ids(tokenizer, text) for text in (after, after + goes_on))
    if whole[: len(ids)] == ids:
        return whole[len(ids) : len(ids) + 1]
    return own_ids(tokenizer, answer)[:1]  # the prompt's last token would take some of it


def _goes_on(tokenizer: Any, template: str, answer: str, after: str) -> str:
    """An answer with what stands before it: as the chat template writes what an assistant has said, else a space unless one is there."""
    if not tokenizer.chat_template:
        return answer if after[-1:].isspace() else f" {answer}"
    said = [{"role": "user", "content": template}, {"role": "assistant", "content": answer}]
    whole = _in_chat(tokenizer, said, add_generation_prompt=False)
    _, prompt, rest = whole.rpartition(after)
    space, word, _ = rest.partition(answer)
    return space + answer if prompt and word and not space.strip() else answer


def own_ids(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text by itself, without the special ones that a tokenizer puts around it."""
    return list(tokenizer.encode(text, add_special_tokens=False)) if text else []


def _in_chat(tokenizer: Any, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
    template = SAME_DAY + tokenizer.get_chat_template()
    return str(
        tokenizer.apply_chat_template(
            messages,
            chat_template=template,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=False,
        )
    )
