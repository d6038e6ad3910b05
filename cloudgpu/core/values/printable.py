"""Texts of others, file names above all, as a terminal and a JSON document may have them."""

from __future__ import annotations

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BYTES = range(0xDC80, 0xDD00)  # how Python has bytes that are no text (PEP 383)


def printable(text: str) -> str:
    """Return a path as it is; with control characters or bytes that are no text, as a shell's `$'...'`.

    What comes back holds no control character, is valid Unicode, and can be pasted into a shell.
    """
    return text if text.isprintable() else f"$'{''.join(map(_escaped, text))}'"


def one_line(text: str) -> str:
    """Return it on one line, without what a terminal or a mail's header would obey: names come from tags."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if code in _BYTES:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
