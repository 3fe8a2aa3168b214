"""The index: exact neighbours, a round trip through its folder, damage; and the commands that search and evaluate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, real_teacher_folder, save_encoder, sentences, write_stsb

from jdistill import evaluate, search
from jdistill.core.errors import UserError
from jdistill.core.files import SEAL
from jdistill.encoder import loading
from jdistill.encoder.formats.interaction import add_interaction
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.sts import evaluate_sts
from jdistill.models.interaction import random_iem
from jdistill.retrieval import index, index_kinds

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(50, 8)).astype(np.float32)
TEXTS = [f"text {i}, ümlaut, \u2028 and\nline" for i in range(50)]


def test_scores_are_cosines_best_first() -> None:
    queries = RNG.normal(size=(6, 8)).astype(np.float32) * 100
    scores, rows = index.build_index(VECTORS).search(queries, 50)
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(VECTORS, axis=1)[None, :]
    exact = queries @ VECTORS.T / lengths
    assert rows.tolist() == np.argsort(-exact, axis=1).tolist()
    np.testing.assert_allclose(scores, -np.sort(-exact, axis=1), atol=1e-6)
    assert scores.dtype == np.float32 and rows.dtype == np.int64


def test_unit_rows() -> None:
    rows = index.unit_rows(np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 0], [3, -4]]))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.6, 0.8], [0, 0], [0.6, -0.8]], rtol=1e-6)
    with pytest.raises(UserError, match="vector of text 1 holds NaN"):
        index.unit_rows(np.array([[1.0, 2.0], [np.inf, 1.0]]))


def test_k_is_cut_and_checked() -> None:
    built = index.build_index(VECTORS)
    assert built.search(VECTORS[:2], 1000)[1].shape == (2, 50)
    with pytest.raises(UserError, match="k is 0"):
        built.search(VECTORS, 0)
    with pytest.raises(UserError, match="do not fit an index of width 8"):
        built.search(VECTORS[:, :4], 1)
    with pytest.raises(UserError, match="no texts to index"):
        index.build_index(np.zeros((0, 8), np.float32))


@pytest.mark.parametrize(
    ("kind", "effort", "message"),
    [
        ("IVF", "", "no index 'IVF' of 50 vectors of width 8: could not parse"),
        ("PQ3", "", "multiple of the number of subquantizers"),
        ("IVF64,Flat", "", r"training points \(50\) should be at least"),
        ("Flat", "nprobe=4", "'Flat' with 'nprobe=4'.*could not set parameter nprobe"),
    ],
)
def test_an_index_that_faiss_does_not_make(kind: str, effort: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        index.build_index(VECTORS, kind, effort)


def test_an_index_that_takes_off_the_mean_is_refused_and_others_rank_by_the_cosine() -> None:
    vectors = RNG.normal(size=(300, 8)).astype(np.float32) + 2
    for kind in ("PCA8,Flat", "PCAR8,IVF4,Flat", "ITQ8,Flat"):
        for make in (
            lambda kind: index_kinds.check_kind(kind, "", 8, 300),
            lambda kind: index.build_index(vectors, kind),
        ):
            with pytest.raises(
                UserError, match=f"an index '{kind}' takes the vectors' mean off.*; OPQ in the place of PCA"
            ):
                make(kind)
    expected, _ = index.build_index(vectors).search(vectors, 300)
    for kind in ("OPQ2_8,Flat", "RR8,Flat"):
        index_kinds.check_kind(kind, "", 8, 300)
        scores, _ = index.build_index(vectors, kind).search(vectors, 300)
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_kinds_are_saved_with_their_effort(tmp_path: Path) -> None:
    built = index.build_index(VECTORS, "IVF4,Flat", "nprobe=3")
    built.save(tmp_path / "index", TEXTS, "fingerprint")
    found = index.load_index(tmp_path / "index").index
    np.testing.assert_array_equal(found.search(VECTORS, 50)[1], built.search(VECTORS, 50)[1])
    assert (found.search(VECTORS, 50)[1] == -1).any()  # a list that is not probed stays unseen
    assert (tmp_path / "index" / index.VECTORS).stat().st_size == built.num_bytes


def test_round_trip(tmp_path: Path) -> None:
    built = index.build_index(VECTORS)
    built.save(tmp_path / "a" / "index", TEXTS, "fingerprint")
    found = index.load_index(tmp_path / "a" / "index")
    assert found.texts == TEXTS and found.fingerprint == "fingerprint"
    for mine, theirs in zip(found.index.search(VECTORS, 5), built.search(VECTORS, 5), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    index.build_index(VECTORS[:3]).save(tmp_path / "a" / "index", TEXTS[:3], "new")
    assert index.load_index(tmp_path / "a" / "index").texts == TEXTS[:3]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["index"]  # nothing is left beside it


def test_a_failed_save_leaves_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.build_index(VECTORS).save(tmp_path / "index", TEXTS, "old")

    def full(*_: object) -> None:
        raise RuntimeError("no space left on device")

    monkeypatch.setattr(index.faiss, "write_index", full)
    with pytest.raises(RuntimeError):
        index.build_index(VECTORS).save(tmp_path / "index", TEXTS, "new")
    assert index.load_index(tmp_path / "index").fingerprint == "old"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (index.VECTORS, lambda data: data[:100], "cannot be read"),
        (
            index.TEXTS,
            lambda data: data[: data.rfind(b"\n", 0, -1) + 1],
            "damaged: .* 50 rows, width 8; .* texts.jsonl 49",
        ),
        (index.TEXTS, lambda data: data[:-9], "cannot be read"),
        (index.ABOUT, lambda data: b"{}", "cannot be read"),
        (index.ABOUT, None, "index.json is missing"),
    ],
)
@pytest.mark.parametrize("sealed", [True, False])
def test_damage_is_noticed(tmp_path: Path, name: str, change, message: str, sealed: bool) -> None:
    index.build_index(VECTORS).save(tmp_path / "index", TEXTS, "fingerprint")
    path = tmp_path / "index" / name
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()
    if not sealed:  # as an index from before there were seals
        (tmp_path / "index" / SEAL).unlink()
    of_seal = f"damaged \\({name} {'has changed' if change else 'is missing'}\\)"
    with pytest.raises(UserError, match=of_seal if sealed else message):
        index.load_index(tmp_path / "index")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run's folder, its student standing in by the real teacher."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "export").symlink_to(real_teacher_folder())
    model = loading.load(str(folder / "export"))
    texts = ["Recursively copy a whole directory tree.", "Return the cosine of x radians.", "The cat sat on the mat."]
    index.build_index(model.encode(texts)).save(folder / "index", texts, model.fingerprint())
    return folder


def test_search_answers(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (score, text), (lower, _) = search.answer(workdir, "how do I copy a folder with everything in it?", 2)
    assert text.startswith("Recursively copy") and 1 > score > lower
    assert search.main(["--workdir", str(workdir), "--k", "1", "trigonometry function"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("  1  0.") and line.endswith("Return the cosine of x radians.")


def test_search_asks_by_the_prompts_and_ranks_by_the_interaction_module(tmp_path: Path) -> None:
    model, texts = (
        replace(make_decoder(), prompts={"query": "question: ", "document": "passage: "}),
        sentences(30, seed=3),
    )
    vectors = model.encode(texts, prompt="document")
    save_encoder(model, tmp_path / "export")
    index.build_index(vectors).save(tmp_path / "index", texts, model.fingerprint())
    query = model.encode(["the river"], prompt="query")
    cosines = (index.unit_rows(vectors) @ index.unit_rows(query)[0]).tolist()
    found = search.answer(tmp_path, "the river", 30)
    assert [text for _, text in found] == sorted(texts, key=lambda text: -cosines[texts.index(text)])
    assert found[0][0] == pytest.approx(max(cosines), abs=1e-5)

    scorer = PairScorer(model, random_iem(32, np.random.default_rng(0), 8))
    add_interaction(tmp_path / "export", scorer.params, 32, "dual")
    logits = scorer.score(["the river"] * 30, texts, symmetric=False).tolist()
    best = sorted(range(30), key=lambda i: -logits[i])[:4]
    assert [text for _, text in search.answer(tmp_path, "the river", 4)] == [texts[i] for i in best]
    assert best != sorted(range(30), key=lambda i: -cosines[i])[:4]  # or the test would say nothing


def test_search_says_what_is_missing(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "export").symlink_to((workdir / "export").resolve())
    assert search.main(["--workdir", str(tmp_path), "question"]) == 2
    assert "index is missing" in (told := capsys.readouterr().err) and "python -m jdistill.main" in told
    index.load_index(workdir / "index").index.save(tmp_path / "index", ["a", "b", "c"], "that of another model")
    with pytest.raises(UserError, match="made by another model"):
        search.answer(tmp_path, "question", 1)
    with pytest.raises(UserError, match="nowhere: there is no such folder"):
        search.answer(tmp_path / "nowhere", "question", 1)
    with pytest.raises(UserError, match="is the folder of a run; its student is .*/export"):
        loading.load(str(workdir))
    for query, k, message in (("  ", 1, "question is empty"), ("question", 0, "--k=0")):
        with pytest.raises(UserError, match=message):
            search.answer(workdir, query, k)


def test_the_evaluate_command_writes_and_prints(
    real_teacher: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\na cat,a kitten,4\na cat,a stone,1\na cat,a cat,5\n")
    (tmp_path / "e.csv").write_text("query,entity,label\nplay some jazz,Jazz Radio,1\nplay some jazz,News 24,0\n")
    sets = ["--pairs", str(tmp_path / "pairs.csv"), "--entity", str(tmp_path / "e.csv")]
    assert evaluate.main(["--model", real_teacher, *sets, "--out", str(tmp_path / "x" / "r.json")]) == 0
    found = json.loads((tmp_path / "x" / "r.json").read_text())
    assert found["model"] == {
        "source": real_teacher,
        "num_params": loading.load(real_teacher).num_params,
        "dim": 384,
        "backend": "flax",
    }
    assert found["scored_pairs"] == pytest.approx(100) and found["entity"]["recall@1"] == 1
    out = capsys.readouterr().out
    assert "100.00" in out and "recall@1_catalogue" in out


def test_poolers_are_scored_by_name_and_wrong_names_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = sentences(8)
    write_stsb(tmp_path / "senteval", [f"{i}\t{texts[2 * i]}\t{texts[2 * i + 1]}" for i in range(4)])
    model = save_encoder(make_encoder(), tmp_path / "model")
    arguments = ["--model", str(model), "--senteval", str(tmp_path / "senteval"), "--out", str(tmp_path / "r.json")]
    assert evaluate.main([*arguments, "--poolers=cls,avg_last4"]) == 0
    found = json.loads((tmp_path / "r.json").read_text())["poolers"]
    assert list(found) == ["cls", "avg_last4"]
    for name, figures in found.items():
        alone = evaluate_sts(replace(make_encoder(), pooling=name), tmp_path / "senteval")["sts"]
        assert figures["sts"] == pytest.approx(alone, abs=1e-3)
    assert "avg_last4" in capsys.readouterr().out

    def never(*_: object, **__: object) -> None:
        raise AssertionError("evaluated before the names were looked at")

    monkeypatch.setattr(evaluate, "evaluate", never)
    assert evaluate.main([*arguments, "--poolers=avg_las4"]) == 2
    assert "no pooler 'avg_las4'" in capsys.readouterr().err


def test_the_evaluate_command_refuses_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--model", "no/such-model"]) == 2
    assert "at least one of --senteval, --beir, --pairs, --entity, --geometry" in capsys.readouterr().err
    assert evaluate.main(["--model", "no/such-model", "--pairs", str(tmp_path / "none.csv")]) == 2
    assert "none.csv: no such file" in capsys.readouterr().err
