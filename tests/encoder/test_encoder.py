"""Encoder: what sentence-transformers gives, whatever the batch; clear errors; the latency of what is loaded once."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, real_teacher_folder, save_encoder, sentences
from made_up_devices import three_devices

import jdistill
from jdistill.core.errors import UserError
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.teachers.embeddings import open_teacher


def test_the_real_teacher_equals_sentence_transformers() -> None:
    st = pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    folder = real_teacher_folder()
    ours, theirs = jdistill.load(str(folder)), st.SentenceTransformer(str(folder), device="cpu")
    assert (ours.max_length, ours.pooling, ours.normalize, ours.dim) == (256, "mean", True, 384)
    assert np.abs(ours.encode(PROBE_TEXTS) - theirs.encode(list(PROBE_TEXTS), show_progress_bar=False)).max() < 1e-5


def test_printed_it_names_its_sizes_and_not_its_weights(tiny_teacher: Path) -> None:
    shown = repr(jdistill.load(tiny_teacher))
    assert "BertConfig(" in shown and "pooling='mean'" in shown and len(shown) < 2000, shown


def test_order_and_batch_size_change_nothing() -> None:
    model, texts = make_encoder(), sentences(70)
    one = model.encode(texts, batch_size=64)
    assert one.shape == (70, 32) and one.dtype == np.float32
    shuffled = np.random.default_rng(0).permutation(70)
    assert np.abs(model.encode([texts[i] for i in shuffled], batch_size=7) - one[shuffled]).max() < 1e-5
    assert np.allclose(np.linalg.norm(one, axis=1), 1, atol=1e-5)
    assert model.encode([]).shape == (0, 32)


def test_several_devices_are_given_the_weights_once_and_rows_that_they_can_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, texts = make_encoder(), sentences(70)
    alone = model.encode(texts)
    model = replace(model)  # as new
    uploads, heights = three_devices(monkeypatch)
    for _ in range(2):
        assert np.abs(model.encode(texts, batch_size=32) - alone).max() < 1e-5
    assert len(uploads) == 1 and heights == [33, 33, 4] * 2
    replace(model, max_length=9).encode(texts[:1])
    assert len(uploads) == 2


def test_prompts_are_put_before_the_text_and_unknown_ones_refused(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(), tmp_path / "m")
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "find: ", "passage": ""}, "default_prompt_name": None})
    )
    model = jdistill.load(str(folder))
    assert np.abs(model.encode(["a stone"], prompt="query") - model.encode(["find: a stone"])).max() < 1e-6
    with pytest.raises(UserError, match="prompt 'title' is not one of this model's prompts: .'query'."):
        model.encode(["x"], prompt="title")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("broken \ud800 surrogate", "text 1 holds a lone surrogate"),
        (7, "text 1 is int, not a string"),
        (None, "text 1 is NoneType"),
    ],
)
def test_a_text_that_cannot_be_encoded_is_named(text: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_encoder().encode(["fine", text])  # type: ignore[list-item]


def test_one_string_is_no_list_of_letters() -> None:
    with pytest.raises(UserError, match=r"texts is one string, 'a stone': give a list of them, \[text\]"):
        make_encoder().encode("a stone")


def test_texts_that_can_be_read_once_are_all_encoded() -> None:
    model, texts = make_encoder(num_layers=1), sentences(3)
    expected = model.encode(texts)
    for once in ((text for text in texts), map(str.strip, texts), np.array(texts)):
        np.testing.assert_array_equal(model.encode(once), expected)


@pytest.mark.parametrize("size", [0, -1])
def test_fewer_than_one_text_at_a_time_is_refused(size: int) -> None:
    with pytest.raises(UserError, match="batch_size is below 1"):
        make_encoder(num_layers=1).encode(sentences(2), batch_size=size)


def test_a_type_that_no_model_computes_in_is_refused(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(num_layers=1), tmp_path / "m")
    for dtype in ("int8", "bf16", "float64"):
        with pytest.raises(UserError, match=f"dtype='{dtype}' is not one of float32, bfloat16, float16"):
            jdistill.load(folder, dtype=dtype)
    for dtype in ("bfloat16", "float16"):
        assert (
            np.abs(jdistill.load(folder, dtype=dtype).encode(["a"]) - jdistill.load(folder).encode(["a"])).max() < 0.05
        )


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (["Transformer", "Pooling", "Normalize", "Dense"], "puts Normalize before Dense"),
        (["Transformer", "Pooling", "LayerNorm"], "jdistill reads Transformer, Pooling .after"),
        (["WordEmbeddings", "Pooling"], "jdistill reads Transformer"),
    ],
)
def test_modules_of_another_kind_are_refused(modules: list[str], message: str, tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(), tmp_path / "m")
    (folder / "modules.json").write_text(
        json.dumps([{"idx": i, "path": "", "type": f"sentence_transformers.models.{m}"} for i, m in enumerate(modules)])
    )
    with pytest.raises(UserError, match=message):
        jdistill.load(str(folder))


def test_the_fingerprint_is_of_what_decides_the_vectors() -> None:
    model = make_encoder()
    before = model.fingerprint()
    model.encode(sentences(3))
    assert model.fingerprint() == before == make_encoder().fingerprint()
    changed = [
        make_encoder(seed=1),
        replace(model, max_length=9),
        replace(model, pooling="cls"),
        replace(model, normalize=False),
        replace(model, prompts={"q": "x "}, default_prompt="q"),
        replace(model, dense=({"kernel": np.eye(32, dtype=np.float32)},), dense_activations=("Identity",)),
    ]
    assert len({before, *(m.fingerprint() for m in changed)}) == 7


def test_a_folder_without_modules_is_mean_pooled(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(), tmp_path / "m")
    (folder / "modules.json").unlink()
    model = jdistill.load(str(folder))
    assert model.pooling == "mean" and not model.normalize


def test_a_teacher_answers_in_bfloat16_and_is_kept_apart(tiny_teacher: Path) -> None:
    exact, rough = (open_teacher(str(tiny_teacher), 64, dtype) for dtype in ("float32", "bfloat16"))
    assert exact.fingerprint != rough.fingerprint
    assert rough.encoder is not None and rough.encoder.dtype == "float32"  # the student may start as it
    texts = sentences(20)
    one, other = exact.answer(texts), rough.answer(texts)
    assert other.dtype == np.float32
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert 0.99 < cosines.min() < 0.999999
    with pytest.raises(UserError, match="teacher_dtype"):
        open_teacher(str(tiny_teacher), 64, "float16")


def test_the_fingerprint_in_roles_knows_every_prompt() -> None:
    model = make_encoder()
    with_query, mended = replace(model, prompts={"query": "q: "}), replace(model, prompts={"query": "question: "})
    assert model.fingerprint_in_roles() == model.fingerprint()
    assert with_query.fingerprint() == mended.fingerprint()  # a text without a role reads as before
    assert len({each.fingerprint_in_roles() for each in (model, with_query, mended)}) == 3
    cut_at_the_start = replace(model, tokenizer=copy.deepcopy(model.tokenizer))
    cut_at_the_start.tokenizer.truncation_side = "left"
    assert cut_at_the_start.fingerprint() != model.fingerprint()
