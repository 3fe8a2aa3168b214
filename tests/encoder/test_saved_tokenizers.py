"""An exported tokenizer's settings have the names that transformers 4 knows, by which servers load it, and are read here as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import make_decoder, make_encoder
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from jdistill.core.errors import UserError
from jdistill.encoder.formats.st_writer import save_tokenizer, write_files
from jdistill.encoder.formats.tokenizer import checked_tokenizer

TEXT = "a river and a stone"


def settings_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "tokenizer_config.json").read_text())


def test_further_special_tokens_are_named_as_before(tmp_path: Path) -> None:
    model = make_encoder()
    model.tokenizer.add_special_tokens({"extra_special_tokens": ["river"]})
    write_files(model, tmp_path)
    settings = settings_of(tmp_path)
    assert settings["additional_special_tokens"] == ["river"] and "extra_special_tokens" not in settings
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert "river" in again.all_special_tokens and again(TEXT).input_ids == model.tokenizer(TEXT).input_ids


def test_a_tokenizer_of_no_model_is_of_the_class_that_both_versions_have(tmp_path: Path) -> None:
    model = make_encoder()
    plain = PreTrainedTokenizerFast(
        tokenizer_object=model.tokenizer.backend_tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )
    plain.save_pretrained(tmp_path / "theirs")
    if settings_of(tmp_path / "theirs")["tokenizer_class"] == "PreTrainedTokenizerFast":
        pytest.fail("transformers writes the old name again: the renaming can go")
    object.__setattr__(model, "tokenizer", plain)
    (tmp_path / "ours").mkdir()
    save_tokenizer(model, tmp_path / "ours")
    assert settings_of(tmp_path / "ours")["tokenizer_class"] == "PreTrainedTokenizerFast"
    read = [AutoTokenizer.from_pretrained(tmp_path / name) for name in ("theirs", "ours")]
    assert type(read[0]) is type(read[1]) and read[0](TEXT).input_ids == read[1](TEXT).input_ids


def test_a_class_that_its_start_names_is_not_handed_on(tmp_path: Path) -> None:
    """The export of a student whose folder carries code is loaded with trust, which would run it."""
    model = make_encoder(num_layers=1)
    model.tokenizer.init_kwargs["auto_map"] = {"AutoTokenizer": [None, "owner/tok--tok.T"]}
    save_tokenizer(model, tmp_path)
    assert "owner/tok" not in (tmp_path / "tokenizer_config.json").read_text()


def test_a_tokenizer_without_a_token_to_pad_with_is_refused_when_it_is_read() -> None:
    model = make_decoder()
    whole = model.tokenizer.backend_tokenizer
    whole.no_padding()  # whose token would be taken
    by_start = PreTrainedTokenizerFast(tokenizer_object=whole, bos_token="[CLS]")
    assert checked_tokenizer(by_start, model.config, Path("folder")).pad_token == "[CLS]"
    with pytest.raises(UserError, match="folder: the tokenizer names no pad, eos, unk or bos token"):
        checked_tokenizer(PreTrainedTokenizerFast(tokenizer_object=whole), model.config, Path("folder"))
