"""What a server that is not here requires of a folder: the keys of config.json, as text-embeddings-inference's sources list them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, sentences
from modernbert_setting import make_modernbert

from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_body
from jdistill.export.folder import export

ALL = {"initializer_range"}
QWEN = ALL | {"use_sliding_window", "eos_token_id"}
MODERN = ALL | {
    "initializer_cutoff_factor",
    "classifier_activation",
    "bos_token_id",
    "eos_token_id",
    "cls_token_id",
    "sep_token_id",
}
GEMMA = {"model_type": "gemma3_text", "qk_norm": True, "query_scalar": 8, "local_rope_theta": 1e4, "sliding_window": 3}


def keys_of(model: Encoder, folder: Path) -> dict[str, Any]:
    """config.json, without the check of whole exports: MiniLM's tokenizer is none that transformers gives to a Qwen2 or Gemma."""
    folder.mkdir()
    write_body(model, folder)
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(
    ("name", "required"),
    [("bert", ALL), ("modernbert", MODERN), ("llama", ALL), ("mistral", ALL), ("qwen2", QWEN), ("qwen3", QWEN)],
)
def test_the_keys_that_have_no_default_there_are_written(tmp_path: Path, name: str, required: set[str]) -> None:
    of_qwen = {"qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": True}}.get(name, {})
    others = {"bert": make_encoder, "modernbert": make_modernbert}
    model = others[name](num_layers=1) if name in others else make_decoder(model_type=name, num_layers=1, **of_qwen)
    keys = keys_of(model, tmp_path / "export")
    assert required <= keys.keys() and None not in [keys[key] for key in required]
    of_tokens = {key: keys[key] for key in required if key.endswith("_token_id")}
    first, last = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id  # MiniLM's has no other names for them
    ids = {"bos_token_id": first, "cls_token_id": first, "eos_token_id": last, "sep_token_id": last}
    assert of_tokens == {key: ids[key] for key in of_tokens}


@pytest.mark.parametrize(("sliding", "pattern"), [((True, False, True, False), 2), ((False, True, True, False), None)])
def test_a_gemmas_layers_are_told_by_number_where_they_come_by_turns(
    tmp_path: Path, sliding: tuple, pattern: int | None
) -> None:
    for causal in (False, True):  # text-embeddings-inference reads each Gemma both ways: a causal one it is not to load
        model = make_decoder(**GEMMA, num_layers=4, sliding=sliding, causal=causal)
        keys = keys_of(model, tmp_path / f"causal-{causal}")
        assert keys.get("_sliding_window_pattern") == (None if causal else pattern)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3"])
def test_a_decoder_that_reads_both_ways_is_read_so_without_its_code(tmp_path: Path, kind: str) -> None:
    """By transformers' AutoModel, and by vLLM, which asks for the same key."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from transformers import AutoModel, AutoTokenizer

    causal = make_decoder(model_type=kind, qk_norm=kind == "qwen3")
    model = replace(causal, config=replace(causal.config, causal=False))
    texts = sentences(6)
    export(model, tmp_path / "export")
    assert "from transformers 5 on" in card_of(tmp_path)
    tokenizer, theirs = (
        AutoTokenizer.from_pretrained(tmp_path / "export"),
        AutoModel.from_pretrained(tmp_path / "export").eval(),
    )
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states, mask = theirs(**tokens).last_hidden_state, tokens["attention_mask"].unsqueeze(-1)
    vectors = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)).numpy()
    np.testing.assert_allclose(vectors, model.encode(texts), atol=1e-5)
    assert np.abs(vectors - causal.encode(texts)).max() > 1e-3
    # Text-embeddings-inference reads a Llama or Mistral both ways by a key of its own, and a Qwen never: such a one it is not to load.
    keys, of_causal = keys_of(model, tmp_path / "keys"), keys_of(causal, tmp_path / "causal")
    assert keys["is_causal"] is False and keys.get("use_bidirectional_attention", False) == (kind != "qwen3")
    assert "use_sliding_window" not in keys and not {"is_causal", "use_bidirectional_attention"} & of_causal.keys()


def card_of(folder: Path) -> str:
    from jdistill.export.card import write_card

    (folder / "run").mkdir(exist_ok=True)
    write_card(folder / "run", folder / "export", results={})
    return (folder / "export" / "README.md").read_text()
