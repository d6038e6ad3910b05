"""Defines all keys of policies and limits in one table, and makes their JSON Schemas from it for editors.

The table says what each key means, its kind and its default. Reader and schemas follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.config.policies import kinds
from cloudgpu.config.policies.kinds import Kind
from cloudgpu.core.policies.policy import RuleAction, Stoppers, Unknown, Unpausable

Default = str | float | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a file, and the kind of its value. `means` is its description in the JSON Schema.

    `default` is as a file would write it; None: no fixed default. A file without a `needed` key is refused.
    """

    kind: Kind
    means: str
    default: Default = None
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A key that holds a table of keys; `many`: a list of such tables, or a single one."""

    means: str
    keys: Mapping[str, Key]
    many: bool = False


Keys = Mapping[str, Key | Section]

_IDLE = {
    "after": Key(kinds.DURATION, "how long nothing may have happened", "1h"),
    "grace": Key(
        kinds.DURATION, "how long a warning is waited out; any use cancels it; never longer than after", "10m"
    ),
    "do": Key(
        kinds.one_of(RuleAction.STOP, RuleAction.WARN, RuleAction.DISABLED),
        "stop the machine, only warn, or nothing at all",
        "stop",
    ),
    "gpu": Key(kinds.number(100, "percent"), "from how many percent on a GPU is used, at the busiest of a minute", 3),
    "cpu": Key(kinds.number(1024, "cores"), "from how many cores above the machine's own baseline it computes", 0.25),
    "network": Key(kinds.BYTE_RATE, "from how much traffic on it works", "100 kB/s"),
    "disk": Key(kinds.BYTE_RATE, "from how much reading and writing on it works", "1 MB/s"),
    "terminal_output": Key(kinds.DURATION, "how long output of a terminal counts at which nobody types", "2h"),
    "samples": Key(kinds.number(100, "percent"), "how much of the time must have been measured for a verdict", 90),
    "uptime": Key(kinds.DURATION, "how long a machine is up before it is checked", "30m"),
    "scratch": Key(
        kinds.one_of(RuleAction.WARN, RuleAction.STOP),
        "where a stop would erase scratch disks that are not empty",
        "warn",
    ),
}
_SCHEDULE = {
    "off": Key(kinds.TIME_OF_DAY, 'the time of day at which machines are ended, like "19:00"', needed=True),
    "days": Key(kinds.WEEKDAYS, "daily, weekdays, weekends, or a list of mon to sun", "daily"),
    "until": Key(kinds.WEEK_TIME, 'when it ends to keep machines off, like "mon 07:00"; without it, off is a moment'),
    "tz": Key(kinds.ZONE, "whose clock it is, like Europe/Paris; without it, tz of config.toml"),
    "except": Key(kinds.DATES, "local dates on which nothing is ended: 2026-12-24, 2026-12-24 to 2027-01-03"),
}
POLICY: Keys = {
    "description": Key(kinds.TEXT, "what it is for, in one line"),
    "lease": Key(kinds.DURATION, "how long a machine lives unless its lease is renewed", needed=True),
    "renew_until": Key(kinds.DURATION, "how far use may renew it; at least as long as the lease", needed=True),
    "unknown": Key(kinds.one_of(*Unknown), "the end of a lease where nobody knows whether it is used", "renew"),
    "idle": Section("when a machine that nobody uses is ended, and what counts as use", _IDLE),
    "schedule": Section("at which times of day machines are ended", _SCHEDULE, many=True),
    "spot": Section(
        "machines that cannot be stopped",
        {"unpausable": Key(kinds.one_of(*Unpausable), "what ending one means", "park")},
    ),
    "budget": Section(
        "what one machine may cost",
        {
            "amount": Key(kinds.AMOUNT, "in all since its launch, with its disks, in US dollars", needed=True),
            "do": Key(kinds.one_of(RuleAction.WARN, RuleAction.STOP), "once it is spent", "warn"),
        },
    ),
    "unlabelled": Section(
        "machines that do not say whose they are",
        {
            "require": Key(kinds.list_of("owner", "project"), "what each has to bear", ("owner", "project")),
            "after": Key(kinds.DURATION, "how long one may run without", needed=True),
            "do": Key(kinds.one_of(RuleAction.WARN, RuleAction.STOP), "once that is over", "warn"),
        },
    ),
    "stopped": Section(
        "machines that stay stopped",
        {
            "after": Key(kinds.DURATION, "how long one may stay", needed=True),
            "do": Key(
                kinds.one_of(RuleAction.WARN, RuleAction.IMAGE, RuleAction.TERMINATE),
                "once that is over; image keeps it as one",
                "warn",
            ),
        },
    ),
    "images": Section(
        "images that were made of machines",
        {
            "after": Key(kinds.DURATION, "how long one may stay", needed=True),
            "do": Key(kinds.one_of(RuleAction.WARN, RuleAction.REMOVE), "once that is over", "warn"),
        },
    ),
}
LIMITS: Keys = {
    "description": Key(kinds.TEXT, "whose they are, in one line"),
    "lease": Key(kinds.DURATION, "the longest lease"),
    "renew_until": Key(kinds.DURATION, "the longest renew-until"),
    "idle_after": Key(kinds.DURATION, "the longest idle.after; a policy that would not stop idle machines does then"),
    "policies": Key(kinds.POLICY_NAMES, "the only policies that a launch may name"),
    "stop": Key(
        kinds.one_of(*Stoppers),
        "whose machines members of a team may stop: their own, or (published) anybody's",
        "owner",
    ),
    "price_jump": Key(
        kinds.FACTOR, "by what factor a price has to move to be news (published), in place of each home's price_jump"
    ),
    "payers": Key(kinds.TEXTS, "owners whose reaper may stop what other ledgers left 24h past its renew-until"),
}


def flattened_keys(keys: Keys) -> Iterator[tuple[str, Key]]:
    """Yield each key with its path: `idle.after`, `schedule.off`."""
    for name, key in keys.items():
        if isinstance(key, Key):
            yield name, key
        else:
            yield from ((f"{name}.{key_name}", section_key) for key_name, section_key in key.keys.items())


JSON_SCHEMA_VERSION = "http://json-schema.org/draft-07/schema#"  # the one that editors' YAML servers know best


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of a policy's file. It does not cover contradictions, which `policy_from` finds."""
    return {"$schema": JSON_SCHEMA_VERSION, "title": "cloudgpu policy", **_table_schema(POLICY)}


def limits_schema() -> dict[str, Any]:
    """Return the schema of limits.yaml."""
    return {"$schema": JSON_SCHEMA_VERSION, "title": "cloudgpu limits", **_table_schema(LIMITS)}


def _table_schema(keys: Keys) -> dict[str, Any]:
    required = [name for name, key in keys.items() if isinstance(key, Key) and key.needed]
    return {
        "type": "object",
        "properties": {name: _key_schema(key) for name, key in keys.items()},
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _key_schema(key: Key | Section) -> Mapping[str, Any]:
    if isinstance(key, Key):
        default = list(key.default) if isinstance(key.default, tuple) else key.default
        return {"description": key.means, **key.kind.schema, **({} if default is None else {"default": default})}
    table = _table_schema(key.keys)
    if key.many:
        return {"description": key.means, "anyOf": [table, {"type": "array", "items": table, "minItems": 1}]}
    return {"description": key.means, **table}
