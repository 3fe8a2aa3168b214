"""The batch path of a tokenizer gives what its own call gives, token for token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pytest
from conftest import make_decoder, make_encoder, real_teacher_folder
from hypothesis import given, settings

import jdistill
from jdistill.encoder import batch_ids as module
from jdistill.encoder.batch_ids import batch_ids
from jdistill.encoder.encoder import Encoder

MODELS = {
    "tiny": make_encoder,
    "decoder": make_decoder,
    "real": lambda: jdistill.load(str(real_teacher_folder())),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Encoder:
    return MODELS[request.param]()


def by_call(tokenizer: object, texts: list[str], max_length: int) -> list[list[int]]:
    return tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]  # type: ignore[operator]


def test_models_of_two_lengths_may_share_a_tokenizer_in_two_threads() -> None:
    tokenizer, long_text = make_encoder().tokenizer, "the cat sat on the mat " * 20
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(batch_ids, tokenizer, [long_text] * 40, 8 + 8 * (i % 2)) for i in range(200)]
    for i, answer in enumerate(asked):
        assert {len(ids) for ids in answer.result()} == {8 + 8 * (i % 2)}


texts = st.lists(
    st.text(max_size=60) | st.sampled_from(["[SEP]", "a [MASK] b", "the cat " * 40, "</s><s>"]), min_size=1
)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(texts=texts, max_length=st.integers(4, 30))
def test_ids_are_those_of_the_tokenizers_call(model: Encoder, texts: list[str], max_length: int) -> None:
    clean = [text.encode(errors="replace").decode() for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", 3)
        assert module._is_plain(model.tokenizer)
        assert batch_ids(model.tokenizer, clean, max_length) == by_call(model.tokenizer, clean, max_length)


def test_a_class_that_encodes_its_own_way_is_asked_its_own_way(model: Encoder) -> None:
    class Shouting(type(model.tokenizer)):  # type: ignore[misc]
        def _encode_plus(self, text: list[str], *args: object, **kwargs: object) -> object:
            return super()._encode_plus([each.upper() for each in text], *args, **kwargs)

    shouting = Shouting.__new__(Shouting)
    shouting.__dict__.update(model.tokenizer.__dict__)
    assert batch_ids(shouting, ["a b", "c"], 20) == by_call(model.tokenizer, ["A B", "C"], 20)
