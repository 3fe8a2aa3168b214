"""Who scores pairs: a classifier, a judge, a cross-encoder of sentence-transformers; asked once, averaged, and what is none of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, save_encoder, sentences
from cross_encoder_setting import save_cross_encoder
from parity import assert_close

from jdistill.core.errors import UserError
from jdistill.encoder.classifier import Classifier, save_head
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import peft
from jdistill.encoder.formats.interaction import add_interaction
from jdistill.models import lora
from jdistill.models.classifier_head import random_head
from jdistill.models.interaction import random_iem
from jdistill.teachers import pair_teachers
from jdistill.teachers.judge import ASYMMETRIC, load_judge
from jdistill.teachers.pair_teachers import (
    PairTeacher,
    averaged_scores,
    log_odds,
    open_pair_teacher,
    open_pair_teachers,
)

QUERIES = [text for text in sentences(3, seed=1) for _ in range(3)]
PASSAGES = sentences(9, seed=2)


def save_classifier(folder: Path, labels: tuple[str, ...], pairs: bool = True) -> Classifier:
    encoder = make_encoder()
    save_encoder(encoder, folder)
    head = random_head(encoder.dim, 2 if pairs else 1, 16, len(labels), np.random.default_rng(1))
    model = Classifier(encoder, head, labels, pairs)
    save_head(model, folder)
    return model


def test_log_odds_against_probabilities() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (5, 3)).astype(np.float32)
    p = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum(1, keepdims=True)
    np.testing.assert_allclose(log_odds(logits, 1), np.log(p[:, 1] / (1 - p[:, 1])), rtol=1e-5)
    np.testing.assert_array_equal(log_odds(logits[:, :1], 0), logits[:, 0])


def test_a_classifier_of_pairs_gives_the_odds_of_its_positive_label(tmp_path: Path) -> None:
    model = save_classifier(tmp_path / "model", ("not_entailment", "entailment"))
    scores = open_pair_teacher(str(tmp_path / "model")).scores(QUERIES, PASSAGES, tmp_path / "cache")
    logits = model.logits(QUERIES, PASSAGES)
    assert scores.dtype == np.float32 and len(set(scores.tolist())) == 9
    assert_close(scores, logits[:, 1] - logits[:, 0], 4 * 32, 2 * 6)
    save_classifier(tmp_path / "other", ("good", "bad"))
    with pytest.raises(UserError, match="tells good, bad apart, of which none says that a passage belongs"):
        open_pair_teacher(str(tmp_path / "other"))
    save_classifier(tmp_path / "single", ("no", "yes"), pairs=False)
    with pytest.raises(UserError, match="score_by=.*single classifies single texts"):
        open_pair_teacher(str(tmp_path / "single"))


def test_a_decoder_is_asked_as_the_judge_of_questions_is(tmp_path: Path) -> None:
    decoder = make_decoder(max_positions=512)
    folder = save_encoder(decoder, tmp_path / "judge")
    scores = open_pair_teacher(str(folder)).scores(QUERIES, PASSAGES, tmp_path / "cache")
    z, _ = load_judge(str(folder), template=ASYMMETRIC).score(QUERIES, PASSAGES)
    np.testing.assert_allclose(scores, z, atol=1e-4)
    adapters = lora.start(decoder.params, "attention/query", 2, np.random.default_rng(0))
    for adapter in adapters.values():
        adapter["B"] = np.full_like(adapter["B"], 0.3)
    peft.save_adapters(tmp_path / "adapter", adapters, 4.0, peft.torch_names(decoder.config))
    (tuned,) = open_pair_teachers([str(folder)], adapter=str(tmp_path / "adapter"))
    others = tuned.scores(QUERIES, PASSAGES, tmp_path / "cache")
    merged = replace(decoder, params=lora.merge(decoder.params, adapters, 4.0))
    z, _ = load_judge(str(save_encoder(merged, tmp_path / "merged")), template=ASYMMETRIC).score(QUERIES, PASSAGES)
    np.testing.assert_allclose(others, z, atol=1e-4)
    assert np.abs(others - scores).max() > 1e-3
    save_classifier(tmp_path / "model", ("no", "yes"))
    with pytest.raises(UserError, match="judge_adapter=.* tunes a decoder, and --score_by=.*model names none"):
        open_pair_teachers([str(tmp_path / "model")], adapter=str(tmp_path / "adapter"))


@pytest.mark.parametrize("prefix", ["", "st:"])
def test_a_cross_encoder_gives_what_predict_gives_before_its_activation(tmp_path: Path, prefix: str) -> None:
    torch, model = pytest.importorskip("torch", reason="needs the torch extra"), save_cross_encoder(tmp_path / "cross")
    pairs = list(zip(QUERIES, PASSAGES, strict=True))
    scores = open_pair_teacher(f"{prefix}{tmp_path / 'cross'}").scores(QUERIES, PASSAGES, tmp_path / "cache")
    np.testing.assert_allclose(scores, model.predict(pairs, activation_fn=torch.nn.Identity()), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), model.predict(pairs), rtol=1e-5)  # a sigmoid, by default
    assert np.ptp(scores) > 0.1
    # Of one whose publisher leaves the activation out, as of the MS MARCO ones, it is predict itself.
    plain = save_cross_encoder(tmp_path / "plain", seed=1, activation_fn=torch.nn.Identity())
    scores = open_pair_teacher(f"{prefix}{tmp_path / 'plain'}").scores(QUERIES, PASSAGES, tmp_path / "cache")
    np.testing.assert_allclose(scores, plain.predict(pairs), rtol=1e-5, atol=1e-6)


def test_a_cross_encoder_of_several_labels_gives_the_odds_of_entailment(tmp_path: Path) -> None:
    labels = {0: "contradiction", 1: "Entailment", 2: "neutral"}
    model = save_cross_encoder(tmp_path / "nli", id2label=labels)
    scores = open_pair_teacher(str(tmp_path / "nli")).scores(QUERIES, PASSAGES, tmp_path / "cache")
    logits = model.predict(list(zip(QUERIES, PASSAGES, strict=True)))
    np.testing.assert_allclose(scores, log_odds(logits, 1), rtol=1e-4, atol=1e-5)
    save_cross_encoder(tmp_path / "unnamed", id2label={0: "LABEL_0", 1: "LABEL_1"})
    with pytest.raises(UserError, match="tells LABEL_0, LABEL_1 apart, of which none says"):
        open_pair_teacher(str(tmp_path / "unnamed"))


def test_the_cache_asked_twice_computes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_classifier(tmp_path / "model", ("no", "yes"))
    asked: list[int] = []
    logits = Classifier.logits

    def counted(self: Classifier, texts: list[str], others: list[str]) -> np.ndarray:
        asked.append(len(texts))
        return logits(self, texts, others)

    monkeypatch.setattr(Classifier, "logits", counted)
    twice = [*QUERIES, QUERIES[0]], [*PASSAGES, PASSAGES[0]]
    first = open_pair_teacher(str(tmp_path / "model")).scores(*twice, tmp_path / "cache")
    again = open_pair_teacher(str(tmp_path / "model")).scores(QUERIES[::-1], PASSAGES[::-1], tmp_path / "cache")
    assert asked == [9] and first[-1] == first[0]
    np.testing.assert_array_equal(again, first[8::-1])
    turned = open_pair_teacher(str(tmp_path / "model")).scores(PASSAGES[:1], QUERIES[:1], tmp_path / "cache")
    assert asked == [9, 1] and turned[0] != first[0]


def test_an_encoder_scores_by_the_cosine_of_its_vectors_each_by_its_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = replace(make_encoder(), prompts={"query": "ask: ", "document": "read: "})
    save_encoder(encoder, tmp_path / "encoder")
    scores = open_pair_teacher(f"cosine:{tmp_path / 'encoder'}").scores(QUERIES, PASSAGES, tmp_path / "cache")
    queries, passages = (
        encoder.encode(texts, prompt=prompt).astype(np.float64)
        for texts, prompt in ((QUERIES, "query"), (PASSAGES, "document"))
    )
    by_hand = [q @ p / np.linalg.norm(q) / np.linalg.norm(p) for q, p in zip(queries, passages, strict=True)]
    assert_close(scores, by_hand, terms=encoder.dim)
    assert len(set(scores.tolist())) == len(scores)
    # A text is read once, whichever pairs it stands in; and in parts as in one.
    read: list[str] = []
    encode = Encoder.encode
    monkeypatch.setattr(Encoder, "encode", lambda self, texts: read.extend(texts) or encode(self, texts))
    monkeypatch.setattr(pair_teachers, "PAIRS_AT_ONCE", 4)
    new = "never read"
    again = open_pair_teacher(f"cosine:{tmp_path / 'encoder'}").scores(
        [new, *QUERIES, new], [PASSAGES[0], *PASSAGES, new], tmp_path / "cache"
    )
    assert read == [new, new]  # as a query and as a passage
    np.testing.assert_array_equal(again[1:-1], scores)
    # Another prompt is another score, which the cache does not mix up.
    save_encoder(replace(encoder, prompts={"document": "read: "}), tmp_path / "other")
    other = open_pair_teacher(f"cosine:{tmp_path / 'other'}").scores(QUERIES, PASSAGES, tmp_path / "cache")
    assert np.abs(other - scores).max() > 1e-3


def fixed(name: str, scores: list[float]) -> PairTeacher:
    return PairTeacher(name, lambda queries, passages, folder: np.array(scores, np.float32))


def test_several_are_averaged_after_standardising_each(tmp_path: Path) -> None:
    one, other = [1.0, 2.0, 3.0, 6.0], [10.0, -10.0, 30.0, 10.0]
    teachers, pairs = [fixed("one", one), fixed("other", other)], (["q"] * 4, ["p"] * 4)
    # By hand: means 3 and 10, squared deviations 4 1 0 9 (sd sqrt 3.5) and 0 400 400 0 (sd sqrt 200).
    wanted = [(a / 3.5**0.5 + b / 200**0.5) / 2 for a, b in zip([-2, -1, 0, 3], [0, -20, 20, 0], strict=True)]
    np.testing.assert_allclose(averaged_scores(teachers, *pairs, tmp_path), wanted, rtol=1e-6)
    np.testing.assert_array_equal(averaged_scores(teachers[:1], *pairs, tmp_path), one)  # one alone: as it gives them
    with pytest.raises(UserError, match="flat gives all 4 pairs the score 2: it tells nothing apart"):
        averaged_scores([teachers[0], fixed("flat", [2.0] * 4)], *pairs, tmp_path)


def test_what_scores_no_pairs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_encoder(make_encoder(), tmp_path / "encoder")
    with pytest.raises(
        UserError, match="score_by=.*encoder is a bert that reads one text: what scores pairs is a classifier"
    ):
        open_pair_teacher(str(tmp_path / "encoder"))
    student = make_decoder()
    save_encoder(student, tmp_path / "student")
    add_interaction(tmp_path / "student", random_iem(student.dim, np.random.default_rng(0), 8), student.dim, "dual")
    with pytest.raises(UserError, match="is a student with an interaction module, made of a judge's scores"):
        open_pair_teacher(str(tmp_path / "student"))
    with pytest.raises(UserError, match="score_by=.*nowhere: there is no such file or folder"):
        open_pair_teacher(str(tmp_path / "nowhere"))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UserError, match=r"score_by=.* needs the torch extra: pip install -e '.\[torch\]'"):
        open_pair_teacher(f"st:{tmp_path / 'encoder'}")


def test_code_and_damage_in_a_cross_encoder_s_folder_are_refused(tmp_path: Path) -> None:
    save_cross_encoder(tmp_path / "cross")
    (tmp_path / "cross" / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(UserError, match="score_by=.*cross cannot be loaded by sentence-transformers"):
        open_pair_teacher(str(tmp_path / "cross"))
    (tmp_path / "cross" / "modeling.py").write_text("raise SystemExit\n")
    with pytest.raises(UserError, match=r"carries code \(modeling.py\)"):
        open_pair_teacher(str(tmp_path / "cross"))
