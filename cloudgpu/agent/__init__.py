"""Runs on the machine itself: one standard-library file, assembled from the files here and sent there as text."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def source() -> str:
    """Return the agent's program text as it is put on a machine: one file, without what only readers need.

    Boot data has 16 kB for everything, so the text travels bare; `agent.py` beside this file is where to begin reading.
    What it judges by is `cloudgpu.core.activity.idle`, line by line.
    """
    from cloudgpu.agent.program import assembled, minified

    return minified(assembled(Path(__file__).parents[1]))


def own_source() -> str:
    """Return the text of `own.py`, which stands beside the agent on a machine that shares its computer with others."""
    return Path(__file__).with_name("own.py").read_text(encoding="utf-8")
