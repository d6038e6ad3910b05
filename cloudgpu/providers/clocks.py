"""Whether this machine's clock is wrong, by the time that an answer of a cloud's bears: credentials fail by it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from cloudgpu.errors import AuthFailed

SKEW = timedelta(minutes=4)  # AWS refuses at 5 minutes (InvalidSecurity.RequestHasExpired) or at 15 (RequestExpired)


def is_skewed(headers: Mapping[str, str], now: datetime) -> bool:
    """Say whether an answer's own time is so far from `now` (aware UTC) that credentials are refused for it."""
    there = _date(headers)
    return there is not None and abs(there - now) > SKEW


def wrong_clock(cloud: str, place: str, headers: Mapping[str, str], now: datetime) -> AuthFailed:
    """Return the error for a request that a cloud refuses for its time: by the time that its own answer bears.

    Where the two clocks agree, the request came late: this clock is right, and to set it would not help. `place` is
    where the cloud refuses, empty for nowhere in it.
    """
    there, whom = _date(headers), f"{cloud} {place}".rstrip()
    if there is not None and abs(there - now) <= SKEW:
        return AuthFailed(
            f"{whom} refused a request as expired, but the clock of this machine is right ({now:%H:%M:%S} UTC here, "
            f"{there:%H:%M:%S} UTC at {cloud}): the request came too late.",
            field="clock",
            next="Run it again. If it happens again, look for a proxy that holds requests back.",
        )
    says = (
        f"{now:%Y-%m-%d %H:%M} UTC here, {there:%Y-%m-%d %H:%M} UTC at {cloud}"
        if there
        else (f"{now:%Y-%m-%d %H:%M} UTC here; {cloud} rejected that without saying its own time")
    )
    sentence = f"The clock of this machine is wrong ({says}), so {whom} refuses what it signs."
    return AuthFailed(sentence, field="clock", next="Set the clock (for example: sudo timedatectl set-ntp true).")


def _date(headers: Mapping[str, str]) -> datetime | None:
    """Return the cloud's own time of an answer, aware UTC."""
    text = next((text for name, text in headers.items() if name.lower() == "date"), "")
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None
