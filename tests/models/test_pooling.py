"""Every pooler against loops, and through every kind of export and back; what sentence-transformers lacks travels as code."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_decoder, make_encoder, real_teacher_folder, sentences
from parity import assert_close, rounding
from simtde_setting import config as simtde_config
from simtde_setting import random_tokens
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

import jdistill
from configs import distilface
from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.evals.poolers import EveryPooler, pooler_names
from jdistill.export.card import write_card
from jdistill.export.folder import export
from jdistill.export.onnx import graph
from jdistill.models.pma import random_pma
from jdistill.models.pooling import DISTILFACE, POOLERS, pool
from jdistill.students.transformer import make_student

# DistilFACE's definitions: which hidden states (0: the embedding layer's output), joined how
BY_HAND: dict[str, tuple[list[int] | slice, str]] = {
    "avg_last_hidden": ([-1], "mean"),
    "avg_last_second_hidden": ([-2], "mean"),
    "avg_all_hidden": (slice(0, None), "mean"),
    "avg_second_to_last_hidden": (slice(1, None), "mean"),
    "avg_first_last": ([0, -1], "mean"),
    "avg_last2": ([-2, -1], "mean"),
    "avg_last4": ([-4, -3, -2, -1], "mean"),
    "max_all_hidden": (slice(0, None), "max"),
    "max_second_to_last_hidden": (slice(1, None), "max"),
    "max_first_last": ([0, -1], "max"),
    "max_last2": ([-2, -1], "max"),
    "max_last4": ([-4, -3, -2, -1], "max"),
    "concat_last4": ([-4, -3, -2, -1], "concat"),
}


def by_loops(name: str, states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """states [layers + 1, B, L, D], token by token."""
    found = []
    for b in range(states.shape[1]):
        tokens = [states[:, b, i] for i in range(mask.shape[1]) if mask[b, i]]
        if name == "cls":
            found.append(tokens[0][-1])
        elif name == "lasttoken":
            found.append(tokens[-1][-1])
        elif name == "final":
            found.append(np.concatenate([tokens[-1][-1][:3], tokens[0][-1][3:]]))
        elif name == "max":
            found.append(np.max([token[-1] for token in tokens], axis=0))
        else:
            layers, how = BY_HAND.get(name, ([-1], "mean"))
            join = {"mean": lambda x: x.mean(0), "max": lambda x: x.max(0), "concat": lambda x: x.reshape(-1)}[how]
            found.append(np.mean([join(token[layers]) for token in tokens], axis=0))
    return np.array(found)


WITHOUT_PARAMETERS = [name for name in POOLERS if name != "pma"]  # which test_lora_pma.py holds against torch


@pytest.mark.parametrize("name", WITHOUT_PARAMETERS)
def test_every_pooler_equals_loops_and_never_sees_padding(name: str) -> None:
    states = np.random.default_rng(0).standard_normal((5, 4, 7, 6)).astype(np.float32)
    mask = np.arange(7) < np.array([7, 4, 1, 3])[:, None]
    found = np.asarray(pool(name, list(states), jnp.asarray(mask)))
    assert_close(found, by_loops(name, states, mask), 7 * 5)  # means over tokens and layers
    spoilt = np.where(mask[None, :, :, None], states, 100.0)
    np.testing.assert_array_equal(np.asarray(pool(name, list(spoilt), jnp.asarray(mask))), found)
    assert found.shape[1] == POOLERS[name].width(6) and found.dtype == np.float32


def test_there_are_fourteen_and_others_are_refused() -> None:
    assert len(DISTILFACE) == 14 and set(DISTILFACE) == {"cls", *BY_HAND}
    states, mask = [jnp.zeros((1, 2, 4))] * 3, jnp.ones((1, 2))
    for name in ("avg_last4", "max_last4", "concat_last4"):
        with pytest.raises(UserError, match="the 4 last layers needs as many; the model has 2"):
            pool(name, states, mask)
    with pytest.raises(UserError, match="the two final states of an LSTM, which a transformer has not"):
        make_student(simtde_config(), replace(make_encoder(), pooling="final"), random_tokens(20))
    with pytest.raises(UserError, match="pooler 'pma' has parameters, which D2LLM trains"):
        make_student(simtde_config(), replace(make_encoder(), pooling="pma"), random_tokens(20))
    with pytest.raises(UserError, match="the 4 last layers, of which --config.student.layers leaves 2"):
        make_student(simtde_config(), replace(make_encoder(), pooling="avg_last4"), random_tokens(20))
    with pytest.raises(UserError, match="no pooler 'mean4'; there are cls, avg_last_hidden"):
        pool("mean4", states, mask)


@pytest.mark.parametrize("kind", ["the real MiniLM", "a random DistilBERT"])
def test_every_pooler_equals_loops_over_the_states_of_transformers(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = real_teacher_folder()
    if kind == "a random DistilBERT":
        torch.manual_seed(0)
        config = transformers.DistilBertConfig(dim=32, n_layers=5, n_heads=4, hidden_dim=64, initializer_range=0.1)
        transformers.DistilBertModel(config).save_pretrained(tmp_path)
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
        folder = tmp_path
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    model = replace(jdistill.load(str(folder)), normalize=False)
    tokens = model.tokenizer(sentences(6), padding=True, return_tensors="pt")
    with torch.no_grad():
        given = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        states = np.stack([x.numpy() for x in theirs.double()(**given, output_hidden_states=True).hidden_states])
    assert len(states) == model.config.num_layers + 1
    for name, view in EveryPooler(model, list(DISTILFACE)).views().items():
        expected = by_loops(name, states, tokens["attention_mask"].numpy())
        assert_close(view.encode(sentences(6)), expected, model.config.intermediate_size, len(states), what=name)


@pytest.mark.parametrize("name", POOLERS)
def test_every_pooler_goes_through_an_export_and_back(name: str, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = replace(make_encoder(), pooling=name)
    if name == "pma":
        model = replace(model, pooler=random_pma(32, np.random.default_rng(0)))
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    again = jdistill.load(str(tmp_path / "out"))
    np.testing.assert_array_equal(again.encode(sentences(5)), model.encode(sentences(5)))
    assert again.dim == model.dim == (128 if name == "concat_last4" else 32)
    carries_code = (tmp_path / "out" / "layer_pooling.py").is_file()
    assert carries_code == (name.startswith(("max_", "concat_")))


@pytest.mark.parametrize(
    ("name", "causal", "changes"),
    [
        ("lasttoken", True, {}),
        ("avg_first_last", True, {"qkv_bias": True, "out_bias": True, "mlp_bias": True}),
        ("mean", False, {"model_type": "qwen3", "qk_norm": True, "head_size": 12}),
        ("max_first_last", False, {"rope_scaling": (8.0, 1.0, 4.0, 16)}),
    ],
)
def test_decoders_go_through_an_export_and_back(name: str, causal: bool, changes: dict, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = replace(make_decoder(causal=causal, **changes), pooling=name)
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    again = jdistill.load(str(tmp_path / "out"))
    assert again.config == model.config and again.pooling == name
    np.testing.assert_array_equal(again.encode(sentences(5)), model.encode(sentences(5)))
    assert (tmp_path / "out" / "bidirectional_transformer.py").is_file() == (not causal)
    write_card(tmp_path, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("trust_remote_code=True)" in card) == (not causal)
    words = {
        "lasttoken": "the last token's last hidden state",
        "mean": "the mean over its tokens of the last hidden state",
    }
    assert words.get(name, "hidden states 0, 2") in card


def without_special_tokens(model: Encoder) -> Encoder:
    """Its tokenizer gives an empty text no token at all, as SmolLM2's."""
    words = copy.deepcopy(model.tokenizer.backend_tokenizer)
    words.post_processor = TemplateProcessing(single="$A", pair="$A $B")
    plain = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    assert plain("")["input_ids"] == []
    return replace(model, tokenizer=plain)


