"""A folder of vectors: claimed by the command that fills it, refused to another, and sealed when all of its parts are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.locks import only_one
from jdistill.core.printable import without_secrets
from jdistill.data.text.vector_parts import part_name

EMBEDDINGS_SEAL = "embeddings"
LOCK = f"{files.TEMPORARY}lock-"


@dataclass(frozen=True)
class EmbedSettings:
    """By what the vectors of a folder are made; the same in every process that writes there.

    Args:
      model: as a path from anywhere, or a hub id.
      fingerprint: of the encoder: weights, tokenizer, pooling, length, type.
      role: "query" or "document".
      prompt: the text put before each text.
      dtype: of the computation.
      max_length: of a text, in tokens.
      width: of the vectors.
      part_size: texts of a part.
      with_text: whether parts keep the texts, or only their keys.
      prompt_counts: False where the prompt's tokens are left out of the mean and the fingerprint, which knows the default prompt's, says nothing.
    """

    model: str
    fingerprint: str
    role: str
    prompt: str
    dtype: str
    max_length: int
    width: int
    part_size: int
    with_text: bool
    prompt_counts: bool = True

    @property
    def made_by(self) -> str:
        """What a part says of its making: all that decides its vectors."""
        return f"{self.fingerprint} {self.prompt!r}" + ("" if self.prompt_counts else ", not counted")


def claim_folder(out: Path, settings: EmbedSettings, text: str, looks: bool = False) -> None:
    """Makes the folder, or takes it for what an earlier command of the same settings made.

    text: the source, which the seal keeps for a reader; what it holds is held against each part. looks: it is read alone, so that nothing
    is written into one that is there.

    Raises: UserError for a folder that holds anything else, or was made by other settings, with the difference.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out={out} is a file; name a folder")
    parent = next(place for place in out.absolute().parents if place.exists())
    if not parent.is_dir():
        raise UserError(f"--out={out}: {parent} is a file; name a folder")
    _refuse_not_ours(out)
    if looks and (there := files.read_seal(out, EMBEDDINGS_SEAL)) is not None:
        refuse_other_settings(out, there, settings)
        return
    out.mkdir(parents=True, exist_ok=True)
    with only_one(out / f"{LOCK}seal", out, "the claiming", wait=True):
        seal = files.read_seal(out, EMBEDDINGS_SEAL)
        if seal is None:
            files.write_seal(
                out, EMBEDDINGS_SEAL, {}, settings=asdict(settings), text=without_secrets(text), parts=None, texts=None
            )
        else:
            refuse_other_settings(out, seal, settings)


def _refuse_not_ours(out: Path) -> None:
    if out.is_dir() and files.read_seal(out, EMBEDDINGS_SEAL) is None:
        ours = (
            ["part-*.parquet"] if (out / files.SEAL).exists() else []
        )  # its seal was damaged: parts tell of themselves
        if there := files.foreign(out, EMBEDDINGS_SEAL, [*ours, "index/*"] if ours else []):
            raise UserError(
                f"--out={out} is not empty and no folder of jdistill.embed's (it holds {files.some_of(there)}); "
                "choose another folder, or move them"
            )


def refuse_other_settings(out: Path, seal: dict[str, Any], settings: EmbedSettings) -> None:
    """Raises UserError, with each difference, for a folder that was made by other settings."""
    earlier, now = {"prompt_counts": True} | (seal.get("settings") or {}), asdict(settings)
    differing = [name for name in now if name not in ("model", "fingerprint") and earlier.get(name) != now[name]]
    if earlier.get("fingerprint") != settings.fingerprint:
        if earlier.get("model") != settings.model:
            differing.insert(0, "model")
        elif not {"dtype", "max_length"} & set(differing):
            raise UserError(f"--out={out} was made by {settings.model}, which has changed since; choose another folder")
    if differing:
        changes = ", ".join(f"{name} was {earlier.get(name)!r} and is now {now[name]!r}" for name in differing)
        mend = (
            "choose another folder"
            if parts_there(out)
            else "it holds no vectors yet: delete it, or choose another folder"
        )
        raise UserError(f"--out={out} was made in another way: {changes}; {mend}")


def parts_there(out: Path) -> list[int]:
    """The numbers of the parts that lie in a folder, whole or not."""
    names = {path.name for path in out.glob("part-*.parquet")}
    numbers = [name.removeprefix("part-").removesuffix(".parquet") for name in names]
    return sorted(int(number) for number in numbers if number.isdecimal() and part_name(int(number)) in names)


def seal_folder(out: Path, sizes: Sequence[int]) -> None:
    """Says in the seal that all parts are there, if it does not yet; each guards itself. sizes: the texts of each, in their order."""
    whole = {"parts": len(sizes), "texts": sum(sizes)}
    if (there := files.read_seal(out, EMBEDDINGS_SEAL)) is not None and {key: there.get(key) for key in whole} == whole:
        return
    with only_one(out / f"{LOCK}seal", out, "the sealing", wait=True):
        seal = files.read_seal(out, EMBEDDINGS_SEAL) or {}
        about = {"settings": seal.get("settings"), "text": seal.get("text")}
        files.write_seal(out, EMBEDDINGS_SEAL, {}, **about, **whole)
