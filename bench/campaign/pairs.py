"""Part (e): two processes at once on one folder: both end well with equal products, or one says why it does not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from campaign.cases import Case
from campaign.settings import SETTINGS
from campaign.workplace import Workplace

COMMANDS = ("export", "evaluate", "mine", "mine_dense", "compare", "sweep")


def cases(place: Workplace, seed: int, names: list[str]) -> Iterator[str]:
    """Every setting on one workdir, and with a workdir each on one cache; every command on one --out; without end."""
    names = names or [*(name for name, of in SETTINGS.items() if of.processes == 1), *COMMANDS]
    pairs = [f"{what} {name}" for what in ("workdir", "cache") for name in names if name in SETTINGS]
    pairs += [f"out {name}" for name in COMMANDS if name in names]
    if not pairs:
        raise SystemExit(
            f"error: no two of {', '.join(names)} share a folder: choose settings, or of {', '.join(COMMANDS)}"
        )
    for number in count():
        for shared in pairs:
            yield f"pairs/{shared}/{seed}/{number}"


def run_case(place: Workplace, case_id: str) -> Case:
    shared, name = case_id.split("/")[1].split()
    rng, whole = random.Random(case_id), place.whole(name)
    case = Case(case_id, name, shared)
    place.begin(name)
    later = rng.choice((0.0, rng.random() * whole.seconds))
    first = place.launch(name)
    second = replace(first, start_after=later)
    expected = whole.products
    if shared == "cache":
        second = replace(place.launch(name, workdir="other/run"), start_after=later)  # a card names the last folder
        expected = expected | {_beside(path): what for path, what in expected.items() if not path.startswith("cache")}
    ends = place.run_together([first, second])
    for number, end in enumerate(ends):
        case.add(f"process {number}{f' after {later:.2f} s' if number else ''}", end)
    if case.outcome == "wrong":
        return case
    refusals = [line for end in ends for line in end.log.splitlines() if end.code == 2 and line.startswith("error: ")]
    if all(end.code for end in ends):
        case.wrong("neither ended well", *refusals)
        return case
    for end, launch in zip(ends, (first, second), strict=True):
        if shared == "cache" and end.code:
            case.settle(case.add("the refused one again", place.run(replace(launch, start_after=0.0))), {}, {})
    if case.outcome == "equal":
        found = without_kept(place.products(), refusals)
        case.settle(next(end for end in ends if end.code == 0), found, expected)
    if case.outcome == "equal" and refusals:
        case.outcome, case.why = "refused", refusals
    return case


def without_kept(found: dict[str, str], refusals: list[str]) -> dict[str, str]:
    """The products without the unfinished files of a process that was refused once it had found its passages, and says that it keeps them."""
    if not any("is kept beside it" in line for line in refusals):
        return found
    return {name: digest for name, digest in found.items() if not name.endswith(".part")}


def _beside(path: str) -> str:
    """The key of a digest (campaign/products.py) for the same file of the second workdir."""
    return f"log other/{path[4:]}" if path.startswith("log ") else f"other/{path}"
