"""Makes texts from outside, such as file names and tags, safe for a terminal and a JSON document."""

from __future__ import annotations

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SURROGATES = range(0xDC80, 0xDD00)  # Python's code points for bytes that are not valid text (PEP 383)


def printable(text: str) -> str:
    """Return a path as it is, or quoted as a shell's `$'...'` if it has control characters or undecodable bytes.

    What comes back holds no control character, is valid Unicode, and can be pasted into a shell.
    """
    return text if text.isprintable() else f"$'{''.join(map(_escaped, text))}'"


def one_line(text: str) -> str:
    """Return a text on one line, each character that does not print as a space."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if code in _SURROGATES:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
