"""bench/short_texts.py: what it draws is short, once each, of every source, and the same for the same texts."""

from __future__ import annotations

import sys

from commands import ROOT
from conftest import sentences

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import short_texts


def test_texts_are_short_distinct_and_of_all_sources() -> None:
    passages = [f"{'. '.join(sentences(5, seed=i))}. The end of passage {i} is here." for i in range(20)]
    corpus = [f"corpus {text}" for text in sentences(50, seed=99)]
    drawn = short_texts.short_texts(passages, ["what is it ?", "who  "], ["A heading", "who"], corpus)
    assert drawn == short_texts.short_texts(passages, ["what is it ?", "who  "], ["A heading", "who"], corpus)
    assert len(drawn) == len(set(drawn)) and drawn != sorted(drawn)
    assert {"what is it ?", "who", "A heading"} <= set(drawn) and set(corpus) & set(drawn)
    assert (
        sum("end of passage" in text for text in drawn) >= 20
    )  # whole sentences of the passages, beside runs of their words
    assert not set(passages) & set(drawn) and {text for text in drawn if any(text in whole for whole in passages)}
