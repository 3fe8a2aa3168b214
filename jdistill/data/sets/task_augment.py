"""Unlabelled variants of a task's sentences, for a fine-tuned teacher to answer (Tang et al. 2019a, "Natural Language Generation
for Effective Knowledge Distillation", section 2.2 of which lists the three rules).

Word by word one draw decides: below P_MASK the word becomes [MASK], below P_MASK + P_TAG another word of its part of speech, drawn
by its frequency in the task. Then, with P_NGRAM, only an n-gram of the sentence is kept, n from 1 to 5. numpy only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from jdistill.core.errors import UserError

P_MASK, P_TAG, P_NGRAM = 0.1, 0.1, 0.25
LONGEST_NGRAM = 5
ROUNDS = 20  # variants tried of each row
MOST_VARIANTS = 800_000
MASK = "[MASK]"

TextPair = tuple[str, str | None]


class WordsByTag:
    """The words of some texts by part of speech, each with its share. A word's tag is that of the word alone (HanTa's)."""

    def __init__(self, texts: Iterable[str]):
        try:
            from HanTa.HanoverTagger import HanoverTagger
        except ImportError:
            raise UserError("--config.augment=ts needs the augment extra: pip install -e '.[augment]'") from None
        tagger = HanoverTagger("morphmodel_en.pgz")
        counts = Counter(word for text in texts for word in text.split())
        self.tag_of = {word: str(tagger.analyze(word)[1]) for word in counts}
        words: dict[str, list[str]] = defaultdict(list)
        for word in counts:
            words[self.tag_of[word]].append(word)
        self._words = {tag: np.array(of_tag, object) for tag, of_tag in words.items()}
        self._ends = {tag: np.cumsum([counts[word] for word in of_tag]) for tag, of_tag in words.items()}

    def draw(self, word: str, rng: np.random.Generator) -> str:
        """A word of the same tag, by frequency; it may be the word itself."""
        tag = self.tag_of[word]
        ends = self._ends[tag]
        return str(self._words[tag][np.searchsorted(ends, rng.integers(ends[-1]), side="right")])


def variant(text: str, words: WordsByTag, rng: np.random.Generator) -> str:
    """One variant of a text."""
    tokens = text.split()
    draws = rng.random(len(tokens))
    changed = [
        MASK if x < P_MASK else words.draw(token, rng) if x < P_MASK + P_TAG else token
        for token, x in zip(tokens, draws, strict=True)
    ]
    if rng.random() < P_NGRAM:
        n = int(rng.integers(1, LONGEST_NGRAM + 1))
        start = int(rng.integers(0, max(1, len(changed) - n + 1)))
        changed = changed[start : start + n]
    return " ".join(changed)


def task_variants(texts: Sequence[str], others: Sequence[str] | None, seed: int) -> list[TextPair]:
    """Distinct variants that are no row of the task, ROUNDS tries a row, at most MOST_VARIANTS, in an order drawn by the seed.

    Of a pair the first text changes, then the second, then both, and so on.
    """
    rng = np.random.default_rng([seed, 8])
    words = WordsByTag([*texts, *(others or ())])
    rows: list[TextPair] = list(zip(texts, others if others is not None else [None] * len(texts), strict=True))
    task_rows, new_rows = set(rows), dict[TextPair, None]()
    for attempt in range(ROUNDS):
        for text, other in rows:
            which = attempt % 3 if other is not None else 0
            new = (
                variant(text, words, rng) if which in (0, 2) else text,
                variant(other, words, rng) if other is not None and which in (1, 2) else other,
            )
            if new not in task_rows:
                new_rows[new] = None
    kept = list(new_rows)
    return [kept[i] for i in rng.permutation(len(kept))[:MOST_VARIANTS]]
