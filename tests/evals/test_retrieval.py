"""Retrieval on a hand-made BEIR collection: known answers, and what is counted, left out or refused."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import real_teacher_folder

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.beir import beir_queries, read_collection, write_collection
from jdistill.data.text.python_docs import python_docs
from jdistill.encoder import loading, torch_backend
from jdistill.encoder.encoder import Encoder
from jdistill.evals.retrieval import evaluate_beside_queries_of, evaluate_retrieval, measures, search

DOCUMENTS = [("d1", "T", "10"), ("d2", "", "20"), ("d3", "T", "30"), ("d4", "T", "40")] + [
    (f"far{i}", "T", str(100 + i)) for i in range(12)
]
QUERIES = [("q1", "q 0"), ("q2", "q 41"), ("q3", "q 0"), ("q4", "q 5")]


class Angles:
    """Encodes by the number that ends a text, as an angle."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    num_params, dim = 0, 2

    def prompt_for(self, role: str) -> str | None:
        return None

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        self.texts += texts
        angles = np.radians([float(text.split()[-1]) for text in texts])
        return 7 * np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def collection(
    folder: Path, judgements: list[tuple[str, str, int]], documents: list[tuple[str, str, str]] = DOCUMENTS
) -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_rows(folder / "corpus.jsonl", [{"_id": i, "title": title, "text": text} for i, title, text in documents])
    write_rows(folder / "queries.jsonl", [{"_id": i, "text": text} for i, text in QUERIES])
    rows = "".join(f"{q}\t{d}\t{grade}\n" for q, d, grade in judgements)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    log.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, logger=log.name)
    yield lambda: caplog.text
    log.removeHandler(caplog.handler)


def test_known_answers(tmp_path: Path) -> None:
    # q1 (angle 0) ranks d1 d2 d3 d4 far0 …; q2 (41) ranks d4 d3 d2 d1 …; q3 finds its only document in place 11.
    judged = [("q1", "d2", 1), ("q1", "d3", 2), ("q1", "d1", 0), ("q2", "d4", 1), ("q3", "far6", 1)]
    collection(tmp_path / "small", judged)
    encoder = Angles()
    found = evaluate_retrieval(encoder, tmp_path)
    index_bytes, rate = found["small"].pop("index_bytes"), found["small"].pop("queries_per_s")
    assert 16 * 2 * 4 <= index_bytes < 16 * 2 * 4 + 100 and rate > 0  # 16 documents, 2 wide, float32, and a head
    log2 = math.log2
    q1 = (1 / log2(3) + 2 / log2(4)) / (2 / log2(2) + 1 / log2(3))
    assert found == {
        "small": pytest.approx(
            {
                "ndcg@10": (q1 + 1 + 0) / 3,
                "mrr@10": (1 / 2 + 1 + 0) / 3,
                "recall@10": (1 + 1 + 0) / 3,
                "recall@100": 1.0,
                "recall@1000": 1.0,
            },
            abs=1e-6,
        )
    }
    assert "T 10" in encoder.texts and "20" in encoder.texts  # title, space, text; no title, no space


def test_what_does_not_count_is_counted(tmp_path: Path, told: Any) -> None:
    judged = [("q1", "d1", 1), ("q1", "gone", 1), ("q2", "d4", 0), ("unknown", "d1", 1)]
    collection(tmp_path / "c", judged, [*DOCUMENTS, ("d1", "T", "179")])
    found = evaluate_retrieval(Angles(), tmp_path)["c"]
    assert found["mrr@10"] == 1.0 and found["recall@10"] == 0.5  # the first d1 stays; the one that is gone is missed
    for line in (
        "1 documents repeat an id",
        "3 queries have no relevant document",
        "16 documents, 1 queries",
        "1 judged queries are not in queries.jsonl",
        "1 relevant documents are not in corpus.jsonl",
    ):
        assert line in told()


