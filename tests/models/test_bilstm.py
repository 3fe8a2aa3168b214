"""The recurrent student: torch's nn.LSTM, cuDNN's packing, padding, its files in other stacks, word vectors, a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import commands
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import in_a_process_without_jdistill
from conftest import make_encoder, save_encoder, sentences
from jax.experimental import rnn
from parity import assert_close
from simtde_setting import random_tokens
from steps import gradient_of, hidden_states, loss_of

import jdistill
from configs import bilstm_sra as config_file
from jdistill.core.errors import UserError
from jdistill.data.text.glove import read_glove
from jdistill.encoder.encoder import Encoder
from jdistill.export.folder import export
from jdistill.feeds.stage import Start
from jdistill.methods import METHODS
from jdistill.models.bilstm import DIRECTIONS, Bilstm, BilstmConfig
from jdistill.models.bilstm.module import _by_scan, flat_weights
from jdistill.models.pooling import pool
from jdistill.run.finish import unknown_tokens
from jdistill.students.bilstm import make_bilstm, make_tokenizer

E, H, L = 10, 7, 9
CONFIG = BilstmConfig(50, E, H)
LENGTHS = np.array([9, 1, 4, 7, 3])


def params(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    found: dict = {"word": {"embedding": normal(50, E)}}
    return found | {
        name: {"input": normal(E, 4 * H), "recurrent": normal(H, 4 * H), "bias": normal(4 * H)} for name in DIRECTIONS
    }


def batch() -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(1).integers(1, 50, (len(LENGTHS), L)).astype(np.int32)
    return ids, np.arange(L) < LENGTHS[:, None]


def test_it_equals_torch_with_and_without_padding() -> None:
    torch = pytest.importorskip("torch")
    tree, (ids, mask) = params(), batch()
    lstm = torch.nn.LSTM(E, H, batch_first=True, bidirectional=True)
    state = {}
    for name, suffix in zip(DIRECTIONS, ("", "_reverse"), strict=True):
        bias = torch.tensor(tree[name]["bias"])
        state |= {
            f"weight_ih_l0{suffix}": torch.tensor(tree[name]["input"].T),
            f"weight_hh_l0{suffix}": torch.tensor(tree[name]["recurrent"].T),
            f"bias_ih_l0{suffix}": 0.25 * bias,
            f"bias_hh_l0{suffix}": 0.75 * bias,
        }
    lstm.load_state_dict(state)
    for used in (mask, np.ones_like(mask)):
        states = hidden_states(CONFIG, tree, ids, used)
        x = torch.tensor(tree["word"]["embedding"][ids])
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor(used.sum(1)), batch_first=True, enforce_sorted=False
        )
        theirs = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=L)[0]
        np.testing.assert_allclose(states[1], theirs.detach().numpy(), atol=1e-5)
        np.testing.assert_array_equal(states[0], tree["word"]["embedding"][ids])
        # Every gradient too: that by the recurrent kernels is a product of ours over all tokens.
        weight = np.random.default_rng(2).standard_normal(theirs.shape).astype(np.float32)
        lstm.zero_grad()
        (theirs * torch.tensor(weight)).sum().backward()
        ours = jax.grad(lambda t, used=used, w=weight: (hidden_states(CONFIG, t, ids, used)[1] * w).sum())(tree)
        for name, suffix in (("forward", ""), ("backward", "_reverse")):
            for part, parameter in (("input", "weight_ih_l0"), ("recurrent", "weight_hh_l0"), ("bias", "bias_ih_l0")):
                expected = getattr(lstm, parameter + suffix).grad.numpy().T
                np.testing.assert_allclose(ours[name][part], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("over_time", ["max", "final"])
def test_a_dropped_channel_is_dropped_from_the_sentence_vector(over_time: str) -> None:
    """A channel that is below zero at every token must not become zero at some and win the maximum."""
    tree, (ids, mask) = params(), batch()
    module = Bilstm(replace(CONFIG, dropout=0.4))
    for seed in range(5):
        drop = {"dropout": jax.random.key(seed)}
        both = module.apply({"params": tree}, ids, mask, deterministic=False, rngs=drop)
        states = both[1]
        kept = (np.asarray(states) != 0).any(1)
        np.testing.assert_array_equal(np.asarray(states)[mask] != 0, np.repeat(kept, mask.sum(1), axis=0))
        assert 0.3 < kept.mean() < 0.9
        vectors = np.asarray(pool(over_time, list(both), jnp.asarray(mask)))
        assert (vectors[~kept] == 0).all() and (vectors[kept] != 0).all() and (vectors[kept] < 0).any()


def test_what_stands_in_padding_changes_nothing_and_has_no_gradient() -> None:
    tree, (ids, mask) = params(), batch()
    other = np.where(mask, ids, 3)
    np.testing.assert_array_equal(
        hidden_states(CONFIG, tree, ids, mask)[1], hidden_states(CONFIG, tree, other, mask)[1]
    )
    only_in_padding = np.where(mask, 1 + ids % 40, 45)
    gradient = jax.grad(lambda t: hidden_states(CONFIG, t, only_in_padding, mask)[1].sum())(tree)
    assert not gradient["word"]["embedding"][45].any() and gradient["word"]["embedding"][:45].any()


def test_gradient_against_finite_differences() -> None:
    tree, (ids, mask) = params(), batch()
    weight = np.random.default_rng(2).standard_normal((len(LENGTHS), L, 2 * H))
    places = [
        (name, part, at)
        for name in DIRECTIONS
        for part, at in (("input", (3, 5)), ("recurrent", (2, 20)), ("bias", (9,)))
    ]

    def loss(t: dict) -> jax.Array:
        return (hidden_states(CONFIG, t, ids, mask)[1] * weight).sum()

    gradient = jax.grad(loss)(tree)
    for name, part, at in places:

        def moved(by: float, name: str = name, part: str = part, at: tuple = at) -> float:
            changed = jax.tree.map(np.array, tree)
            changed[name][part][at] += by
            return float(loss(changed))

        numeric = (8 * (moved(1e-2) - moved(-1e-2)) - (moved(2e-2) - moved(-2e-2))) / 0.12
        assert float(gradient[name][part][at]) == pytest.approx(numeric, rel=1e-2, abs=2e-3)


def test_weights_lie_as_cudnn_reads_them() -> None:
    """By JAX's own reference of its cuDNN call, which takes the same flat vector apart."""
    tree, (ids, mask) = params(), batch()
    x = jnp.asarray(tree["word"]["embedding"][ids])
    parts = rnn.unpack_lstm_weights(flat_weights({name: tree[name] for name in DIRECTIONS}), E, H, 1, True)
    start = jnp.zeros((2, len(LENGTHS), H))
    reference, _, _ = rnn.lstm_ref(x, start, start, *parts, jnp.asarray(LENGTHS, jnp.int32), E, H, 1, 0.0, True)
    ours = _by_scan(CONFIG, x, jnp.asarray(mask), {name: tree[name] for name in DIRECTIONS}, jnp.dtype("float32"))
    np.testing.assert_allclose(np.where(mask[..., None], ours, 0), np.where(mask[..., None], reference, 0), atol=1e-5)


