"""Reads a small text file that a person wrote and the values in it, and shows a wrong one in an error."""

from __future__ import annotations

import stat
from collections.abc import Collection
from datetime import UTC, tzinfo
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from cloudgpu.core.values.naming import did_you_mean, near
from cloudgpu.errors import InvalidRequest

LARGEST = 1 << 20  # bytes; a settings file of this size is something else
WIDEST = 60  # characters of a wrong value that an error repeats


def read_text(path: Path, name: str) -> str | None:
    """Return the text of the file, or None when there is none; `name` is what errors call it.

    Raises InvalidRequest for what is no readable UTF-8 text file of at most a mebibyte.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _unfit(path, name, "is a directory" if path.is_dir() else "is not a file")
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise _unfit(path, name, "is a link to a file that is not there") from None
        return None
    except OSError as error:
        raise _unfit(path, name, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(raw) > LARGEST:
        raise _unfit(path, name, f"is larger than {LARGEST:,} bytes")
    return _decoded(raw, path, name)


def _decoded(raw: bytes, path: Path, name: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _unfit(path, name, f"is not text: line {line} is not UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _unfit(path, name, f"is not text: line {line} holds a zero byte")
    return text


def _unfit(path: Path, name: str, says: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name} {says} ({path}).", field=name, value=str(path), next=f"Put a UTF-8 text file at {path}, or remove it."
    )


def setting_fault(key: str, value: object, says: str, next: str) -> InvalidRequest:  # noqa: A002
    """Return the error for a key of config.toml; `says` goes on after its name: `has to be text`."""
    name = f"config.toml: {key}"
    end = "" if says.endswith((".", "?")) else "."
    return InvalidRequest(f"{name} {says}{end}", field=name, value=shown(value), next=next)


def settings_table(key: str, value: object, known: Collection[str] | None = None, *, next: str = "") -> dict[str, Any]:  # noqa: A002
    """Return a table of config.toml; raise InvalidRequest for what is none, and for a key that is not `known`."""
    if not isinstance(value, dict):
        raise setting_fault(key, value, "has to be a table", next or f"Write: [{key}]")
    for name in value:
        if known is not None and name not in known:
            says = f"is not a setting{did_you_mean(near(str(name), known))}"
            raise setting_fault(f"{key}.{shown(name)}", name, says, next or f"Settings: {', '.join(known)}.")
    return value


def number_of(value: object) -> Decimal | None:
    """Return a finite number, written as one or as text; None for none. A binary float is taken as it was written."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def shown(value: object) -> str | None:
    """Return a value as an error names it: short, on one line, never the inside of a table or list."""
    if value is None:
        return None
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    if not text.isprintable():
        text = text.encode("unicode_escape").decode()
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


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
    raise _unknown_zone(name, field)


def _unknown_zone(name: str, field: str) -> InvalidRequest:
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
