"""A folder run by sentence-transformers on torch (the torch extra), behind what evaluation and teachers ask of a model."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError, first_line
from jdistill.core.json_files import read_settings
from jdistill.core.remote import is_url
from jdistill.data.text.locations import resolve
from jdistill.encoder.folder_code import code_files, module_classes, permitted_folder
from jdistill.encoder.formats.modules import ADAPTER_FILE, read_modules, refuse_router
from jdistill.encoder.text_encoder import prompt_named
from jdistill.encoder.text_lists import text_list

# Ends of the files that decide what a model answers.
DECIDING = (
    ".json", ".safetensors", ".bin", ".txt", ".model", ".py", ".jinja",
    ".pt", ".pth", ".npy", ".npz", ".codes", ".bpe", ".spm", ".vocab",
)  # fmt: skip


@dataclass(frozen=True)
class TorchEncoder:
    """A model of sentence-transformers as evaluation asks for it.

    Args:
      model: a SentenceTransformer.
      folder: where its files lie.
    """

    model: Any
    folder: Path

    @property
    def num_params(self) -> int:
        """As Encoder's."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def dim(self) -> int:
        """As Encoder's, of a text that it encodes for this."""
        return int(self.encode(["width"]).shape[1])

    @property
    def prompts(self) -> dict[str, str]:
        """As Encoder's."""
        return self.model.prompts

    def prompt_for(self, role: str) -> str:
        """As Encoder's."""
        return prompt_named(self.model.prompts, role)

    def encode(
        self, texts: Sequence[str], *, batch_size: int = 64, prompt: str | None = None, show_progress: bool = False
    ) -> np.ndarray:
        """As Encoder.encode: float32 [N, dim], in the order given."""
        del show_progress  # its bar would mix with our log lines
        named = {"prompt": ""} if prompt == "" else {"prompt_name": prompt}
        vectors = self.model.encode(text_list(texts), batch_size=batch_size, show_progress_bar=False, **named)
        return np.asarray(vectors, np.float32)

    def encode_in_role(self, texts: Sequence[str], role: str) -> np.ndarray:
        """The vectors of queries or documents, float32 [N, dim], as the model itself encodes a "query" or a "document", by prompt_in_role."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        if type(self.model[0]).__name__ == "WordEmbeddings":  # whose tokenizer fails on the task that those two tell it
            encode = self.model.encode
        prompt = self.prompt_in_role(role)
        return np.asarray(encode(text_list(texts), prompt=prompt, batch_size=32, show_progress_bar=False), np.float32)

    def prompt_in_role(self, role: str) -> str:
        """What encode_in_role puts before a text, as an Encoder of the folder does."""
        return str(self.model.prompts.get(self.prompt_for(role), ""))


def load_torch_encoder(
    source: str, key: str = "model", trust_remote_code: bool | str = False, takes_router: bool = True
) -> TorchEncoder:
    """Loads a model by sentence-transformers.

    Args:
      source: a path, a hub id or `pkg:import_name/sub/folder`; with a text for trust_remote_code also `OWNER/NAME@COMMIT`.
      key: what error messages call it.
      trust_remote_code: run Python files that the folder carries; a text: those of that commit or digest alone, as
        folder_code.permitted_folder has it.
      takes_router: whether a folder may be two models, of which encode_in_role asks the one for a role, and encode the one for documents.

    Raises: UserError where the torch extra is missing, for such files without trust_remote_code, and for what cannot be loaded.
    """
    folder, trusted = sentence_transformers_folder(source, key, trust_remote_code, takes_router)
    library = sentence_transformers()
    with telling_what_fails(source, key):
        model = library.SentenceTransformer(str(folder), device=None, trust_remote_code=trusted)
    return TorchEncoder(model, folder)


def sentence_transformers_folder(
    source: str, key: str, trust_remote_code: bool | str = False, takes_router: bool = True
) -> tuple[Path, bool]:
    """Where a model lies that sentence-transformers may load, and whether code in it is to be run.

    Raises: UserError as load_torch_encoder does, but for what cannot be loaded.
    """
    if not has_sentence_transformers():
        raise UserError(f"--{key}={source} needs the torch extra: pip install -e '.[torch]'")
    if isinstance(trust_remote_code, str):
        folder, trusted = permitted_folder(source, key, trust_remote_code)
    else:
        folder, trusted = resolve(source, key), trust_remote_code
        carried = code_files(folder) if folder.is_dir() else []
        if not trusted and (code := carried or module_classes(folder)):
            verb = "carries" if carried else "names"
            raise UserError(
                f"--{key}={source} {verb} code ({', '.join(code)}), run only by jdistill.evaluate --trust_remote_code"
            )
    if folder.is_dir():
        modules = read_modules(folder)  # whose paths sentence-transformers would follow anywhere
        if not takes_router:
            refuse_router(folder, modules, f"--{key}={source}")
    return folder, trusted


def has_sentence_transformers() -> bool:
    """Whether the torch extra is installed; nothing of it is imported."""
    return importlib.util.find_spec("sentence_transformers") is not None


def sentence_transformers() -> Any:
    """The library, which is installed. Raises UserError where it does not import, as with a torch that lacks a library of the system."""
    try:
        import sentence_transformers as library
    # An OSError of a shared library, an ImportError or RuntimeError of versions that do not go together.
    except Exception as error:
        raise UserError(
            f"sentence-transformers is installed and cannot be imported ({type(error).__name__}: {first_line(error)[:200]}); "
            "install it and torch anew, pip install --force-reinstall -e '.[torch]', or take it away"
        ) from error
    return library


@contextmanager
def telling_what_fails(source: str, key: str) -> Iterator[None]:
    """Turns whatever sentence-transformers raises of a model into a UserError that names it."""
    try:
        yield
    except Exception as error:  # of whatever kind its modules and their libraries raise
        raise UserError(
            f"--{key}={source} cannot be loaded by sentence-transformers ({type(error).__name__}: {first_line(error)})"
        ) from error


def add_files(digest: hashlib.blake2b, folder: Path, around: tuple[Path, ...] = ()) -> None:
    """Takes all files of a model that decide what it answers into a digest, those of the models that adapters in it change too.

    around: folders whose adapters led here. Raises UserError for an adapter whose base is a URL, which a file is not to have fetched.
    """
    around = (*around, folder.resolve())
    for path in sorted(path for path in folder.rglob("*") if path.suffix in DECIDING and path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode())
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    for path in sorted(folder.rglob(ADAPTER_FILE)):
        base = read_settings(path).text("base_model_name_or_path", "")
        if is_url(base):
            raise UserError(f"{path}: the base of an adapter is a folder or a hub id, not {base}")
        if base and not {(place := resolve(base, "model")).resolve()} & {*around, path.parent.resolve()}:
            add_files(digest, place, around)
