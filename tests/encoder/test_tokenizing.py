"""Tokenising by processes of their own: the encoder's own ids; a process that is killed; none for few texts or a class with a way of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, real_teacher_folder

import jdistill
from jdistill.core.errors import UserError
from jdistill.data.batching.kept_tokens import Tokenizing, tokenize_once
from jdistill.encoder import tokenizing as module
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.tokenizing import tokenizing

MODELS: dict[str, Callable[[], Encoder]] = {
    "tiny": make_encoder,
    "decoder": make_decoder,
    "real": lambda: jdistill.load(str(real_teacher_folder())),
}
TEXTS = ["a river", "", "the cat\nsat\u2028on ‮ a\x00 mat", "[SEP] </s> 🐈‍⬛ é é", "long " * 400, "dernier  mot"] * 20


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEWEST", 10)


def children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
            if parent == os.getpid() and "tokenizing_server" in (path.parent / "cmdline").read_text():
                yield int(path.parent.name)
        except OSError:
            continue


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("prompt", ["", "query: "])
def test_ids_are_the_encoders(tmp_path: Path, name: str, prompt: str) -> None:
    model = MODELS[name]()
    if prompt:
        model = replace(model, prompts={"query": prompt}, default_prompt="query")
    with tokenizing(model, len(TEXTS)) as how:
        assert how.workers >= 1 and not list(children())  # none before one is needed
        table = tokenize_once(TEXTS, how, "t", tmp_path, chunk=7)
        assert 1 <= len(list(children())) <= how.workers
    assert not list(children())
    assert table.lists(np.arange(len(TEXTS))) == model.tokenize(TEXTS)


def test_a_tokenizer_that_splits_special_tokens_is_asked_here(tmp_path: Path) -> None:
    """What it does of them stands in the object, and not in the JSON that another process gets."""
    model = make_encoder()
    plain, model.tokenizer.split_special_tokens = model.tokenizer_fingerprint(), True
    assert model.tokenizer_fingerprint() != plain
    with tokenizing(model, len(TEXTS)) as how:
        table = tokenize_once(TEXTS, how, "t", tmp_path, chunk=7)
        assert not list(children())
    assert table.lists(np.arange(len(TEXTS))) == model.tokenize(TEXTS)


def test_a_process_that_is_killed_is_told_and_what_was_done_is_kept(tmp_path: Path) -> None:
    model = make_encoder()
    calls = 0

    def killing(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        nonlocal calls
        calls += 1
        if calls == 4:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
        return how.tokens(texts)

    with (
        tokenizing(model, len(TEXTS)) as how,
        pytest.raises(UserError, match=r"ended before its texts \(exit code -9\)"),
    ):
        tokenize_once(TEXTS, Tokenizing(killing, 1), "t", tmp_path, chunk=10)
    assert not list(children())
    assert len(list(tmp_path.glob(".jdistill-shards-*/*.npz"))) == 3
    with tokenizing(model, len(TEXTS)) as how:
        table = tokenize_once(TEXTS, how, "t", tmp_path, chunk=10)
    assert table.lists(np.arange(len(TEXTS))) == model.tokenize(TEXTS)


def test_few_texts_start_no_process(tmp_path: Path) -> None:
    model = make_encoder()
    with tokenizing(model, 9) as how:
        table = tokenize_once(TEXTS[:9], how, "t", tmp_path)
        assert not list(children())
    assert table.lists(np.arange(9)) == model.tokenize(TEXTS[:9])


def test_a_class_that_encodes_its_own_way_is_asked_in_this_process(tmp_path: Path) -> None:
    model = make_encoder()

    class Shouting(type(model.tokenizer)):  # type: ignore[misc]
        def _encode_plus(self, text: list[str], *args: object, **kwargs: object) -> object:
            return super()._encode_plus([each.upper() for each in text], *args, **kwargs)

    model.tokenizer.__class__ = Shouting
    with tokenizing(model, len(TEXTS)) as how:
        table = tokenize_once(TEXTS, how, "t", tmp_path)
        assert not list(children())
    assert table.lists(np.arange(len(TEXTS))) == model.tokenize(TEXTS)


def test_a_text_that_is_none_is_named() -> None:
    with tokenizing(make_encoder(), 100) as how, pytest.raises(UserError, match="text 1 is int"):
        how.tokens(["a", 3])  # type: ignore[list-item]
