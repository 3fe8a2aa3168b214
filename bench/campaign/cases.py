"""A case of the campaign, how it ended, and the file of ended cases."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from campaign.launches import End
from campaign.products import differences
from campaign.workplace import Workplace

OUTCOMES = ("equal", "remade", "said", "refused", "unread", "log", "wrong")
# What a command says where it makes something again, or leaves it out, because of what it found.
TOLD = (
    "cannot be read",
    "damaged",
    "made anew",
    "made again",
    "asked again",
    "is missing",
    "set aside",
    "not whole",
    "is broken",
    "lacks",
    "has changed",
    "again",
    "brought back",
    "taken as they are",
)


MOST_KEPT = 40  # wrong cases whose folder is kept, of some 10 MB; all keep their logs, and --case makes any again


@dataclass
class Case:
    """One case. id: names part, setting and number, and is drawn again by it. did: what was done, in words, step by step.

    outcome: equal (to the uninterrupted run), remade (equal, and the log told of the damage), said (another, and the log
    told why: a checkpoint before the damaged one), refused (exit code 2, one line),
    unread (no command needed the damaged file, which is as it was), log (only logs differ), wrong. why: of refused and wrong.
    """

    id: str
    setting: str
    phase: str
    did: list[str] = field(default_factory=list)
    outcome: str = "equal"
    why: list[str] = field(default_factory=list)
    kills: int = 0
    seconds: float = 0.0

    def add(self, what: str, end: End) -> End:
        """Notes a command and its end; a bad end makes the case wrong."""
        self.seconds += end.seconds
        self.did.append(f"{what}: {'hung' if end.code is None else f'exit {end.code}'} after {end.seconds:.1f} s")
        if end.faults():
            self.wrong(*(f"{what}: {fault}" for fault in end.faults()))
        return end

    def wrong(self, *why: str) -> None:
        self.outcome = "wrong"
        self.why += why

    def settle(self, end: End, found: dict[str, str], expected: dict[str, str]) -> None:
        """The outcome of the last command, from its end and what it left."""
        if self.outcome == "wrong":
            return
        if end.code == 2:
            self.outcome, self.why = "refused", [line for line in end.log.splitlines() if line.startswith("error: ")]
            return
        of_products, of_logs = differences(found, expected)
        if of_products:
            self.wrong(*of_products)
        elif of_logs:
            self.outcome, self.why = "log", of_logs


class Ledger:
    """The ended cases of a part, one a line; wrong ones keep their logs, and the first of them their folder."""

    def __init__(self, path: Path, place: Workplace):
        self.path, self.place = path, place
        self.cases: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.is_file() else []:
            with suppress(ValueError):  # a line that was cut off: its case is run again
                row = json.loads(line)
                self.cases[row["id"]] = row

    def add(self, case: Case, commit: str) -> None:
        """Notes a case that has ended. commit: of the code that it was run with."""
        if case.outcome == "wrong":
            kept = self.place.scratch / "kept" / case.id.replace("/", "+")
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            first = len(list(kept.parent.glob("*/slot"))) < MOST_KEPT
            for of in (self.place.logs, *([self.place.slot] if first else [])):
                if of.is_dir():
                    shutil.copytree(of, kept / of.name, symlinks=True)
        self.cases[case.id] = row = asdict(case) | {"commit": commit}
        with self.path.open("a") as out:
            out.write("\n" * _torn(self.path) + json.dumps(row) + "\n")

    def summary(self, ids: Iterable[str]) -> dict[str, Any]:
        """Of the cases of these names: the commits that they were run with, and counts of outcomes, in all, by setting and by phase."""
        rows = [self.cases[case_id] for case_id in ids]

        def count(key: str) -> dict[str, dict[str, int]]:
            found = {
                name: Counter(row["outcome"] for row in rows if row[key] == name) for name in {row[key] for row in rows}
            }
            return {
                name: {"cases": sum(of.values()), **{o: of[o] for o in OUTCOMES}} for name, of in sorted(found.items())
            }

        every = Counter(row["outcome"] for row in rows)
        return {
            "commit": ", ".join(sorted({row.get("commit") or "unknown" for row in rows})),
            "cases": len(rows),
            "kills": sum(row["kills"] for row in rows),
            **{outcome: every[outcome] for outcome in OUTCOMES},
            "by_setting": count("setting"),
            "by_phase": count("phase"),
            "wrong_by_kind": dict(Counter(kind_of(row) for row in rows if row["outcome"] == "wrong").most_common()),
            "wrong_cases": [{"id": row["id"], "why": row["why"][:3]} for row in rows if row["outcome"] == "wrong"],
        }


def _torn(path: Path) -> bool:
    """Whether the last line of a file has no end."""
    return not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0


def kind_of(row: dict[str, Any]) -> str:
    """Why a case is wrong, without what differs from case to case: numbers, hashes, the moment of the fault."""
    why = re.sub(r"^.*?\b(exit code|traceback|hang)", r"\1", " | ".join(row["why"][:2]))
    return re.sub(r"/\S*/|\b[0-9a-f]{12,}\b|\d+", "#", why)[:150]


def told(log: str) -> bool:
    return any(word in line for line in log.splitlines() for word in TOLD)
