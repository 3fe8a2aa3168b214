"""The command python -m jdistill.report: writes the page of a run, report.html, and its charts as PNGs in report/."""

from __future__ import annotations

import argparse

from jdistill.core.errors import UserError, exits_cleanly
from jdistill.core.help import CommandHelp
from jdistill.core.progress import log, setup_logging
from jdistill.core.remote import local_only
from jdistill.core.run_folder import is_config
from jdistill.report.facts import read_json_object
from jdistill.report.page import is_page
from jdistill.report.run import write_report

OF_A_RUN = ("config.json", "results.json", "*/metrics.jsonl")  # a run's folder holds one of them, whatever befell it


@exits_cleanly(resumes=False)
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.report --workdir DIR`."""
    parser = argparse.ArgumentParser(formatter_class=CommandHelp, prog="python -m jdistill.report", description=__doc__)
    parser.add_argument("--workdir", type=local_only, required=True, help="the folder of a run")
    setup_logging()
    workdir = parser.parse_args(argv).workdir
    if workdir.is_dir() and not is_config(read_json_object(workdir / "config.json")[0]):
        if not any(next(workdir.glob(name), None) for name in OF_A_RUN):
            raise UserError(f"--workdir={workdir} is no run's folder: it holds none of {', '.join(OF_A_RUN)}")
        for name in ("report.html", "report"):
            if (workdir / name).exists() and not is_page(workdir / "report.html"):
                raise UserError(f"--workdir={workdir} is no run's folder, and holds a {name} that is not jdistill's")
    if workdir.is_dir() and not (workdir / "results.json").is_file():
        log.warning("%s has no results yet; its page shows what there is", workdir)
    log.info("report written to %s", write_report(workdir))
    return 0
