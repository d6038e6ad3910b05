"""The kinds of values in policies: how each is read, and its JSON Schema for editors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from cloudgpu.config.alerts.alerts import MAX_FACTOR
from cloudgpu.config.files.user_files import shown, zone_of
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import NAME, NAME_RULE, closest_match, did_you_mean
from cloudgpu.core.values.times import parse_duration
from cloudgpu.errors import InvalidRequest

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_GROUPS = {"daily": range(7), "weekdays": range(5), "weekends": range(5, 7)}
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_DATES = re.compile(rf"({_DATE})(?: to ({_DATE}))?")
_BYTE_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMG]?)B/s")
_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_LONGEST_BREAK = timedelta(days=366)  # dates of one line of `except`, in which the schedule does not apply
_MINUTES_PER_HOUR = 60


class WrongValue(ValueError):
    """A value of the wrong kind: `problem` is the rest of a sentence that begins with the key, `next` is the remedy."""

    def __init__(self, problem: str, next: str) -> None:  # noqa: A002
        super().__init__(problem)
        self.problem, self.next = problem, next


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value: `read` converts what YAML read, or raises WrongValue; `schema` accepts all that it takes.

    An editor cannot check everything: `schema` also accepts a duration of more than ten years, and a rate above the
    highest.
    """

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise WrongValue("has to be one line of text", "Put it in quotes.")
    return value


def _duration(value: object) -> timedelta:
    try:
        return parse_duration(str(value))
    except ValueError:
        raise WrongValue(
            "is not a duration from a second to ten years", "Write it like 90m, 8h, 1h30m or 3d."
        ) from None


def _time_of_day(value: object) -> time:
    match = _TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise WrongValue(
            f"cannot be {shown(value)!r}, which is not a time of day{_suggested_time(value)}",
            'Write it from 00:00 to 23:59, like "19:00".',
        )
    return time(int(match[1]), int(match[2]))


def _week_time(value: object) -> tuple[int, time]:
    day, _, time_text = value.partition(" ") if isinstance(value, str) else ("", "", "")
    if day not in DAYS or _TIME_OF_DAY.fullmatch(time_text) is None:
        raise WrongValue(
            f"cannot be {shown(value)!r}, which is not a weekday with a time", 'Write it like "mon 07:00".'
        )
    return DAYS.index(day), _time_of_day(time_text)


def _suggested_time(value: object) -> str:
    """Return a suggestion for a number that a program with YAML 1.1 made of a time of day: 19:00 for 1140."""
    if not isinstance(value, int) or isinstance(value, bool) or not _MINUTES_PER_HOUR <= value < 24 * _MINUTES_PER_HOUR:
        return ""
    hour, minute = divmod(value, _MINUTES_PER_HOUR)
    return f'; did you mean "{hour:02}:{minute:02}"?'


def _zone(value: object) -> str:
    name = _text(value)
    try:
        zone_of(name)
    except InvalidRequest as error:
        problem = error.message.removesuffix(".").replace(" is not a time zone", ", which is not a time zone", 1)
        raise WrongValue(f"is {problem}", str(error.next)) from None
    return name


def _days(value: object) -> frozenset[int]:
    if isinstance(value, str) and value in DAY_GROUPS:
        return frozenset(DAY_GROUPS[value])
    names = value if isinstance(value, list) else [value]
    for name in names:
        if name not in DAYS:
            day_names = (*DAYS, *DAY_GROUPS)
            suggestion = str(name)[:3].lower() if str(name)[:3].lower() in DAYS else closest_match(str(name), day_names)
            raise WrongValue(
                f"cannot be {shown(name)!r}" + did_you_mean(suggestion),
                f"Use {', '.join(DAY_GROUPS)}, or a list of {', '.join(DAYS)}.",
            )
    if not names:
        raise WrongValue("names no day, so the machine would never be off", "Name a day, or remove the schedule.")
    return frozenset(map(DAYS.index, names))


def _dates(value: object) -> frozenset[date]:
    if not isinstance(value, list):
        raise WrongValue("has to be a list", "Write one `- 2026-12-24` on a line.")
    return frozenset(day for item in value for day in _days_of_break(item))


def _days_of_break(item: object) -> Iterable[date]:
    """Return the days of an entry of `except`: a single date, or all from a first to a last date."""
    match = _DATES.fullmatch(item) if isinstance(item, str) else None
    dates = [] if match is None else [_date(text) for text in (match[1], match[2] or match[1])]
    if not dates or None in dates:
        raise WrongValue(
            f"cannot hold {shown(item)!r}, which is not a date",
            "Write it like 2026-12-24, or 2026-12-24 to 2027-01-03.",
        )
    first, last = filter(None, dates)
    if not timedelta() <= last - first <= _LONGEST_BREAK:
        raise WrongValue(f"cannot hold {shown(item)!r}", "End a break after it begins, and within a year.")
    return (first + timedelta(days=count) for count in range((last - first).days + 1))


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _byte_rate(value: object) -> float:
    match = _BYTE_RATE.fullmatch(value) if isinstance(value, str) else None
    rate = Decimal(match[1]) * _PREFIXES[match[2]] if match else Decimal()
    if not 0 < rate <= 10**12:
        raise WrongValue("is not a rate above zero in bytes a second", "Write it like 100 kB/s or 1 MB/s.")
    return float(rate)


