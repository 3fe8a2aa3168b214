"""The command python -m jdistill.search --workdir DIR "question" [--k 5]: answers from a run's index by its student."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import UserError, exits_cleanly, leave
from jdistill.core.printable import printable
from jdistill.core.progress import setup_logging
from jdistill.encoder.pair_scorer import load_pair_scorer
from jdistill.retrieval import index

PROPOSED = 100  # texts that the index proposes for an interaction module to rank


def answer(workdir: Path, query: str, k: int) -> list[tuple[float, str]]:
    """The k texts nearest to a query, best first, each with its cosine; of a student with an interaction module (D2LLM), the k best of
    the PROPOSED nearest, or of k where k is more, each with the module's logit.

    Reads workdir/export (the student) and workdir/index. Raises UserError where either is missing, where they do not
    belong together, or where the query is blank or k < 1.
    """
    if not query.strip():
        raise UserError("the question is empty")
    if k < 1:
        raise UserError(f"--k={k}: ask for at least 1 result")
    for part, key in (("export", ""), ("index", ", with --config.index_texts above 0")):
        if not (workdir / part).is_dir():
            raise UserError(
                f"{workdir / part} is missing; it is written at the end of a run: "
                f"python -m jdistill.main --config FILE --workdir {workdir}{key}"
            )
    saved = index.load_index(workdir / "index")
    scorer = load_pair_scorer(str(workdir / "export"), key="workdir")
    model = scorer.encoder
    if model.fingerprint() != saved.fingerprint:
        raise UserError(
            f"{workdir / 'index'} was made by another model than {workdir / 'export'}, so their vectors do "
            "not compare; train into a new --workdir, which makes both"
        )
    vectors = model.encode([query], prompt=model.prompt_for("query"))
    (scores,), (rows,) = saved.index.search(vectors, k if scorer.params is None else max(k, PROPOSED))
    scores, rows = scores[rows >= 0], rows[rows >= 0]  # an index that is not exact may find fewer
    if scorer.params is not None:
        # Its vectors are not the index's, which have length one.
        passages = model.encode([saved.texts[row] for row in rows], prompt=model.prompt_for("document"))
        (scores,) = scorer.rescore(vectors, passages[None])
        best = np.argsort(-scores, kind="stable")[:k]
        scores, rows = scores[best], rows[best]
    return [(float(score), saved.texts[row]) for score, row in zip(scores, rows, strict=True)]


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.search`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m jdistill.search", description="Answers a question over a run's index."
    )
    parser.add_argument("query", metavar="QUESTION")
    parser.add_argument("--workdir", type=Path, required=True, help="the folder of a finished run")
    parser.add_argument("--k", type=int, default=5, help="how many texts")
    args = parser.parse_args(argv)
    keep_compiled_programs()
    setup_logging()
    for rank, (score, text) in enumerate(answer(args.workdir, args.query, args.k), 1):
        print(f"{rank:3d}  {score:.3f}  {printable(text)}")
    return 0


if __name__ == "__main__":
    leave(main())
