"""Prints answers and steps: with colours, as plain text, or as one JSON document. Needs no parser."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Any

from cloudgpu.cli.terminal import filled, has_unicode, is_coloured, is_terminal, prose_columns, step_listeners


class Format(StrEnum):
    """How a verb prints its answer."""

    TEXT = "text"
    JSON = "json"


def tell(sentence: str) -> None:
    """Print a step or a warning on stderr."""
    for notify in step_listeners:
        notify(sentence)
    text = filled(sentence, prose_columns(), "  ", "  ") if is_terminal(sys.stderr) else f"  {sentence}"
    sys.stderr.write(f"{colour_for(text, sys.stderr)}\n")
    sys.stderr.flush()


def write_json(document: Any) -> None:
    """Write a document on stdout; in an encoding that cannot show all characters, with JSON's own escapes."""
    import json

    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=not has_unicode(sys.stdout)) + "\n")


def print_as_utf8() -> None:
    """Let stdout take UTF-8 from now on, whatever the terminal's encoding: what follows is a file for a program."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def colour_for(text: str, stream: Any) -> str:
    """Return an answer with colours if this stream shows them."""
    if not is_coloured(stream):
        return text
    from cloudgpu.cli.colours import coloured

    return coloured(text)


def emit(output: Format, document: Any, text: str) -> None:
    """Print the answer: `document` as JSON, or `text`."""
    if output is Format.JSON:
        write_json(document)
    elif text:
        sys.stdout.write(colour_for(text.rstrip("\n"), sys.stdout) + "\n")
    sys.stdout.flush()
