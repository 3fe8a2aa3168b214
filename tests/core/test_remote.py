"""What a URL names as a local copy: fetched once, anew where it has changed, and a store that fails is one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from remote_setting import enter_machine, put

from jdistill import embed, search
from jdistill.core import remote
from jdistill.core.errors import UserError
from jdistill.core.fetched import RUN_FILES, local_copy
from jdistill.core.remote import Store, StoreError, is_url
from jdistill.data.text.kept_texts import keep_source
from jdistill.data.text.sources import read_texts
from jdistill.data.text.text_stream import TextStream

KEY = "config.text"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    enter_machine(monkeypatch, tmp_path / "here")
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))
    return f"memory://{tmp_path.name}"


def count_fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    fetched: list[str] = []
    get_file = MemoryFileSystem.get_file

    def counted(self, path, *more, **named):
        fetched.append(path.rpartition("/")[2])
        return get_file(self, path, *more, **named)

    monkeypatch.setattr(MemoryFileSystem, "get_file", counted)
    return fetched


@pytest.mark.parametrize("source, expected", [
    ("s3://bucket/a.txt", True), ("gs://b", True), ("https://x/y", True), ("memory://a", True),
    ("a/b.txt", False), ("owner/name", False), ("pkg:name/sub", False), ("python-docs", False), ("/a://b", False), ("", False),
])  # fmt: skip
def test_what_is_a_url(source: str, expected: bool) -> None:
    assert is_url(source) == expected


def test_text_of_a_url_is_that_of_the_file(bucket: str, tmp_path: Path) -> None:
    content = b"one text\n\n  two texts \none text\n"
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    put(f"{bucket}/a.txt.gz", gzip.compress(content))
    assert read_texts(f"{bucket}/a.txt.gz").texts == read_texts(str(tmp_path / "a.txt.gz")).texts
    assert [of.text for of in TextStream(f"{bucket}/a.txt.gz")] == ["one text", "two texts", "one text"]


def test_a_folder_is_read_in_the_order_of_its_names(bucket: str) -> None:
    for name, text in (("b.txt", b"second"), ("a/c.txt", b"first"), ("notes.md", b"no text")):
        put(f"{bucket}/texts/{name}", text)
    put(f"{bucket}/texts-of-others/d.txt", b"another folder's")
    assert read_texts(f"{bucket}/texts").texts == ["first", "second"]


def test_a_table_in_a_store_needs_its_column(bucket: str) -> None:
    put(f"{bucket}/t.csv", b"a,b\nx,y\n")
    assert read_texts(f"{bucket}/t.csv", column="b").texts == ["y"]
    with pytest.raises(UserError, match="2 columns hold text"):
        read_texts(f"{bucket}/t.csv")


def test_kept_texts_are_read_anew_where_an_object_has_changed_alone(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = count_fetches(monkeypatch)
    put(f"{bucket}/a.txt", b"one\ntwo\n")
    for _ in range(2):
        assert list(keep_source(f"{bucket}/a.txt", "", KEY, tmp_path / "texts").texts) == ["one", "two"]
    assert fetched == ["a.txt"]
    put(f"{bucket}/a.txt", b"one\nsix\n")  # of the same size
    assert list(keep_source(f"{bucket}/a.txt", "", KEY, tmp_path / "texts").texts) == ["one", "six"]
    assert fetched == ["a.txt", "a.txt"]


def test_of_a_folder_what_has_changed_is_fetched_and_what_is_gone_goes(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "sub/c"):
        put(f"{bucket}/model/{name}", name.encode())
    copy, fetched = local_copy(f"{bucket}/model", "model"), count_fetches(monkeypatch)
    (copy / "sub" / ".jdistill-0123456789abcdef").write_bytes(b"as a kill leaves it")
    put(f"{bucket}/model/a", b"new")
    fsspec.filesystem("memory").rm_file(f"{bucket}/model/b".removeprefix("memory:/"))
    (copy / "sub" / "c").unlink()  # as a cleaner of caches does
    assert local_copy(f"{bucket}/model", "model") == copy
    assert sorted(fetched) == ["a", "c"]
    assert (copy / "a").read_bytes() == b"new" and (copy / "sub" / "c").is_file() and not (copy / "b").exists()
    assert not list(copy.parent.rglob(".jdistill-*"))


def test_what_came_of_a_fetch_that_was_cut_off_goes_where_it_has_left_the_store(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt"):
        put(f"{bucket}/texts/{name}", b"old " + name.encode())
    fetch = Store.fetch

    def cut_off(store: Store, name: str, *rest: object) -> object:
        if name == "b.txt":
            raise StoreError("the network is away")
        return fetch(store, name, *rest)

    monkeypatch.setattr(Store, "fetch", cut_off)
    with pytest.raises(StoreError, match="the network is away"):
        local_copy(f"{bucket}/texts", KEY)
    monkeypatch.setattr(Store, "fetch", fetch)
    fsspec.filesystem("memory").rm_file(f"{bucket}/texts/a.txt".removeprefix("memory:/"))
    put(f"{bucket}/texts/c.txt", b"new c")
    assert sorted(path.name for path in local_copy(f"{bucket}/texts", KEY).iterdir()) == ["b.txt", "c.txt"]


@pytest.mark.parametrize("header", ["Last-Modified", "Content-MD5", ""])
def test_what_a_web_server_says_tells_a_change_and_silence_is_warned_of(
    bucket: str, header: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(f"{bucket}/a", b"text")
    fetched = count_fetches(monkeypatch)
    for version in ("one", "one", "two"):
        about = {"type": "file", "size": 4} | ({header: version} if header else {})
        monkeypatch.setattr(MemoryFileSystem, "info", lambda self, path, about=about: about | {"name": path})
        with caplog.at_level("WARNING", logger="jdistill"):
            local_copy(f"{bucket}/a", "model")
    assert len(fetched) == (2 if header else 1)
    assert caplog.text.count("give a changed object another name") == (0 if header else 1)


def test_of_a_runs_folder_what_is_listed_counts(bucket: str) -> None:
    put(f"{bucket}/run/config.json", b"{}")
    put(f"{bucket}/run/distil/checkpoints/10/half", b"x")
    put(f"{bucket}/run/{RUN_FILES}", b'{"files": {"config.json": [2, ""]}}')
    copy = local_copy(f"{bucket}/run", "workdir")
    assert [path.name for path in copy.rglob("*")] == ["config.json"]
    put(f"{bucket}/run/{RUN_FILES}", b'{"files": 3}')
    with pytest.raises(UserError, match=f"{RUN_FILES} is damaged"):
        local_copy(f"{bucket}/run", "workdir")


def test_a_name_that_leads_out_is_refused(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{bucket}/model/../../../../evil".removeprefix("memory:/")
    monkeypatch.setattr(MemoryFileSystem, "find", lambda *_, **__: {path: {"type": "file", "size": 1}})
    with pytest.raises(StoreError, match="leads out of it"):
        local_copy(f"{bucket}/model", "model")


def test_a_file_that_comes_short_is_fetched_again(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put(f"{bucket}/a", b"whole")
    whole, calls = MemoryFileSystem.get_file, []

    def short(self, path, local, *more, **named):
        calls.append(path)
        return Path(local).write_bytes(b"who") if len(calls) == 1 else whole(self, path, local)

    monkeypatch.setattr(MemoryFileSystem, "get_file", short)
    Store(f"{bucket}/a").fetch("", tmp_path / "a", 5)
    assert (tmp_path / "a").read_bytes() == b"whole" and len(calls) == 2


def test_what_is_not_there_or_not_known_is_one_line(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="there is no such object"):
        read_texts(f"{bucket}/none.txt")
    with pytest.raises(StoreError, match="Protocol not known: nowhere.*a store that fsspec knows"):
        read_texts("nowhere://bucket/a.txt")

    def lacking(url: str):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "url_to_fs", lacking)
    with pytest.raises(StoreError, match=r"not installed; pip install 'jdistill\[s3\]'"):
        read_texts("s3://bucket/a.txt")


def test_a_flag_that_takes_no_url_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert embed.main(["--model", "m", "--text", "t", "--out", "s3://bucket/vectors"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: s3://bucket/vectors: must be a local path") and said.count("\n") == 1


def test_search_in_a_store_that_is_not_there_is_one_line(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert search.main(["a question", "--workdir", f"{bucket}/run"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"error: --workdir={bucket}/run: there is no such object")


@pytest.mark.parametrize(
    "url", ["reference://::https://example.org/r.json", "simplecache::s3://bucket/a", "reference://a"]
)
def test_a_store_behind_another_is_refused(url: str) -> None:
    """A file of settings may name it, and what it holds says where to look next."""
    with pytest.raises(StoreError, match="one store behind another are not read here"):
        Store(url)


def test_a_file_of_the_records_own_name_is_that_file(bucket: str) -> None:
    put(f"{bucket}/versions.json", b'{"a": 1}')
    for _ in range(2):
        assert local_copy(f"{bucket}/versions.json", KEY).read_bytes() == b'{"a": 1}'


def test_a_new_folder_by_a_file_url_is_made(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}/new/folder")
    assert store.write("a.json", b"{}", new=True) and not store.write("a.json", b"[]", new=True)
    assert (tmp_path / "new" / "folder" / "a.json").read_bytes() == b"{}"


def test_the_home_is_meant_where_a_shell_leaves_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert remote.local_only("~/student") == tmp_path / "student" and remote.local_only("a~b") == Path("a~b")
