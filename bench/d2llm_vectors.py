"""D2LLM, Appendix H: what smaller vectors and a smaller interaction module cost in retrieval.

    python bench/d2llm_vectors.py --run runs/d2llm [--kinds Flat SQfp16 SQ8 PQ96 PQ48] [--rescore 100] [--picture runs/vectors.png]

The held-out questions of a run of configs/d2llm.py look for their passages. An index of each kind (FAISS's names) keeps the passages'
vectors of length one; it proposes, and the module ranks what the index gives back of them, their lengths beside (two bytes each). The
last row is the first kind with the module's kernels as int8, a scale for each output. Prints bytes a passage, MRR@10 and recall@10. Adds to
bench/results/d2llm_vectors.json.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
from bars import draw_bars
from record import command_line, keep_rows, shown_run
from untrained import config_of

import jdistill
from configs import d2llm
from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import UserError
from jdistill.encoder.pair_scorer import PairScorer, load_pair_scorer
from jdistill.evals.retrieval import best_rows, document_vectors, measures, ranking_of
from jdistill.feeds.judged import read_judged
from jdistill.feeds.judged_results import held_out_collection
from jdistill.models.interaction import BRANCHES
from jdistill.retrieval import index

LENGTH_BYTES = 2  # a passage's length, float16


def as_int8(kernel: np.ndarray) -> np.ndarray:
    """[in, out] rounded to 255 steps of each output's largest weight; biases, which are no matrices, stay."""
    if np.ndim(kernel) != 2:
        return kernel
    scale = np.maximum(np.abs(kernel).max(0), 1e-12) / 127
    return (np.round(kernel / scale) * scale).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", default=["Flat", "SQfp16", "SQ8", "PQ96", "PQ48"])
    parser.add_argument("--rescore", type=int, default=100)
    parser.add_argument("--picture", type=Path, default=Path("runs/d2llm-vectors.png"))
    flags = parser.parse_args()
    keep_compiled_programs()
    cfg = config_of(flags.run, d2llm.get_config())
    scorer = load_pair_scorer(str(flags.run / "export"))
    sets = [one for one in read_judged(cfg, jdistill.load(cfg.teacher)).sets if one.branch == BRANCHES[1]]
    if not sets or scorer.params is None:
        parser.error(f"{flags.run} has no asymmetric file, whose questions search, or no interaction module")
    collection, model = held_out_collection(sets[0]), scorer.encoder
    if not collection.queries:
        parser.error(f"{sets[0].name} has no held-out question with a passage")
    vectors = document_vectors(model, collection)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float16).astype(np.float32)
    questions = model.encode(list(collection.queries.values()), prompt=model.prompt_for("query"))
    smaller = replace(scorer, params=jax.tree.map(as_int8, scorer.params))
    about = f"{len(questions)} questions, {len(vectors)} passages, {model.dim} wide"
    print(f"{about}; {flags.rescore} ranked anew")
    print("| vectors | bytes a passage | by | mrr@10 | recall@10 |\n| --- | --- | --- | --- | --- |")
    bars: dict[str, dict[str, list[float]]] = {}
    rows: list[dict[str, Any]] = []

    def rank(name: str, built: index.Index, by: PairScorer) -> None:
        kept = index.unit_rows(built.faiss_index.reconstruct_n(0, built.rows)) * lengths
        size = built.faiss_index.sa_code_size()  # without what is kept once, as a product quantiser's centroids
        found = {
            "cosine": (size, best_rows(built, questions, kept)),
            "the module": (size + LENGTH_BYTES, best_rows(built, questions, kept, by, flags.rescore)),
        }
        for how, (num_bytes, (scores, ranked)) in found.items():
            figures = measures(ranking_of(collection, scores, ranked), collection.relevant)
            print(
                f"| {name} | {num_bytes} | {how} | {figures['mrr@10']:.4f} | {figures['recall@10']:.4f} |", flush=True
            )
            bars.setdefault(name, {})[how] = [100 * figures["mrr@10"]]
            row = {"vectors": name, "by": how, "bytes a passage": num_bytes}
            rows.append(row | {measure: figures[measure] for measure in ("mrr@10", "recall@10")})

    for kind in flags.kinds:
        try:
            rank(kind, index.build_index(vectors, kind), scorer)
        except UserError as error:  # a kind that these vectors' width or number does not allow
            print(f"| {kind} | {error} | | | |")
    rank(f"{flags.kinds[0]}, module in int8", index.build_index(vectors, flags.kinds[0]), smaller)
    keep_rows("d2llm_vectors", command_line(), rows, ("vectors", "by"), run=shown_run(flags.run), rescore=flags.rescore)
    draw_bars(flags.picture, bars, "MRR@10 of held-out questions, %", from_zero=False)


if __name__ == "__main__":
    main()
