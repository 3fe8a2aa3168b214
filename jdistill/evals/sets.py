"""The evaluation sets, one line each: what a flag names, the figures of an encoder on it, and their lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.fetched import path_here
from jdistill.data.sets.collections import query_texts
from jdistill.data.sets.sts import sts_sentences
from jdistill.data.text.sources import read_texts
from jdistill.data.text.text_stream import StreamedText, TextStream
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.entity import evaluate_entity, read_entities
from jdistill.evals.geometry import COVARIANCE_SAMPLE, evaluate_geometry
from jdistill.evals.lexical import evaluate_bm25
from jdistill.evals.retrieval import evaluate_beside_queries_of, evaluate_retrieval
from jdistill.evals.sts import evaluate_pairs_of, evaluate_sts, pairs_by_words, ranked_pairs
from jdistill.report.facts import searched_by
from jdistill.retrieval.index import EXACT


@dataclass(frozen=True)
class Options:
    """What sets are scored by, beside the encoder.

    Args:
      scorer: the encoder with its interaction module, which scores pairs too; None without one.
      corpus_model: encodes the documents of a search; None: the encoder itself.
      index, index_effort: of a search, as FAISS writes them.
      rescore: how many found documents the module ranks anew, 0 for all; None: by the index alone.
      query_model: puts its queries to the encoder's documents too, which only the encoder's own vectors rank; None: nobody does.
      words: whether figures by words alone stand beside: of a search by BM25, of pairs of sentences by evals.word_cosines.
      senteval: the SentEval folder, which further sets may need; "" where it is not given.
    """

    scorer: PairScorer | None = None
    corpus_model: TextEncoder | None = None
    index: str = EXACT
    index_effort: str = ""
    rescore: int | None = None
    query_model: TextEncoder | None = None
    words: bool = True
    senteval: str = ""

    @property
    def module(self) -> PairScorer | None:
        """The scorer, if there is more to it than a cosine."""
        return self.scorer if self.scorer is not None and self.scorer.params is not None else None


@dataclass(frozen=True)
class EvaluationSet:
    """A set that a flag of its name takes.

    Args:
      metavar, help: of the flag.
      evaluate: (encoder, source, options) -> figures under keys of its own, as results.json has them.
      lines: figures of all sets -> lines for a terminal; of figures that have none of its keys: none.
      check: (source, key) raises UserError for what is not there, before hours of encoding.
    """

    metavar: str
    help: str
    evaluate: Callable[[TextEncoder, str, Options], dict[str, Any]]
    lines: Callable[[dict[str, Any]], list[str]]
    check: Callable[[str, str], object]


def there(source: str, key: str) -> None:
    """Raises UserError where `source` is no file or folder that is there. key: the flag that named it."""
    if not path_here(source, key).exists():
        raise UserError(f"--{key}={source}: no such file or folder")


def reads(read: Callable[[Path], object]) -> Callable[[str, str], None]:
    """A check that reads a local source as its evaluation will. Raises UserError as `read`, and for what is not there."""

    def check(source: str, key: str) -> None:
        there(source, key)
        read(path_here(source, key))

    return check


def first_text(source: str, key: str) -> StreamedText:
    """Finds a text source and reads as far as its first usable text."""
    return next(iter(TextStream(source, key=key)))


def count_queries(source: str, key: str) -> int:
    """Reads every collection's tables as far as its queries."""
    return sum(1 for _ in query_texts(source, key))


def of_sts(encoder: TextEncoder, source: str, options: Options) -> dict[str, Any]:
    """The figures of evals.sts."""
    return evaluate_sts(encoder, path_here(source, "senteval"), options.module, options.words)


def sts_lines(results: dict[str, Any]) -> list[str]:
    """The lines of of_sts' figures."""
    lines = titled("STS, Spearman x 100", results.get("sts", {}))
    by_module = results.get("sts_by_module", {}).get("spearman", {})
    lines += titled("STS by words alone, Spearman x 100", results.get("words_sts", {}))
    return lines + titled("STS by the interaction module, Spearman x 100", by_module)


def of_retrieval(encoder: TextEncoder, source: str, options: Options) -> dict[str, Any]:
    """The figures of evals.retrieval, under "retrieval", of evals.lexical, under "bm25_retrieval", and those of a query model, under
    "query_model_retrieval"; under "searched_by" what else than an exact search they are of. Of documents by a corpus model "retrieval" is a
    search in its index, and "own_index_retrieval" in the encoder's."""
    search: dict[str, Any] = {"kind": options.index, "effort": options.index_effort}
    results: dict[str, Any] = {}
    if options.query_model is not None:
        figures, of_queries = evaluate_beside_queries_of(options.query_model, encoder, source, **search)
        results = {"retrieval": figures, "query_model_retrieval": of_queries}
    else:
        scorer = None if options.rescore is None else options.module
        figures = evaluate_retrieval(
            encoder,
            source,
            corpus_model=options.corpus_model,
            scorer=scorer,
            rescore=options.rescore or 0,
            **search,
        )
        results = {"retrieval": figures}
        if options.corpus_model is not None:
            results["own_index_retrieval"] = evaluate_retrieval(
                encoder, source, scorer=scorer, rescore=options.rescore or 0, **search
            )
    if options.index != EXACT and (options.rescore != 0 or options.query_model is not None):  # 0: the module ranks all
        results["searched_by"] = {"index": options.index, "effort": options.index_effort}
    if options.rescore is not None and options.query_model is None:
        results["searched_by"] = results.get("searched_by", {}) | {"rescored": options.rescore or "all"}
    if options.words:
        results["bm25_retrieval"] = evaluate_bm25(source)
    return results


