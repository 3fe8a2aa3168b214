"""A folder that an export has just written, as sentence-transformers loads it to be held against Flax."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jdistill.encoder.torch_backend import sentence_transformers


def load_written(folder: Path) -> Any:
    """The folder's SentenceTransformer on the CPU, for which the torch extra must be there. Code in the folder runs: we have just
    written it."""
    library = sentence_transformers()
    with without_reports():
        return library.SentenceTransformer(str(folder), device="cpu", trust_remote_code=any(folder.glob("*.py")))


@contextmanager
def without_reports() -> Iterator[None]:
    """Keeps out of an export's log what transformers tells of a BERT's pooler, which no student has, of a text longer than an LSTM's
    tokenizer names, which the folder cuts, and of loading that takes no time."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
