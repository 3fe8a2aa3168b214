"""What a finished run's folder lacks: each part is there, as it was written, and by the settings of now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.run_folder import RUN
from jdistill.run.search_index import OF_INDEX
from jdistill.run.stages import stages_of
from jdistill.run.workdir import BEFORE, of_results
from jdistill.train.checkpoint import steps_in

OF_EXPORT = ("onnx",)


def lacking(cfg: ConfigDict, workdir: Path) -> dict[str, list[str]]:
    """Part -> what is wrong with it, for the parts results, report, export, index and student (of each stage); empty: the run is complete.

    A run that ended before folders had seals is taken by what is there.
    """
    settings = of_results(cfg)
    sealed = files.read_seal(workdir, RUN)
    wrong = {
        "results": _results(workdir, sealed, settings),
        "report": _report(workdir, sealed),
        "export": _folder(workdir / "export", "export", "modules.json", sealed, settings, OF_EXPORT),
        "index": _folder(workdir / "index", "index", "index.json", sealed, settings, OF_INDEX)
        if cfg.index_texts
        else [],
        "student": [
            f"{folder.relative_to(workdir)}: {what}"
            for kind in ("student", "adapter")
            for folder in sorted(workdir.glob(f"*/{kind}"))
            if sealed or files.read_seal(folder, kind)
            for what in files.damage(folder, kind)
        ]
        + ([f"{folder.relative_to(workdir)} is missing" for folder in _gone(cfg, workdir)] if sealed else []),
    }
    return {part: what for part, what in wrong.items() if what}


def _gone(cfg: ConfigDict, workdir: Path) -> list[Path]:
    """What stages that keep checkpoints have lost: the student's files, or those of the judge's adapters, as by a kill between two renames."""
    kept = [stage for stage in stages_of(cfg) if steps_in(workdir / stage.name / "checkpoints")]
    parts = [workdir / stage.name / ("student" if stage.trains == "student" else "adapter") for stage in kept]
    return [part for part in parts if not part.is_dir()]


def of_other_checkpoints(results: dict[str, Any], stages: Sequence[dict[str, Any]]) -> bool:
    """Whether results are of other checkpoints than stages that were read anew; older ones do not say which. stages: as run.stages has them."""
    before = {of["name"]: of.get("checkpoint") for of in results.get("training", {}).get("stages", [])}
    return any(before.get(of["name"]) not in (None, of["checkpoint"]) for of in stages)


def check_checkpoints(workdir: Path, stages: Iterable[str]) -> None:
    """Raises UserError for a finished run of which a stage keeps no checkpoint: what is made again would be another student's, trained anew,
    beside what is left of the first."""
    for stage in stages:
        if not steps_in(workdir / stage / "checkpoints"):
            raise UserError(
                f"{workdir} is finished, and {workdir / stage} keeps no checkpoint, from which alone a part can be made again. Bring it back, "
                "or choose a new --workdir to train anew; python -m jdistill.evaluate and jdistill.embed read the export as it is"
            )


def read_results(workdir: Path) -> dict[str, Any] | None:
    """results.json; None where there is none that can be read."""
    content = files.look_into(workdir / "results.json")
    return content if isinstance(content, dict) else None


def vouch(cfg: ConfigDict, workdir: Path, results: dict[str, Any]) -> None:
    """Seals a run's folder and writes results.json, the last file of a run."""
    pages = [path for path in files.files_in(workdir) if path == "report.html" or path.startswith("report/")]
    beside = workdir / f"{files.TEMPORARY}results.json"
    files.write_json(beside, results)
    try:
        digest = files.file_digest(beside)
        digests = {name: files.file_digest(workdir / name) for name in sorted(pages)} | {"results.json": digest}
        files.write_seal(workdir, RUN, digests, settings=of_results(cfg))
        beside.replace(workdir / "results.json")
    finally:
        beside.unlink(missing_ok=True)


def _results(workdir: Path, sealed: dict[str, Any] | None, settings: dict[str, Any]) -> list[str]:
    path = workdir / "results.json"
    if not path.is_file():
        return ["results.json is missing"]
    if read_results(workdir) is None:
        return ["results.json cannot be read"]
    if sealed is None:
        return []
    if sealed["files"].get(path.name) != files.file_digest(path):
        return ["results.json has changed"]
    return _differing(sealed, settings, [key for key in settings if key not in (*OF_EXPORT, "index_texts")])


def _report(workdir: Path, sealed: dict[str, Any] | None) -> list[str]:
    if not (workdir / "report.html").is_file():
        return ["report.html is missing"]
    pages = {name: digest for name, digest in sealed["files"].items() if name != "results.json"} if sealed else {}
    return [
        f"{name} is missing or has changed"
        for name, digest in pages.items()
        if not (workdir / name).is_file() or files.file_digest(workdir / name) != digest
    ]


def _folder(
    folder: Path, kind: str, mark: str, run: dict[str, Any] | None, settings: dict[str, Any], keys: tuple[str, ...]
) -> list[str]:
    """mark: the file by which a folder from before there were seals is known. run: the run's seal, which no run of that time has."""
    sealed = files.read_seal(folder, kind)
    if sealed is None:
        of_before = run is None and (folder / mark).is_file() and not (folder / files.SEAL).exists()
        return [] if of_before else [f"{folder.name}/ is missing or its {files.SEAL} is damaged"]
    return [f"{folder.name}/{what}" for what in files.damage(folder, kind)] + _differing(sealed, settings, keys)


def _differing(sealed: dict[str, Any], settings: dict[str, Any], keys: Iterable[str]) -> list[str]:
    """The keys whose values were others when a folder was sealed."""
    made = {"index_by": BEFORE["index_by"]} | sealed.get("settings", {})  # what was sealed before there was the key
    shared = [key for key in keys if key in made and key in settings]
    return [f"{key} was {made[key]!r} and is {settings[key]!r}" for key in shared if made[key] != settings[key]]
