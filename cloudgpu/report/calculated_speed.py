"""The clause that a sentence has where GPUs count as equal, and are known to be far from it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.advice.break_even import SOON
from cloudgpu.core.advice.rent_or_buy import answered
from cloudgpu.core.values.units import hours
from cloudgpu.report.calculated_words import percent

if TYPE_CHECKING:
    from cloudgpu.core.advice.rent_or_buy import Answer, Calculation

ALIKE = (Fraction("0.67"), Fraction("1.5"))  # so far apart that the answer by speed is not left to the end


def by_speed(found: Calculation, answers: Sequence[Answer]) -> str:
    """Return ` By speed it is 67.6 days.`; empty where speeds are alike, not known, or are what was counted."""
    beside = found.beside
    if beside is None or ALIKE[0] <= beside.ratio <= ALIKE[1] or not answers[-1].question.use:
        return ""
    scaled = [answered(found.question(one.question.use, beside.ratio)) for one in answers]
    numbered = [one.break_even is not None and one.break_even > SOON for one in answers]
    if not any(numbered) and [_after(one) for one in answers] == [_after(one) for one in scaled]:
        return " By speed it is the same."
    begin = "it is" if all(numbered) else "the cloud has cost as much"
    after = "" if all(numbered) else "after "
    texts = [_after(one, after) + (f" at {percent(one.question.use)}" if len(scaled) > 1 else "") for one in scaled]
    return f" By speed {begin} {' and '.join(texts)}."


def _after(answer: Answer, after: str = "") -> str:
    several = f" with {answer.year.number:,} desktops" if answer.year.number > 1 else ""
    if answer.break_even is None:
        return f"never{several}"
    if answer.break_even <= SOON:
        return f"from the first hour on{several}"
    days = f"{float(hours(answer.break_even) / 24):,.1f}"
    return f"{after}{days} day{'s' * (days != '1.0')}{several}"
