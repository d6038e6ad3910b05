"""Finds time zones by their IANA names; an unknown one is refused, never taken for the host's."""

from __future__ import annotations

from datetime import UTC, tzinfo

from cloudgpu.config.files.text import shown
from cloudgpu.core.values.naming import did_you_mean, near
from cloudgpu.errors import InvalidRequest


def zone_of(name: str, *, field: str = "--tz") -> tzinfo:
    """Return the time zone of an IANA name such as `Asia/Seoul`; raise InvalidRequest with the near one for no such."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        if name.lower() not in ("localtime", "local", ""):  # the first is a file of the host
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a directory, like `Asia`
        pass
    raise _unknown(name, field)


def _unknown(name: str, field: str) -> InvalidRequest:
    from zoneinfo import available_timezones

    known = {one.casefold(): one for one in available_timezones() - {"Factory"}}  # it stands for none set
    by_city = {one.rpartition("/")[2].casefold(): one for one in sorted(known.values())}
    meant = known.get(name.casefold()) or by_city.get(name.casefold()) or near(name, known.values())
    return InvalidRequest(
        f"{shown(name)!r} is not a time zone" + did_you_mean(meant, "."),
        field=field,
        value=shown(name),
        next="Write the IANA name, like UTC, Asia/Seoul or Europe/Berlin.",
    )
