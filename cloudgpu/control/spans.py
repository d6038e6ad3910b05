"""The period that --since, --until and --tz name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.config.files.zones import zone_of
from cloudgpu.control.cost_wish import Moment, moment_of
from cloudgpu.control.exports import Span
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def span_asked(session: Session, since: Moment | None, until: Moment | None, tz: str | None) -> Span:
    """Return the period as of the session's clock; raise InvalidRequest for what is no time, or an empty period.

    A day begins at its midnight in `tz` (None: as the settings say).
    """
    now = session.clock()
    zone = zone_of(tz or session.settings.tz)
    first = None if since is None else moment_of(since, "--since", now, zone)
    last = None if until is None else moment_of(until, "--until", now, zone)
    if first and last and last <= first:
        raise InvalidRequest(
            f"The period would end at {last:%Y-%m-%d %H:%M} UTC, before it begins at {first:%Y-%m-%d %H:%M} UTC.",
            field="--until",
            value=str(until),
            next="Name a later --until, or an earlier --since; a day ends where the next one begins.",
        )
    return Span(first, last, now)
