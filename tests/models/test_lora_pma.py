"""LoRA on a parameter tree, PEFT's files; PMA and IEM against torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params, tiny_decoder_config
from parity import assert_close
from safetensors.numpy import load_file, save_file
from steps import hidden_states

from jdistill.core.errors import UserError
from jdistill.encoder.formats import peft
from jdistill.models import lora
from jdistill.models.interaction import BRANCHES, iem, iem_matrix, random_iem
from jdistill.models.pma import heads_for, pma, random_pma

CONFIG = tiny_decoder_config(vocab_size=90, tied=False)
ATTENTION = r"attention/(query|key|value|out)/kernel$"


def batch() -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(0).integers(0, 90, (4, 11)).astype(np.int32)
    return ids, np.arange(11) < np.array([11, 3, 7, 1])[:, None]


def adapters(rank: int = 3, seed: int = 0, of: str = ATTENTION) -> lora.Adapters:
    found = lora.start(random_params(CONFIG), of, rank, np.random.default_rng(seed))
    rng = np.random.default_rng(9)
    return {path: a | {"B": rng.normal(0, 0.1, a["B"].shape).astype(np.float32)} for path, a in found.items()}


def test_a_new_adapter_and_rank_zero_leave_the_model_as_it_was() -> None:
    params, (ids, mask) = random_params(CONFIG), batch()
    plain = hidden_states(CONFIG, params, ids, mask)[-1]
    for rank in (0, 4):
        new = lora.start(params, ATTENTION, rank, np.random.default_rng(0))
        assert len(new) == (8 if rank else 0)
        for added in (lora.merge, lora.beside):
            np.testing.assert_array_equal(hidden_states(CONFIG, added(params, new, 8.0), ids, mask)[-1], plain)
    changed = hidden_states(CONFIG, lora.merge(params, adapters(), 8.0), ids, mask)[-1]
    assert np.abs(changed - plain).max() > 1e-2


def test_a_merge_has_the_bits_of_sums_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    params, found = random_params(CONFIG), adapters(rank=3)
    path = "layer_1/attention/value/kernel"
    kernel, a, b = (
        params["layer_1"]["attention"]["value"]["kernel"],
        found[path]["A"].tolist(),
        found[path]["B"].tolist(),
    )
    expected = [
        [float(kernel[i, j]) + 7.0 / 3 * sum(a[i][r] * b[r][j] for r in range(3)) for j in range(kernel.shape[1])]
        for i in range(kernel.shape[0])
    ]
    for numbers_at_once in (lora.SUMS_AT_ONCE, 100):
        monkeypatch.setattr(lora, "SUMS_AT_ONCE", numbers_at_once)
        merged = lora.merge(params, found, 7.0)
        np.testing.assert_array_equal(merged["layer_1"]["attention"]["value"]["kernel"], np.float32(expected))
        assert merged["layer_1"]["up"]["kernel"] is params["layer_1"]["up"]["kernel"]


def test_merge_is_the_sum_and_its_inverse_takes_it_away() -> None:
    params, found = random_params(CONFIG), adapters(rank=3)
    merged = lora.merge(params, found, 6.0)
    path = "layer_1/attention/value/kernel"
    expected = params["layer_1"]["attention"]["value"]["kernel"] + 2.0 * found[path]["A"] @ found[path]["B"]
    np.testing.assert_allclose(merged["layer_1"]["attention"]["value"]["kernel"], expected, atol=1e-6)
    back = lora.merge(merged, found, -6.0)
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(back), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_only_adapters_have_a_gradient() -> None:
    params, (ids, mask) = random_params(CONFIG), batch()

    def loss(adapters: lora.Adapters) -> jax.Array:
        return jnp.square(hidden_states(CONFIG, lora.beside(params, adapters, 8.0), ids, mask)[-1]).mean()

    gradient = jax.grad(loss)(adapters())
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(gradient)) and len(jax.tree.leaves(gradient)) == 16


def test_peft_s_own_files(tmp_path: Path) -> None:
    names = peft.torch_names(CONFIG)
    found = adapters()
    peft.save_adapters(tmp_path, found, 16.0, names)
    again, alpha = peft.load_adapters(tmp_path, names)
    assert alpha == 16.0 and again.keys() == found.keys()
    for path in found:
        for letter in ("A", "B"):
            np.testing.assert_array_equal(again[path][letter], found[path][letter])
    with pytest.raises(UserError, match="no adapter of this model; is it of another base"):
        peft.load_adapters(tmp_path, {path: f"other.{name}" for path, name in names.items()})
    with pytest.raises(UserError, match="does not fit this model"):
        lora.merge(random_params(tiny_decoder_config(vocab_size=90, hidden_size=64)), found, 1.0)
    with pytest.raises(UserError, match="no kernel of the model matches 'nothing'"):
        lora.paths(random_params(CONFIG), "nothing")
    with pytest.raises(UserError, match="holds no adapter_model.safetensors"):
        peft.load_adapters(tmp_path / "none", names)
    deeper = {
        path.replace("layer_1", "layer_9"): name.replace("layers.1.", "layers.9.") for path, name in names.items()
    }
    with pytest.raises(UserError, match="has no adapter of layers.9.*another base, of fewer layers"):
        peft.load_adapters(tmp_path, names | deeper)
    about = tmp_path / "adapter_config.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"exclude_modules": ["layers.9.self_attn.q_proj"]}))
    assert peft.load_adapters(tmp_path, names | deeper)[0].keys() == found.keys()  # PEFT adapts fewer then


@pytest.mark.parametrize("pattern", ["layer_1/attention/(query|value)", "layer_0/.*|attention/query"])
def test_adapters_of_some_layers_are_told_by_whole_names(tmp_path: Path, pattern: str) -> None:
    names = peft.torch_names(CONFIG)
    found = adapters(of=pattern)
    peft.save_adapters(tmp_path, found, 16.0, names)
    assert peft.load_adapters(tmp_path, names)[0].keys() == found.keys()
    told = json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"]
    # As PEFT has it: a name, or the end of one behind a dot.
    modules = {name.removesuffix(".weight") for path, name in names.items() if "." in name}
    reached = {module for module in modules if any(f".{module}".endswith(f".{target}") for target in told)}
    assert reached == {names[path].removesuffix(".weight") for path in found}


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("init_lora_weights", "pissa", False),
        ("init_lora_weights", "olora", False),
        ("init_lora_weights", "gaussian", True),
        ("init_lora_weights", True, True),
        ("use_dora", True, False),
        ("alora_invocation_tokens", [1, 2], False),
    ],
)
def test_adapters_whose_base_was_changed_or_that_are_of_another_kind_are_refused(
    tmp_path: Path, key: str, value: object, read: bool
) -> None:
    names = peft.torch_names(CONFIG)
    peft.save_adapters(tmp_path, adapters(), 16.0, names)
    about = tmp_path / "adapter_config.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {key: value}))
    if read:
        assert peft.load_adapters(tmp_path, names)[1] == 16.0
        return
    with pytest.raises(UserError, match=f"adapter_config.json: {key} is"):
        peft.load_adapters(tmp_path, names)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("adapter_config.json", b'{"lora_alpha": 8.0'),
        ("adapter_config.json", b'{"r": 4}'),
        ("adapter_model.safetensors", b"\x10\x00\x00\x00\x00\x00\x00\x00{}"),
    ],
)
def test_an_adapter_that_is_damaged_is_named(tmp_path: Path, file: str, content: bytes) -> None:
    names = peft.torch_names(CONFIG)
    peft.save_adapters(tmp_path, adapters(), 16.0, names)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=re.escape(file)):
        peft.load_adapters(tmp_path, names)


def test_half_an_adapter_is_named(tmp_path: Path) -> None:
    names = peft.torch_names(CONFIG)
    peft.save_adapters(tmp_path, adapters(), 16.0, names)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    half = {name: x for i, (name, x) in enumerate(sorted(tensors.items())) if i}
    save_file(half, tmp_path / "adapter_model.safetensors")
    with pytest.raises(UserError, match="has its lora_B alone; the file is not whole"):
        peft.load_adapters(tmp_path, names)


def test_pma_equals_torch_s_attention() -> None:
    torch = pytest.importorskip("torch")
    D, heads, rng = 24, 4, np.random.default_rng(0)
    params = random_pma(D, rng)
    for part in ("to_query", "key", "value", "out", "feed"):
        params[part]["bias"] = rng.normal(0, 0.3, D).astype(np.float32)
    states = rng.standard_normal((5, 9, D)).astype(np.float32)
    mask = np.arange(9) < np.array([9, 1, 4, 8, 2])[:, None]
    attention = torch.nn.MultiheadAttention(D, heads, batch_first=True)
    three = [params[name] for name in ("to_query", "key", "value")]
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.tensor(np.concatenate([p["kernel"].T for p in three])))
        attention.in_proj_bias.copy_(torch.tensor(np.concatenate([p["bias"] for p in three])))
        attention.out_proj.weight.copy_(torch.tensor(params["out"]["kernel"].T.copy()))
        attention.out_proj.bias.copy_(torch.tensor(params["out"]["bias"]))
        q = torch.tensor(params["query"]).expand(5, 1, D)
        y = torch.tensor(states)
        h = torch.nn.functional.layer_norm(attention(q, y, y, key_padding_mask=~torch.tensor(mask))[0] + q, (D,))
        feed = torch.relu(h @ torch.tensor(params["feed"]["kernel"]) + torch.tensor(params["feed"]["bias"]))
        expected = torch.nn.functional.layer_norm(h + feed, (D,))[:, 0].numpy()
    assert_close(pma(params, states, mask, heads), expected, D, 2)
    other = np.where(mask[..., None], states, 7.0)
    assert_close(pma(params, other, mask, heads), expected, D, 2)
    nothing = np.zeros((5, 9), bool)  # of texts without a token, whatever padding holds
    np.testing.assert_array_equal(pma(params, states, nothing, heads), pma(params, other[:, :3], nothing[:, :3], heads))


@pytest.mark.parametrize("beside", [0.0, -3.0])
def test_iem_equals_torch_and_its_matrix_every_pair(beside: float) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    params = random_iem(6, rng, hidden=10) | ({"cosine": np.float32(beside)} if beside else {})
    queries, passages = (rng.standard_normal((count, 6)).astype(np.float32) for count in (3, 4))
    for branch in BRANCHES:
        layers = []
        for name in ("first", branch, "score"):
            layer = torch.nn.Linear(*params[name]["kernel"].shape)
            layer.load_state_dict(
                {"weight": torch.tensor(params[name]["kernel"].T.copy()), "bias": torch.tensor(params[name]["bias"])}
            )
            layers += [layer, torch.nn.ReLU()]
        reference = torch.nn.Sequential(*layers[:-1])
        every = iem_matrix(params, queries, passages, branch)
        for i, query in enumerate(queries):
            z, features = iem(params, np.tile(query, (4, 1)), passages, branch)
            pairs = torch.tensor(np.concatenate([np.tile(query, (4, 1)), passages], axis=1))
            added = float(
                (np.abs(features) @ np.abs(params["score"]["kernel"])).max()
            )  # of which a logit is what is left
            cosines = passages @ query / np.linalg.norm(passages, axis=1) / np.linalg.norm(query)
            expected, added = reference(pairs)[:, 0].detach().numpy() + beside * cosines, added + abs(beside)
            assert_close(z, expected, 12, 2 * 3, largest=added)
            assert_close(every[i], z, 12, 2 * 3, largest=added)
            assert features.shape == (4, 10)
    assert not np.allclose(*(iem_matrix(params, queries, passages, branch) for branch in BRANCHES))


def test_heads_divide_the_width() -> None:
    assert [heads_for(width) for width in (576, 896, 50, 7)] == [32, 32, 25, 7]
