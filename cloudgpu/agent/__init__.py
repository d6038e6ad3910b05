"""Runs on the machine itself: one standard-library file, sent there as text."""

from __future__ import annotations

from pathlib import Path


def source() -> str:
    """Return the agent's program text as it is put on a machine: without comments, docstrings and blank lines.

    Boot data has 16 kB for everything, so the text travels bare; `agent.py` beside this file is the one to read.
    """
    from cloudgpu.agent.bare import bare

    return bare(Path(__file__).with_name("agent.py").read_text(encoding="utf-8"))
