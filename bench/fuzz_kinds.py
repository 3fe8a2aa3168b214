"""What the fuzzer damages: for each kind of input a whole sample, made in a folder, and the reader with what it must have given."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from flax.traverse_util import flatten_dict, unflatten_dict
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from jdistill import convert, index, loading
from jdistill.classifier import Classifier, load_classifier, save_head
from jdistill.data.beir import read_collection, write_collection
from jdistill.data.glove import read_glove
from jdistill.data.labelled_pairs import read_pairs
from jdistill.data.sources import read_texts
from jdistill.data.sts_files import read_scored_pairs
from jdistill.data.tasks import read_task
from jdistill.data.triplets import read_triplets
from jdistill.data.vectors import read_vectors
from jdistill.encoder import Encoder
from jdistill.evals.entity import read_entities
from jdistill.export import write_files, write_weights
from jdistill.interaction_files import add_interaction
from jdistill.models import lora
from jdistill.models.bert import BertConfig
from jdistill.models.bilstm import BilstmConfig
from jdistill.models.classifier_head import random_head
from jdistill.models.decoder import DecoderConfig
from jdistill.models.model import hidden_states
from jdistill.models.pma import random_iem, random_pma
from jdistill.models.pooling import pool
from jdistill.pair_scorer import load_pair_scorer

WORDS = ["river", "stone", "quiet", "engine", "paper", "yellow", "winter", "garden", "doctor", "music"]


@dataclass(frozen=True)
class Kind:
    """make: writes the whole sample into a folder. read: reads it, given the file that was damaged, and raises AssertionError for an
    answer that is not sane. only: the end of the files' names that are damaged."""

    make: Callable[[Path], None]
    read: Callable[[Path, Path], object]
    only: tuple[str, ...] = ("",)


def _rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _tables(names: tuple[str, ...], columns: dict[str, list[Any]]) -> Callable[[Path], None]:
    """Writes the columns in each of the formats."""

    def make(folder: Path) -> None:
        for name in names:
            path, cut = folder / name, "\t" if ".tsv" in name else ","
            if name.endswith(".parquet"):
                pq.write_table(pa.table(columns), path)
                continue
            if ".jsonl" in name:
                text = "".join(json.dumps(row) + "\n" for row in _rows(columns))
            elif ".txt" in name:
                text = "\n".join(str(row[0]) for row in zip(*columns.values(), strict=True))
            else:
                text = "\n".join(cut.join(map(str, row)) for row in [columns, *zip(*columns.values(), strict=True)])
            path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())

    return make


def _texts(path: Path) -> None:
    found = read_texts(str(path), "" if ".txt" in path.name else "text").texts
    assert found and len(set(found)) == len(found) and all(text.strip() == text and text.encode() for text in found)


def _usable(*lists: list[str]) -> None:
    assert (
        len(lists[0])
        and len(set(map(len, lists))) == 1
        and all(text.strip() and text.encode() for row in lists for text in row)
    )


def _vectors(path: Path) -> None:
    texts, vectors = read_vectors(path)
    _usable(texts)
    assert (
        vectors.dtype == np.float32
        and len(vectors) == len(texts)
        and np.isfinite(vectors).all()
        and vectors.any(1).all()
    )


def _task(folder: Path) -> None:
    task = read_task("mine", str(folder))
    for split in (task.train, task.dev):
        assert len(split) == len(split.labels) and (split.labels < len(task.labels)).all()
        assert all(text.strip() and text.encode() for text in split.texts)


def _glove(path: Path) -> None:
    words, vectors = read_glove.__wrapped__(path, 3)
    assert len(words) == len(vectors) and np.isfinite(vectors).all()


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
    flat = {
        path: rng.normal(0, 0.2, shape).astype(np.float32) for path, shape in convert.parameter_shapes(config).items()
    }
    return Encoder(config, unflatten_dict(flat, sep="/"), tokenizer(), max_length=32, **changes)


def _save(made: Encoder, folder: Path) -> None:
    write_files(made, folder)
    write_weights(made, folder)


def _bert(folder: Path) -> None:
    dense = {"kernel": np.ones((16, 8), np.float32), "bias": np.zeros(8, np.float32)}
    _save(model(BERT, normalize=True, dense=(dense,), dense_activations=("Tanh",), prompts={"query": "ask: "}), folder)


