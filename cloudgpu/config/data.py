"""Finds the data that cloudgpu ships: templates and policies, packed in the wheel or beside the checkout."""

from __future__ import annotations

from pathlib import Path


def data_dir(kind: str) -> Path:
    """Return the directory of the shipped `templates` or `policies`: the packaged copy, else the checkout's."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_data" / kind
    return packed if packed.is_dir() else package.parent / kind
