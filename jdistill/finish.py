"""What is made of a trained student: export, evaluation, index, results.json, model card and report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jdistill import index, loading, sharding
from jdistill.classifier import Classifier, save_head
from jdistill.encoder import Encoder
from jdistill.evals import agreement, speed
from jdistill.evals.every_set import evaluate
from jdistill.evals.held_out_questions import evaluate_questions
from jdistill.evals.judged_pairs import evaluate_judged
from jdistill.export import export
from jdistill.judged import Judged
from jdistill.labelled import task_results
from jdistill.methods.d2llm import interaction_of
from jdistill.model_card import write_card
from jdistill.models.bilstm import BilstmConfig
from jdistill.models.pma import BRANCHES
from jdistill.pair_scorer import PairScorer, save_interaction
from jdistill.progress import clock, log
from jdistill.report import write_report
from jdistill.run import Run, Trained
from jdistill.workdir import write_json


def finish(run: Run, trained: Trained, workdir: Path, command: str) -> None:
    """Exports, evaluates what was exported, indexes, and writes results.json (last: it marks the run complete) and the report.

    command: what runs this again, for the reader of the results.
    """
    cfg, teacher, words, stages = run.cfg, run.teacher, run.words, trained.stages
    checks = export(trained.student, workdir / "export", onnx=cfg.onnx)
    model = loading.load(str(workdir / "export"))
    results: dict[str, Any] = {
        "command": command,
        "student": {"name": "student", "num_params": model.num_params, "bytes": 4 * model.num_params},
        "export_max_abs_difference": checks,
        "training": {
            **{what: sum(stage[what] for stage in stages) for what in ("seconds", "steps", "sentences")},
            "stages": stages,
            "devices": sharding.describe(),
            "texts": len(words.train),
            "removed_evaluation_texts": words.removed,
        },
    }
    scorer = None
    if trained.judged is not None:
        scorer = PairScorer(model, trained.params.get("iem"), interaction_of(cfg))
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
        task = run.labelled.task
        save_head(Classifier(model, trained.params["head"], task.labels, task.pairs), workdir / "export")
        results["task"] = task_results(task, model, trained.params["head"])
    if trained.judged is not None and scorer is not None:
        of_logits = save_interaction(scorer, workdir / "export")
        if of_logits is not None:
            checks["logits"] = of_logits
        results["pairs"] = evaluate_judged(cfg, trained.judged, scorer)
        results["questions"] = evaluate_questions(trained.judged, scorer, cfg.rescore)
        if cfg.beir:
            by_scorer = evaluate(model, beir=cfg.beir, **search, scorer=scorer, rescore=cfg.rescore)
            results["retrieval_rescored"] = by_scorer["retrieval"]
    if words.held_out:
        if isinstance(model.config, BilstmConfig):
            results["student"]["unknown_tokens"] = unknown_tokens(model, words.held_out)
        results["agreement"] = agreement.agreement(model.encode(words.held_out), run.answers.held_out())
        if cfg.latency_texts:
            pair = {"teacher": teacher.encoder, "student": model} if teacher.encoder else {"student": model}
            results["speed"] = speed.compare(pair, words.held_out[: cfg.latency_texts], repeats=3)
    if cfg.index_texts:
        found = words.train + words.held_out or passages(trained.judged)
        texts = found[: cfg.index_texts]
        if len(texts) < len(found):
            log.info("the index holds the first %d of %d texts (--config.index_texts)", len(texts), len(found))
        vectors = model.encode(texts, prompt=model.prompt_for("document"), show_progress=True)
        made = index.build(vectors, cfg.index, cfg.index_effort)
        made.save(workdir / "index", texts, model.fingerprint())
    write_json(workdir / "results.json", results)
    write_card(workdir, workdir / "export")
    write_report(workdir)
    for line in headline(results):
        log.info(line)
    log.info("trained in %s; see %s", clock(results["training"]["seconds"]), workdir / "report.html")


def passages(judged: Judged | None) -> list[str]:
    """The distinct passages of all files of labelled pairs, those that answer questions first."""
    sets = sorted(judged.sets, key=lambda one: one.branch == BRANCHES[0]) if judged else []
    return list(dict.fromkeys(text for one in sets for text in one.passages))


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
