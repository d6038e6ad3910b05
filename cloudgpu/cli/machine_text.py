"""One machine as text for `show`, and when each safeguard would end it (also for `ls -v`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.cli.render import (
    ago,
    at_most_ago,
    attached_costs_text,
    dollars,
    gpus_text,
    has_retained,
    is_stopped_unbilled,
    labelled_lines,
    paragraph,
    place_text,
    price_briefly,
    price_text,
    short_duration,
    spent_text,
    state_text,
    stopped_costs_text,
    when,
    without_price,
)
from cloudgpu.core.model.machine import is_on_prem
from cloudgpu.core.values.times import from_iso, minute_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.machines import Guards, MachineDocument
    from cloudgpu.views.documents.parts import AccountCoverage

# By `agent_is`, for agents that cannot end their machine: `tells` only reports.
_NO_AGENT_TEXTS = {
    "none": "none, as cloudgpu's agent does not run on it",
    "tells": "none, as a shutdown from inside does not end billing",
}
_TIMER_TEXTS = {"own": "its own timer, a separate process"}
ONLY_REAPER = "only cloudgpu reap or watch ends it"
WAIVED_NOTE = ", and it was launched or started with --no-guard"
_WITHOUT_CLOUD = ("local", "ssh")  # providers
_NO_CLOUD = "No cloud was queried: config.toml names none, and there are no usable credentials."


def guards_text(machine: MachineDocument, now: datetime) -> str | None:
    """Return in words when each safeguard would end a machine; None for one that is not billed."""
    if machine["terminated_at"] or not machine["billed"]:
        return None
    safeguards = machine["guards"]
    parts = [
        _guard_text("the agent", safeguards["agent"], _NO_AGENT_TEXTS.get(safeguards["agent_is"] or "", "none"), now),
        *([] if _has_no_cloud(machine) else [_guard_text(_timer_text(safeguards), safeguards["timer"], "none", now)]),
        _guard_text("the reaper", safeguards["reaper"], "nothing decided", now),
    ]
    if safeguards["agent_is"] in _NO_AGENT_TEXTS and safeguards["timer_is"] == "none":
        parts.append(ONLY_REAPER + (WAIVED_NOTE if safeguards["waived"] else ""))
    return "; ".join(parts)


def _timer_text(guards: Guards) -> str:
    return _TIMER_TEXTS.get(guards["timer_is"] or "", "the timer in the cloud")


def _has_no_cloud(machine: MachineDocument) -> bool:
    """Say whether there is no timer, nor a cloud that could have one."""
    return is_on_prem(machine["provider"]) and machine["guards"]["timer_is"] == "none"


def _guard_text(name: str, ends_at: str | None, absent_text: str, now: datetime) -> str:
    if ends_at is None:
        return f"{name}: {absent_text}"
    remaining_s = (from_iso(ends_at) - now).total_seconds()
    return f"{name} {'in ' + short_duration(remaining_s) if remaining_s > 0 else 'now'}"


def guard_lines(machines: Sequence[MachineDocument], last_run: str | None, now: datetime) -> list[str]:
    """Return a line per machine that is billed, and one about the reaper."""
    texts = [(machine["name"], text) for machine in machines if (text := guards_text(machine, now)) is not None]
    last_run_text = (
        f"The last successful run of the reaper was {ago(last_run, now)}."
        if last_run
        else "No run of the reaper has succeeded yet."
    )
    return ["\nEnded by", labelled_lines(texts), last_run_text] if texts else []


def machine_line(machine: MachineDocument) -> str:
    """Return one machine in one line: what, where, price, and its lease, or that it is off."""
    spot_text = " spot" if machine["market"] == "spot" else ""
    place_text = machine["provider"] if is_on_prem(machine["provider"]) else f"{machine['provider']} {machine['zone']}"
    usd_per_hour = machine["price"] and machine["price"]["usd_per_hour"]
    is_off = machine["terminated_at"] is not None or machine["state"] in ("stopped", "deallocated")
    lease = (
        f", {machine['state']}"
        if is_off
        else f", {_end_in_line(machine, machine['expires'])}"
        if machine["expires"]
        else ""
    )
    return (
        f"{machine['name']}: {gpus_text(machine, briefly=True)}{spot_text}, {place_text}, "
        f"{dollars(usd_per_hour, 4)}/h{lease}"
    )


def _end_in_line(machine: MachineDocument, expires: str) -> str:
    """Return until when a machine has its lease, or until when it runs where its lease only warns."""
    renew_until = machine.get("renew_until")
    if machine["lease_ends"] or renew_until is None:
        return f"lease until {minute_text(expires)}"
    return f"until {minute_text(renew_until)}: its lease only warns, at {minute_text(expires)}"


def machine_summary(machine: MachineDocument, now: datetime) -> str:
    """Return one machine in few lines: its state, price, cost and end, then what and where, then all warnings."""
    has_ended, is_own, address = (
        machine["terminated_at"] is not None,
        is_on_prem(machine["provider"]),
        machine["address"],
    )
    ssh_text = [f"{address['user']}@{address['host']} port {address['port']}"] if address and not has_ended else []
    seen_text = [f"seen {ago(machine['seen_at'], now)}"] if machine["seen_at"] else []
    active_text = (
        [f"last active {at_most_ago(machine['last_active_at'], now)}"]
        if machine["last_active_at"] and not has_ended
        else []
    )
    lines = labelled_lines(
        [
            ("what", f"{machine['instance_type']}, {gpus_text(machine)}{_market_text(machine)}"),
            (
                "where",
                ", ".join(
                    filter(
                        None, [place_text(machine), None if is_own else machine["cloud_id"], *seen_text, *active_text]
                    )
                ),
            ),
            ("price", None if has_ended else price_briefly(machine["price"])),
            ("lease", None if has_ended else _lease_briefly(machine)),
            ("ssh", ", ".join(ssh_text) or None),
            ("owner", f"{machine['owner']}, project {machine['project']}"),
            *_warnings(machine, now),
        ]
    )
    return f"{paragraph(state_sentence(machine, now))}\n{lines}"


def state_sentence(machine: MachineDocument, now: datetime) -> str:
    """Return the state of a machine, what an hour costs, what it has cost, when it ends and by what."""
    spent_so_far = f"{spent_text(machine, 4)} so far{without_price(machine)}"
    name, state = machine["name"], state_text(machine)
    if machine["terminated_at"] and not has_retained(machine):
        return (
            f"{name} ended {when(machine['terminated_at'], now)}; it cost "
            f"{spent_text(machine, 4)}{without_price(machine)}."
        )
    if machine["launch_uncertain"] or has_retained(machine):
        return f"{name} is {state}; {spent_so_far}."
    if not machine["billed"]:
        stays_billed = machine["stopped_usd_per_month"] if stopped_costs_text(machine) else None
        stays_billed_text = f"; what stays costs {dollars(stays_billed)} a month" if stopped_costs_text(machine) else ""
        return (
            f"{name} is {state}{'' if is_on_prem(machine['provider']) else ', not billed'}{stays_billed_text}; "
            f"{spent_so_far}."
        )
    usd_per_hour = machine["price"] and machine["price"]["usd_per_hour"]
    hourly_text = "at a price that is not known" if usd_per_hour is None else f"at {dollars(usd_per_hour, 4)} an hour"
    billed_text = "" if machine["state"] == "running" else " (billed)"
    return f"{name} is {state}{billed_text} {hourly_text}, {spent_so_far}; {_ends_text(machine, now)}."


def _ends_text(machine: MachineDocument, now: datetime) -> str:
    """Return when a machine ends, and by what: the earliest of its safeguards."""
    safeguards = machine["guards"]
    names = {"agent": "its agent", "timer": _timer_text(safeguards), "reaper": "the reaper"}
    ends_at = [
        (at, who)
        for at, who in (
            (safeguards["agent"], "agent"),
            (safeguards["timer"], "timer"),
            (safeguards["reaper"], "reaper"),
        )
        if at
    ]
    if not ends_at:
        return "nothing is set to end it"
    at, safeguard = min(ends_at)
    seconds = (from_iso(at) - now).total_seconds()
    return f"{names[safeguard].partition(',')[0]} ends it {f'in {short_duration(seconds)}' if seconds > 0 else 'now'}"


def _lease_briefly(machine: MachineDocument) -> str:
    held_text = f", held until {minute_text(machine['held_until'])}" if machine["held_until"] else ""
    if machine["expires"] is None:
        return f"none{held_text}"
    renew_until = machine.get("renew_until")
    if not machine["lease_ends"] and renew_until is not None:
        return (
            f"only warns, at {minute_text(machine['expires'])}; renew-until ends it at "
            f"{minute_text(renew_until)}{held_text}"
        )
    renewable_text = (
        f", renewable until {minute_text(renew_until)}" if renew_until and renew_until != machine["expires"] else ""
    )
    return f"until {minute_text(machine['expires'])}{renewable_text}{held_text}"


def lease_lines(machine: MachineDocument, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield until when a machine's lease lasts, and what that means; nothing of one that has ended."""
    if machine["terminated_at"]:
        return
    expires, renew_until_text = when(machine["expires"], now), when(machine.get("renew_until"), now)
    lease_ends = machine["lease_ends"] or machine.get("renew_until") is None
    yield "lease", f"until {expires}" if lease_ends else f"only warns, at {expires}"
    yield (
        ("renewable", f"until {renew_until_text}") if lease_ends else ("renew-until", f"ends it at {renew_until_text}")
    )


