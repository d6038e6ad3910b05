"""Reads whose computers are accepted, and refuses what a stranger's computer is given only where that was typed."""

from __future__ import annotations

from collections.abc import Iterable

from cloudgpu.core.model.offers import Trust
from cloudgpu.core.values.typed import parse_member
from cloudgpu.errors import InvalidRequest

LEAVE_OUT = "or leave --trust community out"


def parse_trust(text: str | None) -> Trust | None:
    """Return the least trust that was typed, None for nothing; raise InvalidRequest for another word."""
    return None if text is None else parse_member(Trust, str(text), "trust", "--trust")


def check_exposure(trust: Trust | None, options: Iterable[str], *, expose: bool) -> None:
    """Raise InvalidRequest for the first of these options where a stranger's computer would get what it is about.

    `options` are those that were given: secrets, volumes. `expose`: whoever asks has agreed to that.
    """
    if trust is not Trust.COMMUNITY or expose:
        return
    for option in options:
        raise InvalidRequest(
            f"{option} with --trust community would let the owner of a stranger's computer read it.",
            field=option,
            value=str(trust),
            next=f"Add --expose if they may, {LEAVE_OUT}.",
        )


def check_exposure_on(name: str, trust: str | None, options: Iterable[str], *, expose: bool) -> None:
    """Raise InvalidRequest for the first of these options where the machine `name` is a stranger's computer."""
    if trust != Trust.COMMUNITY or expose:
        return
    for option in options:
        raise InvalidRequest(
            f"{option} on {name} would let the owner of a stranger's computer read it (trust: community).",
            field=option,
            value=name,
            next=f"Add --expose if they may, or leave {option} out.",
        )
