"""The command python -m jdistill.search --workdir DIR "question" [--k 5]: answers from an index by the model that made it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import UserError, exits_cleanly, leave
from jdistill.core.fetched import path_here
from jdistill.core.files import SEAL, read_seal
from jdistill.core.help import CommandHelp
from jdistill.core.printable import printable
from jdistill.core.progress import log, setup_logging
from jdistill.core.run_folder import WITH_INDEX, part_of_run
from jdistill.data.text.vector_folder import EMBEDDINGS_SEAL, EmbedSettings
from jdistill.encoder.bulk import refuse_full_prompt
from jdistill.encoder.pair_scorer import PairScorer, load_pair_scorer
from jdistill.retrieval import index
from jdistill.retrieval.bm25 import bm25_search
from jdistill.retrieval.folder_index import tell_older_index
from jdistill.retrieval.fusion import fuse

PROPOSED = 100  # texts that the index proposes for an interaction module to rank


def answer(workdir: Path, query: str, k: int, hybrid: bool = False) -> list[tuple[float, str]]:
    """The k texts nearest to a query, best first, each once and with its cosine; of a student with an interaction module (D2LLM), the k best of
    the PROPOSED nearest, or of k where k is more, each with the module's logit.

    hybrid: BM25 proposes as many, and both rankings are fused (retrieval.fusion), each text with the sum of its reciprocal ranks.

    Reads workdir/export (the student) and workdir/index, or the model and the index of a folder of jdistill.embed. Raises
    UserError where either is missing, where they do not belong together, where the query is blank or k < 1, or where the model's prompt
    for a query fills the length that its texts were read by.
    """
    if not query.strip():
        raise UserError("the question is empty")
    if k < 1:
        raise UserError(f"--k={k}: ask for at least 1 result")
    scorer, index_dir = _load_model(workdir)
    model = scorer.encoder
    refuse_full_prompt(model, "query", "train or embed with a longer one into a new folder")
    saved = index.load_index_of(index_dir, model)
    if saved.owner:
        log.info("the index holds vectors of %s; the question is read by %s alone", saved.owner, model.source)
    vectors = model.encode([query], prompt=model.prompt_for("query"))
    row_of: dict[str, int] = {}
    if hybrid:  # BM25 reads all texts anyhow
        for row, text in enumerate(saved.texts):
            row_of.setdefault(text, row)
    count = k if scorer.params is None and not hybrid else max(k, PROPOSED)
    scores, rows = _nearest_texts(saved, vectors, count, row_of)
    if scorer.params is not None:
        # Its vectors are not the index's, which have length one.
        passages = model.encode([saved.texts[row] for row in rows], prompt=model.prompt_for("document"))
        (scores,) = scorer.rescore(vectors, passages[None])
        best = np.argsort(-scores, kind="stable")
        scores, rows = scores[best], rows[best]
    if hybrid:
        by_words, _ = bm25_search([query], list(row_of), count)
        (of_distinct,) = by_words(0, 1)[1]
        scores, rows = fuse([rows, np.array(list(row_of.values()))[of_distinct[of_distinct >= 0]]])
    scores, rows = scores[:k], rows[:k]
    return [(float(score), saved.texts[row]) for score, row in zip(scores, rows, strict=True)]


def _nearest_texts(
    saved: index.SavedIndex, query_vectors: np.ndarray, count: int, row_of: dict[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The `count` nearest texts of a query that differ, best first: cosines float32 [n] and rows int64 [n], of repeated texts one row.

    row_of: text -> the row that stands for it; texts that are not in it are added, with their best row.
    """
    proposed = count
    while True:
        (scores,), (rows,) = saved.index.search(query_vectors, proposed)
        first_place: dict[int, int] = {}  # of each row
        for place, row in enumerate(rows[rows >= 0].tolist()):  # an index that is not exact may find fewer
            first_place.setdefault(row_of.setdefault(saved.texts[row], row), place)
        if len(first_place) >= count or rows[-1] < 0 or proposed >= saved.index.rows:
            best = list(first_place)[:count]
            return scores[[first_place[row] for row in best]], np.array(best, np.int64)
        proposed *= 2


def _load_model(workdir: Path) -> tuple[PairScorer, Path]:
    """The model of a folder and where the index of its vectors lies: of a run, or of jdistill.embed."""
    if not workdir.is_dir():
        raise UserError(
            f"--workdir={workdir}: there is no such folder; name that of a finished run or of jdistill.embed"
        )
    seal = read_seal(workdir, EMBEDDINGS_SEAL)
    if seal is not None:
        if not (workdir / "index").is_dir():
            without = not seal["settings"].get("with_text", True)
            makes = (
                "its vectors were made --without_text, which an index keeps: embed the text into a new folder, with --index=Flat"
                if without
                else f"python -m jdistill.embed with --out {workdir} and --index=Flat makes it"
            )
            raise UserError(f"{workdir / 'index'} is missing; {makes}")
        tell_older_index(workdir, seal.get("texts"))
        settings = EmbedSettings(**seal["settings"])
        scorer = _model_of(workdir, settings)
        encoder = replace(scorer.encoder, dtype=settings.dtype, max_length=settings.max_length)
        return replace(scorer, encoder=encoder), workdir / "index"
    export = part_of_run(workdir, "export")
    index_dir = part_of_run(workdir, "index", WITH_INDEX)
    return load_pair_scorer(str(export), key="workdir"), index_dir


def _model_of(workdir: Path, settings: EmbedSettings) -> PairScorer:
    """The model that made a folder of jdistill.embed. Raises UserError where it cannot be read, or reads texts by another prompt now."""
    try:
        scorer = load_pair_scorer(settings.model)
    except UserError as error:
        raise UserError(
            f"--workdir={workdir} was made by the model {settings.model}, which does not load: {error}"
        ) from None
    prompt = scorer.encoder.prompt_text(scorer.encoder.prompt_for(settings.role))
    if prompt != settings.prompt:
        raise UserError(
            f"--workdir={workdir}: its texts were read by the prompt {settings.prompt!r}, and {settings.model} has {prompt!r} now, so that their "
            "vectors do not compare with a question's; embed into a new folder"
        )
    return scorer


@exits_cleanly(resumes=False)
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.search`; returns its exit status."""
    parser = argparse.ArgumentParser(
        formatter_class=CommandHelp,
        prog="python -m jdistill.search",
        description="Answers a question over the index of a run or of jdistill.embed.",
    )
    parser.add_argument("query", metavar="QUESTION")
    parser.add_argument(
        "--workdir",
        required=True,
        help="the folder of a finished run, or of jdistill.embed with its --index",
    )
    parser.add_argument("--k", type=int, default=5, help="how many texts")
    parser.add_argument(
        "--hybrid", action="store_true", help="fuse the vectors' ranking with BM25's, by reciprocal ranks"
    )
    args = parser.parse_args(argv)
    keep_compiled_programs()
    setup_logging()
    workdir = path_here(args.workdir, "workdir", ("export/", "index/", SEAL))
    for rank, (score, text) in enumerate(answer(workdir, args.query, args.k, args.hybrid), 1):
        print(f"{rank:3d}  {score:.4f}  {printable(text)}")
    return 0


if __name__ == "__main__":
    leave(main())
