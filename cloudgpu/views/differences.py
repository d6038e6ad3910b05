"""How a repeated request differs from the machine that it returns: the machine stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.core.budgets.refusal import span_text
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.model.offers import Trust
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text, from_iso

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from cloudgpu.core.model.launch import LaunchRequest
    from cloudgpu.views.documents.machines.machines import RequestDifference

NEVER_SHORTER = "stop or end the machine yourself, since a lease is never made shorter"
LEASE_TOLERANCE = timedelta(minutes=1)  # lease ends are whole seconds, a little after the launch's ledger line


def differences_document(
    request: LaunchRequest,
    launch_body: Mapping[str, Any],
    launched_at: str,
    machine: Machine,
    *,
    began_at: datetime,
    now: datetime,
) -> Iterator[RequestDifference]:
    """Yield each option whose value differs from the machine's launch, and how to change the machine.

    `launch_body` is the body of the launch's ledger line, which was written at `launched_at`. `began_at` is when the
    machine was launched or last started: its present lease counts from then.
    """
    name, launch_new = command_name(machine), "launch another with --new"
    launch_lease = _rounded_to_minutes(from_iso(not_none(launch_body["expires"])) - from_iso(launched_at))
    lease, lease_end = timedelta(seconds=request.lease_s), from_iso(not_none(machine.expires or launch_body["expires"]))
    present_lease = _rounded_to_minutes(lease_end - began_at)
    extended_to = max(lease_end, now)  # `extend` counts from here
    if not (_is_same(lease, launch_lease) or _is_same(lease, present_lease)):
        remedy = f"{NEVER_SHORTER}, or {launch_new}"
        if lease > present_lease:
            extension = _rounded_to_minutes(began_at + lease - extended_to)
            remedy = f"cloudgpu extend {name} {span_text(extension)}" if extension > timedelta(0) else launch_new
            extended_to = max(extended_to, began_at + lease)
        yield _difference("--lease", duration_text(lease), f"a lease of {duration_text(present_lease)}", remedy)
    renewal = timedelta(seconds=request.renew_s)
    launch_renewal = timedelta(seconds=launch_body["renew_s"] or request.renew_s)
    present_renewal = (
        _rounded_to_minutes(from_iso(machine.renew_until) - began_at) if machine.renew_until else launch_renewal
    )
    if not (renewal == launch_renewal or _is_same(renewal, present_renewal)):
        remedy = f"{NEVER_SHORTER}, or {launch_new}"
        if renewal > present_renewal:
            extension = _rounded_to_minutes(began_at + renewal - extended_to)
            order_text = "after the extension for --lease; " if extended_to > max(lease_end, now) else ""
            remedy = (
                f"cloudgpu extend {name} {span_text(extension)} ({order_text}the lease then lasts until renew-until)"
                if extension > timedelta(0)
                else launch_new
            )
        yield _difference("--renew-until", duration_text(renewal), f"one of {duration_text(present_renewal)}", remedy)
    max_price = None if request.requirements.max_price is None else request.requirements.max_price.nanos
    if max_price != launch_body["max_price"]:
        yield _difference(
            "--max-price", _dollars(max_price), f"{_dollars(launch_body['max_price'])}{_cost_text(machine)}", launch_new
        )
    if request.policy != machine.policy:
        yield _difference("--policy", request.policy, str(machine.policy), launch_new)
    if not request.requirements.trust.accepts(Trust(machine.trust or Trust.CLOUD)):
        yield _difference("--trust", str(request.requirements.trust), str(machine.trust), launch_new)
    requested_networks = sorted(request.setup.network.ssh_from)
    open_networks = sorted(machine.setup.network.ssh_from if machine.setup else ())
    if requested_networks and requested_networks != open_networks:
        yield _difference(
            "--ssh-from",
            ", ".join(requested_networks),
            ", ".join(open_networks) or "nobody",
            f"cloudgpu allow {name} --from CIDR",
        )


def _difference(option: str, requested: str, current: str, remedy: str) -> RequestDifference:
    return {"option": option, "requested": requested, "current": current, "next": remedy}


def _is_same(duration: timedelta, other: timedelta) -> bool:
    return abs(duration - other) <= LEASE_TOLERANCE


def _rounded_to_minutes(duration: timedelta) -> timedelta:
    return timedelta(minutes=round(duration / timedelta(minutes=1)))


def _dollars(nanos: int | None) -> str:
    return "no limit" if nanos is None else f"{Money(nanos).text(4)} an hour"


def _cost_text(machine: Machine) -> str:
    return f", and costs {Money(machine.price.nanos_per_hour).text(4)}" if machine.price else ""
