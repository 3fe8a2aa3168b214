"""The registry: each architecture knows all of itself, and no other room asks what a config is."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from albert_setting import tiny_albert_config
from conftest import random_params, tiny_config, tiny_decoder_config
from flax.traverse_util import flatten_dict
from modernbert_setting import tiny_modernbert_config
from mpnet_setting import tiny_mpnet_config
from nomicbert_setting import tiny_nomicbert_config
from t5_setting import tiny_t5_config

from jdistill.core.errors import UserError
from jdistill.models.bilstm import BilstmConfig
from jdistill.models.registry import ARCHITECTURES, architecture_of, names_of, parameter_shapes, transformer_named

ROOT = Path(__file__).parents[2] / "jdistill"
CONFIGS: dict[str, Any] = {
    "bert": tiny_config(),
    "roberta": tiny_config(model_type="roberta", type_vocab_size=1, pad_token_id=1),
    "xlm-roberta": tiny_config(model_type="xlm-roberta", type_vocab_size=1, pad_token_id=1),
    "distilbert": tiny_config(model_type="distilbert", type_vocab_size=0),
    "electra": tiny_config(model_type="electra", embedding_size=12),
    "electra of one width": tiny_config(model_type="electra"),
    "llama": tiny_decoder_config(),
    "qwen2": tiny_decoder_config(model_type="qwen2", qkv_bias=True),
    "qwen3": tiny_decoder_config(model_type="qwen3", qk_norm=True, head_size=10),
    "mistral": tiny_decoder_config(model_type="mistral", sliding=(True, True), sliding_window=1),
    "gemma3_text": tiny_decoder_config(model_type="gemma3_text", qk_norm=True, local_rope_theta=1e4, query_scalar=9),
    "biased": tiny_decoder_config(qkv_bias=True, out_bias=True, mlp_bias=True, tied=False),
    "bilstm": BilstmConfig(50, 6, 5),
    "mpnet": tiny_mpnet_config(),
    "nomic_bert": tiny_nomicbert_config(),
    "modernbert": tiny_modernbert_config(),
    "modernbert of one layer, biased": tiny_modernbert_config(
        num_layers=1, attention_bias=True, mlp_bias=True, norm_bias=True
    ),
    "albert": tiny_albert_config(),
    "t5": tiny_t5_config(),
    "t5 with a gate": tiny_t5_config(gated=True, activation="gelu_new"),
    "albert of groups": tiny_albert_config(num_layers=8, num_groups=2, group_layers=2),
}


def test_every_architecture_is_tried() -> None:
    tried = {type(architecture_of(config)) for config in CONFIGS.values()}
    assert tried == {type(architecture) for architecture in ARCHITECTURES}


@pytest.mark.parametrize("name", CONFIGS)
def test_names_are_those_of_the_modules_parameters_and_shapes_of_every_layer(name: str) -> None:
    config = CONFIGS[name]
    module = architecture_of(config).module(config, jnp.float32, False)
    ids = np.ones((2, 3), np.int32)
    made = flatten_dict(jax.eval_shape(module.init, jax.random.key(0), ids, ids)["params"], sep="/")
    assert parameter_shapes(config) == {path: leaf.shape for path, leaf in made.items()}
    assert list(parameter_shapes(config)) == list(names_of(config))


@pytest.mark.parametrize("name", CONFIGS)
def test_the_embedding_layer_alone_gives_the_first_state(name: str) -> None:
    config = CONFIGS[name]
    architecture, params = architecture_of(config), random_params(config)
    ids = np.array([[3, 7, 9]], np.int32)
    first = architecture.module(config, jnp.float32, False).apply({"params": params}, ids, np.ones((1, 3), bool))[0]
    alone = {path: leaf for path, leaf in params.items() if not path.startswith("layer_")}
    np.testing.assert_array_equal(architecture.embed(config, alone, ids, jnp.float32), first)


def test_an_unknown_model_type_is_told_what_there_is() -> None:
    there = sorted(kind for found in ARCHITECTURES if not found.recurrent for kind in found.model_types)
    for unknown in ("gpt2", "bilstm", None, ["bert"]):
        with pytest.raises(
            UserError, match=f"config.json: model_type is .*; jdistill reads {', '.join(there)}. Any other"
        ):
            transformer_named(unknown, "config.json")


def test_no_other_room_asks_what_a_config_is() -> None:
    """Not by isinstance of a config's class, and not by naming a model type."""
    classes = {type(config).__name__ for config in CONFIGS.values()}
    asked = []
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] == "models":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked += [(path.name, node.lineno) for name in ast.walk(node) if getattr(name, "id", "") in classes]
            if isinstance(node, ast.Compare) and getattr(node.left, "attr", "") == "model_type":
                asked.append((path.name, node.lineno))
    assert not asked
