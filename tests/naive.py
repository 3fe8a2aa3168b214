"""Losses as their papers write them, in loops and float64, and a corpus cleared in memory: what tests of several rooms hold the fast ones against."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from jdistill.data.text.holdout import comparable

GAMMA = 0.5


def naive_info_nce(
    anchors, candidates, temperature, own=None, mask=None, own_mask=None, cosine=True, no_negative=lambda i, j: False
):
    """Eq. 5 and 10 of IBKD, in loops and float64."""

    def sim(a, b):
        a, b = a.astype(np.float64), b.astype(np.float64)
        return a @ b / (np.linalg.norm(a) * np.linalg.norm(b) if cosine else 1.0) / temperature

    total = 0.0
    for i, anchor in enumerate(anchors):
        counts = [j == i or ((mask is None or mask[j]) and not no_negative(i, j)) for j in range(len(candidates))]
        below = [sim(anchor, c) for c, it_counts in zip(candidates, counts, strict=True) if it_counts]
        if own is not None:
            below += [sim(anchor, c) for k, c in enumerate(own[i]) if own_mask is None or own_mask[i, k]]
        total += max(below) + np.log(np.exp(np.array(below) - max(below)).sum()) - sim(anchor, candidates[i])
    return total / len(anchors)


def naive_margin_mse(student, teacher, mask) -> float:
    """Hofstätter et al. 2020, over the negatives that are there, in loops."""
    squares = []
    for s, t, there in zip(student, teacher, mask, strict=True):
        for j in range(1, len(s)):
            if there[j]:
                squares.append(((float(s[0]) - float(s[j])) - (float(t[0]) - float(t[j]))) ** 2)
    return sum(squares) / max(len(squares), 1)


def naive_listwise_kl(student, teacher, mask) -> float:
    """KL of both sides' softmax over the passages that are there, mean over queries with two or more, in loops and float64."""
    each = []
    for s, t, there in zip(student, teacher, mask, strict=True):
        s, t = s[there].astype(np.float64), t[there].astype(np.float64)
        if len(s) > 1:
            p, q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (t, s))
            each.append(sum(float(a) * np.log(float(a) / float(b)) for a, b in zip(p, q, strict=True)))
    return sum(each) / max(len(each), 1)


def naive_gram(x: np.ndarray, kernel: str, gamma: float) -> np.ndarray:
    x = x.astype(np.float64)
    n = len(x)
    gram = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            if kernel == "linear":
                gram[i, j] = x[i] @ x[j] / (np.linalg.norm(x[i]) * np.linalg.norm(x[j]))
            else:
                square = float(((x[i] - x[j]) ** 2).sum())
                gram[i, j] = np.exp(-gamma * square) if kernel == "rbf" else (square + gamma) ** -0.5
    return gram


def naive_hsic(x: np.ndarray, s: np.ndarray, kernel: str, estimator: str, gamma: float = GAMMA) -> float:
    k, m, n = naive_gram(x, kernel, gamma), naive_gram(s, kernel, gamma), len(x)
    if estimator == "unbiased":  # Song et al. 2012, eq. 4
        np.fill_diagonal(k, 0)
        np.fill_diagonal(m, 0)
        one = np.ones(n)
        both = (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
        return (np.trace(k @ m) + both - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))
    centre = np.eye(n) - np.ones((n, n)) / n
    return np.trace(k @ centre @ m @ centre) / (n if estimator == "biased" else n - 1) ** 2


def added(
    x: np.ndarray, s: np.ndarray, kernel: str, estimator: str, gammas: tuple[float, float] = (GAMMA, GAMMA)
) -> float:
    """The size of the sums of which HSIC is what is left: of centred matrices, or of the three terms of the unbiased estimator."""
    k, m, n = np.abs(naive_gram(x, kernel, gammas[0])), np.abs(naive_gram(s, kernel, gammas[1])), len(x)
    if estimator != "unbiased":
        return k.sum() * m.sum() / n**2 / (n if estimator == "biased" else n - 1) ** 2
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    both = k.sum() * m.sum() / ((n - 1) * (n - 2))
    return ((k * m).sum() + both + 2 / (n - 2) * (k.sum(0) @ m.sum(0))) / (n * (n - 3))


def aligned_from(x: np.ndarray, s: np.ndarray, kernel: str, gammas: tuple[float, float] = (GAMMA, GAMMA)) -> float:
    """The size of the sums of which CKA is what is left, as a multiple of it where it is 1."""
    sizes = [
        added(side, side, kernel, "unbiased", (gamma, gamma)) / naive_hsic(side, side, kernel, "unbiased", gamma)
        for side, gamma in zip((x, s), gammas, strict=True)
    ]
    return max(1.0, float(np.prod(sizes)) ** 0.5)


def remove_evaluation_texts(texts: list[str], evaluation: Iterable[str]) -> tuple[list[str], int]:
    """The texts that no evaluation sentence equals, in their order, and how many were removed.

    Equal as `comparable` has it: `A dog 's bed .` equals `a dog's bed`.
    """
    forbidden = {comparable(text) for text in evaluation}
    if not forbidden:
        return list(texts), 0
    kept = [text for text in texts if comparable(text) not in forbidden]
    return kept, len(texts) - len(kept)
