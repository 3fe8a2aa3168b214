"""Dev pairs for DistilFACE, whose tests are STS12 to 15 and STS-B: those of STS16, SICK's trial and others that share no sentence with them.

    python bench/distilface_dev.py --senteval SENTEVAL --pairs sts-dev-clean.csv --out DEV
    python bench/distilface_table.py … --dev_pairs DEV

STS-B's dev pairs are captions for the most part; with STS16's headlines, answers and questions beside them a checkpoint is chosen by the
mean of three files. Whoever chooses so has STS16 and SICK-R for tests no more. Sentences are alike where their letters and digits are.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.progress import setup_logging
from jdistill.data.sets.sts import ScoredPair, StsTask, read_scored_pairs, sts_sentences, sts_tasks

TESTS = ("STS12", "STS13", "STS14", "STS15", "STS-B")  # as in bench/distilface_table.py


def words(sentence: str) -> str:
    """What two sentences that count as alike have in common."""
    return " ".join(re.findall(r"\w+", sentence.lower()))


def pairs_of(task: StsTask) -> Iterator[ScoredPair]:
    """The scored pairs of all its subsets."""
    for subset in task.subsets:
        yield from zip(subset.left, subset.right, subset.gold.tolist(), strict=True)


def write_pairs(path: Path, pairs: Iterable[ScoredPair], tested: Collection[str]) -> None:
    """Writes a file that --config.dev_pairs reads, of the pairs without a tested sentence (words), and prints how many there are."""
    rows = [pair for pair in pairs if not any(words(side) in tested for side in pair[:2])]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *rows])
    print(f"{path}: {len(rows)} pairs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--senteval", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True, help="a file of dev pairs of one's own")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    flags = parser.parse_args()
    setup_logging()
    tested = set(map(words, sts_sentences(flags.senteval, TESTS)))
    (sts16,) = (task for task in sts_tasks(flags.senteval) if task.name == "STS16")
    flags.out.mkdir(parents=True)
    write_pairs(flags.out / "sts16.csv", pairs_of(sts16), tested)
    for name, source in (
        ("sick-trial.csv", flags.senteval / "SICK" / "SICK_trial.txt"),
        (flags.pairs.name, flags.pairs),
    ):
        left, right, gold = read_scored_pairs(source)
        write_pairs(flags.out / name, zip(left, right, gold.tolist(), strict=True), tested)


if __name__ == "__main__":
    main()
