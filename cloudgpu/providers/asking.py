"""Asks many parts of a cloud side by side; what did not answer is named, and never a silent part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cloudgpu.core.facts import Unanswered
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool

AT_ONCE = 32
Answer = TypeVar("Answer")


def each(
    parts: Sequence[str], ask: Callable[[str], Answer], at_once: int = AT_ONCE
) -> tuple[dict[str, Answer], tuple[Unanswered, ...]]:
    """Ask each part (a region, say); return the answers by part, and those that did not answer with why.

    Raises the first error when no part answered.
    """
    with Pool(at_once) as pool:
        outcomes = dict(zip(parts, pool.map(lambda part: tried(ask, part), parts), strict=True))
    answers = {part: found for part, found in outcomes.items() if not isinstance(found, CloudgpuError)}
    faults = {part: fault for part, fault in outcomes.items() if isinstance(fault, CloudgpuError)}
    if faults and not answers:
        raise next(iter(faults.values()))
    return answers, tuple(Unanswered(part, fault.message) for part, fault in faults.items())


def tried(ask: Callable[[str], Answer], part: str) -> Answer | CloudgpuError:
    """Return the answer, or the error of ours in its place."""
    try:
        return ask(part)
    except CloudgpuError as fault:
        return fault
