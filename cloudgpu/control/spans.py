"""The period that --since, --until and --tz name."""

from __future__ import annotations

from datetime import UTC, date, datetime, tzinfo
from typing import TYPE_CHECKING

from cloudgpu.config.zones import zone_of
from cloudgpu.control.exports import Span
from cloudgpu.core.periods import midnight
from cloudgpu.core.times import from_iso
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def span_asked(session: Session, since: str | None, until: str | None, tz: str | None) -> Span:
    """Return the period, as of the session's clock; raise InvalidRequest for what is no day and no time, or empty.

    A day begins at its midnight in `tz` (None: as the settings say).
    """
    zone = zone_of(tz or session.settings.tz)
    first = None if since is None else _moment(since, "--since", zone)
    last = None if until is None else _moment(until, "--until", zone)
    if first and last and last <= first:
        raise InvalidRequest(
            f"The period ends at {until}, before it begins at {since}.",
            field="--until",
            value=until,
            next="Name an end after the beginning.",
        )
    return Span(first, last, session.clock())


def _moment(text: str, field: str, zone: tzinfo) -> datetime:
    try:
        return midnight(date.fromisoformat(text), zone)
    except (ValueError, OverflowError):
        pass
    try:
        return from_iso(text).astimezone(UTC)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is neither a day nor a time with its zone.",
            field=field,
            value=text,
            next="Write it like 2026-11-01, or 2026-11-01T12:00Z.",
        ) from None
