"""The judge of pairs: logits as transformers has them, what truncation may cut, answers told apart, scores kept by content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, sentences
from d2llm_setting import LOGIT, SUMS
from made_up_devices import three_devices
from parity import assert_close, excess, rounding

from configs import d2llm
from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.teachers.judge import (
    ASYMMETRIC,
    SYMMETRIC,
    Judge,
    load_judge,
)
from jdistill.teachers.judge_scores import Scores
from jdistill.teachers.prefix_packing import pack

TEMPLATE = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"


def decoder(**changes: object) -> Encoder:
    return make_decoder(max_positions=256, **changes)


def test_scores_are_the_logits_of_transformers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for tied in (True, False):
        model = decoder(tied=tied)
        folder = tmp_path / str(tied)
        write_files(model, folder)
        write_weights(model, folder)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        if not tied:
            with pytest.raises(UserError, match="has no output layer"):
                load_judge(str(folder))
            theirs.save_pretrained(folder)  # with the output layer that it drew at random
        theirs = theirs.double()
        judge = load_judge(str(folder), template=ASYMMETRIC, query_tokens=8, passage_tokens=10)
        queries, passages = sentences(6, seed=1), sentences(6, seed=2)
        z, y = judge.score(queries, passages, batch_size=4)
        yes, no = judge.answer_tokens
        for i, ids in enumerate(judge.prompts(queries, passages)):
            with torch.no_grad():
                out = theirs(torch.tensor([ids]), output_hidden_states=True)
            last = out.logits[0, -1]
            assert_close(z[i], float(last[yes] - last[no]), *SUMS, largest=float(last.abs().max()), what="z")
            assert_close(y[i], out.hidden_states[-1][0, -1].numpy(), *SUMS, what="y")


def test_pairs_of_a_query_share_its_beginning_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(decoder(), query_tokens=16, passage_tokens=16)
    passages = sentences(23, seed=2)
    queries = [sentences(3, seed=1)[i % 3] for i in range(len(passages))]
    alone = [judge.score([q], [p]) for q, p in zip(queries, passages, strict=True)]
    halves = judge._halves(queries, passages)
    assert len(pack(*halves)) == 3
    for longest in (512, 150):
        monkeypatch.setattr("jdistill.teachers.prefix_packing.PACKED_TOKENS", longest)
        sequences = pack(*halves)
        assert sorted(row for packed in sequences for row in packed.prompts) == list(range(23))
        assert all(len(packed.tokens) <= longest or len(packed.ends) == 1 for packed in sequences)
        for packed in sequences:
            for k, (row, end) in enumerate(zip(packed.prompts, packed.ends, strict=True), 1):
                own = [t for t, s in zip(packed.tokens, packed.segments, strict=True) if s in (0, k)]
                assert own == judge.prompts(queries, passages)[row]
                assert packed.positions[end] == len(own) - 1
        z, y = judge.score(queries, passages)
        assert_close(z, [one[0][0] for one in alone], *SUMS, what="z")
        assert_close(y, [one[1][0] for one in alone], *SUMS, what="y")


def test_several_devices_are_given_the_weights_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(decoder(), query_tokens=16, passage_tokens=16)
    uploads, heights = three_devices(monkeypatch)
    for seed in range(2):
        judge.score(sentences(6, seed=seed), sentences(6, seed=2))
    assert len(uploads) == 1 and len(heights) >= 2


def test_pairs_that_need_two_sequences_are_shared_out_evenly() -> None:
    assert [len(packed.ends) for packed in pack([[1] * 50] * 13, [[2] * 37] * 13)] == [7, 6]
    assert [len(packed.ends) for packed in pack([[1] * 50] * 17, [[2]] * 17)] == [9, 8]


@pytest.mark.parametrize(
    ("template", "where"),
    [(ASYMMETRIC, 0), ("Question: {query}\nPassage: {passage}\nDoes the passage answer the question?", 2)],
)
def test_only_the_texts_are_cut(template: str, where: int) -> None:
    model = decoder()
    model.tokenizer.chat_template = TEMPLATE
    judge = Judge(model, template, query_tokens=5, passage_tokens=7)
    before, between, after = judge.pieces
    tokenizer = model.tokenizer
    assert "passage answer the question" in tokenizer.decode(judge.pieces[where])
    assert tokenizer.decode(after).endswith("< answer >")
    long, short = "river " * 500, "stone"
    for query, passage in ((long, long), (short, long), (long, ""), ("", "")):
        (ids,) = judge.prompts([query], [passage])
        q, p = (tokenizer.encode(text, add_special_tokens=False) for text in (query, passage))
        assert ids == [*before, *q[:5], *between, *p[:7], *after]
    with pytest.raises(UserError, match="more than the model's 256"):
        Judge(model, ASYMMETRIC, query_tokens=128, passage_tokens=128)


def test_without_a_chat_template_a_passage_has_an_end() -> None:
    model = decoder()
    assert not model.tokenizer.chat_template
    judge = Judge(model, ASYMMETRIC, query_tokens=16, passage_tokens=16)
    assert model.tokenizer.decode(judge.pieces[2]) == "answer :"
    z, _ = judge.score(["a river", "a river"], ["a stone", ""])
    alone = judge.score(["a river"], [""])[0][0]
    assert_close(z[1], alone, *SUMS, largest=LOGIT)
    assert excess(z[0], alone, *SUMS, largest=LOGIT) > 10


def test_a_config_asks_as_a_judge_does_by_itself() -> None:
    cfg = d2llm.get_config()
    assert (cfg.judge.symmetric, cfg.judge.asymmetric) == (SYMMETRIC, ASYMMETRIC)


def test_what_is_no_judge_is_refused() -> None:
    with pytest.raises(UserError, match="begins 'river stone' and 'river bank' with the same token"):
        Judge(decoder(), yes="river stone", no="river bank", query_tokens=16, passage_tokens=16)
    with pytest.raises(UserError, match="holds {query} and {passage} once each"):
        Judge(decoder(), "Is {query} true?")
    with pytest.raises(UserError, match="has {query} before {passage}"):
        Judge(decoder(), "Of {passage}: {query}?")
    with pytest.raises(UserError, match="a judge is a causal decoder, and this is bert"):
        Judge(make_encoder())
    with pytest.raises(UserError, match="a judge is a causal decoder"):
        model = decoder()
        Judge(replace(model, config=replace(model.config, causal=False)))  # type: ignore[type-var]
    with pytest.raises(UserError, match="2 queries and 1 passages"):
        Judge(decoder(), query_tokens=16, passage_tokens=16).score(["a", "b"], ["c"])


def test_scores_are_asked_once_and_kept_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    judge = Judge(decoder(), query_tokens=16, passage_tokens=16)
    queries, passages = sentences(12, seed=1), sentences(12, seed=2)
    expected_z, expected_y = judge.score(queries, passages)
    z, y = Scores(judge, tmp_path).of(queries, passages)
    assert_close(z, expected_z, *SUMS)
    np.testing.assert_allclose(y, expected_y, rtol=2**-11, atol=rounding(*SUMS) * LOGIT)  # kept in float16
    asked: list[int] = []

    def count(self: Judge, queries: list[str], passages: list[str], batch_size: int = 16):
        asked.append(len(queries))
        return by_batch(self, queries, passages, batch_size)

    by_batch = Judge.by_batch
    monkeypatch.setattr(Judge, "by_batch", count)
    again, _ = Scores(judge, tmp_path).of(queries[::-1][:8], passages[::-1][:8])
    np.testing.assert_array_equal(again, z[::-1][:8])
    assert not asked
    Scores(judge, tmp_path).of([queries[0], "new"], [passages[0], "pair"])
    assert asked == [1]
    other = Judge(judge.model, ASYMMETRIC, query_tokens=16, passage_tokens=16)
    with caplog.at_level("INFO", logger="jdistill"):
        Scores(other, tmp_path).of(queries[:3], passages[:3])  # another prompt: nothing of the first one's is taken
    assert "keeps scores of 1 other models or instructions, which are not used" in caplog.text
    assert asked == [1, 3]
    assert other.fingerprint() != judge.fingerprint() != replace(judge, query_tokens=15).fingerprint()
    joined = replace(judge, template=judge.template.replace(" {query}", "{query}"))
    assert joined.template != judge.template and joined.fingerprint() != judge.fingerprint()
    encodes_otherwise = replace(judge.model, max_length=9, pooling="mean", normalize=False, prompts={"query": "q: "})
    assert replace(judge, model=encodes_otherwise).fingerprint() == judge.fingerprint()


def test_a_separator_within_a_query_is_no_separator(tmp_path: Path) -> None:
    judge = Judge(decoder(), query_tokens=16, passage_tokens=16)
    found, _ = Scores(judge, tmp_path).of(["one\x1ftwo"], ["three"])
    assert_close(found, judge.score(["one two"], ["three"])[0], *SUMS, largest=LOGIT)
    assert abs(found[0] - judge.score(["one"], ["two\x1fthree"])[0][0]) > 1e-2


def test_a_killed_scoring_run_loses_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jdistill.teachers.judge_scores.PAIRS_PER_CHUNK", 12)
    judge = Judge(decoder(), query_tokens=16, passage_tokens=16)
    queries, passages = sentences(24, seed=1), sentences(24, seed=2)
    by_batch = Judge.by_batch

    def killed(self: Judge, queries: list[str], passages: list[str], batch_size: int = 4):
        for number, batch in enumerate(by_batch(self, queries, passages, 4)):
            if number == 2:
                raise KeyboardInterrupt  # two batches of four are known, the third is computed
            yield batch

    with monkeypatch.context() as patched:
        patched.setattr(Judge, "by_batch", killed)
        with pytest.raises(KeyboardInterrupt):
            Scores(judge, tmp_path).of(queries, passages)
    asked: list[int] = []

    def count(self: Judge, queries: list[str], passages: list[str], batch_size: int = 4):
        asked.append(len(queries))
        return by_batch(self, queries, passages, 4)

    monkeypatch.setattr(Judge, "by_batch", count)
    z, _ = Scores(judge, tmp_path).of(queries, passages)
    assert asked == [4, 12]  # what the first chunk lacks, and the second
    monkeypatch.setattr(Judge, "by_batch", by_batch)
    assert_close(z, judge.score(queries, passages)[0], *SUMS)
