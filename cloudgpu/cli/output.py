"""Prints answers and steps: with colours, as plain text, or as one JSON document. Needs no parser."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Any

from cloudgpu.cli.terminal import filled, is_coloured, is_terminal, prose_columns, step_listeners


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


def colour_for(text: str, stream: Any) -> str:
    """Return an answer with colours if this stream shows them."""
    if not is_coloured(stream):
        return text
    from cloudgpu.cli.colours import coloured

    return coloured(text)


def emit(output: Format, document: Any, text: str) -> None:
    """Print the answer: `document` as JSON, or `text`."""
    if output is Format.JSON:
        import json

        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    elif text:
        sys.stdout.write(colour_for(text.rstrip("\n"), sys.stdout) + "\n")
    sys.stdout.flush()