def _amount(value: object) -> Money:
    if not _is_number(value) or not 0 < Decimal(value) <= 10**9:  # type: ignore[arg-type]
        raise WrongValue("has to be an amount above zero, in US dollars", "Write it in digits: 25 or 12.50.")
    return Money.usd(Decimal(value))  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _factor(value: object) -> Decimal:
    """Read by what factor a figure has to differ from the last one to be news."""
    if not _is_number(value) or not 1 < Decimal(value) <= MAX_FACTOR:  # type: ignore[arg-type]
        raise WrongValue(f"has to be a number above 1, up to {MAX_FACTOR}", "Write it in digits: 2 or 1.5.")
    return Decimal(value)  # type: ignore[arg-type]


def number(maximum: int, unit: str) -> Kind:
    """Return the kind of a number above zero, up to `maximum`."""

    def read(value: Any) -> float:
        if not _is_number(value) or not 0 < value <= maximum:
            raise WrongValue(
                f"has to be a number above 0 and up to {maximum}, in {unit}", "Write it in digits, without it."
            )
        return float(value)

    return Kind(read, {"type": "number", "exclusiveMinimum": 0, "maximum": maximum})


def one_of(*choices: str) -> Kind:
    """Return the kind of a value that is one of these words."""
    allowed = tuple(map(str, choices))

    def read(value: Any) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        suggestion = (
            "off" if value is False and "off" in allowed else closest_match(str(value), allowed)
        )  # as YAML 1.1 writes off
        raise WrongValue(f"cannot be {shown(value)!r}" + did_you_mean(suggestion), f"Use one of: {', '.join(allowed)}.")

    return Kind(read, {"enum": list(allowed)})


def list_of(*words: str) -> Kind:
    """Return the kind of a list of these words, at least one."""
    word_kind = one_of(*words)

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            raise WrongValue("has to be a list of at least one", f"Write [{', '.join(words)}], or one of them.")
        return tuple(dict.fromkeys(word_kind.read(item) for item in value))

    return Kind(read, {"type": "array", "items": word_kind.schema, "minItems": 1})


def _policy_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise WrongValue("has to be a list of at least one policy", "Write [default, notebook].")
    for item in value:
        if not isinstance(item, str) or not NAME.fullmatch(item):
            raise WrongValue(f"cannot hold {shown(item)!r}", f"A policy is named as its file: {NAME_RULE}.")
    return tuple(dict.fromkeys(value))


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise WrongValue("has to be a list", "Write one `- item` on a line.")
    for item in value:
        if not isinstance(item, str) or not item.strip() or not item.isprintable():
            raise WrongValue(f"cannot hold {shown(item)!r}", "Write each as one line of text, in quotes.")
    return tuple(dict.fromkeys(item.strip() for item in value))


def _string_list_schema(pattern: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "pattern": pattern}}


TEXT = Kind(_text, {"type": "string"})
DURATION = Kind(_duration, {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?[smhdwSMHDW])+\s*$"})
TIME_OF_DAY = Kind(_time_of_day, {"type": "string", "pattern": f"^({_TIME_OF_DAY.pattern})$"})
WEEK_TIME = Kind(_week_time, {"type": "string", "pattern": f"^({'|'.join(DAYS)}) ({_TIME_OF_DAY.pattern})$"})
ZONE = Kind(_zone, {"type": "string", "minLength": 1})
WEEKDAYS = Kind(
    _days,
    {"anyOf": [{"enum": [*DAY_GROUPS, *DAYS]}, {"type": "array", "items": {"enum": list(DAYS)}, "minItems": 1}]},
)
DATES = Kind(_dates, _string_list_schema(f"^{_DATE}( to {_DATE})?$"))
BYTE_RATE = Kind(_byte_rate, {"type": "string", "pattern": f"^(?=[0. ]*[1-9]){_BYTE_RATE.pattern}$"})
AMOUNT = Kind(_amount, {"type": "number", "exclusiveMinimum": 0, "maximum": 10**9})
FACTOR = Kind(_factor, {"type": "number", "exclusiveMinimum": 1, "maximum": MAX_FACTOR})
POLICY_NAMES = Kind(_policy_names, _string_list_schema(f"^{NAME.pattern}$") | {"minItems": 1})
TEXTS = Kind(_texts, _string_list_schema(r"\S"))
