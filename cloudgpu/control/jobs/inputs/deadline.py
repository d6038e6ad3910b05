"""Reads `--deadline`, `--work` and `--spot-policy`, and names the cheapest way where they cannot be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.config.files.user_files import shown
from cloudgpu.control.inputs.launch_request import parse_future_moment, parse_optional_duration
from cloudgpu.core.jobs.deadline import Margins, least_time_s
from cloudgpu.core.jobs.stored import volume_of
from cloudgpu.core.launch.plan import duration_cost
from cloudgpu.core.spot import POLICIES
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.times import duration_text, from_iso, iso, parse_duration
from cloudgpu.errors import InvalidRequest

DEFAULT_POLICY = "adaptive"
ON_DEMAND = "on-demand"
_CONFLICTING_OPTIONS = {
    "or_on_demand": ("--or-on-demand", "--deadline decides itself when on demand is needed."),
    "persistent": ("--persistent", "A job with a deadline gets a new machine after each interruption."),
    "renew_until": ("--renew-until", "Its machines live to the deadline, and until the results are here."),
}


@dataclass(frozen=True, slots=True)
class DeadlineRequest:
    """When a job has to be done: `at` is a time, or a duration from now. `work` is how long its command runs.

    `policy` is the spot policy; `is_policy_named`: the user chose it, so it holds even where spot is not cheaper than
    on demand.
    """

    at: timedelta | datetime
    work: timedelta
    policy: str
    is_policy_named: bool = True

    def moment(self, now: datetime) -> datetime:
        """Return the deadline as a time; raise InvalidRequest for one in the past."""
        if isinstance(self.at, datetime) and self.at <= now:
            message = f"--deadline {iso(self.at)} is in the past."
            raise InvalidRequest(message, field="--deadline", value=iso(self.at), next="For example --deadline 24h")
        return parse_future_moment(self.at, "--deadline", now)


def parse_deadline(
    at: timedelta | datetime | str | None,
    work: timedelta | str | None,
    policy: str | None,
    launch: Mapping[str, str | bool],
    on: str | None,
    results_to: str | None = None,
) -> DeadlineRequest | None:
    """Return the requested deadline, None for a job without one; raise InvalidRequest."""
    if at is None:
        _check_unused(work, policy)
        return None
    work_time = parse_optional_duration(work, "--work")
    if work_time is None:
        message = "--deadline needs --work: how long the command runs, if nothing interrupts it."
        raise InvalidRequest(
            message, field="--work", value=None, next=f"For example --deadline {_option_text(at)} --work 18h"
        )
    _check_launch(launch, on)
    if volume_of(results_to) is not None:
        message = (
            f"--deadline moves a job between zones, and --results-to {results_to} ties it to the zone of the volume."
        )
        remedy = "Use a bucket, --results-to s3://BUCKET/PREFIX, or leave --results-to out."
        raise InvalidRequest(message, field="--results-to", value=results_to, next=remedy)
    deadline = _parse_time(at)
    if isinstance(deadline, timedelta) and deadline <= work_time:
        raise _deadline_too_short_error(work_time, deadline, Margins(), None)
    return DeadlineRequest(deadline, work_time, _parse_policy(policy, launch), policy is not None)


def _check_unused(work: timedelta | str | None, policy: str | None) -> None:
    """Raise InvalidRequest for options of a deadline without one."""
    for option, value in (("--work", work), ("--spot-policy", policy)):
        if value is not None:
            message = f"{option} needs --deadline."
            raise InvalidRequest(
                message, field=option, value=str(value), next=f"Add --deadline, or leave {option} out."
            )


def _check_launch(launch: Mapping[str, str | bool], on: str | None) -> None:
    """Raise InvalidRequest for launch options that do not go with a deadline."""
    if on is not None:
        message = f"--deadline chooses its machines, and --on {on} names one."
        raise InvalidRequest(message, field="--deadline", value=on, next="Leave --on or --deadline out.")
    for name, (option, why) in _CONFLICTING_OPTIONS.items():
        if launch.get(name):
            message = f"{option} cannot be combined with --deadline. {why}"
            raise InvalidRequest(message, field=option, value=None, next=f"Leave {option} out.")


def _parse_time(at: timedelta | datetime | str) -> timedelta | datetime:
    """Return the text as a duration, or as a time, which needs its time zone."""
    if not isinstance(at, str):
        return at
    try:
        return parse_duration(at)
    except ValueError:
        pass
    try:
        return from_iso(at)
    except ValueError:
        raise InvalidRequest(
            f"--deadline {shown(at)!r} is neither a duration nor a time with its zone.",
            field="--deadline",
            value=shown(at),
            next="For example --deadline 24h, or --deadline 2026-12-01T09:00+01:00",
        ) from None


def _parse_policy(name: str | None, launch: Mapping[str, str | bool]) -> str:
    """Return the spot policy of `--spot-policy`, or the default; raise InvalidRequest for an unknown one."""
    if name is None:
        return ON_DEMAND if launch.get("spot") is False else DEFAULT_POLICY
    if name not in POLICIES:
        remedy, message = f"The policies are: {', '.join(POLICIES)}", f"{shown(name)!r} is not a policy"
        raise unknown_word(message, name, POLICIES, field="--spot-policy", value=shown(name), next=remedy)
    if launch.get("spot") is False and name != ON_DEMAND:
        message = f"--spot-policy {name} uses spot, and --on-demand rules that out."
        raise InvalidRequest(message, field="--spot-policy", value=name, next="Leave one of the two out.")
    return name


def check_feasible(request: DeadlineRequest, now: datetime, margins: Margins, on_demand: Money | None) -> datetime:
    """Return the deadline as a time; raise InvalidRequest where even on-demand machines alone would be late.

    `on_demand` is what an hour on demand costs.
    """
    at = request.moment(now)
    if (at - now).total_seconds() < least_time_s(request.work.total_seconds(), margins):
        raise _deadline_too_short_error(request.work, at - now, margins, on_demand)
    return at


def _deadline_too_short_error(
    work: timedelta, time_left: timedelta, margins: Margins, on_demand: Money | None
) -> InvalidRequest:
    shortest = timedelta(minutes=-(-least_time_s(work.total_seconds(), margins) // 60))
    start_time = shortest - work
    least_with_spot = _option_text(shortest + timedelta(minutes=-(-(margins.changeover_s + margins.start_s) // 60)))
    cost = "" if on_demand is None else f" (about {duration_cost(on_demand, shortest).text(2)})"
    return InvalidRequest(
        f"--work {duration_text(work)} does not fit --deadline {duration_text(time_left)}: a machine takes up to "
        f"{duration_text(start_time)} to begin.",
        field="--deadline",
        value=duration_text(time_left),
        next=f"The least is --deadline {_option_text(shortest)}, all of it on demand{cost}. "
        f"From --deadline {least_with_spot} on, spot can be used, which is cheaper.",
    )


def _option_text(at: timedelta | datetime | str) -> str:
    """Return a duration or a time as the value of an option."""
    return duration_text(at).replace(" ", "") if isinstance(at, timedelta) else str(at)
