"""jdistill.embed: the vectors are the model's, they teach and are searched, and what does not fit is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_encoder, random_params, save_encoder
from embed_setting import TEXTS, error_lines, let_logs_pass, read_folder, run_embed, vectors_of, write_place

from jdistill import search
from jdistill.core.errors import UserError
from jdistill.core.files import SEAL
from jdistill.core.progress import log
from jdistill.encoder.loading import load
from jdistill.teachers.embeddings import open_teacher


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write_place(tmp_path)


@pytest.fixture(autouse=True)
def propagating(monkeypatch: pytest.MonkeyPatch) -> None:
    let_logs_pass(monkeypatch)


@pytest.mark.parametrize("role", ["query", "document"])
def test_the_vectors_are_the_models_own(place: Path, role: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="jdistill"):
        assert run_embed(place, "--role", role) == 0
    assert "all 3 parts are there, 130 texts, vectors of 32 numbers; 3 made now" in caplog.text
    table, model = read_folder(place / "out"), load(str(place / "MODEL"))
    assert table["text"].to_pylist() == TEXTS and table.schema.names == ["text", "vector"]
    expected = model.encode(TEXTS, prompt={"query": "query", "document": "passage"}[role])
    np.testing.assert_allclose(vectors_of(table), expected, atol=1e-6)
    assert sorted(path.name for path in (place / "out").iterdir()) == [SEAL, *(f"part-0000{i}.parquet" for i in range(3))]  # fmt: skip


def test_what_was_made_teaches_and_is_searched(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run_embed(place, "--index", "Flat", "--dtype", "bfloat16", "--max_length", "32") == 0
    teacher = open_teacher(f"vectors:{place / 'out'}", 0, "float32")
    np.testing.assert_array_equal(teacher.answer(TEXTS), vectors_of(read_folder(place / "out")))
    model = replace(load(str(place / "MODEL"), dtype="bfloat16"), max_length=32)
    query = model.encode([TEXTS[7]], prompt="query")[0]
    expected = np.argsort(-(vectors_of(read_folder(place / "out")) @ query), kind="stable")[:3]
    answers = search.answer(place / "out", TEXTS[7], 3)
    assert [text for _, text in answers] == [TEXTS[row] for row in expected]
    with caplog.at_level("INFO", logger="jdistill"):
        assert run_embed(place, "--index", "Flat", "--dtype", "bfloat16", "--max_length", "32") == 0
    assert "index is there" in caplog.text
    (place / "out" / "index" / "vectors.faiss").write_bytes(b"cut")
    with pytest.raises(Exception, match="is damaged .*jdistill.embed with --out .* and --index makes it again"):
        search.answer(place / "out", TEXTS[7], 3)
    assert run_embed(place, "--index", "IVF4,Flat", "--dtype", "bfloat16", "--max_length", "32") == 0
    assert len(search.answer(place / "out", TEXTS[7], 3)) == 3


def test_an_index_of_fewer_texts_than_there_are_now_is_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    (place / "text.txt").write_text("\n".join(TEXTS[:100]) + "\n")  # two full parts, behind which a folder may grow
    assert run_embed(place, "--index", "Flat") == 0 and "WARNING" not in caplog.text
    (place / "text.txt").write_text("\n".join(TEXTS) + "\n")
    told = f"{place / 'out' / 'index'} is of 100 texts, and {place / 'out'} holds 130"
    assert run_embed(place) == 0 and told in caplog.text
    caplog.clear()
    assert len(search.answer(place / "out", TEXTS[7], 3)) == 3 and told in caplog.text
    caplog.clear()
    assert run_embed(place, "--index", "Flat") == 0 and run_embed(place) == 0
    assert len(search.answer(place / "out", TEXTS[7], 3)) == 3 and "WARNING" not in caplog.text


def test_a_search_by_a_model_that_reads_by_another_prompt_is_refused(place: Path) -> None:
    assert run_embed(place, "--index", "Flat") == 0
    save_encoder(replace(make_encoder(), prompts={"query": "ask: ", "document": "answer: "}), place / "MODEL")
    with pytest.raises(UserError, match="texts were read by the prompt 'tell: ', and .*MODEL has 'answer: ' now"):
        search.answer(place / "out", TEXTS[7], 3)
    (place / "MODEL").rename(place / "MOVED")
    with pytest.raises(UserError, match="--workdir=.*out was made by the model .*MODEL, which does not load"):
        search.answer(place / "out", TEXTS[7], 3)


def test_a_search_without_index_says_what_makes_it(place: Path) -> None:
    assert run_embed(place) == 0
    with pytest.raises(Exception, match="index is missing; python -m jdistill.embed with --out .* and --index=Flat"):
        search.answer(place / "out", "question", 3)


def test_a_folder_without_texts_is_told_that_it_has_no_index(place: Path) -> None:
    (place / "a.jsonl").write_text("".join(json.dumps({"_id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)))
    assert run_embed(place, "--text", str(place / "a.jsonl"), "--id_column", "_id", "--without_text") == 0
    with pytest.raises(UserError, match="--without_text, which an index keeps: embed the text into a new folder"):
        search.answer(place / "out", "question", 3)


def test_a_check_writes_nothing_into_a_folder_that_is_whole(place: Path) -> None:
    assert run_embed(place) == 0
    before = [path.stat().st_mtime_ns for path in sorted((place / "out", *(place / "out").iterdir()))]
    assert run_embed(place, "--check") == 0
    assert [path.stat().st_mtime_ns for path in sorted((place / "out", *(place / "out").iterdir()))] == before


def test_a_folder_without_vectors_says_that_it_may_go(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_embed(place) == 0
    [part.unlink() for part in (place / "out").glob("part-*")]
    assert run_embed(place, "--part_size", "7") == 2
    assert "part_size was 50 and is now 7; it holds no vectors yet: delete it, or choose" in error_lines(capsys)[0]


def test_a_length_that_the_prompt_of_a_question_fills(place: Path) -> None:
    save_encoder(
        replace(make_encoder(), prompts={"query": "a long question, as follows: ", "document": "tell: "}),
        place / "MODEL",
    )
    assert run_embed(place, "--index", "Flat", "--max_length", "9") == 0
    with pytest.raises(
        UserError,
        match="MODEL: its query prompt, 'a long .*', leaves a text none of the 9 tokens .*longer one into a new folder",
    ):
        search.answer(place / "out", TEXTS[7], 3)


def test_ids_are_kept_with_the_texts_or_without(place: Path) -> None:
    rows = [{"_id": i, "title": "t", "text": text} for i, text in enumerate(TEXTS)]
    (place / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = ["--text_column", "text", "--id_column", "_id"]
    assert run_embed(place, *table, text="corpus.jsonl") == 0
    assert run_embed(place, *table, "--without_text", text="corpus.jsonl", out="ids") == 0
    both, alone = read_folder(place / "out"), read_folder(place / "ids")
    assert both.schema.names == ["id", "text", "vector"] and alone.schema.names == ["id", "key", "vector"]
    assert both["id"].to_pylist() == alone["id"].to_pylist() == [str(i) for i in range(130)]
    np.testing.assert_array_equal(vectors_of(both), vectors_of(alone))
    teacher = open_teacher(f"vectors:{place / 'ids'}", 0, "float32")
    np.testing.assert_array_equal(teacher.answer(TEXTS[5:9]), vectors_of(both)[5:9])


def test_a_folder_of_another_making_is_refused_with_the_difference(place: Path, capsys) -> None:
    assert run_embed(place) == 0
    save_encoder(make_encoder(seed=1), place / "OTHER")
    (place / "other.txt").write_text("\n".join([*TEXTS[:60], "another", *TEXTS[61:]]) + "\n")
    (place / "longer.txt").write_text("\n".join([*TEXTS, "another"]) + "\n")
    (place / "shorter.txt").write_text("\n".join(TEXTS[:100]) + "\n")
    before = {path.name: path.read_bytes() for path in (place / "out").iterdir()}
    for arguments, said in (
        ((["--role", "query"], {}), "role was 'document' and is now 'query', prompt was 'tell: ' and is now 'ask: '"),
        ((["--dtype", "bfloat16"], {}), "dtype was 'float32' and is now 'bfloat16'"),
        ((["--max_length", "16"], {}), "max_length was 64 and is now 16"),
        (([], {"model": "OTHER"}), "/OTHER'"),
        (([], {"text": "other.txt"}), f"part-00001.parquet was made of other texts: row 10 was {TEXTS[60][:40]!r}, and is now 'another'"),
        (([], {"text": "longer.txt"}), "part-00002.parquet was made of other texts: it has 30 texts, and now there are 31"),
        (([], {"text": "shorter.txt"}), "has part 2, but the text is 2 parts long"),
    ):  # fmt: skip
        assert run_embed(place, *arguments[0], **arguments[1]) == 2
        (error,) = error_lines(capsys)
        assert said in error and "choose another folder" in error
    model = load(str(place / "MODEL"))
    save_encoder(model.with_weights({"model": random_params(model.config, 5)}), place / "MODEL")
    assert run_embed(place) == 2 and "MODEL, which has changed since" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (place / "out").iterdir()} == before


def test_a_prompt_that_counts_no_longer_is_another_making(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load(str(place / "MODEL"))
    for include, expected in ((True, 0), (False, 2)):  # corrected between two calls
        save_encoder(replace(model, include_prompt=include, default_prompt=None), place / "MODEL")
        assert run_embed(place, "--role", "query") == expected
    assert "prompt_counts was True and is now False" in capsys.readouterr().err


def test_what_a_user_put_there_stays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "out").mkdir()
    (place / "out" / "thesis.txt").write_text("years of work")
    assert run_embed(place) == 2 and "it holds thesis.txt" in capsys.readouterr().err
    (place / "out" / "thesis.txt").unlink()
    assert run_embed(place) == 0
    pq.write_table(pa.table({"text": ["mine"]}), place / "out" / "part-00001.parquet")
    mine = (place / "out" / "part-00001.parquet").read_bytes()
    assert run_embed(place) == 2 and "was not written by jdistill.embed; move it" in capsys.readouterr().err
    assert (place / "out" / "part-00001.parquet").read_bytes() == mine
    (place / "file").write_text("mine")
    assert run_embed(place, out="file") == 2 and "is a file; name a folder" in capsys.readouterr().err
    assert run_embed(place, out="file/below") == 2 and "is a file; name a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--role", "poem"], "--role=poem is not one of query, document"),
        (["--shard", "3/3"], "--shard=3/3 is out of range: shards are counted from 0, so 0/3 to 2/3"),
        (["--shard", "0/0"], "--shard=0/0 is out of range"),
        (["--shard", "half"], "--shard=half: write it as I/N"),
        (["--shard", "0/2", "--check"], "--check is of the whole folder"),
        (["--shard", "0/2", "--index", "Flat"], "--index is of the whole folder"),
        (["--batch_size", "0"], "--batch_size=0: at least 1"),
        (["--part_size", "0"], "--part_size=0: at least 1"),
        (["--max_length", "65"], "--max_length=65: .*MODEL takes 3 to 64 tokens"),
        (["--max_length", "4"], "MODEL: its document prompt, 'tell: ', leaves a text none of the 4 tokens .*give a longer --max_length"),
        (["--check", "--index", "Flat"], "--check makes nothing, and --index an index"),
        (["--without_text"], "--without_text needs --id_column"),
        (["--without_text", "--id_column", "id", "--index", "Flat"], "--index keeps the texts"),
        (["--index_effort", "nprobe=4"], "--index_effort is of --index"),
        (["--index", "PQ5"], "--index=PQ5: FAISS makes no index 'PQ5' of vectors of width 32: "),
        (["--id_column", "id"], "--id_column=id: .*text.txt has no columns"),
    ],
)  # fmt: skip
def test_bad_flags_are_refused_before_a_folder_is_made(place: Path, more: list[str], said: str, capsys) -> None:
    assert run_embed(place, *more) == 2
    (error,) = error_lines(capsys)
    assert re.search(said, error), error
    assert not (place / "out").exists()


def test_no_text_and_an_absent_model_are_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "empty.txt").write_text("\n \n")
    assert run_embed(place, text="empty.txt") == 2 and "empty.txt holds no usable text" in capsys.readouterr().err
    assert run_embed(place, text="absent.txt") == 2 and "there is no such file" in capsys.readouterr().err
    assert run_embed(place, model="ABSENT") == 2 and "--model=" in capsys.readouterr().err
    assert not (place / "out").exists()


def test_a_role_without_prompt_is_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_encoder(replace(make_encoder(), prompts={"query": "ask: "}), place / "MODEL")
    with caplog.at_level("WARNING", logger="jdistill"):
        assert run_embed(place) == 0
    assert "has no prompt for a document, only query: none is used" in caplog.text
    expected = load(str(place / "MODEL")).encode(TEXTS)
    np.testing.assert_allclose(vectors_of(read_folder(place / "out")), expected, atol=1e-6)


def test_vectors_that_are_not_finite_are_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = random_params(make_encoder().config)
    params["embeddings"]["norm"]["scale"][:] = np.nan
    save_encoder(replace(make_encoder(), params=params), place / "MODEL")
    assert run_embed(place) == 2
    error = capsys.readouterr().err
    assert "part-00000.parquet row 0: the vector by" in error and "holds NaN or infinity, as do 50 of 50" in error
    assert [path.name for path in (place / "out").iterdir()] == [SEAL]


def test_the_log_is_quiet_where_nothing_was_skipped(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger=log.name):
        assert run_embed(place) == 0
    assert not caplog.records
