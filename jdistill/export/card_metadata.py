"""The metadata of a model card that the Hugging Face hub reads: library, tags, the model it was made from, measured results."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from jdistill.core.errors import UserError
from jdistill.core.printable import printable
from jdistill.core.remote import is_url
from jdistill.data.text.sources import local_path
from jdistill.report.facts import searched_by
from jdistill.report.tables import COSTS, real

TAGS = ["sentence-transformers", "sentence-similarity", "feature-extraction", "jdistill"]
# Where SentEval's pairs lie on the hub. Its SICK-R is the test split alone, of which the hub's set is more.
HUB_SETS = {
    "STS12": "mteb/sts12-sts",
    "STS13": "mteb/sts13-sts",
    "STS14": "mteb/sts14-sts",
    "STS15": "mteb/sts15-sts",
    "STS16": "mteb/sts16-sts",
    "STS-B": "mteb/stsbenchmark-sts",
}
LABEL_MEASURES = {
    "accuracy": "accuracy",
    "f1": "f1",
    "ap": "average_precision",
    "precision": "precision",
    "recall": "recall",
}
CACHED = re.compile(r"(?:^|/)models--([\w.-]+?)--([\w.-]+)/snapshots/[0-9a-f]+/?$")


@dataclass(frozen=True)
class Release:
    """What a card says of a student that no run knows.

    Args:
      repository: of the hub that it is sent to, OWNER/NAME; empty: none.
      license: as the hub names it; empty: the card states none.
      languages: codes of those that it is for.
    """

    repository: str = ""
    license: str = ""
    languages: tuple[str, ...] = ()


UNRELEASED = Release()


def license_name(text: str) -> str:
    """A licence as the hub names it. Raises ArgumentTypeError for what is no such name."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", text):
        raise ArgumentTypeError(f"{text!r} is no name of a licence on the hub, such as apache-2.0, mit or other")
    return text


def language_code(text: str) -> str:
    """A language as the hub names it. Raises ArgumentTypeError for what is no such name."""
    if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z]{2,4})?|multilingual", text):
        raise ArgumentTypeError(f"{text!r} is no code of a language, such as en, de or multilingual")
    return text


def metadata(name: str, config: dict[str, Any], results: dict[str, Any], release: Release = UNRELEASED) -> str:
    """The block of YAML that a card begins with, between its two lines of dashes.

    Args:
      name: the model's.
      config: of its run, config.json.
      results: of its run, as results.json holds them; without figures where they are not this model's.
      release: what no run knows.
    """
    measured = list(eval_results(results))
    data = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=TAGS,
        license=release.license or None,
        # The hub takes no region under the first name.
        language=[code for code in release.languages if "-" not in code] or None,
        language_bcp47=[code for code in release.languages if "-" in code] or None,
        base_model=results["base_model"] if "base_model" in results else base_of(config),
        model_name=without_markup(name) or "student" if measured else None,
        eval_results=measured or None,
    )
    return "\n".join(["---", data.to_yaml(), "---", ""])


def base_of(config: dict[str, Any]) -> str | None:
    """The hub's id of the model that a run's student is made from, seen from the folder that the run is started in; None for another."""
    return hub_id(str(config.get("teacher") or config.get("start") or ""))


def hub_id(source: str) -> str | None:
    """The hub's id owner/name of a source that is one, or that is a folder of the hub's cache; None for any other.

    source: as a config names a teacher, so also `st:owner/name@commit`.
    """
    if source.startswith("st:"):
        source = re.sub(r"@[0-9a-f]{40}$", "", source.removeprefix("st:"))
    if cached := CACHED.search(source):
        return "/".join(cached.groups())
    try:
        if is_url(source) or local_path(source, "teacher") is not None:
            return None
        validate_repo_id(source)
    except (UserError, HFValidationError):
        return None
    return source


def without_markup(text: str) -> str:
    """A name of somebody else's for a block that a reader may show as YAML, as Markdown or as HTML: nothing in it is any of them."""
    return re.sub(r"[\\`*{}\[\]<>#|!~&]+", "_", printable(text))


def eval_results(results: dict[str, Any]) -> Iterator[EvalResult]:
    """The student's figures of STS, retrieval, labelled pairs and a task, as far as they are numbers.

    The split is that of STS and of a task: results do not say which one judged a collection or pairs, which a config or a source may choose.
    """
    for name, value in results.get("sts", {}).items():
        if name != "Avg":  # which is of no data set
            yield from _of_set(
                ("semantic-similarity", "Semantic Similarity"), name, {("spearmanr", "Spearman x 100"): value}, "test"
            )
    for name, scores in results.get("retrieval", {}).items():
        of_quality = {metric: value for metric, value in scores.items() if metric not in COSTS}
        figures = {
            (metric.replace("@", "_at_"), f"{metric}{searched_by(results)}"): value
            for metric, value in of_quality.items()
        }
        yield from _of_set(("information-retrieval", "Information Retrieval"), name, figures)
    for name, scorers in results.get("pairs", {}).items():
        yield from _of_set(("binary-classification", "Binary Classification"), name, _percent(scorers["student"]))
    for name, scores in results.get("task", {}).items():
        split = scores.get("split")
        yield from _of_set(("text-classification", "Text Classification"), name, _percent(scores), split)


def _percent(scores: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """(metric, its name) -> value of those measures of labels that are there."""
    return {
        (kind, f"{kind.replace('_', ' ')} in percent"): scores[key]
        for key, kind in LABEL_MEASURES.items()
        if key in scores
    }


def _of_set(
    task: tuple[str, str], name: str, figures: dict[tuple[str, str], Any], split: str | None = None
) -> Iterator[EvalResult]:
    """The results on a data set. task: type and name; figures: (metric, its name) -> value."""
    dataset = without_markup(name)
    for (kind, metric), value in figures.items():
        if (number := real(value)) is not None:
            yield EvalResult(
                task_type=task[0],
                task_name=task[1],
                dataset_type=HUB_SETS.get(name, dataset),
                dataset_name=dataset,
                dataset_split=None if split is None else without_markup(split),
                metric_type=without_markup(kind),
                metric_name=without_markup(metric),
                metric_value=round(number, 4),
            )
