"""Packed texts are read as each alone is: hidden states of every architecture that packs, every pooler, every method's gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ibkd_setting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simtde_setting
from albert_setting import tiny_albert_config
from conftest import random_params, tiny_config, tiny_decoder_config
from modernbert_setting import tiny_modernbert_config
from mpnet_setting import tiny_mpnet_config
from naive import added, aligned_from
from nomicbert_setting import tiny_nomicbert_config
from parity import assert_close
from simtde_setting import random_tokens
from steps import gradient_of
from t5_setting import tiny_t5_config

from configs import distilface as distilface_config
from jdistill.data.batching.layout import Layout
from jdistill.data.batching.packing import deal, pack_texts
from jdistill.losses.hsic import median_distance
from jdistill.methods import distilface
from jdistill.models.pma import random_pma
from jdistill.models.pooling import POOLERS
from jdistill.models.registry import ModelConfig, architecture_of
from jdistill.models.token_batch import TokenBatch, by_text
from jdistill.train.method import Method

ROWS, GROUPS = 32, 2
GEMMA = dict(
    model_type="gemma3_text",
    qk_norm=True,
    sliding=(False, True),
    sliding_window=2,
    local_rope_theta=100.0,
    query_scalar=5,
)
CONFIGS: dict[str, ModelConfig] = {
    "bert": tiny_config(vocab_size=90, num_layers=2),
    "roberta": tiny_config(model_type="roberta", vocab_size=90, num_layers=2, pad_token_id=1),
    "electra": tiny_config(model_type="electra", vocab_size=90, num_layers=2, embedding_size=12),
    "mpnet": tiny_mpnet_config(vocab_size=90, num_layers=2),
    "modernbert": tiny_modernbert_config(vocab_size=90, num_layers=2, local_attention=6),
    "nomic_bert": tiny_nomicbert_config(vocab_size=90, num_layers=2),
    "albert": tiny_albert_config(vocab_size=90, num_layers=2),
    "t5": tiny_t5_config(vocab_size=90, num_layers=2),
    "causal": tiny_decoder_config(vocab_size=90, num_layers=2),
    "sliding": tiny_decoder_config(vocab_size=90, num_layers=2, sliding=(True, False), sliding_window=3),
    "gemma": tiny_decoder_config(vocab_size=90, causal=False, **GEMMA),
    "both ways": tiny_decoder_config(vocab_size=90, num_layers=2, causal=False, qk_norm=True),
}


@dataclass(frozen=True)
class Both:
    """The same texts padded, a row each, and packed: batches, and which row each packed text is, [GROUPS * g]."""

    padded: dict[str, np.ndarray]
    packed: dict[str, np.ndarray]
    rows: np.ndarray


def both(more: dict[str, np.ndarray] | None = None, groups: int = GROUPS, every_fifth: int = 0) -> Both:
    """The first ROWS random texts, and what further arrays say of them. every_fifth: a token that stands so often in them; 0: none."""
    tokens = random_tokens(300)
    if every_fifth:
        tokens.ids[::5] = every_fifth
    rows_nxg = deal(tokens.lengths[:ROWS], groups)
    rows = rows_nxg.ravel()
    layout = Layout((6 // groups, 24 // groups), (20, 16), (3, 4))
    ids, mask = tokens.padded(np.arange(ROWS), 20, 0)
    packed = pack_texts(tokens, rows_nxg, layout, 0)
    packed |= {name: x[rows].reshape(*rows_nxg.shape, *x.shape[1:]) for name, x in (more or {}).items()}
    return Both({"ids": ids, "mask": mask} | (more or {}), packed, rows)


def states_of(config: ModelConfig, params: Any, batch: dict[str, np.ndarray]) -> tuple[TokenBatch, tuple[Any, ...]]:
    texts = TokenBatch.of({name: jnp.asarray(x) for name, x in batch.items()})
    return texts, texts.states(config, params)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_states_of_a_packed_token_are_those_of_its_text_alone(name: str) -> None:
    config, given = CONFIGS[name], both(every_fifth=1)  # of some the padding token, which a text's own words may hold
    params = random_params(config)
    _, padded = states_of(config, params, given.padded)
    texts, packed = states_of(config, params, given.packed)
    lengths = given.padded["mask"].sum(1)
    assert int(texts.mask_BxL.sum()) == lengths.sum()
    starts = {}  # of each row's text: its group and the place of its first token there
    for place, row in enumerate(given.rows):
        group, text = divmod(place, ROWS // GROUPS)
        starts[row] = group, first_token(given.packed, group, int(given.packed["place"][group, text]))
    for one, other in zip(padded, packed, strict=True):
        for row, (group, start) in starts.items():
            found = texts.by_group(other)[group, start : start + lengths[row]]
            assert_close(found, one[row, : lengths[row]], 64, 4)


def first_token(arrays: dict[str, np.ndarray], group: int, place: int) -> int:
    """Where the text of this number begins among a group's tokens, block after block."""
    before, first = 0, 0
    for k in range(2):
        ids, lengths = arrays[f"ids_{k}"][group], arrays[f"lengths_{k}"][group]
        if place < first + lengths.size:
            row, text = divmod(place - first, lengths.shape[1])
            return before + row * ids.shape[1] + int(lengths[row, :text].sum())
        before, first = before + ids.size, first + lengths.size
    raise AssertionError("there is no such text")


