"""Where the campaign works: inputs, the uninterrupted runs it compares with, snapshots of half-finished runs, kept cases."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from record import code_digest

from campaign import children
from campaign.faults import ALL_KINDS, Fault
from campaign.launches import End, Launch
from campaign.products import differences, digest
from campaign.settings import COMMANDS, SETTINGS, launch_of, write_inputs


@dataclass(frozen=True)
class Whole:
    """An uninterrupted run: its digest, write calls, seconds, and the calls as "number letter path"."""

    products: dict[str, str]
    calls: int
    seconds: float
    trace: list[str]


class Workplace:
    """Folders below `scratch`; `slot` is where every case works, at one path, which results may hold."""

    def __init__(self, scratch: Path):
        self.scratch, self.slot = scratch, scratch / "slot"
        self.inputs, self.logs, self.learnt = scratch / "inputs", scratch / "logs", scratch / "modules.json"
        self._forget_other_code()
        if not (self.inputs / "done").is_file():
            self.empty(self.inputs).rmdir()
            end = self.run(Launch("", call=write_inputs(self.inputs), learnt=self.learnt), "inputs")
            if end.code:
                raise SystemExit(f"the inputs could not be made:\n{end.log}")
            (self.inputs / "done").touch()

    def _forget_other_code(self) -> None:
        """Uninterrupted runs of another code are no measure of this one's."""
        told, code = self.scratch / "code", code_digest("campaign")
        if told.is_file() and told.read_text() == code:
            return
        for name in ("whole", "snapshots"):
            shutil.rmtree(self.scratch / name, ignore_errors=True)
        told.write_text(code)

    @staticmethod
    def empty(folder: Path) -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def run(self, launch: Launch, name: str = "command") -> End:
        return children.run(launch, self.slot, self.logs, name)

    def run_together(self, launches: list[Launch]) -> list[End]:
        return children.run_together(launches, self.slot, self.logs, "command")

    def launch(self, name: str, **how: object) -> Launch:
        return launch_of(name, self.inputs, self.slot, **how)

    def products(self) -> dict[str, str]:
        """The digest of the slot."""
        end = self.run(Launch("", call=digest(self.slot)), "digest")
        if end.code or not isinstance(end.value, dict):
            return {"digest": f"not made: {end.log[-300:]}"}
        return end.value

    def begin(self, name: str) -> None:
        """The slot as the command `name` finds it: empty, or with a finished run."""
        if name in COMMANDS and COMMANDS[name][2]:
            self.restore("simtde", "finished")
        else:
            self.empty(self.slot)

    def whole(self, name: str) -> Whole:
        """The uninterrupted run of a setting or command, made twice where it is not there yet: what two such runs do not have in
        common cannot be asked of a killed one."""
        place = self.scratch / "whole" / f"{name}.json"
        if place.is_file():
            return Whole(**json.loads(place.read_text()))
        made = []
        for _ in range(2):  # the second without compiling
            self.begin(name)
            end = self.run(self.launch(name, learnt=self.learnt))
            if end.code:
                raise SystemExit(f"{name}: the uninterrupted run ended with {end.code}:\n{end.log[-3000:]}")
            made.append(Whole(self.products(), end.calls, end.seconds, end.trace))
        differ, _ = differences(made[1].products, made[0].products)
        if differ:
            raise SystemExit(f"{name}: two uninterrupted runs differ:\n  " + "\n  ".join(differ))
        if name in SETTINGS:
            self.keep(name, "finished")
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps(vars(made[1])))
        children.import_all(self.learnt)  # what this command was first to need
        return made[1]

    def keep(self, name: str, state: str) -> None:
        folder = self.scratch / "snapshots" / name / state
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.slot, folder, symlinks=True)

    def restore(self, name: str, state: str) -> Path:
        """Fills the slot with a setting's run: "finished"; "half", stopped by SIGTERM after its middle checkpoint; "cache", the cache
        of a finished one alone. Returns the snapshot."""
        folder = self.scratch / "snapshots" / name / ("finished" if state == "cache" else state)
        if not folder.is_dir() and state == "half":
            self._stop_half_way(name)
        if not folder.is_dir():
            self.whole(name)
        shutil.rmtree(self.slot, ignore_errors=True)
        shutil.copytree(folder, self.slot, symlinks=True)
        if state == "cache":
            shutil.rmtree(self.slot / "run")
        return folder

    def _stop_half_way(self, name: str) -> None:
        saves = [line for line in self.whole(name).trace if re.search(r" n .*/checkpoints/\d+$", line)]
        # Not the last one, which is the end of the loop: how many calls come before a save differs a little from run to run.
        first = int(saves[(len(saves) - 1) // 2].split()[0]) if saves else self.whole(name).calls // 2
        for later in range(0, 400, 7):  # a signal that comes outside the loop ends the run there
            self.empty(self.slot)
            end = self.run(self.launch(name, fault=Fault(first + later, "terminate", kinds=ALL_KINDS)))
            if end.code == 0 and "stopped by SIGTERM" in end.log:
                return self.keep(name, "half")
        raise SystemExit(f"{name}: SIGTERM in the middle did not stop it:\n{end.log[-2000:]}")
