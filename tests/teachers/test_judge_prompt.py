"""What a judge is asked as: the same on every day, without a model's thinking, and its answers where they stand behind the prompt."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from jdistill.teachers.judge_prompt import asked, first_of_answer, tokenised_with_text

TEMPLATE = "Does it answer? {query} {passage}"
CHAT = (
    "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}<end>\n{% endfor %}{% if add_generation_prompt %}<assistant>\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@pytest.fixture
def tokenizer() -> Any:
    """Of bytes, as GPT-2's, with the words yes and no, and either with the space before it."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ye", "yes", "no", "Ġyes", "Ġno"]
    merges = [("y", "e"), ("ye", "s"), ("n", "o"), ("Ġ", "yes"), ("Ġ", "no")]
    made = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return PreTrainedTokenizerFast(tokenizer_object=made)


def first(tokenizer: Any, template: str, answer: str = "yes") -> str:
    (token,) = first_of_answer(tokenizer, template, answer)
    return tokenizer.convert_ids_to_tokens(token)


def test_without_a_chat_template_an_answer_follows_a_space(tokenizer: Any) -> None:
    assert asked(tokenizer, TEMPLATE)[2] == "\nAnswer:"
    assert (first(tokenizer, TEMPLATE), first(tokenizer, TEMPLATE, "no")) == ("Ġyes", "Ġno")
    assert first(tokenizer, f"{TEMPLATE}\nThe answer is:\n") == "yes"
    ids = tokenizer.encode("\nAnswer: yes", add_special_tokens=False)  # as the model has read it
    assert tokenizer.convert_ids_to_tokens(ids)[-1] == first(tokenizer, TEMPLATE)


@pytest.mark.parametrize(("behind", "token"), [("[/INST] ", "Ġyes"), ("[/INST]", "yes"), ("<assistant>\n", "yes")])
def test_with_one_an_answer_follows_as_the_template_writes_it(tokenizer: Any, behind: str, token: str) -> None:
    said = behind.rstrip(" ")
    tokenizer.chat_template = (
        "{%- for m in messages -%}{%- if m.role == 'user' -%}{{ m.content }}{%- else -%}"
        f"{{{{ {behind!r} }}}}{{{{ m.content }}}}{{%- endif -%}}{{%- endfor -%}}"
        f"{{%- if add_generation_prompt -%}}{{{{ {said!r} }}}}{{%- endif -%}}"
    )
    assert asked(tokenizer, TEMPLATE)[2].endswith(said) and first(tokenizer, TEMPLATE) == token


def test_a_model_that_would_think_answers_at_once(tokenizer: Any) -> None:
    tokenizer.chat_template = CHAT
    assert asked(tokenizer, TEMPLATE)[2] == "<end>\n<assistant>\n<think>\n\n</think>\n\n"
    assert first(tokenizer, TEMPLATE) == "yes"  # whatever the template makes of what was said before


@pytest.mark.parametrize(
    "day",
    ['{{ strftime_now("%d %b %Y") }}', '{% if strftime_now is defined %}{{ strftime_now("%d %b %Y") }}{% endif %}'],
)
def test_a_template_that_writes_the_day_asks_the_same_on_every_day(
    tokenizer: Any, day: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer.chat_template = f"Today: {day} " + CHAT
    prompts = set()
    for date in (datetime(2026, 1, 2), datetime(2027, 3, 4)):

        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None, date: datetime = date) -> datetime:
                return date

        monkeypatch.setattr(chat_template_utils, "datetime", Clock)
        said = [{"role": "user", "content": "x"}]
        assert date.strftime("%d %b %Y") in str(
            tokenizer.apply_chat_template(said, tokenize=False)
        )  # by itself it would
        prompts.add(asked(tokenizer, TEMPLATE))
    assert len(prompts) == 1 and "26 Jul 2024" in prompts.pop()[0]


def metaspace() -> Any:
    """Of characters, whose words begin with the sign of a space, as Llama 2's."""
    letters = {sign: i for i, sign in enumerate("▁:?abcdefghijklmnopqrstuvwxyzADQPTW12\n")}
    made = Tokenizer(models.BPE(vocab={**letters, "▁t": len(letters)}, merges=[("▁", "t")]))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return PreTrainedTokenizerFast(tokenizer_object=made)


@pytest.mark.parametrize(("kind", "behind_a_space"), [("bytes", ("Question:", " ")), ("words", ("Question:", " "))])
def test_a_text_is_tokenised_as_it_stands_in_the_prompt(
    kind: str, behind_a_space: tuple[str, str], tokenizer: Any
) -> None:
    if kind == "words":
        tokenizer = metaspace()
    assert tokenised_with_text(tokenizer, "Question: ") == behind_a_space
    for before in ("Question: ", "Question:", "Question:\n", "Question:  ", "\nPassage: ", ""):
        piece, lead = tokenised_with_text(tokenizer, before)
        for text in ("yes it is", "the bank", "What now"):
            apart = (
                [*tokenizer.encode(piece), *tokenizer.encode(lead + text)] if piece else tokenizer.encode(lead + text)
            )
            if kind == "bytes" or before in (
                "Question: ",
                "",
            ):  # of a space that is put before each text, none is right
                assert apart == tokenizer.encode(before + text), (before, text)
