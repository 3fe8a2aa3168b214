"""What words alone make of D2LLM's test pairs and questions: the baselines that a judge and its student must beat.

    python bench/lexical.py --symmetric snli_pairs.jsonl --asymmetric qnli_dev.jsonl [--test_pairs 1200] [--threshold_pairs 400]

Pairs, split as configs/d2llm.py splits them: overlap is the share of one text's words, weighted by their inverse document frequency in the
training pairs, that the other holds; passage_alone a logistic regression on the passage's words and word pairs, without the query; both
adds the two overlaps and the words that the query lacks. Which text's share counts, and the regressions' strength, are chosen on dev; the
threshold of accuracy on training pairs, as many as those of the run beside which the rows stand.
Questions: BM25 among the distinct passages of the file. No model is read. Adds to bench/results/lexical.json.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from ml_collections import ConfigDict
from record import command_line, keep_rows
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from configs.d2llm import get_config
from jdistill.data.sets.pairs import Pairs, sample_pairs
from jdistill.evals.pair_labels import average_precision, pair_scores
from jdistill.evals.retrieval import DEPTH, measures, ranking_of
from jdistill.feeds.judged import JudgedSet
from jdistill.feeds.judged_results import held_out_collection
from jdistill.feeds.judged_splits import split_files
from jdistill.models.interaction import BRANCHES
from jdistill.retrieval.bm25 import bm25_search

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)  # of the regressions' data against their penalty
Scorer = Callable[[Pairs], np.ndarray]


def read_set(cfg: ConfigDict, branch: str) -> JudgedSet:
    """A file's pairs, split as a run of this config has them; nothing is mined, so that it has no candidates."""
    train, dev, test, _ = split_files(cfg, set())[branch]
    test = test.where([i < (cfg.test_pairs or len(test)) for i in range(len(test))])
    return JudgedSet(Path(cfg[branch]).stem, branch, cast(Any, None), train, dev, test)


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def overlaps(train: Pairs) -> Callable[[Pairs], np.ndarray]:
    """Pairs -> float64 [N, 2]: the weighted share of the query's words that the passage holds, and of the passage's that the query does."""
    texts = [words(text) for text in dict.fromkeys([*train.queries, *train.passages])]
    counts = Counter(word for text in texts for word in text)
    idf = {word: float(np.log(len(texts) / count)) for word, count in counts.items()}
    rarest = float(np.log(len(texts)))

    def share(of: set[str], held_by: set[str]) -> float:
        whole = math.fsum(idf.get(word, rarest) for word in of)  # exact, whatever the order of a set
        return math.fsum(idf.get(word, rarest) for word in of & held_by) / whole if whole else 0.0

    def both(pairs: Pairs) -> np.ndarray:
        sides = [(words(a), words(b)) for a, b in zip(pairs.queries, pairs.passages, strict=True)]
        return np.array([[share(a, b), share(b, a)] for a, b in sides])

    return both


def only_in_passage(pairs: Pairs) -> list[str]:
    """The words of each passage that its query lacks."""
    return [" ".join(sorted(words(b) - words(a))) for a, b in zip(pairs.queries, pairs.passages, strict=True)]


def scorers(train: Pairs, dev: Pairs) -> dict[str, Scorer]:
    """Each baseline's score of pairs, chosen on dev."""
    shares = overlaps(train)
    column = int(np.argmax([average_precision(shares(dev)[:, i], dev.labels) for i in range(2)]))
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True).fit(train.passages)
    lacking = TfidfVectorizer(min_df=2, sublinear_tf=True, token_pattern=r"\S+").fit(only_in_passage(train))

    def of_passage(pairs: Pairs) -> Any:
        return vectorizer.transform(pairs.passages)

    def of_both(pairs: Pairs) -> Any:
        of_shares = shares(pairs)
        of_shares = csr_matrix(np.hstack([of_shares, of_shares**2, of_shares[:, :1] * of_shares[:, 1:]]))
        return hstack([of_passage(pairs), lacking.transform(only_in_passage(pairs)), 3.0 * of_shares]).tocsr()

    return {
        "overlap": lambda pairs: shares(pairs)[:, column],
        "passage_alone": regression(of_passage, train, dev),
        "both": regression(of_both, train, dev),
    }


def regression(features: Callable[[Pairs], Any], train: Pairs, dev: Pairs) -> Scorer:
    """A logistic regression's log odds, of the strength that is best on dev."""
    of_train, of_dev = features(train), features(dev)
    models = [LogisticRegression(C=strength, max_iter=2000).fit(of_train, train.labels) for strength in STRENGTHS]
    best = max(models, key=lambda model: average_precision(model.decision_function(of_dev), dev.labels))
    return lambda pairs: best.decision_function(features(pairs))


def of_questions(judged_set: JudgedSet) -> dict[str, float]:
    """BM25's figures on the test questions that have a passage, among all passages of the file."""
    collection = held_out_collection(judged_set)
    queries, passages = list(collection.queries.values()), list(collection.documents.values())
    scores, rows = bm25_search(queries, passages, DEPTH)[0](0, len(queries))
    about = {"questions": len(queries), "passages": len(passages)}
    return about | measures(ranking_of(collection, scores, rows), collection.relevant)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--symmetric", default="")
    parser.add_argument("--asymmetric", default="")
    parser.add_argument("--test_pairs", type=int, default=1200, help="the first so many; 0: all")
    parser.add_argument("--threshold_pairs", type=int, default=0, help="the config's key; 0: all training pairs")
    flags = parser.parse_args()
    rows: list[dict[str, Any]] = []
    cfg = get_config()
    cfg.update(vars(flags))
    for branch in (branch for branch in BRANCHES if cfg[branch]):
        judged_set = read_set(cfg, branch)
        train, dev, test = judged_set.train, judged_set.dev, judged_set.test
        by_which = sample_pairs(train, flags.threshold_pairs, seed=0)  # as feeds.judged_results has it
        for name, score in scorers(train, dev).items():
            figures = pair_scores(score(by_which), by_which.labels, score(test), test.labels)
            row = {
                "of": "pairs",
                "file": judged_set.name,
                "by": name,
                "dev ap": average_precision(score(dev), dev.labels),
            }
            rows.append(row | {of: round(figures[of], 2) for of in ("ap", "prior", "accuracy", "precision", "recall")})
            print(json.dumps(rows[-1]), flush=True)
        if branch == "asymmetric":
            rows.append({"of": "questions", "file": judged_set.name, "by": "BM25"} | of_questions(judged_set))
            print(json.dumps(rows[-1]), flush=True)
    counts = {"test_pairs": flags.test_pairs, "threshold_pairs": flags.threshold_pairs}
    keep_rows("lexical", command_line(), rows, ("of", "file", "by"), **counts)


if __name__ == "__main__":
    main()