def _bilstm(folder: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = {"word/embedding": (41, 8)}
    for way in ("forward", "backward"):
        shapes |= {f"{way}/input": (8, 24), f"{way}/recurrent": (6, 24), f"{way}/bias": (24,)}
    flat = {path: rng.normal(0, 0.2, shape).astype(np.float32) for path, shape in shapes.items()}
    params = unflatten_dict(flat, sep="/")
    _save(Encoder(BilstmConfig(41, 8, 6), params, tokenizer(), pooling="max", max_length=32), folder)


def _scorer(folder: Path) -> None:
    rng = np.random.default_rng(0)
    _save(model(DECODER, pooling="pma", pooler=random_pma(16, rng)), folder)
    add_interaction(folder, random_iem(16, rng, 8), 16, "dual")


def _head(folder: Path) -> None:
    made = model(BERT)
    _save(made, folder)
    save_head(Classifier(made, random_head(16, 1, 8, 3, np.random.default_rng(0)), ("a", "b", "c"), False), folder)


def _runs(made: Encoder) -> None:
    """That a model's parts fit together: its program can be traced, and its tokenizer's ids are rows of its table."""
    ids = made.tokenize(["a river", "quiet stone and paper"])
    assert all(0 <= i < made.config.vocab_size for row in ids for i in row) and all(
        len(row) <= made.max_length for row in ids
    )

    def vectors(params: Any, pooler: Any, dense: Any) -> jax.Array:
        x = np.zeros((2, 4), np.int32)
        found = pool(made.pooling, hidden_states(made.config, params, x, x == 0), x == 0, pooler)
        for layer in dense:
            found = found @ layer["kernel"] + layer.get("bias", 0.0)
        return found

    assert jax.eval_shape(vectors, made.params, made.pooler, made.dense).shape == (2, made.dim)


def _scored(folder: Path) -> None:
    scorer = load_pair_scorer(str(folder))
    _runs(scorer.encoder)


def _classified(folder: Path) -> None:
    found = load_classifier(str(folder))
    _runs(found.encoder)
    assert found.head["out"]["kernel"].shape[1] == len(found.labels)


def _gguf(folder: Path) -> None:
    import gguf

    out = gguf.GGUFWriter(folder / "m.gguf", "llama")
    for add, value in (
        (out.add_block_count, 1), (out.add_context_length, 32), (out.add_embedding_length, 8), (out.add_feed_forward_length, 12),
        (out.add_head_count, 2), (out.add_head_count_kv, 1), (out.add_layer_norm_rms_eps, 1e-5), (out.add_tokenizer_model, "gpt2"),
        (out.add_tokenizer_pre, "gpt-2"), (out.add_token_list, ["a", "b", "c", "ab", "<end>"]), (out.add_token_types, [1, 1, 1, 1, 3]),
        (out.add_token_merges, ["a b"]), (out.add_eos_token_id, 4),
    ):  # fmt: skip
        add(value)
    shapes = {"attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8), "ffn_gate": (12, 8)}
    shapes |= {"ffn_up": (12, 8), "ffn_down": (8, 12), "attn_norm": (8,), "ffn_norm": (8,)}
    named = {f"blk.0.{name}.weight": shape for name, shape in shapes.items()}
    for name, shape in (named | {"token_embd.weight": (5, 8), "output_norm.weight": (8,)}).items():
        out.add_tensor(name, np.random.default_rng(0).normal(size=shape).astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


NAMES = {path: name for path, (name, _) in convert.names_of(DECODER).items()}


def _adapter(folder: Path) -> None:
    params = model(DECODER).params
    lora.save(folder, lora.start(params, "query|value", 2, np.random.default_rng(0)), 16.0, NAMES)


def _adapted(folder: Path) -> None:
    adapters, alpha = lora.load(folder, NAMES)
    params = model(DECODER).params
    merged = jax.eval_shape(lambda: lora.merge(params, adapters, alpha))
    assert {path: leaf.shape for path, leaf in flatten_dict(merged).items()} == {
        path: leaf.shape for path, leaf in flatten_dict(params).items()
    }


def _index(folder: Path) -> None:
    index.build(np.random.default_rng(0).normal(size=(20, 8))).save(folder / "index", WORDS * 2, "abc")


def _searched(folder: Path) -> None:
    saved = index.load(folder / "index")
    assert len(saved.texts) == saved.index.rows and all(isinstance(text, str) for text in saved.texts)
    scores, rows = saved.index.search(np.ones((1, saved.index.dim), np.float32), 3)
    assert ((rows >= -1) & (rows < saved.index.rows)).all() and np.isfinite(scores[rows >= 0]).all()


def _configs(folder: Path) -> None:
    for path in sorted((Path(__file__).parents[1] / "configs").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, "get_config"):
            (folder / f"{path.stem}.json").write_text(module.get_config().to_json())


def _checked_config(path: Path) -> None:
    from jdistill.config_keys import check_config
    from ml_collections import ConfigDict

    try:
        values = json.loads(path.read_text())
        config = ConfigDict(values)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return  # what is no ConfigDict comes to no check
    check_config(config)


_A = [f"the {word} is here and has number {i}" for i, word in enumerate(WORDS)]
_B = [f"a {word} of the {i}th kind" for i, word in enumerate(WORDS)]
_HALF = [str(i % 2) for i in range(10)]
_PAIRS = {"sentence1": _A, "sentence2": _B, "label": _HALF}
KINDS: dict[str, Kind] = {
    "texts": Kind(
        _tables(
            ("a.txt", "a.txt.gz", "a.csv", "a.tsv", "a.jsonl", "a.jsonl.gz", "a.parquet"), {"text": _A, "other": _B}
        ),
        lambda _, path: _texts(path),
    ),
    "pairs": Kind(
        _tables(
            ("a.jsonl", "a.csv", "a.tsv", "a.parquet"),
            {name.replace("sentence", "sent"): x for name, x in _PAIRS.items()},
        ),
        lambda _, path: _usable((found := read_pairs(str(path), "symmetric")).queries, found.passages),
    ),
    "triplets": Kind(
        _tables(("a.jsonl", "a.csv", "a.tsv", "a.parquet"), {"anchor": _A, "positive": _B, "negative": WORDS}),
        lambda _, path: _usable((found := read_triplets(str(path))).anchors, found.positives),
    ),
    "scored pairs": Kind(
        _tables(("a.jsonl", "a.tsv", "a.txt"), {"sentence1": _A, "sentence2": _B, "score": list(range(10))}),
        lambda _, path: _usable(*read_scored_pairs(path)[:2]),
        (".jsonl", ".tsv"),
    ),
    "candidates": Kind(
        _tables(("a.csv",), {"query": WORDS, "entity": _HALF, "label": _HALF}), lambda _, path: read_entities(path)
    ),
    "task": Kind(
        lambda folder: (
            [_tables((f"{split}.jsonl", f"{split}.tsv"), _PAIRS)(folder) for split in ("train", "dev")] and None
        ),
        lambda folder, path: _task_of(folder, path),
    ),
    "collection": Kind(
        lambda folder: write_collection(
            folder,
            dict(zip(WORDS, _A, strict=True)),
            dict(zip(WORDS, _B, strict=True)),
            {word: {word: 1} for word in WORDS},
        ),
        lambda folder, _: read_collection(folder),
    ),
    "vectors": Kind(lambda folder: _write_vectors(folder), lambda _, path: _vectors(path)),
    "glove": Kind(
        lambda folder: (
            [
                _tables((name,), {"line": [f"{word} 1 2.5 {i}" for i, word in enumerate(WORDS)]})(folder)
                for name in ("g.txt", "g.txt.gz")
            ]
            and None
        ),
        lambda _, path: _glove(path),
    ),
    "model json": Kind(_bert, lambda folder, _: _runs(loading.load(str(folder))), (".json",)),
    "model tensors": Kind(_bert, lambda folder, _: _runs(loading.load(str(folder))), (".safetensors",)),
    "decoder": Kind(
        lambda folder: _save(model(DECODER), folder), lambda folder, _: _runs(loading.load(str(folder))), (".json",)
    ),
    "bilstm": Kind(_bilstm, lambda folder, _: _runs(loading.load(str(folder))), (".json", ".safetensors")),
    "pair scorer": Kind(_scorer, lambda folder, _: _scored(folder), (".json", ".safetensors")),
    "classifier": Kind(_head, lambda folder, _: _classified(folder), ("head.json", "head.safetensors")),
    "adapter": Kind(_adapter, lambda folder, _: _adapted(folder)),
    "index": Kind(_index, lambda folder, _: _searched(folder)),
}
if importlib.util.find_spec("gguf"):
    KINDS["gguf"] = Kind(_gguf, lambda folder, path: _runs(loading.load(str(path))))
if importlib.util.find_spec("jdistill.config_keys"):
    KINDS["config"] = Kind(_configs, lambda _, path: _checked_config(path))


def _task_of(folder: Path, damaged: Path) -> None:
    """The folder's task in the format of the damaged file."""
    for path in folder.glob("*.jsonl" if damaged.suffix == ".tsv" else "*.tsv"):
        path.unlink()
    _task(folder)


def _write_vectors(folder: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    np.savez(folder / "v.npz", texts=np.array(_A), embeddings=vectors)
    np.savez_compressed(folder / "w.npz", texts=np.array(_A), embeddings=vectors)
    pq.write_table(pa.table({"text": _A, "embedding": list(vectors)}), folder / "v.parquet")
