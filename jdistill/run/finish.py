"""What is made of a trained student: export, evaluation, index, model card, report and results.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core import files, sharding
from jdistill.core.errors import UserError
from jdistill.core.progress import clock, log
from jdistill.encoder import loading
from jdistill.encoder.classifier import Classifier, save_head
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals import agreement, speed
from jdistill.evals.collapse import SAMPLE, check_vectors
from jdistill.evals.suite import evaluate
from jdistill.export.card import write_card
from jdistill.export.check import export
from jdistill.export.interaction import save_interaction
from jdistill.feeds.held_out_questions import evaluate_questions
from jdistill.feeds.judged_pairs import evaluate_judged
from jdistill.feeds.task import task_results
from jdistill.models.interaction import interaction_of
from jdistill.models.registry import architecture_of
from jdistill.report.command import write_report
from jdistill.retrieval import index
from jdistill.run.completeness import (
    OF_INDEX,
    lacking,
    read_results,
    vouch,
)
from jdistill.run.stages import Run, Trained, passages


def finish(run: Run, trained: Trained, workdir: Path, command: str) -> None:
    """Makes what `workdir` lacks of export, figures, index, report and, last, since it marks the run complete, results.json.

    command: what runs this again, for the reader of the results.
    """
    cfg, export_dir = run.cfg, workdir / "export"
    lacks = lacking(cfg, workdir)
    if "export" in lacks:
        export_trained(run, trained, workdir)
    model = loading.load(str(export_dir))
    scorer = None
    if trained.judged is not None:
        scorer = PairScorer(model, trained.params.get("iem"), interaction_of(cfg))
    results = None if "results" in lacks else read_results(workdir)
    if results is None:
        results = figures(run, trained, model, scorer, workdir, command)
    if "index" in lacks:
        write_index(run, trained, model, workdir / "index")
    with files.adding_to(export_dir, "export"):
        write_card(workdir, export_dir, results=results)
    write_report(workdir, results)
    vouch(cfg, workdir, results)
    for line in headline(results):
        log.info(line)
    log.info("trained in %s; see %s", clock(results["training"]["seconds"]), workdir / "report.html")


def export_trained(run: Run, trained: Trained, workdir: Path) -> None:
    """Exports the student, with what was trained beside it."""
    student, params = trained.student, trained.params

    def add(folder: Path) -> dict[str, float]:
        checks = {}
        if run.labelled is not None and "head" in params:
            task = run.labelled.task
            save_head(Classifier(student, params["head"], task.labels, task.pairs), folder)
        if trained.judged is not None:
            of_logits = save_interaction(PairScorer(student, params.get("iem"), interaction_of(run.cfg)), folder)
            checks = {} if of_logits is None else {"logits": of_logits}
        write_card(workdir, folder, results={})  # which the figures are added to
        return checks

    export(student, workdir / "export", run.cfg.onnx, [add], in_run=True)


def figures(
    run: Run, trained: Trained, model: Encoder, scorer: PairScorer | None, workdir: Path, command: str
) -> dict[str, Any]:
    """What results.json holds. model: the exported student."""
    cfg, teacher, words, stages = run.cfg, run.teacher, run.words, trained.stages
    sealed = files.read_seal(workdir / "export", "export") or {}
    results: dict[str, Any] = {
        "command": command,
        "student": {"name": "student", "num_params": model.num_params, "bytes": 4 * model.num_params},
        "export_max_abs_difference": sealed.get("checks", {}),
        "training": {
            **{what: sum(stage[what] for stage in stages) for what in ("seconds", "steps", "sentences")},
            "stages": stages,
            "devices": sharding.describe(),
            "texts": len(words.train),
            "removed_evaluation_texts": words.removed,
        },
    }
    sets = {"senteval": cfg.senteval, "beir": cfg.beir, "pairs": cfg.dev_pairs}
    search = {"index": cfg.index, "index_effort": cfg.index_effort}
    results |= evaluate(model, **sets, **search, scorer=scorer)
    if teacher.encoder is not None:
        results["teacher"] = {
            "name": cfg.teacher,
            "num_params": teacher.encoder.num_params,
            "bytes": 4 * teacher.encoder.num_params,
        }
        if cfg.evaluate_teacher and any(sets.values()):
            of_teacher = evaluate(teacher.encoder, **sets, **search)
            results |= {f"teacher_{name}": value for name, value in of_teacher.items()}
    if run.labelled is not None and "head" in trained.params:
        results["task"] = task_results(run.labelled.task, model, trained.params["head"])
    if trained.judged is not None and scorer is not None:
        results["pairs"] = evaluate_judged(cfg, trained.judged, scorer)
        results["questions"] = evaluate_questions(trained.judged, scorer, cfg.rescore)
        if cfg.beir:
            by_scorer = evaluate(model, beir=cfg.beir, **search, scorer=scorer, rescore=cfg.rescore)
            results["retrieval_rescored"] = by_scorer["retrieval"]
    if words.held_out:
        results |= beside_teacher(run, model)
        if architecture_of(model.config).recurrent:
            results["student"]["unknown_tokens"] = unknown_tokens(model, words.held_out)
    return results


def beside_teacher(run: Run, model: Encoder) -> dict[str, Any]:
    """The student's agreement with its teacher on the held-out texts, over how many directions its vectors spread, and its speed."""
    held_out, teacher = run.words.held_out, run.teacher.encoder
    vectors = model.encode(held_out)
    results: dict[str, Any] = {"agreement": agreement.agreement(vectors, run.answers.held_out())}
    try:
        results["effective_rank"] = check_vectors(vectors[:SAMPLE], "the student")
    except UserError as error:  # it is trained: said, and kept beside its figures
        log.warning("WARNING: %s", error)
        results |= {"effective_rank": 0.0, "warning": str(error)}
    if run.cfg.latency_texts:
        pair = {"teacher": teacher, "student": model} if teacher else {"student": model}
        results["speed"] = speed.compare(pair, held_out[: run.cfg.latency_texts], repeats=3)
    return results


