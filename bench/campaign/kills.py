"""Part (a): a run is killed at random moments, each time begun again by the same command, and at the end compared with one that
was left alone."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

from campaign.cases import Case
from campaign.faults import KILLS, Fault
from campaign.settings import SETTINGS
from campaign.workplace import Whole, Workplace

MOST_KILLS, GOES_ON = 30, 0.95  # of a chain: kills at most, and how likely one more is
# The phase of a run by the path that it was writing to, first match first.
PHASES = {
    "teacher answers": r"/cache/(teacher|judge|answers)",
    "tokens": r"/cache/",
    "checkpoint": r"/checkpoints",
    "export": r"/run/(\.jdistill-\w+-)?export",
    "index": r"/run/(\.jdistill-\w+-)?index",
    "report": r"/run/(\.jdistill-\w*-?)?(report|results|jdistill)",
    "steps": r"",
}


def cases(place: Workplace, seed: int, names: list[str]) -> Iterator[str]:
    """Case ids without end, the settings in turn."""
    number = 0
    while True:
        for name in names or SETTINGS:
            yield f"kills/{name}/{seed}/{number}"
        number += 1


def run_case(place: Workplace, case_id: str) -> Case:
    _, name, *_ = case_id.split("/")
    rng, whole, phases = random.Random(case_id), place.whole(name), []
    case, launch = Case(case_id, name, ""), place.launch(name)
    place.begin(name)
    while case.kills < MOST_KILLS and (not case.kills or rng.random() < GOES_ON):
        how = draw(rng, whole, case.kills, launch.processes)
        end = case.add(
            str(how.get("fault") or f"kill after {how['kill_after']:.2f} s"), place.run(replace(launch, **how))
        )
        if not end.killed:
            break
        case.kills += 1
        phases.append(phase_of(end.trace) if name in SETTINGS else name)
        case.did[-1] += f", in {phases[-1]}, {end.trace[-1] if end.trace else 'before any write'}"
    case.phase = phases[0] if phases else "ended before"
    if case.outcome != "wrong":
        end = case.add("to the end", place.run(launch))
        case.settle(end, place.products() if end.code == 0 else {}, whole.products)
    return case


def draw(rng: random.Random, whole: Whole, before: int, processes: int) -> dict:
    """The moment of a kill: at a write call, or after a time. Later ones of a chain come sooner, since less is left."""
    share = rng.random() / (1 + before)
    faulty = rng.randrange(processes)
    if rng.random() < 0.5:
        return {"kill_after": 0.05 + share * whole.seconds}
    return {"fault": Fault(1 + int(share * whole.calls), rng.choice(KILLS)), "faulty": faulty}


def phase_of(trace: list[str]) -> str:
    if not trace:
        return "start"
    return next(phase for phase, pattern in PHASES.items() if re.search(pattern, trace[-1].split(" ", 2)[2]))