def retrieval_lines(results: dict[str, Any]) -> list[str]:
    """The lines of of_retrieval's figures."""
    lines: list[str] = []
    other = results.get("model", {}).get("corpus_model")
    for name, figures in results.get("retrieval", {}).items():
        of_words = results.get("bm25_retrieval", {}).get(name, {})
        own = results.get("own_index_retrieval", {}).get(name, {})
        lines.append(
            f"Retrieval, {name}{searched_by(results)}"
            + (f": in an index of its own, and in that of {other}" if own else "")
        )
        lines += [
            (line_of(what, own[what]) + "  " + line_of("", value).strip().rjust(8) if own else line_of(what, value))
            for what, value in figures.items()
        ]
        lines += [line_of(f"BM25's {measure}", of_words[measure]) for measure in of_words.keys() & {"ndcg@10"}]
    return lines


def of_pairs(encoder: TextEncoder, source: str, options: Options) -> dict[str, Any]:
    """Spearman x 100 on a file of scored pairs, under "scored_pairs"; of a folder's files the mean, and each under "scored_pairs_of". The same
    by words alone under "words_scored_pairs" and "words_scored_pairs_of"."""
    path = path_here(source, "pairs")
    results: dict[str, Any] = {}
    by = {"": evaluate_pairs_of(encoder, path)} | ({"words_": pairs_by_words(path)} if options.words else {})
    for whose, of_file in by.items():
        results[f"{whose}scored_pairs"] = float(np.mean(list(of_file.values())))
        if len(of_file) > 1:
            results[f"{whose}scored_pairs_of"] = of_file
    return results


def pairs_lines(results: dict[str, Any]) -> list[str]:
    """The lines of of_pairs' figures."""
    mean = {"pairs": results["scored_pairs"]} if "scored_pairs" in results else {}
    of_words = {"by words alone": results["words_scored_pairs"]} if "words_scored_pairs" in results else {}
    return titled("Scored pairs, Spearman x 100", mean | results.get("scored_pairs_of", {}) | of_words)


def of_entity(encoder: TextEncoder, source: str, options: Options) -> dict[str, Any]:
    """The figures of evals.entity, under "entity"."""
    return {"entity": evaluate_entity(encoder, path_here(source, "entity"))}


def of_geometry(encoder: TextEncoder, source: str, options: Options) -> dict[str, Any]:
    """Alignment and uniformity on senteval's STS-B, covariance over the texts of the source."""
    texts = read_texts(source, key="geometry", at_most=COVARIANCE_SAMPLE).texts
    return {"geometry": evaluate_geometry(encoder, path_here(options.senteval, "senteval"), texts).figures}


def figures_under(name: str, title: str) -> Callable[[dict[str, Any]], list[str]]:
    """The lines of the figures under one key of the results, a title first; none where the key is not there."""
    return lambda results: [title, *(line_of(*item) for item in results[name].items())] if name in results else []


def titled(title: str, percents: dict[str, float]) -> list[str]:
    """A title and a line for each figure; nothing where there are none."""
    return [title, *(f"  {name:<24}{value:8.2f}" for name, value in percents.items())] if percents else []


def line_of(name: str, value: float | int) -> str:
    """A figure as a line for a terminal."""
    if isinstance(value, int):
        return f"  {name:<24}{value:8d}"
    return f"  {name:<24}{value:8.4f}" if abs(value) < 100 else f"  {name:<24}{value:8.0f}"


BEIR_HELP = "a folder of retrieval collections in BEIR layout, or a datasets id such as C-MTEB/T2Retrieval"
PAIRS_HELP = "scored sentence pairs, .csv .tsv .txt or .jsonl, or a folder of such files, whose mean counts"
GEOMETRY_HELP = "texts as --config.text takes them: the shape of the vectors"
SETS: dict[str, EvaluationSet] = {
    "senteval": EvaluationSet("DIR", "a SentEval folder: the seven STS tasks", of_sts, sts_lines, reads(sts_sentences)),
    "beir": EvaluationSet("SOURCE", BEIR_HELP, of_retrieval, retrieval_lines, count_queries),
    "pairs": EvaluationSet("FILE", PAIRS_HELP, of_pairs, pairs_lines, reads(ranked_pairs)),
    "entity": EvaluationSet(
        "FILE",
        "a .csv with query, entity, label",
        of_entity,
        figures_under("entity", "Entity resolution"),
        reads(read_entities),
    ),
    "geometry": EvaluationSet(
        "TEXTS", GEOMETRY_HELP, of_geometry, figures_under("geometry", "Geometry of the vectors"), first_text
    ),
}