def write_index(run: Run, trained: Trained, model: Encoder, folder: Path) -> None:
    """The FAISS index of the run's texts, that jdistill.search answers from."""
    cfg = run.cfg
    found = run.words.train + run.words.held_out or passages(trained.judged)
    texts = found[: cfg.index_texts]
    if len(texts) < len(found):
        log.info("the index holds the first %d of %d texts (--config.index_texts)", len(texts), len(found))
    vectors = model.encode(texts, prompt=model.prompt_for("document"), show_progress=True)
    settings = {key: cfg[key] for key in OF_INDEX}
    index.build(vectors, cfg.index, cfg.index_effort).save(folder, texts, model.fingerprint(), **settings)


def unknown_tokens(model: Encoder, texts: Sequence[str]) -> float:
    """The share of the texts' tokens that the vocabulary lacks, in percent; the token that begins a text is not counted."""
    ids = np.concatenate([row[1:] for row in model.tokenize(texts)])
    return 100 * float(np.mean(ids == model.tokenizer.unk_token_id))


def headline(results: dict[str, Any]) -> list[str]:
    """The result a reader wants first, as log lines."""
    lines = []
    if "Avg" in results.get("sts", {}):
        teacher = results.get("teacher_sts", {}).get("Avg")
        lines.append(
            f"STS average {results['sts']['Avg']:.2f}" + (f" of the teacher's {teacher:.2f}" if teacher else "")
        )
    for name, found in results.get("task", {}).items():
        figures = ", ".join(f"{metric} {value:.2f}" for metric, value in found.items() if isinstance(value, float))
        lines.append(f"{name}, {found['split']}: {figures}")
    for name, rows in results.get("pairs", {}).items():
        of_rows = ", ".join(f"{row} {found['ap']:.2f}" for row, found in rows.items())
        lines.append(f"{name}, average precision: {of_rows} (share of positives {rows['student']['prior']:.2f})")
    if "agreement" in results:
        lines.append(
            f"agreement with the teacher on held-out text: Spearman of pair cosines {results['agreement']['spearman']:.2f}"
        )
    return lines
