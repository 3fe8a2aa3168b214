"""What config.text names: one source or several, each with the role of its texts and its weight in an epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from jdistill.core.errors import UserError
from jdistill.core.remote import is_url
from jdistill.data.text.locations import HUB_ID
from jdistill.data.text.schemes import SCHEMES

ROLES = ("query", "document")
MOST_TIMES = 1_000_000  # that a source is read in an epoch
NO_ROLE = "none"  # as it may be written; the same as none at all


@dataclass(frozen=True)
class TextSource:
    """A source of text as config.text names it.

    Args:
      path: a file, a folder, a URL, a datasets id or a scheme.
      role: that its texts are asked and read in, of ROLES; "": none, by the models' default prompts.
      weight: how often each of its texts comes in an epoch; of a fraction, which part of them does.
      column: of a table, that the texts stand in; "": as config.text_column says.
      key: the config key that names it, for messages.
    """

    path: str
    role: str = ""
    weight: float = 1.0
    column: str = ""
    key: str = "config.text"

    @property
    def is_plain(self) -> bool:
        """Whether it has neither a role nor a weight."""
        return not self.role and self.weight == 1.0

    def __str__(self) -> str:
        return self.path + (f"@{self.role}" if self.role else "") + (f"*{self.weight:g}" if self.weight != 1 else "")


def text_sources(text: str, key: str = "config.text", role: str = "") -> tuple[TextSource, ...]:
    """The sources that PATH[@ROLE][*WEIGHT],PATH[@ROLE][*WEIGHT],… names; a path that exists as a whole is never taken apart.

    Args:
      text: the value of the key; empty: no source.
      key: the config key, for messages.
      role: of the sources that name none; @none names one.

    Raises: UserError for an unknown role, a weight that is no positive number, an empty source, and one that comes twice in one role.
    """
    if not text:
        return ()
    sources = tuple(_source(item, text, key, role) for item in _items(text))
    for number, source in enumerate(sources):
        if any((source.path, source.role) == (other.path, other.role) for other in sources[:number]):
            raise UserError(
                f"--{key}={text}: {source.path} comes twice in the same role; name it once, with a weight: *2"
            )
    return sources


def _items(text: str) -> Iterator[str]:
    """The items between commas: as many pieces together as make a path that exists, or belong to the URL before them."""
    pieces = text.split(",")
    start = 0
    while start < len(pieces):
        stop = len(pieces)
        while stop > start + 1 and not _leads_somewhere(",".join(pieces[start:stop])):
            stop -= 1
        while stop < len(pieces) and _is_open(",".join(pieces[start:stop])) and not _is_source(pieces[stop].strip()):
            stop += 1
        item = ",".join(pieces[start:stop])
        yield item if len(pieces) == 1 or _is_there(item) else item.strip()
        start = stop


def _source(item: str, text: str, key: str, default: str) -> TextSource:
    if _is_there(item):
        return TextSource(item, default, key=key)
    path, weight = _without(item, "*")
    if weight is not None and is_url(item) and _number(weight) is None:
        path, weight = item, None  # of the URL itself
    if weight is not None and not 0 < (_number(weight) or 0) <= MOST_TIMES:
        raise UserError(
            f"--{key}={text}: the weight {weight!r} of {path} is no positive number up to {MOST_TIMES:,}, and there is no {item}"
        )
    whole = path
    path, role = (whole, None) if _is_there(whole) else _without(whole, "@")
    if role is not None and is_url(item) and not role.isalpha():
        path, role = whole, None
    if role is not None and role not in (*ROLES, NO_ROLE):
        raise UserError(
            f"--{key}={text}: the role {role!r} of {path} is not one of {', '.join((*ROLES, NO_ROLE))}, and there is no {whole}"
        )
    if not path.strip():
        raise UserError(
            f"--{key}={text}: a source is empty; write PATH, PATH@ROLE or PATH@ROLE*WEIGHT, with commas between"
        )
    role = default if role is None else role
    return TextSource(path, "" if role == NO_ROLE else role, float(weight or 1), key=key)


def _without(item: str, sign: str) -> tuple[str, str | None]:
    """An item without what stands behind its last `sign`, and that; None where what does is no role or weight, but part of a path."""
    head, split, tail = item.rpartition(sign)
    return (head, tail) if split and not set(tail) & set("/,@*") else (item, None)


def _number(weight: str) -> float | None:
    try:
        return float(weight)
    except ValueError:
        return None


def _is_there(path: str) -> bool:
    """Whether it is a path here, or a scheme with one behind it."""
    scheme, colon, rest = path.partition(":")
    return any(
        os.path.lexists(os.path.expanduser(each)) for each in (path, *([rest] if colon and scheme in SCHEMES else []))
    )


def _leads_somewhere(item: str) -> bool:
    """Whether an item, or what is left of it without a weight and a role, is a path here."""
    without_weight = _without(item, "*")[0]
    return any(_is_there(path) for path in (item, without_weight, _without(without_weight, "@")[0]))


def _is_open(item: str) -> bool:
    """Whether commas may be part of it although nothing here tells: of a URL, and of what stands behind a scheme and is not there."""
    return is_url(item) or (":" in item and item.partition(":")[0] in SCHEMES and not _leads_somewhere(item))


def _is_source(item: str) -> bool:
    """Whether an item is a source by itself."""
    path = _without(_without(item, "*")[0], "@")[0]
    named = is_url(path) or path.startswith("pkg:") or path.partition(":")[0] in SCHEMES
    return named or bool(HUB_ID.fullmatch(path)) or _leads_somewhere(item)
