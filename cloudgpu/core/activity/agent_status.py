"""Parses and checks the status that a machine's agent reports: whoever controls the machine could forge it.

An invalid answer yields no samples and a `fault`, a clause that says why. The activity is then unknown, never idle.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Sample = dict[str, Any]  # one minute of readings; `core.activity.idle` says what its keys are

MINUTE_S, DAY_S = 60.0, 86400.0
SAMPLE_WINDOW_S = (
    DAY_S + 3600.0
)  # older samples are dropped, in seconds; more than a day, as a nightly query may come late
MAX_SAMPLES = 5000  # a day of one a minute is 1440
MAX_BUSY, MAX_SCRATCH = 64, 32  # how many busy kernels (or jobs) a sample names at most; scratch disks in an answer
MAX_TEXT_CHARS = 300
# The `fault` of an agent whose answer has no `samples`.
OLD_AGENT = "its agent is of an earlier version and keeps no samples"
CLOCK_SLACK_S = 5.0  # by how much a reported time may be later than the machine's own now: it may be rounded up
_MAX_DEPTH, _MAX_ITEMS = 5, 100  # of JSON that is passed on unchecked
_MAX_READINGS = {
    "gpu": 100.0,
    "mem": 1e9,
    "cpu": 1e5,
    "net": 1e13,
    "disk": 1e13,
    "power": 1e5,
    "gpus": 1e3,
}  # more is a forged or broken answer
_MINUTE_MEANS = (
    "power",
    "gpus",
)  # means over whole minutes: a shorter sample counts as not read, or their sums were too low
_AGES = ("in", "out", "jup")  # seconds since terminal input, terminal output and work of a Jupyter kernel


class Unusable(ValueError):
    """Why an answer cannot be used, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """An agent's answer. Times are epoch seconds by the machine's clock; `fault` says why nothing is known, else empty.

    `answer` is the rest of the answer without the samples, cut to a safe size; None if it could not be parsed.
    `scratch` are (path, bytes used) of the disks that a stop erases.
    """

    answer: Mapping[str, Any] | None
    samples: tuple[Sample, ...]
    now: float | None
    up_since: float | None
    scratch: tuple[tuple[str, int], ...]
    fault: str = ""


def unknown_status(fault: str, answer: Mapping[str, Any] | None = None) -> AgentStatus:
    """Return the status of an agent without a valid answer."""
    return AgentStatus(answer, (), None, None, (), fault)


def parse_agent_status(text: bytes) -> AgentStatus:
    """Return the checked answer of an agent's `status`; never raises, whatever the answer is."""
    try:
        status = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return unknown_status("its agent does not answer in JSON")
    if not isinstance(status, dict):
        return unknown_status("its agent does not answer with a JSON object")
    answer = _truncated({name: value for name, value in status.items() if name != "samples"}, _MAX_DEPTH)
    if "samples" not in status:
        return unknown_status(OLD_AGENT, answer)
    if status.get("heartbeat", 0) is None:
        return unknown_status("its agent has seen nothing yet", answer)
    try:
        return _parse_status(status, answer)
    except Unusable as error:
        return unknown_status(f"what its agent says cannot be used: {error}", answer)


def _parse_status(status: Mapping[str, Any], answer: Mapping[str, Any]) -> AgentStatus:
    now = _number(status, "now", 1e11)
    up_since = _number(status, "up_since", now + CLOCK_SLACK_S)
    raw_samples = status["samples"]
    if not isinstance(raw_samples, list) or len(raw_samples) > MAX_SAMPLES:
        raise Unusable(f"samples is not a list of at most {MAX_SAMPLES}")
    parsed = [_parse_numbered_sample(one, number) for number, one in enumerate(raw_samples)]
    if any(one["t"] > now + CLOCK_SLACK_S for one in parsed):
        raise Unusable("its samples are of a time to come, so its clock was set back")
    recent = {one["t"]: one for one in parsed if one["t"] > now - SAMPLE_WINDOW_S}
    return AgentStatus(
        answer, tuple(recent[at] for at in sorted(recent)), now, up_since, _scratch(status.get("scratch"))
    )


