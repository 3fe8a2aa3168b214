"""Text of others on a terminal: what would move the cursor, change colours or turn the reading direction is shown, not obeyed."""

from __future__ import annotations

import re

# C0, delete and C1 controls, line and paragraph separators, and the marks that turn or hide text (bidirectional, zero width).
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]")

OF_USER, OF_QUERY = (
    # As a URL has them, and a password with a slash in it, which is no port.
    re.compile(r"(\b[a-z][a-z0-9+.-]*://)(?:[^/\s?]*@|[^/@\s?:]+:(?!\d{1,5}(?:/|\s|$))[^@\s?,]*@)"),
    # To the next space, but for a quote or a stop before it.
    re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s?'\"]*)\?\S*?(?=['\"`]?[,;:.)\]}]*(?:\s|$))"),
)


def printable(text: str, keep: str = "") -> str:
    """The text with each control character written as its escape, such as \\x1b; those in `keep` stay."""

    def escape(match: re.Match[str]) -> str:
        character = match.group()
        return character if character in keep else character.encode("unicode_escape").decode()

    return CONTROLS.sub(escape, text)


def without_secrets(text: str) -> str:
    """The text with the URLs in it as they may be shown to others: without a user's name and password, and without what follows the "?",
    where stores have their signatures."""
    return OF_QUERY.sub(r"\1?…", OF_USER.sub(r"\1", text))
