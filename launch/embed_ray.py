"""jdistill.embed over a Ray cluster: one reader, any number of workers that each hold the encoder, the same files in the same folder.

    python launch/embed_ray.py --model MODEL --text SOURCE --out FOLDER --workers 16 --gpus_per_worker 1 --address auto

Takes the flags of python -m jdistill.embed, but for --shard and --check. Text, model and --out must be seen from every machine under the
same names. A worker that dies is replaced and its part made again; after anything worse the same command, or that of jdistill.embed, goes
on. Needs the ray extra: pip install -e '.[ray]'.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import UserError, exits_cleanly, leave
from jdistill.core.progress import log, setup_logging
from jdistill.data.text.text_stream import TextStream
from jdistill.data.text.vector_folder import EmbedSettings, claim_folder
from jdistill.data.text.vector_parts import PartTexts, split_parts
from jdistill.embed import check_flags_fit, finish_parts, make_parser, refuse_further_parts
from jdistill.encoder.bulk import BulkEncoder, FolderParts, embed_part, open_bulk_encoder
from jdistill.retrieval.folder_index import index_folder, tell_older_index
from jdistill.retrieval.index_kinds import check_index_flags

TOLD_EVERY_S = 20
PART_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("texts", pa.large_list(pa.large_string())),
        ("ids", pa.large_list(pa.large_string())),
        ("skipped", pa.large_string()),
        ("refusal", pa.large_string()),
    ]
)


@dataclass(frozen=True)
class PartReader:
    """Reads the text as parts, a row each, and at last a row of number -1 with what was left out, or what the user must mend. A Ray Data
    function that yields."""

    stream: TextStream
    part_size: int

    def __call__(self, _: Any) -> Iterator[pa.Table]:
        refusal = ""
        try:
            for part in split_parts(self.stream, self.part_size):
                row = {"number": part.number, "texts": part.texts, "ids": part.ids, "skipped": "", "refusal": ""}
                yield pa.Table.from_pylist([row], PART_SCHEMA)
        except (UserError, OSError) as error:
            refusal = refusal_of(error)
        row = {"number": -1, "texts": [], "ids": [], "skipped": self.stream.skipped.words(), "refusal": refusal}
        yield pa.Table.from_pylist([row], PART_SCHEMA)


class PartEmbedder:
    """A worker: holds the encoder, and makes the file of each part that it is given."""

    def __init__(self, flags: argparse.Namespace, settings: EmbedSettings) -> None:
        setup_logging()
        keep_compiled_programs()
        self.flags, self.settings = flags, settings
        self.encoder: BulkEncoder | None = None

    def __call__(self, parts: pa.Table) -> dict[str, np.ndarray]:
        """One row a part: its number, its texts, whether it was made, and what the user must mend, which Ray would bury in its own errors.
        A row of no part is passed on."""
        (row,) = parts.to_pylist()
        if row["number"] < 0:
            return told_of(row["number"], skipped=row["skipped"], refusal=row["refusal"])
        part = PartTexts(row["number"], row["texts"], row["ids"] or [])
        made, refusal = False, ""
        try:
            made = embed_part(self._encoder(), self.flags.out, part, self.settings)
        except (UserError, OSError) as error:
            refusal = refusal_of(error)
        return told_of(part.number, len(part.texts), made, refusal)

    def _encoder(self) -> BulkEncoder:
        """Loaded with the first part. Raises UserError for another model than that of the process that started the workers."""
        if self.encoder is None:
            self.encoder = open_encoder(self.flags)
            own = self.encoder.settings(self.settings.part_size, self.settings.with_text)
            if own.made_by != self.settings.made_by:
                raise UserError(
                    f"--model={self.flags.model} is another model on {os.uname().nodename} than at the start"
                )
        return self.encoder


def refusal_of(error: UserError | OSError) -> str:
    """What the user must mend, in a line, which Ray would bury in its own errors."""
    return f"{error.filename or 'disk'}: {error.strerror or error}" if isinstance(error, OSError) else str(error)


def everywhere(source: str) -> str:
    """A source as workers in other folders find it: what lies here by its whole path, hub ids and addresses as they are."""
    there = Path(source).expanduser()
    return os.path.abspath(there) if source and there.exists() else source


def told_of(
    number: int, texts: int = 0, made: bool = False, refusal: str = "", skipped: str = ""
) -> dict[str, np.ndarray]:
    """A worker's answer, of one row."""
    about = {"number": number, "texts": texts, "made": made, "refusal": refusal, "skipped": skipped}
    return {name: np.array([value]) for name, value in about.items()}