def _parse_numbered_sample(raw: Any, number: int) -> Sample:
    """Return one sample with the known keys only; raise Unusable with its number in the list."""
    if not isinstance(raw, dict):
        raise Unusable(f"sample {number} is not an object")
    try:
        return _parse_sample(raw)
    except Unusable as error:
        raise Unusable(f"sample {number}: {error}") from None


def _parse_sample(raw: Mapping[str, Any]) -> Sample:
    sample: Sample = {"t": _number(raw, "t", 1e11), "s": _number(raw, "s", DAY_S)}
    if not sample["s"]:
        raise Unusable("s is nothing")
    for name, largest in _MAX_READINGS.items():
        if name in raw:  # a machine without a GPU has no such key
            cut_short = name in _MINUTE_MEANS and sample["s"] < MINUTE_S
            is_known = raw[name] is not None and not cut_short  # a missing reading is not zero
            sample[name] = _number(raw, name, largest) if is_known else None
    for name in _AGES:
        if raw.get(name) is not None:
            sample[name] = max(0.0, _number(raw, name, 1e9, least=-1.0))
    busy, jobs = _names(raw, "busy"), _names(raw, "job")
    fault = raw.get("fault")
    if fault is not None and not isinstance(fault, str):
        raise Unusable("fault is not text")
    names = {key: value for key, value in (("busy", busy), ("job", jobs)) if value}
    return sample | names | ({"fault": clean(fault)} if fault else {})


def _number(source: Mapping[str, Any], name: str, largest: float, *, least: float = 0.0) -> float:
    value = source.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unusable(f"{name} is not a number")
    if not least <= value <= largest or not math.isfinite(value):
        raise Unusable(f"{name} is {_number_text(value)}, which cannot be")
    return value if isinstance(value, int) else round(value, 3)


def _names(one: Mapping[str, Any], key: str) -> list[str]:
    listed = one.get(key)
    if listed is None:
        return []
    if not isinstance(listed, list) or len(listed) > MAX_BUSY or any(not isinstance(one, str) for one in listed):
        raise Unusable(f"{key} is not a list of at most {MAX_BUSY} names")
    return [clean(one) for one in listed]


def _scratch(raw_disks: Any) -> tuple[tuple[str, int], ...]:
    """Return (path, bytes used) of each disk that a stop erases."""
    if raw_disks is None:
        return ()
    if not isinstance(raw_disks, list) or len(raw_disks) > MAX_SCRATCH:
        raise Unusable(f"scratch is not a list of at most {MAX_SCRATCH}")
    return tuple(_scratch_disk(one) for one in raw_disks)


def _scratch_disk(raw_disk: Any) -> tuple[str, int]:
    if not isinstance(raw_disk, list) or len(raw_disk) != 2 or not isinstance(raw_disk[0], str):  # noqa: PLR2004  (a path and a size)
        raise Unusable("a scratch disk is not a path with a size")
    return clean(raw_disk[0]), int(_number({"size": raw_disk[1]}, "size", 1e18))


def _reject_constant(constant: str) -> float:
    raise ValueError(constant)  # NaN and Infinity are no JSON


def _number_text(value: float) -> str:
    return f"{value:.12g}" if abs(value) < 1e300 else "larger than any number of ours"  # noqa: PLR2004  (a larger int may not convert)


def clean(text: str) -> str:
    """Return text that may be shown on a terminal: one line, without control characters, not too long."""
    return "".join(char if char.isprintable() else " " for char in text[:MAX_TEXT_CHARS]).strip()


def _truncated(value: Any, depth: int) -> Any:
    """Return a JSON value cut to a safe depth, number of items and length of texts."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        pairs = list(value.items())[:_MAX_ITEMS] if depth else []
        return {clean(name): _truncated(one, depth - 1) for name, one in pairs}
    if isinstance(value, list):
        return [_truncated(one, depth - 1) for one in value[:_MAX_ITEMS]] if depth else []
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if -1e15 < value < 1e15 else None  # noqa: PLR2004  (times and sizes are below)
    return value
