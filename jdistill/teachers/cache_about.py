"""What the answers in a cache are: about.json, for a person who looks, and the shape by which answers of another are refused."""

from __future__ import annotations

import json
from pathlib import Path

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.teachers.cache_parts import RowType


def check_shape(folder: Path, row_type: RowType, about: dict[str, object], writes: bool) -> None:
    """Looks into a cache's about.json, and writes one where there is none that can be read.

    Args:
      about: written beside the shape.
      writes: whether this process may write it.

    Raises: UserError for a folder of answers of another shape.
    """
    description = {"width": row_type.width, "dtype": row_type.dtype.name}
    path = folder / "about.json"
    try:
        content = json.loads(path.read_text())
        earlier = {name: content[name] for name in description}
    except FileNotFoundError:
        earlier = None
    except (ValueError, KeyError, TypeError, RecursionError):
        log.warning("%s is damaged, and written again", path)
        earlier = None
    if earlier is None and writes:
        # In place: nothing reads it but people and the check above, which writes a half one again.
        path.write_text(json.dumps(description | about, indent=2) + "\n")
    elif earlier is not None and earlier != description:
        raise UserError(
            f"{folder} holds answers of another shape ({earlier}, not {description}); delete it or set cache_dir"
        )