def config(**changes: object):
    cfg = config_file.get_config()
    cfg.student.embedding_size, cfg.student.lstm_size = 12, 8
    cfg.update_from_flattened_dict(changes)
    return cfg


def student(**changes: object) -> Encoder:
    """Untrained, from a tiny BERT with MiniLM's tokenizer."""
    cfg, start = config(**changes), make_encoder()
    (stage,) = METHODS["bilstm_sra"](cfg)
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    tokens = random_tokens(50, vocab_size=1000)
    return stage.build(
        cfg, Start(start, True, 32, tokens, lambda rows: np.zeros((len(rows), 32), np.float32), None)
    ).student


def test_parameters_are_those_of_the_paper() -> None:
    """Table 2 counts without embeddings: the LSTM 300 to 2 x 512, the dense layer to BERT's 768."""
    cfg = config(**{"student.embedding_size": 300, "student.lstm_size": 512})
    start = make_encoder(hidden_size=384, embedding_size=384, num_heads=12)
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    model = make_bilstm(cfg, start, random_tokens(50, vocab_size=1000), 768)
    lstm, dense = 2 * 4 * 512 * (300 + 512 + 1), 1024 * 768
    assert model.num_params == 30522 * 300 + lstm + dense and lstm + dense == 4_116_480
    assert model.dim == 768 and model.pooled_width == 1024