@pytest.mark.parametrize("name", ["cls", "max"])
def test_what_stacks_disagree_on_without_tokens_is_refused_before_training(name: str) -> None:
    cfg = distilface.get_config()
    cfg.student.layers = 2
    model = replace(make_decoder(), pooling=name)
    assert make_student(cfg, model, random_tokens(20)).pooling == name
    with pytest.raises(UserError, match=f"pooler '{name}': the start's tokenizer gives an empty text no token"):
        make_student(cfg, without_special_tokens(model), random_tokens(20))


@pytest.mark.parametrize("name", ["pma", "lasttoken", "mean", "avg_last2"])
def test_an_empty_text_of_a_tokenizer_that_adds_nothing(name: str, tmp_path: Path) -> None:
    """SmolLM2's tokenizer gives such a text no token at all, so that its vector must not be that of its batch's padding."""
    st = pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = replace(without_special_tokens(make_decoder()), pooling=name, normalize=False)
    if name == "pma":
        model = replace(model, pooler=random_pma(32, np.random.default_rng(0)))
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"}
    one, many = model.encode(["", "one"]), model.encode(["", "many more words than that, and still more of them"])
    sums = model.config.intermediate_size, 2 * model.config.num_layers
    assert max(checks.values()) < rounding(*sums) * 4 * np.sqrt(np.square(many).mean())
    np.testing.assert_array_equal(one[0], many[0])
    theirs = st.SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=name == "pma")
    assert_close(theirs.encode(["", "one"]), one, *sums)
    tokens = model.tokenizer(["", "one"], padding=True, return_tensors="np")
    assert_close(graph.run_graph(tmp_path / "out" / "onnx" / "model.onnx", tokens), one, *sums)