def _warnings(machine: MachineDocument, now: datetime) -> Iterator[tuple[str, str | None]]:
    """Yield warnings: what else is billed, missing safeguards, shared keys, and what cannot be reached."""
    has_ended = machine["terminated_at"] is not None
    yield "why", machine["reason"]
    yield "also billed", None if has_ended else _attached_costs_text(machine)
    yield "kept", _retained_text(machine)
    yield "interrupted", _interruption_text(machine, now)
    yield "shared with", None if has_ended else _shared_text(machine)
    if not has_ended and machine["identity"] is not None and (machine["absent"] or machine["reachable"] is False):
        yield "whose", _owner_text(machine)
    if not has_ended and machine["billed"]:
        safeguards = machine["guards"]
        if safeguards["agent_is"] in _NO_AGENT_TEXTS and safeguards["timer_is"] == "none":
            yield "note", ONLY_REAPER + (WAIVED_NOTE if safeguards["waived"] else "")


def machine_details(machine: MachineDocument, now: datetime) -> str:
    """Return all that `show -v` says of one machine."""
    address = machine["address"]
    access = f"{address['user']}@{address['host']} port {address['port']}" if address else None

    is_own = is_on_prem(machine["provider"])
    billed = "" if is_own else " (billed)" if machine["billed"] else " (not billed)"
    reason = f": {machine['reason']}" if machine["reason"] else ""
    state = f"{state_text(machine) if has_retained(machine) else machine['state']}{billed}{reason}"
    state = "launch interrupted, outcome unknown" if machine["launch_uncertain"] else state
    return labelled_lines(
        [
            ("name", f"{machine['name']}  ({machine['id']})"),
            ("state", state),
            ("seen", ago(machine["seen_at"], now)),
            ("what", f"{machine['instance_type']}, {gpus_text(machine)}{_market_text(machine)}"),
            ("where", place_text(machine)),
            ("whose", _owner_text(machine)),
            ("cloud id", None if is_own else machine["cloud_id"]),
            ("price", price_text(machine["price"])),
            ("also billed", None if machine["terminated_at"] else _attached_costs_text(machine)),
            ("spent", f"{spent_text(machine, 4)} so far{without_price(machine)}"),
            *lease_lines(machine, now),
            ("held", when(machine["held_until"], now) if machine["held_until"] else None),
            ("ended by", guards_text(machine, now)),
            ("interrupted", _interruption_text(machine, now)),
            ("last active", when(machine["last_active_at"], now) if machine["last_active_at"] else None),
            ("ssh", access),
            ("shared with", None if machine["terminated_at"] else _shared_text(machine)),
            ("template", machine["template"]),
            ("owner", f"{machine['owner']}, project {machine['project']}"),
            ("ended", when(machine["terminated_at"], now) if machine["terminated_at"] else None),
            ("kept", _retained_text(machine)),
        ]
    )


