"""Writes the pages that are made from other files: docs/configs.md from configs/*.py, docs/results/index.md, docs/results/parity.md and
docs/serving.md from bench/results/*.json.

    python docs/generate.py            # writes them
    python docs/generate.py --check    # exit code 1 where one is out of date

Their tables are those of config_tables.py, parity_tables.py, result_tables.py and serving_tables.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import config_tables  # noqa: E402
import parity_tables  # noqa: E402
import result_tables  # noqa: E402
import serving_tables  # noqa: E402

PAGES = {
    "docs/configs.md": config_tables.config_page,
    "docs/results/parity.md": parity_tables.parity_page,
    "docs/results/index.md": result_tables.results_page,
    "docs/serving.md": serving_tables.serving_page,
}


def out_of_date() -> list[str]:
    """The pages that differ from what their sources make."""
    return [path for path, make in PAGES.items() if not (ROOT / path).is_file() or (ROOT / path).read_text() != make()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page is out of date")
    if parser.parse_args().check:
        for path in (old := out_of_date()):
            print(f"{path} is out of date: python docs/generate.py")
        return int(bool(old))
    for path, make in PAGES.items():
        (ROOT / path).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())
