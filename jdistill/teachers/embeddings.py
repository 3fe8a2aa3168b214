"""Teachers: whatever answers a text with a vector. Three kinds, one contract: width, fingerprint, answer(texts)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.fetched import path_here
from jdistill.core.sorted_keys import keys_of_texts, sort_keys
from jdistill.data.text.vector_store import open_store
from jdistill.data.text.vectors import read_vectors
from jdistill.encoder import loading, torch_backend
from jdistill.encoder.batch_ids import room_beside
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.text_encoder import PROMPT_NAMES
from jdistill.models.pooling import resolve_pooler
from jdistill.models.precision import AUTO, settled_dtype
from jdistill.teachers.cache import AnswerCache

TEXTS_ON_CPU, TEXTS_ON_ACCELERATOR = 32, 128


@dataclass(frozen=True)
class Teacher:
    """Whatever answers a text with a vector.

    Args:
      source: as the config names it.
      width: of its vectors.
      fingerprint: of all that decides them.
      answer: N texts -> float32 [N, width], before any Normalize.
      encoder: the model itself where it is one of ours, else None.
      own_length: tokens of a text that the encoder reads where nothing shortens it.
      texts: those it can answer where they are a fixed list (vectors:FILE, or a folder that has the texts), else None.
      roles: what makes of a role the teacher that is asked in it; None: it answers texts as they are.
      prompt: what it puts before each text.
      room: tokens that its length leaves to a text beside that; None: nobody knows.
      has_prompts: whether it has a prompt for any role or name.
      release: frees what its answers hold of the devices' memory, until it is asked again.
    """

    source: str
    width: int
    fingerprint: str
    answer: Callable[[list[str]], np.ndarray]
    encoder: Encoder | None = None
    own_length: int = 0
    texts: Iterable[str] | None = None
    roles: Callable[[str], Teacher] | None = None
    prompt: str = ""
    room: int | None = None
    has_prompts: bool = False
    release: Callable[[], None] = lambda: None

    def in_role(self, role: str) -> Teacher:
        """The teacher as it is asked of a "query" or a "document", by their prompt and with a fingerprint of its own; "": itself.

        Raises: UserError where it answers texts as they are.
        """
        if not role:
            return self
        if self.roles is None:
            raise UserError(
                f"--config.teacher={self.source} answers texts as they are, without a prompt: leave @{role} out of --config.text, "
                "--config.text_role and --config.pairs empty, and have the vectors made by the prompt that they need"
            )
        return self.roles(role)

    def as_used(self) -> Encoder | None:
        """The encoder as who has it uses it, whatever a run reads of its texts: what a student is measured against."""
        return self.encoder and replace(self.encoder, max_length=self.own_length)

    def cache(self, folder: Path, writer: int = 0) -> AnswerCache:
        """Where this teacher's answers are kept under the cache folder. writer: as AnswerCache has it."""
        return AnswerCache(
            folder / "teacher" / self.fingerprint, self.width, about={"teacher": self.source}, writer=writer
        )


def open_teacher(source: str, max_length: int, dtype: str, pooling: str = "", trusted_code: str = "") -> Teacher:
    """A teacher by its source.

    Args:
      source: `vectors:FILE`, `vectors:FOLDER`, `st:SOURCE` or `st:OWNER/NAME@COMMIT` (torch extra), or whatever jdistill.load reads.
      max_length: tokens that it sees of a text, at most; 0: the model's own limit. What a vectors: file saw is its own affair.
      dtype: the compute type of its answers, auto, float32 or bfloat16; Teacher.encoder computes in float32.
      pooling: taken in the place of the model's own, whose projections are then left out; "": the model's own.
      trusted_code: of `st:`: the commit whose Python files may be run, of a folder here the digest of them; "": none may.

    Raises: UserError for a source that is empty or cannot be read, another dtype, a pooling of what gives vectors as they are, and code that
      is not trusted, or could not be.
    """
    if not source:
        raise UserError("--config.teacher is empty: name a folder, a hub id, pkg:…, st:… or vectors:FILE")
    if pooling and source.startswith(("vectors:", "st:")):
        raise UserError(f"--config.teacher_pooling={pooling}: {source} gives its vectors as they are")
    if trusted_code and not source.startswith("st:"):
        raise UserError(
            f"--config.trust_remote_code={trusted_code}: only a teacher st:SOURCE can run code; no code of {source} is run"
        )
    if source.startswith("vectors:"):
        return _from_vectors(source)
    if source.startswith("st:"):
        return _from_sentence_transformers(source, max_length, trusted_code)
    if dtype not in (AUTO, "float32", "bfloat16"):
        raise UserError(f"--config.teacher_dtype={dtype!r} is not one of {AUTO}, float32, bfloat16")
    model = loading.load(source, key="config.teacher")
    own_length = model.max_length
    if max_length:
        model = replace(model, max_length=min(max_length, model.max_length))
    if pooling:
        model = replace(model, pooling=resolve_pooler(pooling), dense=(), dense_activations=())
    bare = replace(model, normalize=False, dtype=settled_dtype(dtype))
    return _from_encoder(source, model, bare, own_length)


