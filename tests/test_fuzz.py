"""The fuzzer of bench/fuzz.py: whole samples are read, and of some 300 damaged ones each is read and sane, or refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import fuzz
from fuzz_kinds import KINDS, Kind

from jdistill.errors import UserError


@pytest.mark.parametrize("name", KINDS)
def test_whole_samples_are_read(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    kind.make(tmp_path)
    path = next(path for path in sorted(tmp_path.rglob("*")) if path.is_file() and path.name.endswith(kind.only))
    kind.read(tmp_path, path)


def test_damaged_samples_are_read_or_refused(tmp_path: Path) -> None:
    rows = fuzz.campaign(list(KINDS), 300, 1, tmp_path)
    report = fuzz.summary(rows)
    assert report["inputs"] == 300 and report["outcomes"]["read"] and report["outcomes"]["refused"]
    assert not report["faults"], report["faults"]
    # Begun again, it has nothing left to do.
    before = (tmp_path / "done.jsonl").read_bytes()
    assert fuzz.campaign(list(KINDS), 300, 1, tmp_path) == rows
    assert (tmp_path / "done.jsonl").read_bytes() == before


def test_what_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(folder: Path) -> None:
        (folder / "a").write_text("text")

    def many(_: Path, path: Path) -> None:
        raise UserError("two\nlines")

    def insane(_: Path, path: Path) -> None:
        raise AssertionError("not sane")

    def large(_: Path, path: Path) -> None:
        bytearray(3 << 30)

    def slow(_: Path, path: Path) -> None:
        while True:
            pass

    def dies(_: Path, path: Path) -> None:
        fuzz.os.abort()

    monkeypatch.setattr(fuzz, "SECONDS", 1)
    cases = {"many": many, "insane": insane, "large": large, "slow": slow, "dies": dies}
    for name, read in cases.items():
        monkeypatch.setitem(KINDS, name, Kind(make, read))
        (row,) = fuzz.campaign([name], 1, 0, tmp_path / name)
        assert row["outcome"] == "wrong", row
        assert (tmp_path / name / f"{name}-0" / "ERROR").read_text()
    errors = [fuzz.campaign([name], 1, 0, tmp_path / name)[0]["error"] for name in cases]
    for error, word in zip(errors, ("two", "not sane", "MemoryError", "more than 1 s", "died"), strict=True):
        assert word in error or error == "lines"