def _market_text(machine: MachineDocument) -> str:
    """Return the market on which a machine was bought; empty for an own machine."""
    return (
        ""
        if is_on_prem(machine["provider"]) and machine["market"] == "on_demand"
        else f", {machine['market'].replace('_', '-')}"
    )


def _owner_text(machine: MachineDocument) -> str | None:
    """Return in which account, or on which computer, it is, and whether that is an account of this home."""
    if machine["identity"] is None or machine["terminated_at"]:
        return None
    unknown_text = f"cloudgpu show {machine['name']} --refresh says whether it is reachable from here"
    reachable_texts = {True: "reachable from here", False: "not reachable from here", None: unknown_text}
    return f"{machine['identity']['text']}: {machine['absent'] or reachable_texts[machine['reachable']]}"


def _shared_text(machine: MachineDocument) -> str | None:
    """Return whose keys `share` let in, and from where."""
    parts = []
    for share in machine["shared"]:
        place = f" from {share['from'].removesuffix('/32')}" if share["from"] else ""
        parts.append(f"{share['label'] or share['key']}{place}")
    return ", ".join(parts) or None


def _interruption_text(machine: MachineDocument, now: datetime) -> str | None:
    """Return that a spot interruption is rehearsed, and when it ends the machine; None where there is none."""
    return f"rehearsal: it is taken {when(machine['taken_at'], now)}" if machine["taken_at"] else None


