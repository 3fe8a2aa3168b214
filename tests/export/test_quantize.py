"""int8 graphs and folders: size, closeness and refusal; the backends that score them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import in_a_process_without_jdistill
from conftest import first_layers, make_decoder, make_encoder, sentences
from onnx_setting import ask_cosine
from parity import assert_close
from prose import PROSE

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder import torch_backend
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_files
from jdistill.export import command as exporter
from jdistill.export import onnx_forms, torch_int8
from jdistill.export.card import write_card
from jdistill.export.folder import export
from jdistill.export.onnx import runtime
from jdistill.export.targets import add_form
from jdistill.export.torch_int8 import quantized_rows, smoothed
from jdistill.retrieval.index import unit_rows


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from conftest import real_teacher_folder

    model = first_layers(jdistill.load(str(real_teacher_folder())), 2)
    folder = tmp_path_factory.mktemp("minilm") / "export"
    export(model, folder)
    add_form(model, folder, "onnx-int8")
    return folder


def test_an_int8_folder_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, plain = make_encoder(num_layers=1), tmp_path / "plain"
    export(model, plain)
    out = torch_int8.save_int8_folder(model, plain, plain / "torch_int8")
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(torch_int8, "write_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        torch_int8.save_int8_folder(model, plain, out)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert not list(plain.glob(".*"))


TEXTS = ["A man is playing a guitar.", "Someone plays the guitar.", "The stock market fell.", *sentences(60)]


def assert_close_and_apart(found: np.ndarray, ours: np.ndarray) -> None:
    """Rounded vectors are near the exact ones, and tell what is alike from what is not as these do."""
    found, ours = unit_rows(found), unit_rows(ours)
    assert (ours * found).sum(1).mean() > 0.985
    assert ours[0] @ ours[1] - ours[0] @ ours[2] > 0.2
    assert found[0] @ found[1:3].T == pytest.approx(ours[0] @ ours[1:3].T, abs=0.05)


def test_int8_is_a_quarter_as_large_and_close(minilm: Path) -> None:
    assert [path.name for path in (minilm / "onnx").iterdir()] == ["model_quint8_avx2.onnx"]
    model, int8 = jdistill.load(str(minilm)), runtime.load_onnx_encoder(str(minilm), "onnx/model_quint8_avx2.onnx")
    assert int8.num_bytes < 0.3 * (minilm / "model.safetensors").stat().st_size and int8.dim == 384
    assert_close_and_apart(int8.encode(TEXTS, batch_size=16), model.encode(TEXTS))


def test_the_name_is_one_that_sentence_transformers_looks_for_and_fits_what_is_inside(minilm: Path) -> None:
    utils = pytest.importorskip("sentence_transformers.backend.utils", reason="needs the torch extra")
    for asked in ("model_quint8_avx2.onnx", "onnx/model_quint8_avx2.onnx"):
        exports, keywords = utils.backend_should_export(
            minilm, True, {"file_name": asked}, "model.onnx", "*.onnx", "ONNX"
        )
        assert not exports and keywords == {"subfolder": "onnx", "file_name": "model_quint8_avx2.onnx"}
    kept = onnx.load(minilm / "onnx" / "model_quint8_avx2.onnx").graph.initializer
    sizes = {"UINT8": 0, "INT8": 0, "FLOAT": 0}
    for tensor in kept:
        if (kind := onnx.TensorProto.DataType.Name(tensor.data_type)) in sizes:
            sizes[kind] += int(np.prod(tensor.dims))
    assert not sizes["INT8"] and sizes["UINT8"] > 20 * sizes["FLOAT"] > 0


def test_int8_graphs_of_older_exports_are_read_by_either_name(minilm: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(minilm, tmp_path / "older")
    path = folder / "onnx" / "model_quint8_avx2.onnx"
    loaded = {
        name: runtime.load_onnx_encoder(str(folder), f"onnx/{name}").path for name in (path.name, "model_int8.onnx")
    }
    assert set(loaded.values()) == {path}
    older = path.rename(path.with_name("model_int8.onnx"))
    for name in (path.name, older.name):
        assert runtime.load_onnx_encoder(str(folder), f"onnx/{name}").path == older
    write_card(tmp_path, folder)
    card = (folder / "README.md").read_text()
    assert 'backend="onnx", model_kwargs={"file_name": "onnx/model_int8.onnx"}' in card


def test_int8_for_torch_in_a_process_without_jdistill(minilm: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    model = jdistill.load(str(minilm))
    dynamic = add_form(model, minilm, "torch-int8")
    calibrated = add_form(model, minilm, "torch-int8-calibrated", PROSE)
    assert (dynamic, calibrated) == (minilm / "torch_int8", minilm / "torch_int8_calibrated")
    (minilm / "texts.json").write_text(json.dumps(TEXTS))
    # By int8 products, slow as they are on a processor without VNNI, and by those of float32, which such a one takes.
    in_a_process_without_jdistill(
        "import json, numpy as np, torch\nfrom sentence_transformers import SentenceTransformer\n"
        "texts = json.load(open(sys.argv[1] + '/texts.json'))\n"
        "for has_vnni in (True, False):\n"
        "    torch.cpu._is_vnni_supported = lambda: has_vnni\n"
        "    for name in ('torch_int8', 'torch_int8_calibrated'):\n"
        "        m = SentenceTransformer(sys.argv[1] + '/' + name, device='cpu', trust_remote_code=True)\n"
        "        np.save(f'{sys.argv[1]}/{name}-{has_vnni}.npy', m.encode(texts[: 8 if has_vnni else None]))\n",
        minilm,
    )
    ours = model.encode(TEXTS)
    for out in (dynamic, calibrated):
        assert not (out / "model.safetensors").exists() and not list(out.glob("torch_int8*"))
        assert (out / "int8.safetensors").stat().st_size < 0.27 * (minilm / "model.safetensors").stat().st_size
        in_int8, in_float = (np.load(minilm / f"{out.name}-{has_vnni}.npy") for has_vnni in (True, False))
        assert_close_and_apart(in_int8, ours[:8])
        assert_close_and_apart(in_float, ours)
        # Closer to the exact ones, whose inputs are not rounded either; the same would be of one way for both.
        assert 0 < np.abs(in_float[:8] - ours[:8]).mean() < np.abs(in_int8 - ours[:8]).mean()
    with pytest.raises(UserError, match="carries code .int8_transformer.py., run only by"):
        torch_backend.load_torch_encoder(str(dynamic))


def test_rows_of_int8_are_within_half_a_step_and_smoothing_changes_no_product() -> None:
    rng = np.random.default_rng(0)
    weight, x = rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal((30, 7)).astype(np.float32)
    x[:, 2] *= 50.0  # one large channel
    found = quantized_rows({"a.weight": weight, "a.bias": weight[0]})
    assert found["a.weight"].dtype == np.int8
    np.testing.assert_array_equal(found["a.bias"], weight[0])
    step = found["a.scale"][:, None]
    assert (np.abs(found["a.weight"] * step - weight) <= 0.5001 * step).all()
    smooth = smoothed({"a.weight": weight}, {"a": np.abs(x).max(0)})
    inputs = x / smooth["a.input_scale"]
    product = inputs.astype(np.float64) @ smooth["a.weight"].T  # what is rounded is each factor alone
    assert_close(product, x.astype(np.float64) @ weight.T, 7)
    assert np.abs(inputs).max() == pytest.approx(127, rel=1e-4)

    def error(by_channel: np.ndarray) -> float:
        small = quantized_rows({"a.weight": weight * by_channel})
        product = np.rint(x / by_channel) @ (small["a.weight"] * small["a.scale"][:, None]).T
        return float(np.linalg.norm(product - x @ weight.T))

    assert error(smooth["a.input_scale"]) < 0.6 * error(np.full(7, np.abs(x).max() / 127, np.float32))


def test_a_decoder_with_a_transformer_module_of_its_own_is_refused(tmp_path: Path) -> None:
    model = make_decoder()
    model = replace(model, config=replace(model.config, causal=False))
    write_files(model, tmp_path / "out")
    with pytest.raises(UserError, match="BidirectionalTransformer cannot be combined"):
        torch_int8.save_int8_folder(model, tmp_path / "out", tmp_path / "out" / "torch_int8")
    assert not (tmp_path / "out" / "torch_int8").exists()


def test_the_float_graph_by_the_onnx_backend_equals_flax(tmp_path: Path) -> None:
    model = make_encoder()
    export(model, tmp_path / "out", onnx=True)
    texts = sentences(30)
    np.testing.assert_allclose(
        runtime.load_onnx_encoder(str(tmp_path / "out")).encode(texts, batch_size=7), model.encode(texts), atol=1e-5
    )
    with pytest.raises(UserError, match="has no onnx/model_quint8_avx2.onnx; python -m jdistill.export"):
        runtime.load_onnx_encoder(str(tmp_path / "out"), "onnx/model_quint8_avx2.onnx")


def test_a_calibrated_graph_and_one_that_strays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_encoder()
    export(model, tmp_path / "out", onnx=True)
    ask_cosine(monkeypatch, 0.9)
    path = add_form(model, tmp_path / "out", "onnx-int8-calibrated", sentences(64))
    assert path.name == "model_quint8_avx2_calibrated.onnx"
    assert sorted(p.name for p in path.parent.iterdir()) == ["model.onnx", path.name]
    found = runtime.load_onnx_encoder(str(tmp_path / "out"), f"onnx/{path.name}").encode(sentences(20))
    assert (unit_rows(found) * unit_rows(model.encode(sentences(20)))).sum(1).mean() > 0.9
    ask_cosine(monkeypatch, 1.01)
    with pytest.raises(UserError, match="mean cosine of 0.9.* below 1.01; nothing was written"):
        add_form(model, tmp_path / "out", "onnx-int8")
    assert not (path.parent / "model_quint8_avx2.onnx").exists()
    path.with_name("model.onnx").unlink()

    def cannot(*_: object) -> None:
        raise ValueError("no such operator")

    monkeypatch.setattr(onnx_forms, "quantize", cannot)
    with pytest.raises(ValueError, match="no such operator"):
        add_form(model, tmp_path / "out", "onnx-int8")
    assert not path.with_name("model.onnx").exists()  # which was made on the way and nobody asked for
    assert exporter.main(["--workdir", str(tmp_path), "--out", "x", "--quantize", "int8-calibrated"]) == 2
    assert "go together" in capsys.readouterr().err


@pytest.mark.parametrize("make", [make_encoder, make_decoder])
def test_a_calibrated_graph_whose_inputs_are_not_the_tokenizers(
    make: Callable[[], Encoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, takes_types = make(), make is make_encoder
    model.tokenizer.model_input_names = ["input_ids", "attention_mask", *([] if takes_types else ["token_type_ids"])]
    export(model, tmp_path / "out", onnx=True)
    ask_cosine(monkeypatch, 0.5)
    path = add_form(model, tmp_path / "out", "onnx-int8-calibrated", sentences(32))
    assert ("token_type_ids" in {value.name for value in onnx.load(path).graph.input}) == takes_types
