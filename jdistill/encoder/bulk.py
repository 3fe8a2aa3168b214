"""Vectors in bulk: a stream of texts becomes the parts of a folder, each by whoever's turn it is, and none twice."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.left_over import clear_beside
from jdistill.core.locks import only_one
from jdistill.core.printable import without_secrets
from jdistill.core.progress import log, progress
from jdistill.data.text.text_stream import StreamedText
from jdistill.data.text.vector_folder import LOCK, EmbedSettings
from jdistill.data.text.vector_parts import (
    GROUP_ROWS,
    PART_TEXTS,
    PartTexts,
    check_footer,
    part_fault,
    split_parts,
    write_part,
)
from jdistill.encoder import loading
from jdistill.encoder.batch_ids import room_beside
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.text_encoder import PROMPT_NAMES


@dataclass(frozen=True)
class BulkEncoder:
    """An encoder with the prompt of a role. prompt: its name; "": none. batch_size: texts at a time."""

    model: Encoder
    source: str
    role: str
    prompt: str
    batch_size: int

    def settings(self, part_size: int = PART_TEXTS, with_text: bool = True) -> EmbedSettings:
        """What a folder of its vectors says of itself."""
        model = self.model
        local = Path(self.source).expanduser()
        source = str(local.resolve()) if local.exists() else without_secrets(self.source)
        prompt = model.prompt_text(self.prompt)
        return EmbedSettings(
            source,
            model.fingerprint(),
            self.role,
            prompt,
            model.dtype,
            model.max_length,
            model.dim,
            part_size,
            with_text,
            model.include_prompt or not prompt or bool(model.prompts.get(model.default_prompt or "")),
        )

    def pieces(self, part: PartTexts, name: Path) -> Iterator[np.ndarray]:
        """The vectors of a part, float32 [GROUP_ROWS, dim] at a time. name: of its file, for messages.

        Raises: UserError naming the row and text whose vector is not finite.
        """
        with progress(part.name, len(part.texts), "texts") as meter:
            for start in range(0, len(part.texts), GROUP_ROWS):
                texts = part.texts[start : start + GROUP_ROWS]
                vectors = self.model.encode(texts, batch_size=self.batch_size, prompt=self.prompt)
                self._check(vectors, texts, start, name)
                yield vectors
                meter.advance(len(texts))

    def _check(self, vectors: np.ndarray, texts: list[str], start: int, name: Path) -> None:
        """Raises UserError for a vector that is not finite."""
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise UserError(
                f"{name} row {start + row}: the vector by {self.source} holds NaN or infinity, as do "
                f"{int((~finite).sum())} of {len(texts)}: its weights are damaged or its training diverged. "
                f"Text: {texts[row][:80]!r}"
            )


def open_bulk_encoder(
    source: str, role: str, *, dtype: str = "float32", max_length: int = 0, batch_size: int = 64
) -> BulkEncoder:
    """Loads a model for a role, whose prompt is the one that Encoder.prompt_for names.

    Args:
      source: whatever jdistill.load reads.
      role: "query" or "document".
      dtype: of the computation, float32 or bfloat16.
      max_length: of a text, in tokens; 0: the model's own limit.
      batch_size: texts at a time.

    Raises: UserError for an unknown role, a length that the model does not take, or that its prompt fills, and what loading refuses.
    """
    if role not in PROMPT_NAMES:
        raise UserError(f"--role={role} is not one of {', '.join(PROMPT_NAMES)}")
    if batch_size < 1:
        raise UserError(f"--batch_size={batch_size}: at least 1 text at a time")
    model = loading.load(source, key="model", dtype=dtype)
    if max_length and not 2 < max_length <= model.max_length:
        raise UserError(f"--max_length={max_length}: {source} takes 3 to {model.max_length} tokens")
    model = replace(model, max_length=max_length or model.max_length)
    prompt = model.prompt_for(role)
    if not prompt and (names := [name for name, text in model.prompts.items() if text]):
        log.warning("%s has no prompt for a %s, only %s: none is used", source, role, ", ".join(sorted(names)))
    remedy = (
        "give a longer --max_length" if max_length else "give its folder a longer max_seq_length or a shorter prompt"
    )
    refuse_full_prompt(model, role, remedy)
    return BulkEncoder(model, source, role, prompt, batch_size)


def refuse_full_prompt(model: Encoder, role: str, remedy: str) -> None:
    """Raises UserError where the prompt of a "query" or a "document" leaves a text no token. remedy: what the message ends with."""
    text = model.prompt_text(model.prompt_for(role))
    if text and room_beside(model.tokenizer, text, model.max_length) < 1:
        raise UserError(
            f"{model.source}: its {role} prompt, {text[:60]!r}, leaves a text none of the {model.max_length} tokens (max_length), so that all "
            f"would have the same vector; {remedy}"
        )


@dataclass
class FolderParts:
    """What a pass over the texts met: sizes of all parts; the numbers of those that are whole, made now, and lacking with the reason."""

    sizes: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    lacking: dict[int, str] = field(default_factory=dict)


def embed_part(encoder: BulkEncoder, out: Path, part: PartTexts, settings: EmbedSettings) -> bool:
    """Makes the file of a part where it is not there, or damaged, which is said. True if it was made.

    Raises: UserError where another process makes the same part, and as part_fault and pieces do.
    """
    path = out / part.name
    with only_one(out / f"{LOCK}{part.name}", path, "the writing"):
        fault = part_fault(out, part, settings.width, settings.with_text, settings.made_by)
        if fault is None:
            return False
        if fault:
            log.warning("%s is damaged (%s), and made anew", path, fault)
        clear_beside(path)
        start = time.monotonic()
        vectors = encoder.pieces(part, path)
        write_part(out, part, vectors, settings.width, settings.with_text, settings.made_by)
    rate = len(part.texts) / (time.monotonic() - start)
    log.info("%s: %d texts, %.1f texts/s", path, len(part.texts), rate)
    return True


def embed_stream(
    encoder: BulkEncoder, stream: Iterable[StreamedText], out: Path, settings: EmbedSettings, shard: tuple[int, int]
) -> FolderParts:
    """Makes the parts of one shard that a claimed folder lacks. shard: (i, n): every n-th part, beginning with part i. Raises UserError as
    embed_part, and where a part of another shard is there that another model or other texts have made."""
    parts = FolderParts()
    for part in split_parts(stream, settings.part_size):
        parts.sizes.append(len(part.texts))
        if part.number % shard[1] != shard[0]:
            check_footer(out, part, settings.made_by)  # before ours, which would be of another text than the folder's
            continue
        (parts.made if embed_part(encoder, out, part, settings) else parts.whole).append(part.number)
    return parts


def check_stream(stream: Iterable[StreamedText], out: Path, settings: EmbedSettings) -> FolderParts:
    """Reads every part, and makes none: what is whole, and what is lacking ("missing", or its damage)."""
    parts = FolderParts()
    for part in split_parts(stream, settings.part_size):
        parts.sizes.append(len(part.texts))
        fault = part_fault(out, part, settings.width, settings.with_text, settings.made_by)
        if fault is None:
            parts.whole.append(part.number)
        else:
            parts.lacking[part.number] = fault or "missing"
    return parts