@pytest.mark.parametrize("over_time", ["max", "final"])
def test_the_export_equals_flax_without_jdistill(tmp_path: Path, over_time: str) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = student(**{"student.over_time": over_time, "max_length": 16})
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    texts = [*sentences(20), "a long text " * 60, "", "x"]
    again = jdistill.load(str(tmp_path / "out"))
    np.testing.assert_array_equal(again.encode(texts), model.encode(texts))
    assert again.pooling == over_time and again.max_length == model.max_length
    (tmp_path / "out" / "texts.json").write_text(json.dumps(texts))
    trust = ", trust_remote_code=True" if over_time == "final" else ""
    in_a_process_without_jdistill(
        "import json, numpy as np\nfrom sentence_transformers import SentenceTransformer\n"
        f"m = SentenceTransformer(sys.argv[1], device='cpu'{trust})\n"
        "np.save(sys.argv[1] + '/theirs.npy', m.encode(json.load(open(sys.argv[1] + '/texts.json'))))\n",
        tmp_path / "out",
    )
    assert np.abs(np.load(tmp_path / "out" / "theirs.npy") - model.encode(texts)).max() < 1e-4


@pytest.mark.parametrize("target", ["vectors", "pairs"])
def test_the_loss_is_half_of_one_minus_cosine_and_its_rivals_that_of_pairs(target: str) -> None:
    cfg, start = config(**{"loss.target": target}), make_encoder()
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    tokens, rng = random_tokens(50, vocab_size=1000), np.random.default_rng(0)
    (stage,) = METHODS["bilstm_sra"](cfg)
    method = stage.build(cfg, Start(start, True, 32, tokens, lambda rows: np.zeros((len(rows), 32), np.float32), None))
    ids, mask = tokens.padded(np.arange(6), 20, 0)
    data = {"ids": ids, "mask": mask, "teacher": rng.standard_normal((6, 32)).astype(np.float32)}
    loss, _, _ = loss_of(method)(method.params, data)
    vectors = method.student.encode_ids(tokens.lists(np.arange(6)))

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    of_teacher = data["teacher"]
    if target == "vectors":
        expected = 0.5 * (1 - np.mean([cosine(*both) for both in zip(of_teacher, vectors, strict=True)]))
    else:
        pairs = [(i, j) for i in range(6) for j in range(6)]
        differences = [cosine(of_teacher[i], of_teacher[j]) - cosine(vectors[i], vectors[j]) for i, j in pairs]
        expected = np.mean(np.square(differences))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    gradient, _ = gradient_of(method, data, 2)
    whole, _ = gradient_of(method, data)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(whole))
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(whole), strict=True):
        assert_close(one, other, 64, 2 * 20, largest=largest)  # a step of the recurrence for each of 20 tokens


GLOVE = "the 0.1 0.2 0.3\nRiver 1 2 3\n, -1 -2 -3\n. . 4 5 6\nthe 9 9 9\n"
CUT = {  # as the text of GloVe's vectors was cut
    "Don't, it's 3.5 café's!": ["do", "n't", ",", "it", "'s", "3.5", "café", "'s", "!"],
    "does n't can't 'quoted' o'clock": ["does", "n't", "ca", "n't", "'", "quoted", "'", "o", "'", "clock"],
    "a [MASK] isn'tx n't": ["a", "[MASK]", "isn", "'", "tx", "n't"],
}