def _attached_costs_text(machine: MachineDocument) -> str | None:
    """Return what is billed in addition to the machine in its present state."""
    costs = [
        cost
        for cost in machine["attached_costs"] or ()
        if cost["while_stopped" if is_stopped_unbilled(machine) else "while_running"]
    ]
    return attached_costs_text(costs) or None


def _retained_text(machine: MachineDocument) -> str | None:
    """Return what stays of a machine without it, what that costs a month, and the next step."""
    if not machine["retained"]:
        return None
    resources = ", ".join(
        f"{resource['kind']} {resource['id']} ({resource['size_gb']} GB)" for resource in machine["retained"]
    )
    name = (machine["cluster"] or machine)["name"]  # no node starts or ends by itself
    next_step_text = (
        f"; cloudgpu start {name}, or cloudgpu down {name}" if machine["terminated_at"] else "; removed by ls --refresh"
    )
    return f"{resources}: at most {dollars(machine['retained_usd_per_month'])} a month{next_step_text}"


def account_lines(document: AccountCoverage) -> list[str]:
    """Return which accounts were queried, which could not be, and whether no cloud was, wrapped for a terminal."""
    names = [
        account["account"]
        if account["account"] == account["provider"]
        else f"{account['account']} ({account['provider']})"
        for account in document["queried"]
    ]
    lines = [f"Queried: {', '.join(names)}."] if names else []
    lines += [
        f"Not queried: {unanswered_scope['scope']}, whose credentials here do not open it: {unanswered_scope['why']}"
        for unanswered_scope in document["not_queried"]
    ]
    if all(answer["provider"] in _WITHOUT_CLOUD for answer in document["queried"]):
        lines.append(_NO_CLOUD)
    return [paragraph(line) for line in lines]
