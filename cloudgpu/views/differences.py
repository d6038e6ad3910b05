"""What a repeated request asks for and the machine that it returns has not: nothing is changed by asking again."""

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

    from cloudgpu.core.model.launch import LaunchRequest
    from cloudgpu.views.documents.machines.machines import RequestDifference

SHORTER = "a lease is never made shorter: stop or end the machine yourself"
NEAR = timedelta(minutes=1)  # lease ends are whole seconds, a little after the launch was written down


def differences_value(
    request: LaunchRequest, then: Mapping[str, Any], at: str, machine: Machine
) -> Iterator[RequestDifference]:
    """Yield each option in which a request is not that of the machine's launch, and how to have it so.

    `then` is the body of the launch's line, which was written at `at`.
    """
    name, new = command_name(machine), "launch another with --new"
    before = _minutes(from_iso(not_none(then["expires"])) - from_iso(at))
    lease = timedelta(seconds=request.lease_s)
    if abs(before - lease) > NEAR:
        change = f"cloudgpu extend {name} {span_text(lease - before)}" if lease > before else f"{SHORTER}, or {new}"
        yield _diff("--lease", duration_text(lease), f"a lease of {duration_text(before)}", change)
    launch_renewal = timedelta(seconds=then["renew_s"] or request.renew_s)
    renewal = timedelta(seconds=request.renew_s)
    if renewal != launch_renewal:
        yield _diff(
            "--renew-until",
            duration_text(renewal),
            f"one of {duration_text(launch_renewal)}",
            f"cloudgpu extend {name} past it" if renewal > launch_renewal else f"{SHORTER}, or {new}",
        )
    max_price = None if request.want.max_price is None else request.want.max_price.nanos
    if max_price != then["max_price"]:
        yield _diff("--max-price", _dollars(max_price), f"{_dollars(then['max_price'])}{_runs_at(machine)}", new)
    if request.policy != machine.policy:
        yield _diff("--policy", request.policy, str(machine.policy), new)
    if not request.want.trust.accepts(Trust(machine.trust or Trust.CLOUD)):
        yield _diff("--trust", str(request.want.trust), str(machine.trust), new)
    typed = sorted(request.setup.network.ssh_from)
    opened = sorted(machine.setup.network.ssh_from if machine.setup else ())
    if typed and typed != opened:
        yield _diff("--ssh-from", ", ".join(typed), ", ".join(opened) or "nobody", f"cloudgpu allow {name} --from CIDR")


def _diff(option: str, asked: str, has: str, change: str) -> RequestDifference:
    return {"option": option, "requested": asked, "current": has, "next": change}


def _minutes(span: timedelta) -> timedelta:
    return timedelta(minutes=round(span / timedelta(minutes=1)))


def _dollars(nanos: int | None) -> str:
    return "no limit" if nanos is None else f"{Money(nanos).text(4)} an hour"


def _runs_at(machine: Machine) -> str:
    return f", and costs {Money(machine.price.nanos_per_hour).text(4)}" if machine.price else ""
