"""Kinds of index: how many vectors each is trained on, which are refused before there are vectors, and what a refusal counts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_encoder, save_encoder

from jdistill import evaluate
from jdistill.core.errors import UserError
from jdistill.data.sets.beir import write_collection
from jdistill.retrieval import folder_index
from jdistill.retrieval.index import build_index
from jdistill.retrieval.index_kinds import OF_DISTRIBUTIONS, check_kind, training_rows

VECTORS = np.random.default_rng(0).normal(size=(400, 32)).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("Flat", 256),
        ("HNSW32", 256),
        ("IVF64,Flat", 256 * 64),
        ("IDMap,PQ16x4", 256 * 16),
        ("PQ16", 256 * 256),
        ("PQ16,RFlat", 256 * 256),
        ("Flat,Refine(PQ16)", 256 * 256),
        ("HNSW32_PQ16", 256 * 256),
        ("OPQ16_32,PQ16x4", OF_DISTRIBUTIONS),
        ("RQ8x8", 256 * 256),
        ("RQ2x9", 256 * 512),
        ("SQ8", OF_DISTRIBUTIONS),
        ("HNSW32_SQ8", OF_DISTRIBUTIONS),
        ("IVF64,SQ8", OF_DISTRIBUTIONS),
        ("OPQ16_32,SQ8", OF_DISTRIBUTIONS),
    ],
)
def test_as_many_vectors_as_the_learning_part_within_needs(kind: str, rows: int) -> None:
    assert training_rows(kind, 32) == rows


@pytest.mark.parametrize("kind", ["PQ16,RFlat", "Flat,Refine(PQ16)", "RQ4x8", "IVF512,Flat", "OPQ4_32,Flat"])
def test_too_few_vectors_are_refused_before_there_are_any(kind: str) -> None:
    least = 512 if kind.startswith("IVF") else 256
    check_kind(kind, "", 32, least)
    with pytest.raises(UserError, match=f"{re.escape(kind)}' of {least - 1} vectors: .* at least {least}"):
        check_kind(kind, "", 32, least - 1)


@pytest.mark.parametrize("kind", ["PCAR8,Flat,RFlat", "Flat,Refine(PCAR8,Flat)", "IDMap,PCAR8,Flat"])
def test_a_step_that_takes_off_the_mean_is_seen_within_another(kind: str) -> None:
    for refuse in (lambda: check_kind(kind, "", 32, 400), lambda: build_index(VECTORS, kind)):
        with pytest.raises(UserError, match="takes the vectors' mean off them"):
            refuse()


@pytest.mark.parametrize("kind", ["HNSW32_PQ16", "NSG32,PQ8", "HNSW32_16+PQ8", "IDMap,HNSW32_PQ16", "IVF16,ITQ,SH"])
def test_a_kind_that_ranks_by_distance_whatever_is_asked_is_refused(kind: str) -> None:
    for refuse in (lambda: check_kind(kind, "", 32, 400), lambda: build_index(VECTORS, kind)):
        with pytest.raises(UserError, match="one by distance in FAISS"):
            refuse()


@pytest.mark.parametrize(
    ("kind", "effort", "message"),
    [
        ("HNSW0", "", "a graph of fewer than two neighbours"),
        ("HNSW1_SQ8", "", "a graph of fewer than two neighbours"),
        ("IVF4_HNSW1,Flat", "", "a graph of fewer than two neighbours"),
        ("NSG4", "", "a graph of fewer than 16 neighbours"),
        ("IVF0,Flat", "", "has no clusters"),
        ("OPQ8,PQ8x0", "", "keeps no bits of a vector"),
        ("IDMap,Flat", "", "leave IDMap out"),
        ("IVF4,Flat", "nprobe=0", "searched with nprobe=0 finds nothing"),
        ("IVF4,Flat", "max_codes=0,nprobe=-1", "searched with nprobe=-1 finds nothing"),
        ("IVF4_HNSW8,Flat", "quantizer_efSearch=0", "searched with quantizer_efSearch=0 finds nothing"),
        ("IVF4_HNSW8,Flat", "nprobe=2 quantizer_efSearch=0", "searched with quantizer_efSearch=0 finds nothing"),
    ],
)
def test_what_faiss_takes_and_cannot_fill_or_search_is_refused(kind: str, effort: str, message: str) -> None:
    with pytest.raises(UserError, match=f"{re.escape(kind)}' .*{message}"):
        check_kind(kind, effort, 32, 400)


@pytest.mark.parametrize("effort", ["nprobe=16x", "nprobe=4 max_codes=many", "nprobe="])
def test_an_effort_that_is_no_number_is_refused(effort: str) -> None:
    with pytest.raises(UserError, match="is no number; such as nprobe=16|could not interpret parameters"):
        check_kind("IVF4,Flat", effort, 32, 400)


@pytest.mark.parametrize(
    ("kind", "effort"),
    [
        ("HNSW2", "efSearch=64"),
        ("NSG16", ""),
        ("IVF4,Flat", "max_codes=0"),
        ("IVF4_HNSW8,Flat", "nprobe=4 quantizer_efSearch=32"),
    ],
)
def test_the_least_that_works_is_taken_and_finds_itself(kind: str, effort: str) -> None:
    check_kind(kind, effort, 32, 400)
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    _, found = build_index(unit, kind, effort).search(unit[:50], 1)
    assert (found[:, 0] == np.arange(50)).mean() > 0.5  # of 400 by chance 0.0025


def test_a_refusal_names_the_rows_of_the_folder_and_not_of_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(
        pa.table({"text": [f"text {i}" for i in range(400)], "vector": list(VECTORS)}), tmp_path / "part.parquet"
    )
    monkeypatch.setattr(folder_index, "training_rows", lambda kind, width: 10)
    with pytest.raises(UserError, match="no index 'IVF16,Flat' of 400 vectors of width 32: .*training points"):
        folder_index.index_folder(tmp_path, "IVF16,Flat")


def test_the_evaluate_command_refuses_a_kind_before_a_set_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("scored before the kind was looked at")

    write_collection(tmp_path / "c", {"d": "a cat"}, {"q": "which cat"}, {"q": {"d": 1}})
    model = str(save_encoder(make_encoder(num_layers=1), tmp_path / "model"))
    assert (
        evaluate.main(["--model", model, "--beir", str(tmp_path / "c"), "--index=HNSW8", "--index_effort=efSearch=9"])
        == 0
    )
    assert "Retrieval, c, vectors in an index HNSW8 (efSearch=9)\n" in capsys.readouterr().out
    monkeypatch.setattr(evaluate, "evaluate", never)
    flags = ["--index", "Flat", "--index_effort", "nprobe=4"]
    assert evaluate.main(["--model", model, "--beir", str(tmp_path / "c"), *flags]) == 2
    said = capsys.readouterr().err
    assert "--index=Flat --index_effort=nprobe=4: FAISS makes no index 'Flat' with 'nprobe=4' of vectors" in said


@pytest.mark.parametrize("kind", ["SQ8_direct", "SQ8_direct_signed", "IVF64,SQ8_direct"])
def test_a_kind_that_keeps_whole_numbers_is_refused(kind: str) -> None:
    """All entries of a unit vector would be 0."""
    with pytest.raises(UserError, match="keeps whole numbers"):
        check_kind(kind, "", 32, 20_000)
    check_kind(kind.partition("_")[0], "", 32, 20_000)


def test_an_effort_of_other_distances_is_refused_before_it_is_searched_by() -> None:
    with pytest.raises(UserError, match="FAISS has ht of it for Euclidean distances alone"):
        check_kind("PQ8", "ht=20", 32, 20_000)
    index = build_index(VECTORS, "IVF4,PQ8x4", "nprobe=4,ht=20")  # which has it for cosines too
    assert index.search(VECTORS[:3], 1)[1].shape == (3, 1)