def test_folders_and_query_texts(tmp_path: Path) -> None:
    collection(tmp_path / "b", [("q1", "d1", 1)])
    collection(tmp_path / "a", [("q2", "d1", 1)])
    (tmp_path / "notes").mkdir()
    assert list(evaluate_retrieval(Angles(), tmp_path)) == ["a", "b"]
    assert list(evaluate_retrieval(Angles(), tmp_path / "b")) == ["b"]
    assert list(beir_queries(tmp_path)) == 2 * [text for _, text in QUERIES]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", '{"_id": "a", "text": "1"}\n{"_id": "b"}\n', r"corpus.jsonl, line 2: text missing"),
        ("corpus.jsonl", '{"_id": "a", "text": "1"\n', r"corpus.jsonl, line 1: not valid JSON"),
        ("corpus.jsonl", '{"_id": "a", "text": ["1"]}\n', r"corpus.jsonl, line 1: text is list"),
        ("corpus.jsonl", "", r"corpus.jsonl holds no documents"),
        ("queries.jsonl", '{"_id": null, "text": "1"}\n', r"queries.jsonl, line 1: its id is None"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\thigh\n", r"test.tsv, line 2: .*whole number"),
        ("qrels/test.tsv", "q1\tQ0\td1\t1\n", r"test.tsv, line 1: .*whole number"),
        (
            "qrels/test.tsv",
            "query-id\tcorpus-id\tscore\nq1\td1\t0\n",
            r"no query of queries.jsonl has a relevant document",
        ),
    ],
)
def test_malformed_collections_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (collection(tmp_path / "c", [("q1", "d1", 1)]) / name).write_text(content)
    with pytest.raises(UserError, match=message):
        evaluate_retrieval(Angles(), tmp_path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no collection in"):
        evaluate_retrieval(Angles(), tmp_path)
    with pytest.raises(UserError, match="nowhere: no such folder"):
        list(beir_queries(tmp_path / "nowhere"))
    (collection(tmp_path / "c", []) / "qrels" / "test.tsv").unlink()
    with pytest.raises(UserError, match="lacks qrels/test.tsv"):
        list(beir_queries(tmp_path))


def test_documents_by_another_model(tmp_path: Path) -> None:
    class Turned(Angles):
        """A text's vector 30 degrees further on: the nearest to a query is what it is to Angles at 30 degrees more."""

        def __init__(self, angle: float = 30.0) -> None:
            super().__init__()
            self.cos, self.sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))

        def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
            cos, sin = super().encode(texts).T
            return np.stack([self.cos * cos - self.sin * sin, self.sin * cos + self.cos * sin], axis=1)

    collection(tmp_path / "c", [("q1", "d1", 1), ("q2", "d4", 1)], [("d1", "", "330"), ("d4", "", "11")])
    mine, theirs = Angles(), Turned()
    found = evaluate_retrieval(mine, tmp_path, corpus_model=theirs)["c"]
    assert found["mrr@10"] == 1.0 and evaluate_retrieval(mine, tmp_path)["c"]["mrr@10"] < 1.0
    assert theirs.texts == ["q 0", "q 41", "330", "11", "330", "11"]  # compared, then indexed
    with pytest.raises(
        UserError,
        match="of 2 query and 2 document texts of c: .* mean cosine of 0.17 .* not above 0.5; .*configs/search.py",
    ):
        evaluate_retrieval(mine, tmp_path, corpus_model=Turned(80.0))
    theirs.dim = 3
    with pytest.raises(UserError, match="the corpus model: its vectors are 3 wide and the student's 2"):
        evaluate_retrieval(mine, tmp_path, corpus_model=theirs)


def test_an_index_that_cannot_be_made_is_refused_before_documents_are_encoded(tmp_path: Path) -> None:
    """Of a second collection too, whose size alone is at fault."""
    write_collection(tmp_path / "a", {str(i): str(i) for i in range(70)}, {"q": "5"}, {"q": {"5": 1}})
    collection(tmp_path / "c", [("q1", "d1", 1)])
    encoder = Angles()
    for kind, effort, reason in (("IVF64,Flat", "", "of 16 vectors: .* at least 64"), ("Flat", "nprobe=4", "nprobe")):
        with pytest.raises(UserError, match=f"FAISS makes no index '{kind}' .*{reason}"):
            evaluate_retrieval(encoder, tmp_path, kind=kind, effort=effort)
        with pytest.raises(UserError, match="FAISS makes no index"):
            evaluate_beside_queries_of(Angles(), encoder, tmp_path, kind, effort)
    assert not encoder.texts


class Remembering:
    """An encoder that encodes each list of texts once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.vectors = encoder, dict[tuple[str, ...], np.ndarray]()
        self.num_params, self.dim, self.prompt_for = encoder.num_params, encoder.dim, encoder.prompt_for

    def encode(self, texts: Sequence[str], **how: Any) -> np.ndarray:
        if (key := (*texts, repr(how))) not in self.vectors:
            self.vectors[key] = self.encoder.encode(texts, **how)
        return self.vectors[key]


@pytest.fixture(scope="module")
def minilm() -> Remembering:
    return Remembering(loading.load(str(real_teacher_folder())))


@pytest.fixture(scope="module")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of real sentences: each of the standard library's asks for the one that follows it."""
    texts = python_docs()[:200]
    folder = tmp_path_factory.mktemp("beir") / "docs"
    queries = {f"q{i}": texts[i] for i in range(0, 60, 2)}
    write_collection(
        folder, {str(i): text for i, text in enumerate(texts)}, queries, {q: {str(int(q[1:]) + 1): 1} for q in queries}
    )
    return folder


def test_torch_and_flax_rank_alike(documentation: Path, minilm: Remembering, real_teacher: str) -> None:
    pytest.importorskip("sentence_transformers")
    found = read_collection(documentation)
    flax, torch = minilm, torch_backend.load_torch_encoder(real_teacher)
    ours, theirs = search(flax, found, flax).ranking, search(torch, found, torch).ranking
    assert flax.dim == torch.dim and flax.num_params <= torch.num_params  # torch's has the pooler too
    assert len(found.queries) == 30
    for query in found.queries:
        for mine, its in zip(ours[query], theirs[query], strict=True):  # float32 does not tell a closer pair apart
            assert mine == its or abs(ours[query][mine] - ours[query][its]) < 1e-6
    assert measures(ours, found.relevant) == measures(theirs, found.relevant)


@pytest.mark.parametrize(
    ("kind", "effort", "least"), [("IVF8,Flat", "nprobe=8", 1.0), ("HNSW16", "efSearch=64", 0.99), ("PQ48x4", "", 0.6)]
)
def test_other_indexes(documentation: Path, minilm: Remembering, kind: str, effort: str, least: float) -> None:
    found = read_collection(documentation)
    exact, other = search(minilm, found, minilm), search(minilm, found, minilm, kind, effort)
    same = [
        len({*list(exact.ranking[query])[:10]} & {*list(other.ranking[query])[:10]}) / 10 for query in found.queries
    ]
    assert np.mean(same) >= least
    assert (other.index_bytes < exact.index_bytes) == kind.startswith("PQ")


def test_an_index_that_finds_fewer(documentation: Path, minilm: Remembering) -> None:
    found = search(minilm, read_collection(documentation), minilm, "IVF16,Flat", "nprobe=1")
    assert all(0 < len(documents) < 200 and "" not in documents for documents in found.ranking.values())