def test_words_are_cut_as_glove_has_them(tmp_path: Path) -> None:
    words = dict.fromkeys(word for cut in CUT.values() for word in cut if word != "[MASK]")
    (tmp_path / "glove.txt").write_text("".join(f"{word} {i} 0 1\n" for i, word in enumerate(words)))
    tokenizer = student(**{"student.glove": str(tmp_path / "glove.txt"), "student.embedding_size": 3}).tokenizer
    for text, cut in CUT.items():
        assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == ["[CLS]", *cut]


def test_words_and_their_vectors_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("4 3\n" + GLOVE)
    words, vectors = read_glove(tmp_path / "glove.txt", 3)
    assert words == ["the", "River", ",", ". ."] and vectors[0].tolist() == pytest.approx([0.1, 0.2, 0.3])
    model = student(**{"student.glove": str(tmp_path / "glove.txt"), "student.embedding_size": 3})
    assert model.tokenize(["The River, the Stone"]) == [[2, 1, 5, 6, 4, 1]]  # cased words: The is unknown
    np.testing.assert_allclose(model.params["word"]["embedding"][1], vectors.mean(0), rtol=1e-6)
    assert unknown_tokens(model, ["the River", "the Stone"]) == 25
    export(model, tmp_path / "out")
    again = jdistill.load(str(tmp_path / "out"))
    np.testing.assert_array_equal(again.encode(["the River ."]), model.encode(["the River ."]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 0.1 0.2 0.3\nriver 1 2\n", "line 2: 2 numbers, not 3"),
        ("the 0.1 0.2 0.3 0.4\n", "line 1: more than 3 numbers"),
        ("the 0.1 zero 0.3\n", "line 1: not a word and 3 numbers"),
        ("the 0.1 nan 0.3\n", "line 1: a number is not finite"),
        ("", "holds no word vectors"),
    ],
)
def test_a_broken_file_of_word_vectors_is_named_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "glove.txt").write_text(content)
    with pytest.raises(UserError, match=message):
        read_glove(tmp_path / "glove.txt", 3)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="over_time='mean' is not one of max, final"):
        student(**{"student.over_time": "mean"})
    with pytest.raises(UserError, match="target='labels' is not one of vectors, pairs"):
        METHODS["bilstm_sra"](config(**{"loss.target": "labels"}))
    with pytest.raises(UserError, match="embedding_size=40 must lie in 1..32"):
        student(**{"student.embedding_size": 40})


def test_a_run_ends_with_a_student_closer_to_its_teacher(tmp_path: Path) -> None:
    teacher = save_encoder(make_encoder(normalize=False), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(300)))
    settings: dict[str, object] = {
        "teacher": teacher,
        "teacher_pooling": "cls",
        "text": tmp_path / "text.txt",
        "text_column": "",
        "student.embedding_size": 12,
        "student.lstm_size": 8,
        "student.dropout": 0.1,
        "batch_size": 32,
        "max_steps": 40,
        "checkpoint_every": 20,
        "learning_rate": 0.01,
        "length_buckets": 1,
        "index_texts": 0,
        "latency_texts": 0,
        "onnx": False,
        "cache_dir": tmp_path / "cache",
    }
    done = commands.run_inside(commands.command("configs/bilstm_sra.py", tmp_path / "run", settings))
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "run" / "distil" / "metrics.jsonl").read_text().splitlines()]
    scores = [line["dev/mean_cosine"] for line in lines if "dev/mean_cosine" in line]
    assert scores == sorted(scores) and len(scores) == 2 and results["agreement"]["mean_cosine"] > 0.5
    assert results["student"]["unknown_tokens"] == 0
    model = jdistill.load(str(tmp_path / "run" / "export"))
    assert isinstance(model.config, BilstmConfig) and model.dim == 32
    of_cls = jdistill.load(str(teacher))
    assert of_cls.pooling == "mean"  # the teacher's own, which the run replaced
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert "AutoModel" not in card and "the maximum over its tokens" in card
