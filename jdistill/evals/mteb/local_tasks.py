"""Tasks over a user's own files, scored by mteb's abstract tasks: nothing here counts a hit or a correlation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from datasets import Dataset, DatasetDict
from mteb import TaskMetadata
from mteb.abstasks import AbsTask, AbsTaskClassification, AbsTaskPairClassification, AbsTaskRetrieval, AbsTaskSTS
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskType

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.fetched import path_here
from jdistill.core.files import file_digest
from jdistill.core.remote import is_url
from jdistill.data.sets.beir import BEIR_FILES, beir_queries, collections, read_collection
from jdistill.data.sets.sts import read_scored_pairs
from jdistill.data.sets.tasks import Split, Task, read_task
from jdistill.data.text.locations import local_path
from jdistill.evals.sts import read_ranked_pairs

LOCAL_PATH = "local/"  # what the dataset's path of these tasks begins with
LANGUAGE = "und-Zyyy"  # undetermined, which mteb knows: nobody says what a user's own files are written in


class LocalRetrieval(AbsTaskRetrieval):
    """Retrieval in a collection in BEIR layout. folder: where it lies."""

    folder: ClassVar[Path]
    ignore_identical_ids = True  # by which mteb leaves a query that is a document out of its own ranking

    def load_data(self, num_proc: int | None = None, *, timer: Any = None, **_: Any) -> None:
        """Reads the collection; queries without a relevant document are left out, as everywhere here."""
        read = read_collection(self.folder)
        # An id that a document has by chance must not look like that document's.
        shared = (read.queries.keys() & read.documents.keys()) - read.own_documents
        id_of = {query: f"query {query}" if query in shared else query for query in read.queries}
        documents, queries = (
            Dataset.from_dict({"id": ids, "text": list(texts.values())})
            for ids, texts in ((list(read.documents), read.documents), (list(id_of.values()), read.queries))
        )
        relevant = {id_of[query]: grades for query, grades in read.relevant.items()}
        data = RetrievalSplitData(corpus=documents, queries=queries, relevant_docs=relevant, top_ranked=None)
        self.dataset = {"default": {"test": data}}
        self.data_loaded = True


class LocalSts(AbsTaskSTS):
    """Scored pairs of sentences. file: as data.sets.sts.read_scored_pairs takes it."""

    file: ClassVar[Path]

    def load_data(self, num_proc: int | None = None, *, timer: Any = None, **_: Any) -> None:
        """Reads the file."""
        left, right, gold = read_scored_pairs(self.file)
        self.dataset = DatasetDict(test=Dataset.from_dict({"sentence1": left, "sentence2": right, "score": gold}))
        self.data_loaded = True


class LocalClassification(AbsTaskClassification):
    """Labelled texts: mteb's classifier on frozen vectors, of a few training rows a label. rows: the task."""

    rows: ClassVar[Task]

    def load_data(self, num_proc: int | None = None, *, timer: Any = None, **_: Any) -> None:
        """The splits that mteb draws training rows from, and scores on."""
        self.dataset = DatasetDict(train=_labelled(self.rows.train), test=_labelled(self.rows.test or self.rows.dev))
        self.data_loaded = True


class LocalPairClassification(AbsTaskPairClassification):
    """Labelled pairs of texts: how well similarities part two labels. rows: the task."""

    rows: ClassVar[Task]

    def load_data(self, num_proc: int | None = None, *, timer: Any = None, **_: Any) -> None:
        """The split that is scored; nothing is trained."""
        self.dataset = DatasetDict(test=_labelled(self.rows.test or self.rows.dev))
        self.data_loaded = True


def beir_tasks(source: str) -> Iterator[AbsTask]:
    """A task for each collection of a folder. Raises UserError for what is missing or malformed in one, before any is scored."""
    path = local_path(source, "mteb")
    if path is None:
        raise UserError(
            f"--mteb=beir:{source}: there is no such folder; name mteb's own task for a collection of the hub"
        )
    for _ in beir_queries(path):  # reads the tables' queries
        pass
    for folder in collections(path):
        content = digest(*(file_digest(folder / name) for name in BEIR_FILES))
        yield _task(LocalRetrieval, f"beir-{folder.name}", "Retrieval", "ndcg_at_10", content, folder=folder)


def pairs_task(source: str) -> AbsTask:
    """A task over a file of scored pairs. Raises UserError as evals.sts.read_ranked_pairs does."""
    file = path_here(source, "mteb")
    read_ranked_pairs(file)
    return _task(LocalSts, f"pairs-{file.stem}", "STS", "cosine_spearman", file_digest(file), file=file)


def labelled_task(source: str) -> AbsTask:
    """A task over labelled text or pairs of text.

    Args:
      source: FOLDER with train and dev, perhaps test, as .tsv or .jsonl; FOLDER:NAME for a task of a SentEval folder.

    Raises: UserError as data.sets.tasks.read_task does, for pairs of more than two labels, and where there is no such folder.
    """
    before, _, last = source.rpartition(":")
    whole = Path(source).is_dir() or (is_url(source) and last.startswith("//"))  # s3://bucket/folder names no task
    path, name = (source, "") if whole else (before, last)
    folder = path_here(path, "mteb")
    if not path or not folder.is_dir():
        raise UserError(f"--mteb=labelled:{source}: there is no such folder; FOLDER and FOLDER:TASK are understood")
    rows = read_task(name or folder.name, str(folder), keys=("mteb=labelled", "mteb=labelled"))
    content = digest(*(part for split in (rows.train, rows.test or rows.dev) for part in _parts(split)))
    if not rows.pairs:
        return _task(LocalClassification, f"labelled-{rows.name}", "Classification", "accuracy", content, rows=rows)
    if len(rows.labels) != 2:
        labels = ", ".join(rows.labels)
        raise UserError(f"--mteb=labelled:{source}: mteb scores pairs of two labels, and here are {labels}")
    return _task(LocalPairClassification, f"labelled-{rows.name}", "PairClassification", "max_ap", content, rows=rows)


# What a source that is no name of mteb's begins with, and its tasks.
LOCAL_TASKS: dict[str, Callable[[str], Sequence[AbsTask]]] = {
    "beir": lambda source: list(beir_tasks(source)),
    "pairs": lambda source: [pairs_task(source)],
    "labelled": lambda source: [labelled_task(source)],
}


def _task(kind: type[AbsTask], name: str, type_of: TaskType, score: str, content: str, **attributes: Any) -> AbsTask:
    """A task of a class of its own, since mteb reads metadata from the class. content: the digest of its data."""
    metadata = TaskMetadata(
        name=f"local-{name}",
        description=f"{name} as it lies on a disk",
        dataset={"path": f"{LOCAL_PATH}{name}", "revision": content},
        type=type_of,
        category="t2t" if type_of != "Classification" else "t2c",
        eval_langs=[LANGUAGE],
        main_score=score,
    )
    return type(kind.__name__, (kind,), {"metadata": metadata, **attributes})()


def _labelled(rows: Split) -> Dataset:
    """The columns that mteb reads: text and label, or sentence1, sentence2 and labels."""
    if rows.others is None:
        return Dataset.from_dict({"text": rows.texts, "label": rows.labels.tolist()})
    return Dataset.from_dict({"sentence1": rows.texts, "sentence2": rows.others, "labels": rows.labels.tolist()})


def _parts(rows: Split) -> Iterator[Any]:
    """What tells a split from another."""
    yield from (rows.texts, rows.others or [], rows.labels)
