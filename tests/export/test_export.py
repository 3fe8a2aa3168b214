"""An exported student in other people's stacks: no jdistill in the process, the same vectors, refusal where they differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from commands import in_a_process_without_jdistill
from conftest import make_encoder, save_encoder, sentences

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import st_writer
from jdistill.export import folder as exporter
from jdistill.export import trained
from jdistill.export.folder import export
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.targets import add_form


def student(**changes: object):
    return make_encoder(model_type="electra", embedding_size=12, num_layers=2, type_vocab_size=2, **changes)


def test_sentence_transformers_gives_the_same_vectors_without_jdistill(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = student()
    checks = export(model, tmp_path / "out")
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    told = capfd.readouterr().err
    assert "Loading weights" not in told and "MISSING" not in told and "[transformers]" not in told, told
    texts = sentences(30) + list(PROBE_TEXTS)
    (tmp_path / "out" / "texts.json").write_text(json.dumps(texts))
    in_a_process_without_jdistill(
        "import json, numpy as np\nfrom sentence_transformers import SentenceTransformer\n"
        "m = SentenceTransformer(sys.argv[1], device='cpu')\n"
        "np.save(sys.argv[1] + '/theirs.npy', m.encode(json.load(open(sys.argv[1] + '/texts.json'))))\n",
        tmp_path / "out",
    )
    assert np.abs(np.load(tmp_path / "out" / "theirs.npy") - model.encode(texts)).max() < 1e-4


def test_auto_model_sees_a_plain_electra(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the torch extra")
    export(student(), tmp_path / "out")
    out = in_a_process_without_jdistill(
        "import torch\nfrom transformers import AutoModel, AutoTokenizer\n"
        "m, info = AutoModel.from_pretrained(sys.argv[1], output_loading_info=True)\n"
        "t = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "x = m(**t(['one', 'two words'], padding=True, return_tensors='pt')).last_hidden_state\n"
        "print(type(m).__name__, tuple(x.shape), info['missing_keys'], info['unexpected_keys'], len(t))\n",
        tmp_path / "out",
    )
    assert out.startswith("ElectraModel (2, 4, 32)"), out
    assert out.split(")", 1)[1].split()[:2] in (["[]", "[]"], ["set()", "set()"]), out


def test_onnx_includes_pooling_and_normalisation(tmp_path: Path) -> None:
    import onnxruntime

    model = student()
    export(model, tmp_path / "out", onnx=True)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / "model.onnx")
    tokens = model.tokenizer(sentences(5), padding=True, return_tensors="np")
    feed = {i.name: tokens[i.name] for i in session.get_inputs()}
    vectors = session.run(["sentence_embedding"], feed)[0]
    assert np.abs(vectors - model.encode(sentences(5))).max() < 1e-4
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_dense_prompt_pooling_and_length_travel(tmp_path: Path, pooling: str) -> None:
    rng = np.random.default_rng(3)
    dense = (
        {"kernel": rng.normal(size=(32, 8)).astype(np.float32), "bias": rng.normal(size=8).astype(np.float32)},
        {"kernel": rng.normal(size=(8, 6)).astype(np.float32)},
    )
    model = replace(
        student(),
        dense=dense,
        dense_activations=("Tanh", "Identity"),
        pooling=pooling,
        prompts={"query": "find this: "},
        default_prompt="query",
        max_length=17,
    )
    checks = export(model, tmp_path / "out")
    assert max(checks.values()) < 1e-4
    again = jdistill.load(str(tmp_path / "out"))
    assert (again.dim, again.pooling, again.prompts, again.default_prompt, again.max_length) == (
        6,
        pooling,
        {"query": "find this: "},
        "query",
        17,
    )
    texts = sentences(10)
    assert np.abs(again.encode(texts) - model.encode(texts)).max() < 1e-6
    assert np.abs(again.encode(texts) - replace(model, default_prompt=None).encode(texts)).max() > 1e-3


def test_a_model_that_computes_in_bfloat16_is_exported_by_its_weights(tmp_path: Path) -> None:
    model = replace(student(), dtype="bfloat16")
    assert max(export(model, str(tmp_path / "out")).values()) < 1e-4
    assert add_form(model, tmp_path / "out", "onnx").is_file()
    assert jdistill.load(tmp_path / "out").fingerprint() == replace(model, dtype="float32").fingerprint()


def test_no_shorter_length_of_the_start_travels(tmp_path: Path) -> None:
    """MiniLM's tokenizer.json cuts at 128, which transformers keeps; readers such as fastembed cut at the least length that they find."""
    model = replace(student(), max_length=50)
    assert model.tokenizer.init_kwargs["max_length"] == 128
    st_writer.save_tokenizer(model, tmp_path)
    written = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert written["model_max_length"] == 50 and "max_length" not in written
    assert model.tokenizer.init_kwargs["max_length"] == 128


def test_a_folder_that_encodes_differently_is_refused_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = student()
    export(model, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").read_bytes()

    def damaged(model, folder):
        changed = {
            **model.params,
            "project": {"kernel": model.params["project"]["kernel"] * 1.01, "bias": model.params["project"]["bias"]},
        }
        exporter_write(replace(model, params=changed), folder)

    exporter_write = st_writer.write_weights
    monkeypatch.setattr(exporter, "write_weights", damaged)
    with pytest.raises(UserError, match="encodes the 64 probe texts differently in ONNX Runtime"):
        export(make_encoder(seed=5, model_type="electra", embedding_size=12, num_layers=2), tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no stage 'distil'"):
        trained.load_student(tmp_path)


@pytest.mark.parametrize(("backend", "asked"), [("gpu", "highest"), ("cpu", None)])
def test_what_forms_are_held_against_is_float32_where_products_are_else_rounded(
    backend: str, asked: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's own float32 products are TF32's, which may be off by more than the checks allow."""
    seen: list[object] = []
    encode = Encoder.encode

    def watched(self: Encoder, *args: Any, **more: Any) -> np.ndarray:
        seen.append(jax.config.jax_default_matmul_precision)
        return encode(self, *args, **more)

    monkeypatch.setattr(Encoder, "encode", watched)
    model = student()
    export(model, tmp_path / "out", onnx=True)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    exporter.check_folder(model, tmp_path / "out", keep_onnx=True)
    assert seen[-1] == asked
    add_form(model, tmp_path / "out", "onnx-int8")
    assert seen[-1] == asked and jax.config.jax_default_matmul_precision is None


def test_a_check_that_fails_leaves_the_export_that_was_there(tmp_path: Path) -> None:
    """The form that is the export itself; of another its own file goes."""
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    export(student(), tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("the user's own")
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    with pytest.raises(UserError, match="differ"):
        add_form(student(seed=1), tmp_path / "out", "sentence-transformers")
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} == before


def test_a_start_whose_tokenizer_pads_on_the_left_is_exported_as_it_was_trained(tmp_path: Path) -> None:
    """Positions count from the first column, which a graph of its texts padded on the left would see otherwise."""
    save_encoder(student(), tmp_path / "start")
    settings = json.loads((tmp_path / "start" / "tokenizer_config.json").read_text())
    (tmp_path / "start" / "tokenizer_config.json").write_text(json.dumps(settings | {"padding_side": "left"}))
    checks = export(jdistill.load(str(tmp_path / "start")), tmp_path / "out", onnx=True)
    assert max(checks.values()) < 1e-5
    assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["padding_side"] == "right"