def test_code_in_a_folder_needs_trust_and_weights_that_differ_are_refused(tmp_path: Path) -> None:
    st = pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    export(replace(make_encoder(), pooling="max_last2"), tmp_path / "max")
    with pytest.raises(ValueError, match="trust_remote_code"):
        st.SentenceTransformer(str(tmp_path / "max"), device="cpu")
    settings = tmp_path / "max" / "1_LayerPooling" / "config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"layers": [2, 4]}))
    with pytest.raises(UserError, match=r"takes the hidden states \[2, 4\] by max"):
        jdistill.load(str(tmp_path / "max"))
    from safetensors.numpy import save_file

    export(replace(make_encoder(), pooling="avg_last2"), tmp_path / "avg")
    uneven = {"layer_weights": np.array([0, 0, 0, 1, 2], np.float32)}
    save_file(uneven, tmp_path / "avg" / "1_WeightedLayerPooling" / "model.safetensors")
    with pytest.raises(UserError, match="layers have different weights"):
        jdistill.load(str(tmp_path / "avg"))


def test_one_pass_gives_every_pooler() -> None:
    model = make_encoder(normalize=False)
    views = EveryPooler(model, pooler_names("all", 4)).views()
    assert list(views) == list(DISTILFACE)
    sums = model.config.intermediate_size, 2 * model.config.num_layers
    texts = sentences(70)  # two batches; each pooler against transformers' states is above
    for name, view in views.items():
        found = view.encode(texts)
        assert view.dim == found.shape[1]
        assert_close(view.encode(texts[::-1])[::-1], found, *sums, what=name)
    for name in ("cls", "avg_first_last", "max_last4", "concat_last4"):
        found = views[name].encode(texts)
        assert_close(found, replace(model, pooling=name).encode(texts), *sums)
    unread = replace(model, prompts={"query": "search for these words: "}, include_prompt=False)
    for name, view in EveryPooler(unread, ("cls", "max_last4")).views().items():
        asked = view.encode(texts[:9], prompt="query")
        assert_close(asked, replace(unread, pooling=name).encode(texts[:9], prompt="query"), *sums, what=name)
        assert np.abs(asked - view.encode(texts[:9])).max() > 0.01
    for name in ("pma", "final"):
        with pytest.raises(UserError, match=f"'{name}' cannot be put on a model"):
            pooler_names(f"cls,{name}", 4)
    assert pooler_names("cls, avg_last2", 2) == ("cls", "avg_last2")
    assert set(DISTILFACE) - set(pooler_names("all", 3)) == {"avg_last4", "max_last4", "concat_last4"}
    with pytest.raises(UserError, match="4 last layers"):
        pooler_names("avg_last4", 3)
    with pytest.raises(UserError, match="no pooler 'avg'"):
        pooler_names("avg", 3)
