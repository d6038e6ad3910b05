"""Asks many parts of a cloud side by side; what did not answer is named, and a silent part keeps no other one's answer.

A part that says nothing for too long is waited for no more: its thread is left alone, and sends nothing after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.errors import CloudgpuError, Silent
from cloudgpu.parallel import Pool
from cloudgpu.providers.patience import patience_s

AT_ONCE = 32
GRACE_S = 1.0  # that whoever waits for a read gives it beyond its own time: it says better what was silent
OF_ACCOUNTS_S = (
    2 * GRACE_S
)  # a whole account has more than one of its regions, so that the others' answers are not lost
MOST = 40  # times as long, in all, for a part that goes on answering: 5 minutes, against one that never comes to an end
Answer = TypeVar("Answer")
Item = TypeVar("Item")


def each(
    parts: Sequence[str], ask: Callable[[str], Answer], at_once: int = AT_ONCE, *, patience: float | None = None
) -> tuple[dict[str, Answer], tuple[Unanswered, ...]]:
    """Ask each part (a region, say); return the answers by part, and those that did not answer with why.

    `patience` is how many seconds a read may be silent; None is the usual. Raises the first error when no part
    answered.
    """
    outcomes = dict(zip(parts, heard(parts, lambda part: tried(ask, part), at_once, patience=patience), strict=True))
    answers = {part: found for part, found in outcomes.items() if not isinstance(found, CloudgpuError)}
    faults = {part: fault for part, fault in outcomes.items() if isinstance(fault, CloudgpuError)}
    if faults and not answers:
        raise next(iter(faults.values()))
    return answers, tuple(Unanswered(part, fault.message) for part, fault in faults.items())


def heard(
    items: Sequence[Item],
    ask: Callable[[Item], Answer],
    at_once: int = AT_ONCE,
    *,
    patience: float | None = None,
    grace: float = GRACE_S,
) -> list[Answer | Silent]:
    """Ask about each of these side by side; return the answers in their order, Silent in place of what said nothing.

    For reads alone: nobody knows afterwards what a call that was left has done. Raises what `ask` raises first.
    """
    seconds = (patience or patience_s()) + grace
    with Pool(min(at_once, len(items))) as pool:
        asked = [pool.submit(ask, item) for item in items]
        return [one.result() if one.listen(seconds, MOST * seconds) else late(seconds) for one in asked]


def late(seconds: float) -> Silent:
    """Return the error for who said nothing for so many seconds."""
    return Silent(f"No answer within {seconds:g} seconds.", field="provider", next="Try again in a minute.")


def tried(ask: Callable[[str], Answer], part: str) -> Answer | CloudgpuError:
    """Return the answer, or the error of ours in its place."""
    try:
        return ask(part)
    except CloudgpuError as fault:
        return fault
