"""The command: python -m jdistill.main --config configs/simtde.py --workdir runs/simtde [--config.key=value …]

Trains, exports, evaluates, reports; the same command again resumes where it stopped. --dry_run prints the plan instead, with
--machine=h200x8 that for GPUs that are not here.
"""

from __future__ import annotations

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import os
import shlex
import shutil
import sys
import time
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

from jdistill.config.flags import CONFIG, WORKDIR, run_command
from jdistill.config.keys import check_config
from jdistill.core import sharding
from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import (
    UserError,
    exits_cleanly,
    keep_crashes_in,
)
from jdistill.core.files import naming
from jdistill.core.launchers import check_devices, connect, part
from jdistill.core.machines import GRAMMAR, known_gpus
from jdistill.core.progress import clock, log, setup_logging
from jdistill.core.remote import is_url
from jdistill.core.shared_folders import check_shared
from jdistill.feeds.tokens import cache_folder
from jdistill.models.host_products import describe_compute
from jdistill.run.budget import settle_student
from jdistill.run.completeness import check_checkpoints, lacking
from jdistill.run.finish import finish
from jdistill.run.remote_workdir import mirrored_run
from jdistill.run.stages import (
    planned_machine,
    plans,
    plans_on,
    prepare,
    stages_of,
    train_stages,
)
from jdistill.run.workdir import (
    DTYPE_KEYS,
    check_may_be_run,
    clear_temporary,
    only_run,
    settle_config,
    settle_dtypes,
)
from jdistill.train.signals import Interrupted

DRY_RUN = flags.DEFINE_bool("dry_run", False, "print the plan (parameters, steps, memory, disk, time) and stop")
MACHINE = flags.DEFINE_string(
    "machine", "", f"with --dry_run: plan for GPUs that need not be here: {GRAMMAR}; {', '.join(known_gpus())}"
)
COORDINATOR = flags.DEFINE_string(
    "coordinator", "", "HOST:PORT of process 0 where a run has several processes; auto: from Slurm, Kubernetes or MPI"
)
NUM_PROCESSES = flags.DEFINE_integer("num_processes", 1, "how many processes the run has, with --coordinator")
PROCESS_ID = flags.DEFINE_integer("process_id", 0, "which of them this one is, from 0")
INTERRUPTED_STATUS = flags.DEFINE_integer(
    "interrupted_status",
    0,
    "the exit status after a signal that stopped the training, whose step is saved; 143 where a scheduler is to start the run again",
    lower_bound=0,
    upper_bound=255,
)


def run(cfg: ConfigDict, workdir: str | Path, dry_run: bool, machine: str = "") -> None:
    """One run from its config to its report; every part that is already in `workdir` is taken from there.

    Args:
      workdir: a path, or a URL as a string; of a plan it may be "".
      dry_run: print the plan instead.
      machine: that it is for, in core.machines.GRAMMAR; empty: this one.
    """
    check_config(cfg)
    if machine and not dry_run:
        raise UserError(f"--machine={machine} is for plans: add --dry_run; a run takes the devices that are there")
    if dry_run:
        planned = planned_machine(machine) if machine else None
        folder = Path(workdir) if workdir and not planned and not is_url(str(workdir)) else None
        if folder:
            check_may_be_run(folder)
        if chosen := settle_student(cfg, folder):
            print(chosen, flush=True)
        if planned:
            settle_dtypes(cfg, dict.fromkeys(DTYPE_KEYS, planned[0].fast_type))
        elif folder:
            settle_config(cfg, folder, planned=True)
        else:
            settle_dtypes(cfg)
        for lines in plans_on(prepare(cfg, planned[1]), *planned) if planned else plans(prepare(cfg), folder):
            print(lines, flush=True)
        return
    stages_of(cfg)  # before the folder belongs to this config
    with mirrored_run(workdir) as folder, only_run(folder):
        if sharding.process_count() > 1:
            check_shared(folder, f"--workdir={workdir}")
            check_shared(cache_folder(cfg), f"--config.cache_dir={cfg.cache_dir or cache_folder(cfg)}")
        keep_crashes_in(folder)
        if chosen := settle_student(cfg, folder):
            log.info("%s", chosen)
        settle_config(cfg, folder)
        with naming(folder):
            train_and_finish(cfg, folder)


def train_and_finish(cfg: ConfigDict, workdir: Path) -> None:
    """What is left of a run, in a folder that this process holds."""
    finished, lacks = (workdir / "results.json").is_file(), lacking(cfg, workdir)
    if not lacks:
        log.info("%s is complete: see %s and %s", workdir, workdir / "results.json", workdir / "report.html")
        return
    if finished:
        check_checkpoints(workdir, [stage.name for stage in stages_of(cfg)])
        log.info(
            "%s is finished, but %s; made again", workdir, "; ".join(what for part in lacks.values() for what in part)
        )
    began = time.monotonic()
    log.info("devices: %s", describe_compute())
    clear_temporary(workdir)
    ready = prepare(cfg)
    trained = train_stages(ready, workdir, lacks.keys())
    ready.shared.embeddings.held_out()  # which all processes must ask for
    trained.feed.ask_for_results(cfg)
    if sharding.is_first_process():
        finish(ready, trained, workdir, command_line(os.path.basename(sys.executable)))
        log.info("finished after %s of this command; see %s", clock(time.monotonic() - began), workdir / "report.html")
    sharding.barrier("results")


def command_line(python: str) -> str:
    """The command that runs this again, by that Python."""
    return shlex.join([python, "-m", "jdistill.main", *sys.argv[1:]])


def this_python() -> str:
    """What starts the Python that runs this: its name where the shell finds it by that, else its path, from the current folder if it
    lies below that."""
    path = Path(os.path.abspath(sys.executable))  # links are kept: a virtual environment's leads to another Python
    if (by_name := shutil.which(path.name)) and os.path.abspath(by_name) == str(path):
        return path.name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@exits_cleanly(resumes=True)
def train_command(_: list[str]) -> int:
    """The command `python -m jdistill.main`, by its flags; returns its exit status."""
    setup_logging()
    if not WORKDIR.value and not DRY_RUN.value:
        raise UserError("--workdir is missing: the folder for this run's checkpoints and results")
    connect(COORDINATOR.value, NUM_PROCESSES.value, PROCESS_ID.value)
    check_devices()
    # XLA shares out the tuning of a GPU's program over the processes that compile it, and JAX lets the first alone keep programs: where
    # that one finds its own, the others may wait for its share for hours.
    if sharding.process_count() == 1 or sharding.platform() != "gpu":
        keep_compiled_programs()
    try:
        run(CONFIG.value, os.path.expanduser(WORKDIR.value or ""), DRY_RUN.value, MACHINE.value)
    except Interrupted as stop:
        log.info(
            "stopped by %s at step %d, which is saved; resume with: %s",
            stop.name,
            stop.step,
            command_line(this_python()),
        )
        part()  # before a status that ends the process at once
        return INTERRUPTED_STATUS.value
    return 0


if __name__ == "__main__":
    run_command(train_command)