@pytest.mark.parametrize("name", sorted(set(POOLERS) - {"final"}))
def test_every_pooler_gives_a_packed_text_the_vector_that_it_has_alone(name: str) -> None:
    config, given = tiny_config(vocab_size=90), both()
    params, pooler = random_params(config), random_pma(32, np.random.default_rng(0))
    texts, padded = states_of(config, params, given.padded)
    alone = texts.pool(name, padded, pooler)
    texts, packed = states_of(config, params, given.packed)
    found = texts.pool(name, packed, pooler)
    assert found.shape == (GROUPS, ROWS // GROUPS, alone.shape[1])
    assert_close(found.reshape(ROWS, -1), alone[given.rows], 64, 8, largest=float(np.abs(alone).max()))


def settings_of(name: str) -> tuple[Method, dict[str, np.ndarray]]:
    paper, _, variant = name.partition(":")
    if paper == "simtde":
        return simtde_setting.setting(variant, ROWS)
    if paper == "distilface":
        cfg = distilface_config.get_config()
        cfg.update_from_flattened_dict({"student.layers": 2, "student.dropout": 0.1, "loss.distil": 1.0})
        tokens, teacher = random_tokens(300), simtde_setting.small_teacher()
        start = simtde_setting.start(replace(teacher, pooling="max_last2"), tokens)
        return distilface.build(cfg, start), {"teacher": start.embeddings(np.arange(ROWS))}
    return ibkd_setting.setting(paper, ROWS)


STEPS = (
    *("simtde:", "simtde:matched", "simtde:lmx", "simtde:pair_mse", "simtde:table"),
    *("ibkd", "ibkd_blocks", "mse", "crd", "hpd", "distilface"),
)


def sums_behind(method: Method, batch: dict[str, np.ndarray], name: str) -> dict[str, float]:
    """The size of the sums of which CKA and HSIC are what is left; blocks have the median heuristic, under which a kernel is exp(-1/2)
    at the median distance."""
    reps = ibkd_setting.evaluate(method, batch)[2]
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (reps["input"], reps["sentence"])]
    gammas = (0.5, 0.5)
    if name == "ibkd_blocks":
        gammas = (0.5 / float(median_distance(sides[0])), 0.5 / float(median_distance(sides[1])))
    return {"cka": aligned_from(*sides, "rbf", gammas), "hsic": added(*sides, "rbf", "unbiased", gammas)}


IN_CHUNKS = ("simtde:matched", "ibkd", "distilface")


@pytest.mark.parametrize("name", STEPS)
def test_a_packed_step_has_the_gradient_of_the_padded_one(name: str) -> None:
    method, batch = settings_of(name)
    given = both({key: x for key, x in batch.items() if key not in ("ids", "mask")})
    one, metrics = gradient_of(method, given.padded)
    for chunk_size in (0, ROWS // GROUPS) if name in IN_CHUNKS else (0,):
        found, same = gradient_of(method, given.packed, chunk_size)
        for key, value in metrics.items():
            if key in ("cka", "hsic"):  # what larger sums leave
                largest = sums_behind(method, given.padded, name)[key]
                assert_close(same[key], value, ROWS * ROWS, 2, largest=largest, what=key)
            else:
                np.testing.assert_allclose(same[key], value, rtol=1e-5, err_msg=key)
        flat, expected = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (found, one))
        assert np.linalg.norm(flat - expected) <= 1e-5 * np.linalg.norm(expected)


def test_arrays_of_a_packed_batch_are_read_text_by_text() -> None:
    given = both({"teacher": np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)})
    read = by_text(given.packed, given.packed)
    np.testing.assert_array_equal(read["teacher"], given.padded["teacher"][given.rows])
    assert read["ids_0"].shape == given.packed["ids_0"].shape
    assert by_text(given.padded, given.padded) == given.padded


def test_which_architectures_pack() -> None:
    assert {name: architecture_of(config).packs for name, config in CONFIGS.items()} == dict.fromkeys(CONFIGS, True)
