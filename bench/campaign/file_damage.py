"""Part (b): a file of a finished run, a half-finished one or the cache is deleted, cut in half, or has a byte changed; then the same
command again, and those that read the run."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from campaign.cases import Case, told
from campaign.kills import PHASES
from campaign.launches import End, Launch
from campaign.products import differences
from campaign.settings import SETTINGS
from campaign.workplace import Workplace

STATES = ("finished", "half", "cache")
DAMAGES = ("deleted", "halved", "byte 0", "byte 1", "byte 2")  # the last two of files of 4 kB and more
OF_SEARCH, OF_EXPORT = ("run/export/", "run/index/"), ("/checkpoints/", "/student/", "run/config.json")


@dataclass(frozen=True)
class Readers:
    """What the commands that read a finished run make of it undamaged: the lines of jdistill.search, the files of jdistill.export."""

    search: list[str]
    export: dict[str, str]


def cases(place: Workplace, seed: int, names: list[str]) -> Iterator[str]:
    """Every file with every damage, the settings in turn, shuffled within each."""
    queues = []
    for name in names or [name for name, setting in SETTINGS.items() if setting.processes == 1]:
        found = [f"files/{name}/{seed}/{state}/{of}" for state in STATES for of in _damages(place, name, state)]
        random.Random(f"{seed}/{name}").shuffle(found)
        queues.append(found)
    while any(queues):
        yield from [queue.pop() for queue in queues if queue]


def _damages(place: Workplace, name: str, state: str) -> Iterator[str]:
    place.restore(name, state)
    for path in sorted(place.slot.rglob("*")):
        relative = path.relative_to(place.slot).as_posix()
        if path.is_file() and (state == "cache" or not relative.startswith("cache/")):
            for damage in DAMAGES[: 5 if path.stat().st_size >= 4096 else 3 if path.stat().st_size else 1]:
                yield f"{damage}/{relative}"


def damage(path: Path, how: str, rng: random.Random) -> str:
    """Damages a file and says how."""
    if how == "deleted":
        path.unlink()
        return "deleted"
    data = bytearray(path.read_bytes())
    if how == "halved":
        path.write_bytes(data[: len(data) // 2])
        return f"cut to {len(data) // 2} of {len(data)} bytes"
    at, flip = rng.randrange(len(data)), rng.randrange(1, 256)
    path.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
    return f"byte {at} of {len(data)} xor {flip}"


def run_case(place: Workplace, case_id: str) -> Case:
    _, name, _, state, how, relative = case_id.split("/", 5)
    whole = place.whole(name)
    case = Case(case_id, name, f"{state} {_phase(relative)}")
    readers = _readers(place, name) if state == "finished" else None
    place.restore(name, state)
    path = place.slot / relative
    case.did.append(f"{relative} {damage(path, how, random.Random(case_id))}")
    damaged = path.read_bytes() if path.exists() else None
    end = case.add("the same command", place.run(place.launch(name)))
    left = (path.read_bytes() if path.exists() else None) == damaged
    if readers and left and end.code == 0 and case.outcome != "wrong":
        _ask_readers(place, case, relative, how, readers, whole.products)
    else:
        case.settle(end, place.products() if end.code == 0 else {}, whole.products)
    if case.outcome == "equal" and told(end.log):
        case.outcome = "remade"
    if (
        case.outcome == "wrong"
        and not end.faults()
        and re.search(r"checkpoint \S+ cannot be read .*taking that|answers (in \S+ )?are .*asked again", end.log)
    ):
        case.outcome = (
            "said"  # the next best checkpoint was taken, or a text asked again beside others: the log says why
        )
    return case


def _ask_readers(
    place: Workplace, case: Case, relative: str, how: str, readers: Readers, expected: dict[str, str]
) -> None:
    """The outcome where the run's own command took a damaged file as it is: by what those make of it that read it."""
    lacks = how in ("deleted", "halved")
    if lacks and relative.startswith((*OF_SEARCH, "run/results.json", "run/report")):
        case.wrong(f"the run is called complete, and {relative} was {how}")
        return
    others = [line for line in differences(place.products(), expected)[0] if not _is_of(line, relative)]
    if others:
        case.wrong(*others)
        return
    case.outcome = "unread"
    if relative.startswith(OF_SEARCH) and readers.search:
        end = case.add("search", place.run(_search(place)))
        _judge(case, end, _answers(end) == readers.search, "search answers otherwise, and says nothing")
    if any(of in "/" + relative for of in OF_EXPORT):
        end = case.add("export", place.run(_export(place)))
        _judge(case, end, end.code != 0 or _exported(place) == readers.export, "export differs, and says nothing")


def _judge(case: Case, end: End, same: bool, otherwise: str) -> None:
    if case.outcome == "wrong":
        return
    if end.code == 2:
        case.outcome, case.why = "refused", [line for line in end.log.splitlines() if line.startswith("error: ")]
    elif not same and told(end.log):
        case.outcome, case.why = "said", ["another result, and the log says why: " + end.log[-300:]]
    elif not same:
        case.wrong(otherwise)


def _is_of(line: str, relative: str) -> bool:
    """Whether a difference is that of the damaged file itself, or of the checkpoints that it belongs to."""
    name = line.split(": ")[0].replace(" (stray)", "")
    return name == relative or (
        "/checkpoints/" in relative and name.startswith(relative.split("/checkpoints/")[0] + "/checkpoints")
    )


def _readers(place: Workplace, name: str) -> Readers:
    """Made once a setting, and kept."""
    path = place.scratch / "whole" / f"{name}.readers.json"
    if not path.is_file():
        place.restore(name, "finished")
        search = place.run(_search(place)) if (place.slot / "run" / "index").is_dir() else None
        export = place.run(_export(place))
        if export.code or (search and search.code):
            raise SystemExit(
                f"{name}: a finished run cannot be read:\n{export.log[-2000:]}\n{search and search.log[-2000:]}"
            )
        path.write_text(json.dumps({"search": _answers(search) if search else [], "export": _exported(place)}))
    return Readers(**json.loads(path.read_text()))


def _search(place: Workplace) -> Launch:
    return Launch("search", ["the river", "--workdir", str(place.slot / "run")])


def _export(place: Workplace) -> Launch:
    return Launch("export", ["--workdir", str(place.slot / "run"), "--out", str(place.slot / "out")])


def _answers(end: End) -> list[str]:
    return [line for line in end.log.splitlines() if line[:3].strip().isdigit()]


def _exported(place: Workplace) -> dict[str, str]:
    return {name: of for name, of in place.products().items() if name.startswith("out/")}


def _phase(relative: str) -> str:
    return next(phase for phase, pattern in PHASES.items() if re.search(pattern, "/" + relative))
