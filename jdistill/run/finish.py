"""What is made of a trained student: export, evaluation, index, model card, report and results.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.progress import clock, log
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.evals import agreement, speed
from jdistill.evals.collapse import COLLAPSE_SAMPLE, check_vectors
from jdistill.evals.sets import Options
from jdistill.evals.shared_space import ALIGNED
from jdistill.evals.suite import evaluate
from jdistill.evals.translations import translation_figures
from jdistill.export.card import write_card
from jdistill.export.card_metadata import base_of
from jdistill.export.folder import export
from jdistill.feeds.evaluation_sets import dev_pairs_in_tests
from jdistill.feeds.parallel import held_out_pair_vectors
from jdistill.feeds.roles import held_out_vectors
from jdistill.models.registry import architecture_of
from jdistill.report.beside import model_beside
from jdistill.run.budget_results import budget_line, budget_results, write_budget_form
from jdistill.run.completeness import (
    lacking,
    of_other_checkpoints,
    read_results,
    vouch,
)
from jdistill.run.headline import headline_lines
from jdistill.run.search_index import index_owner, owner_line, write_index
from jdistill.run.stages import Run, Trained
from jdistill.students.vocabulary import pieces_saved
from jdistill.train.origins import THEN


def finish(run: Run, trained: Trained, workdir: Path, command: str) -> None:
    """Makes what `workdir` lacks of export, figures, index, report and, last, since it marks the run complete, results.json.

    command: what runs this again, for the reader of the results.
    """
    cfg, export_dir = run.cfg, workdir / "export"
    lacks = lacking(cfg, workdir)
    results = read_results(workdir)
    # An export and its figures that are both there stay: the checkpoint that they are of may be gone.
    if results is not None and lacks.keys() & {"export", "results"} and of_other_checkpoints(results, trained.stages):
        log.warning(
            "WARNING: the checkpoint that export and figures were of cannot be read; both are made anew, of the next best"
        )
        lacks |= {part: ["it is of another checkpoint"] for part in ("export", "results", "index")}
    results = None if "results" in lacks else results
    if "export" in lacks:
        export_trained(run, trained, workdir)
    model = loading.load(str(export_dir))
    if results is None:
        results = measure_results(run, trained, model, workdir, command)
    if cfg.index_texts:  # results that are kept may be of before there was an index
        results["index"] = index_owner(cfg, run.shared.teacher)
    if "index" in lacks and cfg.index_texts:
        write_index(run, trained, model, workdir / "index")
    with files.adding_to(export_dir, "export"):
        write_card(workdir, export_dir, results=results)
    from jdistill.report.run import write_report  # here: matplotlib's import takes every start most of a second

    write_report(workdir, results)
    vouch(cfg, workdir, results)
    for line in filter(
        None, (*headline_lines(results, model_beside(cfg.teacher)), owner_line(results), budget_line(results))
    ):
        log.info(line)
    log.info("trained in %s", clock(results["training"]["seconds"]))


def export_trained(run: Run, trained: Trained, workdir: Path) -> None:
    """Exports the student, with what was trained beside it."""

    def add(folder: Path) -> dict[str, float]:
        checks = trained.feed.save(run.cfg, trained.student, trained.params, folder)
        write_budget_form(run.cfg, trained.student, folder)
        write_card(workdir, folder, results={})  # which the figures are added to
        return checks

    export(trained.student, workdir / "export", run.cfg.onnx, [add], in_run=True)


def measure_results(run: Run, trained: Trained, model: Encoder, workdir: Path, command: str) -> dict[str, Any]:
    """What results.json holds. model: the exported student."""
    cfg, teacher, corpus, stages = run.cfg, run.shared.teacher, run.shared.corpus, trained.stages
    sealed = files.read_seal(workdir / "export", "export") or {}
    results: dict[str, Any] = {
        "command": command,
        "base_model": base_of(dict(cfg)),  # now: seen from elsewhere a path could be a stranger's name on the hub
        "student": {"name": "student", "num_params": model.num_params, "bytes": 4 * model.num_params},
        "export_max_abs_difference": sealed.get("checks", {}),
        "training": {
            **{what: sum(stage[what] for stage in stages) for what in ("seconds", "steps", "sentences")},
            "stages": stages,
            "devices": THEN.join(dict.fromkeys(each for stage in stages for each in stage["devices"].split(THEN))),
            "computed_in": cfg.dtype,
            **({"texts": len(corpus.train), "removed_evaluation_texts": corpus.removed} if corpus.train else {}),
            **({"dev_pairs_in_tests": shared} if (shared := dev_pairs_in_tests(cfg)) else {}),
        },
    }
    if whole := run.shared.whole_vocabulary:
        results["student"]["vocabulary"] = pieces_saved(model, whole)
    if "budget" in cfg:
        results["budget"] = budget_results(cfg, model, run.shared.start.config, teacher, workdir / "export")
    sets = {"senteval": cfg.senteval, "beir": cfg.beir, "pairs": cfg.dev_pairs}
    options = Options(index=cfg.index, index_effort=cfg.index_effort)
    scorer = trained.feed.pair_scorer(cfg, model, trained.params)
    results |= evaluate(model, **sets, options=replace(options, scorer=scorer))
    if corpus.held_out:
        results |= beside_teacher(run, model)
    if corpus.held_out_pairs:
        of_pairs = held_out_pair_vectors(model, corpus, run.shared.embeddings.held_out_pairs())
        results["translations"] = translation_figures(of_pairs)
    if (as_used := teacher.as_used()) is not None:
        results["teacher"] = {
            "name": cfg.teacher or cfg.start,
            "num_params": as_used.num_params,
            "bytes": 4 * as_used.num_params,
        }
        if cfg.evaluate_teacher and any(sets.values()):
            aligned = teacher.width == model.dim and results.get("agreement", {}).get("mean_cosine", 0.0) > ALIGNED
            options = replace(options, query_model=model if aligned else None, words=False)
            of_teacher = evaluate(as_used, **sets, options=options)
            of_teacher.pop("searched_by", None)  # the same as the student's
            if (asked := of_teacher.pop("query_model_retrieval", None)) is not None:
                results["asymmetric_retrieval"] = asked
            results |= {f"teacher_{name}": value for name, value in of_teacher.items()}
    results |= trained.feed.results(cfg, model, trained.params)
    if corpus.held_out and architecture_of(model.config).recurrent:
        results["student"]["unknown_tokens"] = unknown_tokens(model, corpus.held_out)
    return results


def beside_teacher(run: Run, model: Encoder) -> dict[str, Any]:
    """The student's agreement with its teacher on the held-out texts, over how many directions its vectors spread, and its speed."""
    held_out, teacher = run.shared.corpus.held_out, run.shared.teacher.encoder
    vectors = held_out_vectors(model, run.shared.corpus)
    figures = agreement.agreement(vectors, run.shared.embeddings.held_out())
    results: dict[str, Any] = {"agreement": figures | {"texts": len(held_out)}}
    try:
        results["effective_rank"] = check_vectors(vectors[:COLLAPSE_SAMPLE], "the student")
    except UserError as error:  # it is trained: said, and kept beside its figures
        log.warning("WARNING: %s", error)
        results |= {"effective_rank": 0.0, "warning": str(error)}
    if run.cfg.latency_texts:
        pair = {model_beside(run.cfg.teacher): teacher, "student": model} if teacher else {"student": model}
        results["speed"] = speed.compare_speed(pair, held_out[: run.cfg.latency_texts], repeats=3)
    return results


def unknown_tokens(model: Encoder, texts: Sequence[str]) -> float:
    """The share of the texts' tokens that the vocabulary lacks, in percent; the token that begins a text is not counted."""
    ids = np.concatenate([row[1:] for row in model.tokenize(texts)])
    return 100 * float(np.mean(ids == model.tokenizer.unk_token_id))
