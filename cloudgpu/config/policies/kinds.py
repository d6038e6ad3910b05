"""The kinds of values that policies hold: how each is read, and how a JSON Schema says the same to an editor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from cloudgpu.config.alerts.alerts import LARGEST_FACTOR
from cloudgpu.config.files.user_files import shown, zone_of
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import NAME, NAME_RULE, closest_match, did_you_mean
from cloudgpu.core.values.times import parse_duration
from cloudgpu.errors import InvalidRequest

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MANY_DAYS = {"daily": range(7), "weekdays": range(5), "weekends": range(5, 7)}
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_DATES = re.compile(rf"({_DATE})(?: to ({_DATE}))?")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMG]?)B/s")
_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_LONGEST_BREAK = timedelta(days=366)
_HOUR = 60  # minutes


class Misread(ValueError):
    """A value of the wrong kind: `says` goes on after the key's name, `next` is the way out."""

    def __init__(self, says: str, next: str) -> None:  # noqa: A002
        super().__init__(says)
        self.says, self.next = says, next


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value: `read` makes it of what YAML says, or raises Misread; `schema` accepts what `read` does."""

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise Misread("has to be one line of text", "Put it in quotes.")
    return value


def _span(value: object) -> timedelta:
    try:
        return parse_duration(str(value))
    except ValueError:
        raise Misread("is not a duration from a second to ten years", "Write it like 90m, 8h, 1h30m or 3d.") from None


def _clock(value: object) -> time:
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        says = f"cannot be {shown(value)!r}, which is not a time of day{_sexagesimal(value)}"
        raise Misread(says, 'Write it from 00:00 to 23:59, like "19:00".')
    return time(int(found[1]), int(found[2]))


def _week_time(value: object) -> tuple[int, time]:
    day, _, clock = value.partition(" ") if isinstance(value, str) else ("", "", "")
    if day not in DAYS or _CLOCK.fullmatch(clock) is None:
        says = f"cannot be {shown(value)!r}, which is not a weekday with a time"
        raise Misread(says, 'Write it like "mon 07:00".')
    return DAYS.index(day), _clock(clock)


def _sexagesimal(value: object) -> str:
    """Return what was meant by a number that a program has made of a time of day, as YAML 1.1 has it: 1140 of 19:00."""
    if not isinstance(value, int) or isinstance(value, bool) or not _HOUR <= value < 24 * _HOUR:
        return ""
    hour, minute = divmod(value, _HOUR)
    return f'; did you mean "{hour:02}:{minute:02}"?'


def _zone(value: object) -> str:
    name = _text(value)
    try:
        zone_of(name)
    except InvalidRequest as error:
        says = error.message.removesuffix(".").replace(" is not a time zone", ", which is not a time zone", 1)
        raise Misread(f"is {says}", str(error.next)) from None
    return name


def _days(value: object) -> frozenset[int]:
    if isinstance(value, str) and value in MANY_DAYS:
        return frozenset(MANY_DAYS[value])
    names = value if isinstance(value, list) else [value]
    for name in names:
        if name not in DAYS:
            known = (*DAYS, *MANY_DAYS)
            meant = str(name)[:3].lower() if str(name)[:3].lower() in DAYS else closest_match(str(name), known)
            says = f"cannot be {shown(name)!r}" + did_you_mean(meant)
            raise Misread(says, f"Use {', '.join(MANY_DAYS)}, or a list of {', '.join(DAYS)}.")
    if not names:
        raise Misread("names no day, so the machine would never be off", "Name a day, or remove the schedule.")
    return frozenset(map(DAYS.index, names))


def _dates(value: object) -> frozenset[date]:
    if not isinstance(value, list):
        raise Misread("has to be a list", "Write one `- 2026-12-24` on a line.")
    return frozenset(day for item in value for day in _break(item))


def _break(item: object) -> Iterable[date]:
    """Return the days of one line: a date, or a first and a last one."""
    found = _DATES.fullmatch(item) if isinstance(item, str) else None
    ends = [] if found is None else [_date(text) for text in (found[1], found[2] or found[1])]
    if not ends or None in ends:
        way_out = "Write it like 2026-12-24, or 2026-12-24 to 2027-01-03."
        raise Misread(f"cannot hold {shown(item)!r}, which is not a date", way_out)
    first, last = filter(None, ends)
    if not timedelta() <= last - first <= _LONGEST_BREAK:
        raise Misread(f"cannot hold {shown(item)!r}", "End a break after it begins, and within a year.")
    return (first + timedelta(days=count) for count in range((last - first).days + 1))


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _rate(value: object) -> float:
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    rate = Decimal(found[1]) * _PREFIXES[found[2]] if found else Decimal()
    if not 0 < rate <= 10**12:
        raise Misread("is not a rate above zero in bytes a second", "Write it like 100 kB/s or 1 MB/s.")
    return float(rate)


def _amount(value: object) -> Money:
    if not _is_number(value) or not 0 < Decimal(value) <= 10**9:  # type: ignore[arg-type]
        raise Misread("has to be an amount above zero, in US dollars", "Write it in digits: 25 or 12.50.")
    return Money.usd(Decimal(value))  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _factor(value: object) -> Decimal:
    if not _is_number(value) or not 1 < Decimal(value) <= LARGEST_FACTOR:  # type: ignore[arg-type]
        raise Misread(f"has to be a number above 1, up to {LARGEST_FACTOR}", "Write it in digits: 2 or 1.5.")
    return Decimal(value)  # type: ignore[arg-type]


def number(most: int, unit: str) -> Kind:
    """Return the kind of a number above zero, up to `most`."""

    def read(value: Any) -> float:
        if not _is_number(value) or not 0 < value <= most:
            raise Misread(f"has to be a number above 0 and up to {most}, in {unit}", "Write it in digits, without it.")
        return float(value)

    return Kind(read, {"type": "number", "exclusiveMinimum": 0, "maximum": most})


def word(*choices: str) -> Kind:
    """Return the kind of one of these words."""
    known = tuple(map(str, choices))

    def read(value: Any) -> str:
        if isinstance(value, str) and value in known:
            return value
        meant = (
            "off" if value is False and "off" in known else closest_match(str(value), known)
        )  # as YAML 1.1 writes off
        says = f"cannot be {shown(value)!r}" + did_you_mean(meant)
        raise Misread(says, f"Use one of: {', '.join(known)}.")

    return Kind(read, {"enum": list(known)})


def list_of(*known: str) -> Kind:
    """Return the kind of a list of these words, at least one."""
    each = word(*known)

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            raise Misread("has to be a list of at least one", f"Write [{', '.join(known)}], or one of them.")
        return tuple(dict.fromkeys(each.read(item) for item in value))

    return Kind(read, {"type": "array", "items": each.schema, "minItems": 1})


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise Misread("has to be a list of at least one policy", "Write [default, notebook].")
    for item in value:
        if not isinstance(item, str) or not NAME.fullmatch(item):
            raise Misread(f"cannot hold {shown(item)!r}", f"A policy is named as its file: {NAME_RULE}.")
    return tuple(dict.fromkeys(value))


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Misread("has to be a list", "Write one `- item` on a line.")
    for item in value:
        if not isinstance(item, str) or not item.strip() or not item.isprintable():
            raise Misread(f"cannot hold {shown(item)!r}", "Write each as one line of text, in quotes.")
    return tuple(dict.fromkeys(item.strip() for item in value))


def _strings(pattern: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "pattern": pattern}}


TEXT = Kind(_text, {"type": "string"})
SPAN = Kind(_span, {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?[smhdwSMHDW])+\s*$"})
CLOCK = Kind(_clock, {"type": "string", "pattern": f"^({_CLOCK.pattern})$"})
WEEK_TIME = Kind(_week_time, {"type": "string", "pattern": f"^({'|'.join(DAYS)}) ({_CLOCK.pattern})$"})
ZONE = Kind(_zone, {"type": "string", "minLength": 1})
WEEKDAYS = Kind(
    _days,
    {"anyOf": [{"enum": [*MANY_DAYS, *DAYS]}, {"type": "array", "items": {"enum": list(DAYS)}, "minItems": 1}]},
)
DATES = Kind(_dates, _strings(f"^{_DATE}( to {_DATE})?$"))
RATE = Kind(_rate, {"type": "string", "pattern": f"^{_RATE.pattern}$"})
AMOUNT = Kind(_amount, {"type": "number", "exclusiveMinimum": 0, "maximum": 10**9})
FACTOR = Kind(_factor, {"type": "number", "exclusiveMinimum": 1, "maximum": LARGEST_FACTOR})
NAMES = Kind(_names, _strings(f"^{NAME.pattern}$") | {"minItems": 1})
TEXTS = Kind(_texts, _strings(r"\S"))
