"""The command python -m jdistill.embed: the vectors of any amount of text, as Parquet, resumable, on any number of machines.

python -m jdistill.embed --model MODEL --text SOURCE --out FOLDER --role document [--index Flat]
python -m jdistill.embed --model MODEL --text SOURCE --out FOLDER --shard 3/8      # the fourth of eight processes
"""

from __future__ import annotations

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import argparse
import re
from functools import partial
from pathlib import Path

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import UserError, exits_cleanly, leave
from jdistill.core.help import CommandHelp
from jdistill.core.progress import log, setup_logging
from jdistill.core.remote import local_only
from jdistill.data.text.text_stream import TextStream
from jdistill.data.text.vector_folder import EmbedSettings, claim_folder, parts_there, seal_folder
from jdistill.data.text.vector_parts import PART_TEXTS
from jdistill.encoder.bulk import FolderParts, check_stream, embed_stream, open_bulk_encoder
from jdistill.encoder.text_encoder import PROMPT_NAMES
from jdistill.retrieval.folder_index import index_folder, tell_older_index
from jdistill.retrieval.index_kinds import check_index_flags


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(
        formatter_class=CommandHelp, prog="python -m jdistill.embed", description="Writes the vectors of a text."
    )
    parser.add_argument("--model", required=True, help="a folder, a hub id, pkg:import_name/sub/folder or a .gguf file")
    parser.add_argument("--text", required=True, metavar="SOURCE", help="any text source, as --config.text takes it")
    parser.add_argument("--text_column", default="", help="the text's column, of a table")
    parser.add_argument("--id_column", default="", help="a column of ids, strings or whole numbers, to be kept")
    parser.add_argument(
        "--out", type=local_only, required=True, metavar="FOLDER", help="new, empty, or of the same command"
    )
    parser.add_argument("--role", default="document", metavar="|".join(PROMPT_NAMES), help="whose prompt is used")
    parser.add_argument("--batch_size", type=int, default=64, help="texts at a time")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the computation")
    parser.add_argument("--max_length", type=int, default=0, help="of a text, in tokens; 0: the model's limit")
    parser.add_argument("--part_size", type=int, default=PART_TEXTS, help="texts of a file; a kill costs one file")
    parser.add_argument("--without_text", action="store_true", help="keep a hash of each text in its place, and its id")
    parser.add_argument("--shard", default="", metavar="I/N", help="make only this share of the files: 0/8 to 7/8")
    parser.add_argument("--check", action="store_true", help="make nothing; say whether all files are there and whole")
    parser.add_argument("--index", default="", metavar="KIND", help="and a FAISS index in FOLDER/index: Flat, HNSW32 …")
    parser.add_argument("--index_effort", default="", help="of its search: nprobe=16, efSearch=128 …")
    return parser


@exits_cleanly(resumes=True)
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.embed`; returns its exit status."""
    args = make_parser().parse_args(argv)
    shard = read_shard(args.shard)
    check_flags_fit(args)
    keep_compiled_programs()
    setup_logging()
    stream = TextStream(args.text, args.text_column, args.id_column)
    next(iter(stream))  # a source that is not there is known before a model is loaded and a folder made
    encoder = open_bulk_encoder(
        args.model, args.role, dtype=args.dtype, max_length=args.max_length, batch_size=args.batch_size
    )
    settings = encoder.settings(args.part_size, not args.without_text)
    if args.index:
        check_index_flags(args.index, args.index_effort, settings.width)
    if args.check and not (args.out.is_dir() and any(args.out.iterdir())):
        raise UserError(f"--out={args.out} is not there, or empty: there is nothing to check")
    claim_folder(args.out, settings, args.text, looks=args.check)
    make = partial(embed_stream, encoder, shard=shard)
    parts = (check_stream if args.check else make)(stream=stream, out=args.out, settings=settings)
    stream.log_skipped()
    refuse_further_parts(args.out, parts)
    if shard[1] > 1:
        log.info("%s: %s", args.out, shard_summary(parts, shard, parts_there(args.out)))
        return 0
    finish_parts(args.out, parts, settings)
    if args.index:
        index_folder(args.out, args.index, args.index_effort)
    else:
        tell_older_index(args.out, sum(parts.sizes))
    return 0


def read_shard(given_shard: str) -> tuple[int, int]:
    """(i, n) of "i/n"; (0, 1) where it is empty. Raises UserError for anything else."""
    if not given_shard:
        return 0, 1
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", given_shard)
    if not match:
        raise UserError(f"--shard={given_shard}: write it as I/N, such as 0/8")
    i, n = int(match.group(1)), int(match.group(2))
    if not 0 <= i < n:
        ranges = f"0/{n} to {n - 1}/{n}" if n else "0/1, which is all"
        raise UserError(f"--shard={given_shard} is out of range: shards are counted from 0, so {ranges}")
    return i, n


def check_flags_fit(args: argparse.Namespace) -> None:
    """Raises UserError for flags that are out of range or do not go together."""
    if args.part_size < 1:
        raise UserError(f"--part_size={args.part_size}: at least 1 text a file")
    if args.shard and (args.check or args.index):
        other = "--check" if args.check else "--index"
        raise UserError(f"{other} is of the whole folder: run it without --shard, after all shards")
    if args.check and args.index:
        raise UserError("--check makes nothing, and --index an index: give one of them")
    if args.without_text and args.index:
        raise UserError("--index keeps the texts, which --without_text leaves out; give one of them")
    if args.without_text and not args.id_column:
        raise UserError("--without_text needs --id_column, which then says whose the vectors are")
    if args.index_effort and not args.index:
        raise UserError("--index_effort is of --index, which is not given")


def refuse_further_parts(out: Path, parts: FolderParts) -> None:
    """Raises UserError where a folder holds parts beyond the text's end."""
    further = [number for number in parts_there(out) if number >= len(parts.sizes)]
    if further:
        raise UserError(
            f"{out} has part {further[0]}, but the text is {len(parts.sizes)} parts long: it was longer before; "
            "choose another folder for this text"
        )


def shard_summary(parts: FolderParts, shard: tuple[int, int], there: list[int]) -> str:
    """What one shard did, and how many parts of the whole are there, in a line."""
    i, n = shard
    of_all = "all are" if len(there) == len(parts.sizes) else f"{len(there)} of all {len(parts.sizes)} are"
    ours = len(parts.made) + len(parts.whole)
    return (
        f"shard {i}/{n} has {ours} parts: {len(parts.made)} made, {len(parts.whole)} were there; {of_all} there now. "
        "The same command without --shard, or with --check, ends it"
    )


def finish_parts(out: Path, parts: FolderParts, settings: EmbedSettings) -> None:
    """Seals a folder whose parts are all there, and says so. Raises UserError with those that lack."""
    total = len(parts.sizes)
    if parts.lacking:
        lacking = ", ".join(f"{number} ({why})" for number, why in list(parts.lacking.items())[:5])
        further = f" and {len(parts.lacking) - 5} more" if len(parts.lacking) > 5 else ""
        raise UserError(
            f"{out} has {len(parts.whole)} of {total} parts; it lacks {lacking}{further}: "
            "run the command without --check, which makes them"
        )
    seal_folder(out, parts.sizes)
    log.info(
        "%s: all %d parts are there, %d texts, vectors of %d numbers; %d made now, %d were there",
        out,
        total,
        sum(parts.sizes),
        settings.width,
        len(parts.made),
        len(parts.whole),
    )


if __name__ == "__main__":
    leave(main())
