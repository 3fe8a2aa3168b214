"""Part (d): ENOSPC, EIO or EACCES at a write call of a run or of another command; then the same command again, without."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace

from campaign.cases import Case
from campaign.faults import REFUSED_BY, Fault
from campaign.kills import phase_of
from campaign.products import differences
from campaign.settings import COMMANDS, SETTINGS
from campaign.workplace import Workplace

EVERY = 150  # calls of an errno that are all tried; of more, so many drawn
ONLY_READS = ("search",)


def cases(place: Workplace, seed: int, names: list[str]) -> Iterator[str]:
    """The commands in turn, each with its calls and errors shuffled."""
    names = names or [*(name for name, of in SETTINGS.items() if of.processes == 1), *COMMANDS, "sweep"]
    queues = [_of_command(place, seed, name) for name in names if name not in ONLY_READS]
    while queues:
        for queue in list(queues):
            case_id = next(queue, None)
            if case_id is None:
                queues.remove(queue)
            else:
                yield case_id


def _of_command(place: Workplace, seed: int, name: str) -> Iterator[str]:
    rng, found = random.Random(f"{seed}/{name}"), []
    for error, kinds in REFUSED_BY.items():
        calls = sum(line.split(" ", 2)[1] in kinds for line in place.whole(name).trace)
        for n in range(1, calls + 1) if calls <= EVERY else sorted(rng.sample(range(1, calls + 1), EVERY)):
            how = "fail from" if rng.random() < 0.7 else "fail once"
            found.append(f"faults/{name}/{seed}/{errno.errorcode[error]}/{how}/{n}")
    rng.shuffle(found)
    yield from found


def run_case(place: Workplace, case_id: str) -> Case:
    _, name, _, code, how, n = case_id.split("/")
    error = getattr(errno, code)
    fault, expected = Fault(int(n), how, error, REFUSED_BY[error]), place.whole(name).products
    case, launch = Case(case_id, name, ""), place.launch(name)
    place.begin(name)
    end = case.add(str(fault), place.run(replace(launch, fault=fault)))
    at = end.trace[: int(n)][-1:]  # what was refused
    case.phase = f"{phase_of(at) if name in SETTINGS else name} {code}"
    case.did[-1] += f", {end.failed} calls failed, the first: {at[0] if at else 'none'}"
    if case.outcome == "wrong":
        return case
    if end.code == 0:
        found = differences(place.products(), expected)[0]
        if found and "cannot be deleted" in end.log and all(" (stray)" in line for line in found):
            found = _after_next_run(place, case, name, expected)
        if found:
            case.wrong(f"exit 0, though a write failed: {at[0] if at else ''}", *found)
        return case
    lines = [line for line in end.log.splitlines() if line.startswith("error: ")]
    if not any("/" in line or "--" in line for line in lines):
        case.wrong(f"the error names no file and no key: {lines}")
        return case
    again = case.add("again, without", place.run(launch))
    case.settle(again, place.products() if again.code == 0 else {}, expected)
    return case


def _after_next_run(place: Workplace, case: Case, name: str, expected: dict[str, str]) -> list[str]:
    """What still differs when a command that told of a left-over file has been followed by the next one that uses its folder."""
    end = case.add("the next", place.run(place.launch(name)))
    found = differences(place.products(), expected)[0] if end.code == 0 else [f"exit {end.code}"]
    if name in SETTINGS and found and all(line.startswith("cache/") for line in found):
        shutil.rmtree(place.slot / "run")  # a finished run does not look into the cache: another one does
        end = case.add("a new run with this cache", place.run(place.launch(name)))
        found = differences(place.products(), expected)[0] if end.code == 0 else [f"exit {end.code}"]
    return found
