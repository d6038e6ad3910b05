"""What a policy is told, as values: the job at `reset`, and the situation of one tick at `decide`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Protocol, TypedDict, TypeGuard

from cloudgpu.errors import InvalidRequest

Mode = Literal["wait", "spot", "on_demand"]
_LARGEST_FLOAT = 1.7976931348623157e308  # IEEE 754, double precision
TOLERANCE_H = 1e-6  # hours; sums of ticks are no exact numbers


class JobFacts(TypedDict):
    """Argument of `reset`. What each key is, the docstring of the package `cloudgpu.core.spot` says."""

    total_work_h: float
    deadline_h: float
    tick_h: float
    changeover_h: float
    price_spot: float
    price_on_demand: float
    prior_history: NotRequired[list[Any] | None]


class State(TypedDict):
    """Argument of `decide`. What each key is, the docstring of the package `cloudgpu.core.spot` says."""

    elapsed_h: float
    work_left_h: float
    time_left_h: float
    spot_available: bool
    zones_available: NotRequired[list[bool] | None]
    mode: Mode
    zone: NotRequired[int | None]
    pending_h: NotRequired[float]


class Answer(TypedDict):
    """Answer of `decide`: what runs in this tick, and in which zone."""

    action: Mode
    zone: int | None


class Policy(Protocol):
    """What every entry of POLICIES offers."""

    def reset(self, job: JobFacts) -> None:
        """Begin a new job and forget the last one."""

    def decide(self, state: State) -> Answer:
        """Return what runs in this tick."""


@dataclass(frozen=True, slots=True)
class Task:
    """The job: `work`, `deadline`, `tick` and `changeover` in hours, and prices per hour."""

    work: float
    deadline: float
    tick: float
    changeover: float
    price_spot: float
    price_on_demand: float
    history: tuple[tuple[bool, ...], ...] = ()  # of each zone, oldest first

    @property
    def price_ratio(self) -> float:
        """Return how many spot hours one on-demand hour costs; at least 1, as spot is never worth more."""
        return max(1.0, self.price_on_demand / self.price_spot) if self.price_spot > 0 else 1e6


@dataclass(frozen=True, slots=True)
class Situation:
    """One tick. `elapsed`, `work` left, `time` to the deadline and `pending` changeover are hours.

    `available` has one flag for each zone; `needs_zone` says whether the answer has to name a zone.
    """

    elapsed: float
    work: float
    time: float
    available: tuple[bool, ...]
    mode: Mode
    zone: int = 0
    pending: float = 0.0
    needs_zone: bool = False

    @property
    def slack(self) -> float:
        """Return the hours that may be lost: time left less work left. Pending time is not counted."""
        return self.time - self.work

    @property
    def running_spot(self) -> bool:
        """Return whether the spot machine that ran last is there and stays for this tick."""
        return self.mode == "spot" and self.zone < len(self.available) and self.available[self.zone]

    @property
    def first_available(self) -> int | None:
        """Return the zone that spot is taken in: the one where it runs, else the first that has it."""
        if self.running_spot:
            return self.zone
        return self.available.index(True) if True in self.available else None


def task_of(job: JobFacts) -> Task:
    """Read the argument of `reset`. Raises InvalidRequest where a number is missing or impossible."""
    return Task(
        _number(job, "total_work_h", 0),
        _number(job, "deadline_h", TOLERANCE_H),
        _number(job, "tick_h", TOLERANCE_H),
        _number(job, "changeover_h", 0),
        _number(job, "price_spot", 0),
        _number(job, "price_on_demand", 0),
        _history(job.get("prior_history")),
    )


def situation_of(state: State) -> Situation:
    """Read the argument of `decide`."""
    zones = state.get("zones_available")
    needs_zone = zones is not None
    available = tuple(map(bool, zones)) if zones else (bool(state["spot_available"]) and not needs_zone,)
    mode: Mode = state["mode"]
    return Situation(
        float(state["elapsed_h"]),
        float(state["work_left_h"]),
        float(state["time_left_h"]),
        available,
        mode,
        int(state.get("zone") or 0),
        float(state.get("pending_h") or 0.0) if mode != "wait" else 0.0,
        needs_zone,
    )


def answer(action: Mode, now: Situation, zone: int | None = None) -> Answer:
    """Return the answer; spot without a zone is spot where it runs, or where it is first available."""
    if action != "spot":
        return {"action": action, "zone": None}
    chosen = now.first_available if zone is None else zone
    if chosen is None:
        return {"action": "wait", "zone": None}
    return {"action": "spot", "zone": chosen if now.needs_zone else None}


def is_finite(value: object) -> TypeGuard[float]:
    """Say whether this is a number that fits a float: not NaN, not infinite, no integer of hundreds of digits."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST_FLOAT


def _number(job: JobFacts, key: str, minimum: float) -> float:
    value = job.get(key)
    if not is_finite(value) or value < minimum:
        shown = repr(value)[:60]  # an integer may have hundreds of digits
        raise InvalidRequest(
            f"{key} {shown} is not a number of at least {minimum:g}.",
            field=key,
            value=shown,
            next=f"Give {key} as a finite number: hours, or a price per hour.",
        )
    return float(value)


def _history(history: object) -> tuple[tuple[bool, ...], ...]:
    if not isinstance(history, (list, tuple)) or not history:
        return ()
    if all(isinstance(zone, (list, tuple)) for zone in history):
        return tuple(tuple(map(bool, zone)) for zone in history)
    return (tuple(map(bool, history)),)
