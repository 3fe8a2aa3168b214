"""The 64 fixed texts on which an export must agree with Flax: everyday sentences, and whatever breaks tokenizers."""

from itertools import product

_WHO = (
    "A man",
    "The old library",
    "My neighbour's cat",
    "Nobody in the committee",
    "This small model",
    "Rain",
    "The second train",
)
_WHAT = (
    "is late again.",
    "was never finished, was it?",
    "costs $3.50 in 2024.",
    "made everyone laugh out loud!",
    "understands German (Übermut) and 東京.",
    "sleeps",
    "is exactly what they asked for; still, they sent it back.",
)
_ODD = (
    "",
    " ",
    "a",
    ".",
    "…",
    "ALL CAPITALS, ALL THE TIME",
    "tabs\tand\nnew lines\r\n inside",
    "emoji 🙂👩‍🔬🇪🇺 and ¿signs?",
    "naïve façade coöperate résumé",
    "https://example.org/a?b=c&d=%20e",
    "x = [i ** 2 for i in range(10)]  # squares",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "Привет, мир. مرحبا بالعالم. 你好，世界。",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
    " ".join(f"Sentence number {i} goes on for a while." for i in range(80)),
)

PROBE_TEXTS: tuple[str, ...] = tuple(" ".join(pair) for pair in product(_WHO, _WHAT)) + _ODD
assert len(PROBE_TEXTS) == 64
