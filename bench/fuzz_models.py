"""Samples of models for the fuzzer, two layers, 16 wide: folders of each architecture, a GGUF file, adapters, and whether what was read runs."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from jdistill.encoder import loading
from jdistill.encoder.classifier import Classifier, load_classifier, save_head
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import peft
from jdistill.encoder.formats.interaction import add_interaction
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.encoder.pair_scorer import load_pair_scorer
from jdistill.models import lora
from jdistill.models.bert import BertConfig
from jdistill.models.bilstm import BilstmConfig
from jdistill.models.classifier_head import random_head
from jdistill.models.decoder import DecoderConfig
from jdistill.models.interaction import random_iem
from jdistill.models.pma import random_pma
from jdistill.models.pooling import pool
from jdistill.models.registry import hidden_states, names_of, parameter_shapes

WORDS = ["river", "stone", "quiet", "engine", "paper", "yellow", "winter", "garden", "doctor", "music"]


def tokenizer() -> PreTrainedTokenizerFast:
    """Whole words and the alphabet's letters."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz"]
    made = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = {
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    return PreTrainedTokenizerFast(tokenizer_object=made, **named)


BERT = BertConfig("bert", 41, 16, 16, 2, 2, 32, 32, 2, 1e-12, "gelu", 0, 0.1, 0.1)
DECODER = DecoderConfig(
    "llama", 41, 16, 2, 2, 1, 8, 32, 32, 1e-5, 1e4, None, "silu", False, False, False, False, True, 0
)  # fmt: skip


def model(config: BertConfig | DecoderConfig, **changes: Any) -> Encoder:
    """A random model of two layers, 16 wide."""
    rng = np.random.default_rng(0)
    flat = {path: rng.normal(0, 0.2, shape).astype(np.float32) for path, shape in parameter_shapes(config).items()}
    return Encoder(config, unflatten_dict(flat, sep="/"), tokenizer(), max_length=32, **changes)


def save(made: Encoder, folder: Path) -> None:
    write_files(made, folder)
    write_weights(made, folder)


def make_bert(folder: Path) -> None:
    dense = {"kernel": np.ones((16, 8), np.float32), "bias": np.zeros(8, np.float32)}
    save(model(BERT, normalize=True, dense=(dense,), dense_activations=("Tanh",), prompts={"query": "ask: "}), folder)


def make_bilstm(folder: Path) -> None:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"word/embedding": (41, 8)}
    for way in ("forward", "backward"):
        shapes |= {f"{way}/input": (8, 24), f"{way}/recurrent": (6, 24), f"{way}/bias": (24,)}
    flat = {path: rng.normal(0, 0.2, shape).astype(np.float32) for path, shape in shapes.items()}
    params = unflatten_dict(flat, sep="/")
    save(Encoder(BilstmConfig(41, 8, 6), params, tokenizer(), pooling="max", max_length=32), folder)


def make_scorer(folder: Path) -> None:
    rng = np.random.default_rng(0)
    save(model(DECODER, pooling="pma", pooler=random_pma(16, rng)), folder)
    add_interaction(folder, random_iem(16, rng, 8), 16, "dual")


def make_classifier(folder: Path) -> None:
    made = model(BERT)
    save(made, folder)
    save_head(Classifier(made, random_head(16, 1, 8, 3, np.random.default_rng(0)), ("a", "b", "c"), False), folder)


def check_runs(made: Encoder) -> None:
    """That a model's parts fit together: its program can be traced, and its tokenizer's ids are rows of its table."""
    ids = made.tokenize(["a river", "quiet stone and paper"])
    assert all(0 <= i < made.config.vocab_size for row in ids for i in row) and all(
        len(row) <= made.max_length for row in ids
    )

    parts, tree = jax.tree.flatten((made.params, made.pooler, made.dense))
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in parts)
    config = cast(Hashable, made.config)  # every config is a frozen dataclass
    assert _traced(config, made.pooling, tree, shapes) == (2, made.dim)


@lru_cache(maxsize=100)  # most damage leaves the program as it was
def _traced(config: Any, pooling: str, tree: Any, shapes: tuple[tuple[tuple[int, ...], str], ...]) -> tuple[int, ...]:
    """The shape of two texts' vectors by parameters of these shapes."""

    def vectors(params: Any, pooler: Any, dense: Any) -> jax.Array:
        x = jnp.zeros((2, 4), jnp.int32)
        found = pool(pooling, hidden_states(config, params, x, x == 0), x == 0, pooler)
        for layer in dense:
            found = found @ layer["kernel"] + layer.get("bias", 0.0)
        return found

    parts = [jax.ShapeDtypeStruct(shape, kind) for shape, kind in shapes]
    return jax.eval_shape(vectors, *jax.tree.unflatten(tree, parts)).shape


def check_scorer(folder: Path) -> None:
    scorer = load_pair_scorer(str(folder))
    check_runs(scorer.encoder)


def check_classifier(folder: Path) -> None:
    found = load_classifier(str(folder))
    check_runs(found.encoder)
    assert found.head["out"]["kernel"].shape[1] == len(found.labels)


def make_gguf(folder: Path) -> None:
    import gguf

    out: Any = gguf.GGUFWriter(folder / "m.gguf", "llama")
    for add, value in (
        (out.add_block_count, 1), (out.add_context_length, 32), (out.add_embedding_length, 8), (out.add_feed_forward_length, 12),
        (out.add_head_count, 2), (out.add_head_count_kv, 1), (out.add_layer_norm_rms_eps, 1e-5), (out.add_tokenizer_model, "gpt2"),
        (out.add_tokenizer_pre, "gpt-2"), (out.add_token_list, ["a", "b", "c", "ab", "<end>"]), (out.add_token_types, [1, 1, 1, 1, 3]),
        (out.add_token_merges, ["a b"]), (out.add_eos_token_id, 4),
    ):  # fmt: skip
        add(value)
    shapes: dict[str, tuple[int, ...]] = {
        "attn_q": (8, 8),
        "attn_k": (4, 8),
        "attn_v": (4, 8),
        "attn_output": (8, 8),
        "ffn_gate": (12, 8),
    }
    shapes |= {"ffn_up": (12, 8), "ffn_down": (8, 12), "attn_norm": (8,), "ffn_norm": (8,)}
    named = {f"blk.0.{name}.weight": shape for name, shape in shapes.items()}
    for name, shape in (named | {"token_embd.weight": (5, 8), "output_norm.weight": (8,)}).items():
        out.add_tensor(name, np.random.default_rng(0).normal(size=shape).astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


NAMES = {path: name for path, (name, _) in names_of(DECODER).items()}


def make_adapter(folder: Path) -> None:
    params = model(DECODER).params
    peft.save_adapters(folder, lora.start(params, "query|value", 2, np.random.default_rng(0)), 16.0, NAMES)


def check_adapter(folder: Path) -> None:
    adapters, alpha = peft.load_adapters(folder, NAMES)
    params = model(DECODER).params
    merged = lora.merge(params, adapters, alpha)
    assert {path: leaf.shape for path, leaf in flatten_dict(merged).items()} == {
        path: leaf.shape for path, leaf in flatten_dict(params).items()
    }


def make_decoder(folder: Path) -> None:
    save(model(DECODER), folder)


def check_folder(folder: Path, _: Path) -> None:
    check_runs(loading.load(str(folder)))


def check_gguf(_: Path, path: Path) -> None:
    check_runs(loading.load(str(path)))
