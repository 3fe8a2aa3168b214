"""Tokenizers with fewer pieces: a text whose pieces are kept is read by the same, one of which some are gone by smaller ones."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from vocabulary_setting import KINDS, UNKNOWN, made_up_texts

from jdistill.core.errors import UserError
from jdistill.encoder.vocabulary.merges import Merges
from jdistill.encoder.vocabulary.pieces import TokenPieces, chosen_pieces
from jdistill.encoder.vocabulary.renumbered import new_ids, renumbered_processor, renumbered_tokenizer

TEXTS = made_up_texts(500)
STRANGE = [f"{text}{UNKNOWN} {text}" for text in TEXTS[:40]]


@cache
def learnt(kind: str) -> tuple[Tokenizer, TokenPieces]:
    whole = KINDS[kind](TEXTS[:250]).backend_tokenizer
    whole.no_truncation()
    return whole, TokenPieces.of(json.loads(whole.to_str()), kind)


def ids_of(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def cut(kind: str, texts: list[str], size: int = 0) -> tuple[Tokenizer, dict[int, int]]:
    whole, pieces = learnt(kind)
    counts = np.bincount(np.concatenate(ids_of(whole, texts)), minlength=len(pieces))
    new_of = new_ids(pieces, chosen_pieces(pieces, counts, set(pieces.always), size), whole.token_to_id("[PAD]") or 1)
    return Tokenizer.from_str(json.dumps(renumbered_tokenizer(pieces, new_of))), new_of


@pytest.mark.parametrize("of_text,more", [(60, 0), (200, 0), (500, 40), (500, 100)])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_within_the_kept_pieces_keep_theirs(kind: str, of_text: int, more: int) -> None:
    """Those that the cut was made by, and hundreds that it never saw; with characters that no piece has, too."""
    whole, pieces = learnt(kind)
    size = len(pieces.always) + more if more else 0
    smaller, new_of = cut(kind, TEXTS[:of_text], size)
    assert sorted(new_of.values()) == list(range(len(new_of))) and (not size or len(new_of) == size)
    assert smaller.get_vocab() == {piece: new_of[old] for piece, old in whole.get_vocab().items() if old in new_of}
    before, after = ids_of(whole, TEXTS + STRANGE), ids_of(smaller, TEXTS + STRANGE)
    kept = [number for number, row in enumerate(before) if new_of.keys() >= set(row)]
    assert set(kept) >= set(range(0 if size else of_text)) and len(kept) < len(before)
    for number in kept:
        assert [new_of[old] for old in before[number]] == after[number], (TEXTS + STRANGE)[number]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_gone_is_read_by_smaller_pieces(kind: str) -> None:
    """Never as unknown, where characters or bytes can read it; between the same tokens at its ends."""
    whole, pieces = learnt(kind)
    smaller, new_of = cut(kind, TEXTS[:5])
    unknown = pieces.model.get("unk_token") or "<unk>"
    longer = 0
    for before, after in zip(ids_of(whole, TEXTS), ids_of(smaller, TEXTS), strict=True):
        assert (new_of[before[0]], new_of[before[-1]]) == (after[0], after[-1])
        assert smaller.token_to_id(unknown) not in after or whole.token_to_id(unknown) in before
        longer += len(after) > len(before)
    assert longer > 200


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_cut_always_keeps(kind: str) -> None:
    """Special tokens, and the characters or bytes that read any text; of a BPE no merge stays without its parts and result."""
    whole, pieces = learnt(kind)
    smaller, new_of = cut(kind, ["water"])
    added = {token.content for token in whole.get_added_tokens_decoder().values()}
    single = {piece for piece in pieces.ids if len(piece.removeprefix("##").removesuffix("</w>")) == 1}
    over_bytes = bool(pieces.model.get("byte_fallback"))
    fallback = {f"<0x{number:02X}>" for number in range(256)} if over_bytes else single
    assert added and smaller.get_vocab().keys() >= added | fallback
    model = json.loads(smaller.to_str())["model"]
    if kind.startswith(("byte pairs", "roberta", "pairs")):
        merges = Merges(model)
        assert merges.pairs and {*sum(merges.pairs, ()), *map(merges.merged, merges.pairs)} <= model["vocab"].keys()
        longest = max(model["vocab"].keys() - added - set(fallback), key=len)
        assert merges.way(longest) <= model["vocab"].keys()


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_text_uses_fewer_pieces_than_asked_the_first_others_are_kept(kind: str) -> None:
    whole, pieces = learnt(kind)
    used = cut(kind, TEXTS[:20])[1].keys()
    assert len(used) < len(pieces) - 30
    more = cut(kind, TEXTS[:20], len(used) + 30)[1].keys()
    assert len(more) == len(used) + 30 and more > used
    if kind == "word pieces":  # which need no others on their way
        others = sorted(set(pieces.piece_of) - used)
        assert more - used == set(others[:30])
    assert cut(kind, TEXTS[:20], len(pieces) + 5)[1].keys() == set(pieces.all_ids.values())


def test_spare_rows_are_kept_last_of_all() -> None:
    vocabulary = ["[PAD]", "[unused0]", "[UNK]", "[unused11]", "a", "##a", "ab", "unused1", "zebra"]
    whole = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    pieces = TokenPieces.of(json.loads(whole.to_str()), "made up")
    counts = np.array([0, 0, 0, 0, 1, 1, 0, 0, 1])
    kept = {size: chosen_pieces(pieces, counts, {0} | pieces.always, size) for size in (5, 6, 9)}
    assert [vocabulary[i] for i in sorted(kept[5])] == ["[PAD]", "[UNK]", "a", "##a", "zebra"]
    assert [vocabulary[i] for i in sorted(kept[6] - kept[5])] == ["ab"]
    assert [vocabulary[i] for i in sorted(kept[9] - kept[6])] == ["unused1"]


def test_without_its_least_likely_piece_a_unigram_would_read_on_otherwise() -> None:
    """An unknown character weighs what the least likely piece weighs, and more: where that piece went, it would weigh too little."""
    scores = {"<unk>": 0.0, "a": -12.0, "b": -12.5, "bü": -13.0, "ab": -1.0, "zz": -40.0}
    whole = Tokenizer(models.Unigram(list(scores.items()), unk_id=0))
    pieces = TokenPieces.of(json.loads(whole.to_str()), "made up")
    counts = np.array([0, 1, 1, 1, 1, 0])
    assert [piece for piece in whole.encode("abü").tokens] == ["a", "bü"]
    kept = chosen_pieces(pieces, counts, set(pieces.always), 0)
    assert pieces.ids["zz"] in kept
    for lowest, tokens in ((set(), ["a", "bü"]), ({pieces.ids["zz"]}, ["ab", "ü"])):
        state = renumbered_tokenizer(pieces, new_ids(pieces, kept - lowest, 0))
        assert Tokenizer.from_str(json.dumps(state)).encode("abü").tokens == tokens


def test_the_way_to_a_piece_is_that_of_its_characters_alone() -> None:
    """A piece that several pairs make up keeps those that come first in a text, not all."""
    vocabulary = {piece: number for number, piece in enumerate(["a", "b", "c", "ab", "bc", "abc"])}
    merges = Merges({"vocab": vocabulary, "merges": [["b", "c"], ["a", "b"], ["ab", "c"], ["a", "bc"]]})
    assert merges.way("abc") == {"a", "b", "c", "bc", "abc"}
    whole = Tokenizer(models.BPE(vocabulary, [("b", "c"), ("a", "b"), ("ab", "c"), ("a", "bc")]))
    pieces = TokenPieces.of(json.loads(whole.to_str()), "made up")
    assert pieces.needed_for(vocabulary["abc"]) == {0, 1, 2, 4, 5}
    unreached = Merges({"vocab": vocabulary, "merges": [["b", "c"], ["ab", "c"], ["a", "b"]]})
    assert unreached.way("abc") == {
        "a",
        "b",
        "c",
        "ab",
        "abc",
    }  # a word as it stands, by ignore_merges: all that could make it


def test_every_post_processor_follows() -> None:
    new_of = {5: 2, 7: 3}
    bert = {"type": "BertProcessing", "sep": ["[SEP]", 7], "cls": ["[CLS]", 5]}
    template = {
        "type": "TemplateProcessing",
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [5, 7], "tokens": ["[CLS]", "x"]}},
    }
    changed: Any = renumbered_processor(
        {"type": "Sequence", "processors": [{"type": "ByteLevel"}, bert, template]}, new_of
    )
    assert changed["processors"][0] == {"type": "ByteLevel"}
    assert changed["processors"][1] == bert | {"sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    assert changed["processors"][2]["special_tokens"]["[CLS]"]["ids"] == [2, 3] and bert["sep"] == ["[SEP]", 7]
    assert renumbered_processor(None, new_of) is None


def test_ids_follow_their_order_and_padding_keeps_its_place() -> None:
    _, pieces = learnt("unigram")
    assert new_ids(pieces, {0, 2, 5, 9, 30}, 5) == {0: 0, 2: 1, 5: 2, 9: 3, 30: 4}
    assert new_ids(pieces, {0, 2, 3, 5, 9}, 3) == {0: 0, 2: 1, 5: 2, 3: 3, 9: 4}
    _, outside = learnt("byte pairs")
    last = max(outside.outside.values())
    assert list(new_ids(outside, {last, 4, 2}, last).items()) == [(2, 0), (4, 1), (last, 2)]


def test_what_cannot_be_cut_is_named() -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(UserError, match="a student: the vocabulary of a WordLevel tokenizer cannot be cut"):
        TokenPieces.of(json.loads(words.to_str()), "a student")
    with pytest.raises(UserError, match="of a slow tokenizer cannot be cut; only that of a tokenizer.json can"):
        TokenPieces.of_tokenizer(object(), "a teacher")
    _, pieces = learnt("unigram")
    least = len(pieces.always)
    with pytest.raises(UserError, match=rf"--config.student.vocabulary={least - 1}: {least} pieces are always kept"):
        cut("unigram", TEXTS, least - 1)
    assert len(cut("unigram", TEXTS, least)[1]) == least