def read_at_once() -> int:
    """Texts that a teacher reads at a time: on a CPU 32, which keep its cores busy, on accelerators 128 for each of this process's."""
    return TEXTS_ON_CPU if sharding.platform() == "cpu" else TEXTS_ON_ACCELERATOR * sharding.local_mesh().size


def _from_encoder(source: str, model: Encoder, bare: Encoder, own_length: int) -> Teacher:
    """model: the encoder itself; bare: as it is asked."""
    prompt = bare.prompt_text()
    return Teacher(
        source,
        model.dim,
        bare.fingerprint(),
        lambda texts: bare.encode(texts, batch_size=read_at_once()),
        model,
        own_length,
        roles=lambda role: _from_encoder(source, model, bare.in_role(role), own_length),
        prompt=prompt,
        room=room_beside(bare.tokenizer, prompt, bare.max_length),
        has_prompts=bool(bare.prompts),
        release=bare.release,
    )


def _from_vectors(source: str) -> Teacher:
    path = path_here(source.removeprefix("vectors:"), "config.teacher").expanduser()
    if path.is_dir():
        return _from_folder(source, path)
    texts, vectors = read_vectors(path)
    keys = keys_of_texts(texts)
    of_texts = sort_keys(keys)
    digest = hashlib.blake2b(vectors.tobytes(), digest_size=16)
    digest.update(keys.tobytes())

    def answer(asked: list[str]) -> np.ndarray:
        rows = of_texts.find(keys_of_texts(asked))
        if (rows < 0).any():
            raise _without_vector(path, asked, rows.tolist())
        return vectors[rows]

    return Teacher(source, vectors.shape[1], digest.hexdigest(), answer, texts=texts)


def _from_folder(source: str, folder: Path) -> Teacher:
    store = open_store(folder)

    def answer(asked: list[str]) -> np.ndarray:
        rows = store.rows_of(asked)
        if (rows < 0).any():
            raise _without_vector(folder, asked, rows.tolist())
        return store.vectors(rows)

    return Teacher(source, store.width, store.fingerprint, answer, texts=store.texts)


def _without_vector(path: Path, asked: list[str], rows: list[int]) -> UserError:
    missing = [text for text, row in zip(asked, rows, strict=True) if row < 0]
    return UserError(
        f"{path} has no vector for {len(missing)} of {len(asked)} texts asked for, such as {missing[0][:80]!r}; "
        "leave --config.text and --config.augment empty to train on the texts that it has"
    )


def _from_sentence_transformers(source: str, max_length: int, trusted_code: str) -> Teacher:
    loaded = torch_backend.load_torch_encoder(source.removeprefix("st:"), "config.teacher", trusted_code)
    model, folder = loaded.model, loaded.folder
    if max_length:
        model.max_seq_length = min(max_length, model.max_seq_length or max_length)
    digest = hashlib.blake2b(
        repr((model.max_seq_length, model.default_prompt_name, model.prompts)).encode(), digest_size=16
    )
    torch_backend.add_files(digest, folder)
    by_role = {role: loaded.prompt_in_role(role) for role in PROMPT_NAMES}
    # A prompt by another name than its role's sentence-transformers leaves out by itself: answers from before it was handed over are others.
    if any(prompt != model.prompts.get(role, "") for role, prompt in by_role.items()):
        digest.update(repr(by_role).encode())
    has_prompts = any(model.prompts.values())

    def in_role(role: str) -> Teacher:
        of_role = digest.copy()
        of_role.update(role.encode())
        prompt, limit = by_role[role], model.max_seq_length
        counts = bool(prompt) and bool(limit) and callable(model.tokenizer)
        return Teacher(
            source,
            loaded.dim,
            of_role.hexdigest(),
            lambda texts: loaded.encode_in_role(texts, role),
            prompt=prompt,
            room=room_beside(model.tokenizer, prompt, limit) if counts else None,
            has_prompts=has_prompts,
        )

    answer = partial(loaded.encode, batch_size=32)
    return Teacher(source, loaded.dim, digest.hexdigest(), answer, roles=in_role, has_prompts=has_prompts)