def open_encoder(flags: argparse.Namespace) -> BulkEncoder:
    """The encoder that the flags name."""
    return open_bulk_encoder(
        flags.model, flags.role, dtype=flags.dtype, max_length=flags.max_length, batch_size=flags.batch_size
    )


def check_room(flags: argparse.Namespace, resources: Mapping[str, float]) -> None:
    """Says that no worker can start as long as the cluster is as it is, for which Ray would wait without a word.

    Args:
      resources: of all nodes, by Ray's names.

    Raises: UserError where the cluster is this machine alone, which does not grow.
    """
    for name, key in (("GPU", "gpus_per_worker"), ("CPU", "cpus_per_worker")):
        needed, there = getattr(flags, key), resources.get(name, 0.0)
        if needed <= there:
            continue
        said = f"--{key}={needed:g}: there are {there:g} {name}s in all, so that no worker would start"
        if not flags.address:
            raise UserError(said)
        log.warning("WARNING: %s before the cluster grows", said)


def make_parts(flags: argparse.Namespace, stream: TextStream, settings: EmbedSettings) -> FolderParts:
    """Runs reader and workers, to the last part. Raises UserError of a worker's."""
    import ray

    try:
        ray.init(address=flags.address or None, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    except ConnectionError as error:
        raise UserError(f"--address={flags.address}: there is no Ray cluster that answers ({error})") from None
    check_room(flags, ray.cluster_resources())
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # a part a block: else a worker is given as many as make 128 MB
    data = (
        ray.data.from_items([{"reader": 0}])
        .map_batches(PartReader(stream, flags.part_size), num_cpus=0)  # workers may hold all CPUs there are
        .map_batches(
            PartEmbedder,
            fn_constructor_args=(flags, settings),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=flags.workers),
            num_cpus=flags.cpus_per_worker,
            num_gpus=flags.gpus_per_worker,
        )
    )
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)  # of what they tell, only a failure is the user's
    rows: list[dict[str, Any]] = []
    start = told = time.monotonic()
    try:
        for row in data.iter_rows():
            if row["refusal"]:
                raise UserError(row["refusal"])
            if row["number"] < 0:
                if row["skipped"]:
                    log.warning("%s: skipped %s", flags.text, row["skipped"])
                continue
            rows.append(row)
            if time.monotonic() - told > TOLD_EVERY_S:
                told = time.monotonic()
                texts = sum(int(row["texts"]) for row in rows)
                log.info("%d parts, %d texts, %.1f texts/s", len(rows), texts, texts / (told - start))
    finally:
        ray.shutdown()
    rows.sort(key=lambda row: row["number"])
    parts = FolderParts([int(row["texts"]) for row in rows])
    for row in rows:
        (parts.made if row["made"] else parts.whole).append(int(row["number"]))
    return parts


@exits_cleanly(resumes=True)
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = make_parser()
    parser.prog = "python launch/embed_ray.py"
    parser.add_argument("--address", default="", help="of a cluster, or auto; empty: workers on this machine")
    parser.add_argument("--workers", type=int, default=1, help="processes that hold the encoder")
    parser.add_argument("--cpus_per_worker", type=float, default=1)
    parser.add_argument("--gpus_per_worker", type=float, default=0)
    flags = parser.parse_args(argv)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray.data  # noqa: F401
    except ImportError:
        raise UserError("launch/embed_ray.py needs the ray extra: pip install -e '.[ray]'") from None
    if flags.shard or flags.check:
        raise UserError("--shard and --check are of python -m jdistill.embed; here Ray deals the parts")
    check_flags_fit(flags)
    setup_logging()
    flags.out = Path(os.path.abspath(flags.out))
    flags.text, flags.model = everywhere(flags.text), everywhere(flags.model)
    stream = TextStream(flags.text, flags.text_column, flags.id_column)
    next(iter(stream))
    settings = open_encoder(flags).settings(flags.part_size, not flags.without_text)
    if flags.index:
        check_index_flags(flags.index, flags.index_effort, settings.width)
    claim_folder(flags.out, settings, flags.text)
    parts = make_parts(flags, stream, settings)
    refuse_further_parts(flags.out, parts)
    finish_parts(flags.out, parts, settings)
    if flags.index:
        index_folder(flags.out, flags.index, flags.index_effort)
    else:
        tell_older_index(flags.out, sum(parts.sizes))
    return 0


if __name__ == "__main__":
    leave(main())
