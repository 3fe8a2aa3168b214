"""What a search page is not made of: another runtime, another format's flags, a run without an index, a tokenizer that cuts elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import make_encoder
from site_setting import npm_packages, searchable_run

from jdistill.core.errors import UserError
from jdistill.export.command import main
from jdistill.export.site.page_tokens import page_tokens
from jdistill.export.site.web_runtime import web_runtime


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_packages(tmp_path_factory.mktemp("npm"))


def command(run: Path, out: Path, *more: str) -> int:
    return main(["--workdir", str(run), "--out", str(out), "--format=site", *more])


@pytest.mark.parametrize(
    "address",
    [
        "http://cdn.example/npm",
        "https://cdn.example/npm?a=b",
        "https://a.example/; script-src *",
        "ftp://x/",
        "https://a.example/a,b/",
    ],
)
def test_an_address_that_is_no_cdns_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="is no address of a CDN"):
        web_runtime(address)


def test_a_runtime_that_is_not_there_is_refused(packages: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"npm install onnxruntime-web@\S+ @huggingface/tokenizers@"):
        web_runtime("")
    with pytest.raises(UserError, match="holds no package onnxruntime-web"):
        web_runtime(str(tmp_path))
    older = npm_packages(tmp_path / "older")
    (older / "onnxruntime-web" / "dist" / "ort.wasm.bundle.min.mjs").unlink()
    with pytest.raises(UserError, match=r"has no dist/ort\.wasm\.bundle\.min\.mjs; install the version"):
        web_runtime(str(older))
    assert web_runtime(str(packages.parent)) == web_runtime(str(packages))


def test_what_is_no_page_is_refused(packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text('{"method": "simtde", "teacher": "", "text": ""}')
    runtime = f"--web_runtime={packages}"
    assert command(run, tmp_path / "page", runtime, "--quantize=int8") == 2
    assert "leave --quantize out" in capsys.readouterr().err
    assert main(["--workdir", str(run), "--out", str(tmp_path / "page"), runtime]) == 2
    assert "is of --format=site" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    assert command(run, tmp_path / "page", runtime) == 2
    assert "export is missing; it is written at the end of a run" in capsys.readouterr().err
    assert command(run, tmp_path / "mine", runtime) == 2
    assert "is not empty and no site of jdistill's (it holds letter.txt)" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "run"]


def test_a_run_without_an_index_or_with_anothers_is_refused(
    packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    runtime = f"--web_runtime={packages}"
    run = searchable_run(tmp_path / "run")
    (run / "index").rename(tmp_path / "index")
    assert command(run, tmp_path / "page", runtime) == 2
    assert "index is missing; it is written at the end of a run" in capsys.readouterr().err
    other = searchable_run(tmp_path / "other", seed=1)
    (tmp_path / "index").rename(run / "index")
    (other / "index").rename(tmp_path / "index")
    (run / "index").rename(other / "index")
    assert command(other, tmp_path / "page", runtime) == 2
    assert "was made by another model" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


def test_a_prompt_that_leaves_no_room_for_a_question_is_refused(
    packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    student = replace(make_encoder(), prompts={"query": "river " * 100})
    run = searchable_run(tmp_path / "mine", student=student)
    assert command(run, tmp_path / "page", "--web_runtime", str(packages)) == 2
    assert "leaves a text none of the" in capsys.readouterr().err and not (tmp_path / "page").exists()


def test_a_tokenizer_that_cuts_at_the_front_is_refused() -> None:
    model = make_encoder()
    model.tokenizer.truncation_side = "left"
    with pytest.raises(UserError, match="does not cut"):
        page_tokens(model)
