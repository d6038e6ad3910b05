"""Makes the ledger lines of requests and decisions about a machine, by people and the reaper: a function for each kind.

Each has its body and its dedupe text: a second line with the same text is not written. `who` is the result of
`control.team.authorization.requester_record`: who requested it, by which right.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, cast

from cloudgpu.core.events import bodies
from cloudgpu.core.events.bodies import Action, RequestedBy
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.naming import digest
from cloudgpu.core.values.times import iso
from cloudgpu.errors import EndRefused


def requested(
    what: Action,
    machine: str,
    why: str,
    now: datetime,
    *,
    host: str,
    who: RequestedBy,
    failed: bool = False,
    waived: bool = False,
    running: bool = False,
    judged: bool = False,
) -> Draft:
    """Return the line written before a stop, start, park or termination (`what`) is sent.

    `failed`: it is terminated because it never came up. `waived`: it is started though no safeguard would end it
    (--no-guard). `running`: it runs, and the start cancels a stop or an end that is not done. `judged`: a run of the
    reaper decided it, and the next one decides again.
    """
    flags = {"failed": failed, "waived": waived, "running": running, "judged": judged}
    common = {"why": why, "host": host, **who}
    body = cast("bodies.AnyRequested", common | {name: True for name, is_set in flags.items() if is_set})
    return Draft(f"{what}_requested", machine, body, now, f"{what}:{machine}:{iso(now)}")


def start_refused(machine: str, why: str, now: datetime) -> Draft:
    """Return the line that a requested start has certainly not begun."""
    return Draft("start_refused", machine, bodies.StartRefused(why=why), now, f"start_refused:{machine}:{iso(now)}")


def action_refused(machine: str, what: Literal["stop", "terminate"], refusal: EndRefused, now: datetime) -> Draft:
    """Return the line that the provider refused an action, and how to lift the protection."""
    body: bodies.ActionRefused = {"action": what, "why": refusal.message, "next": refusal.next}
    return Draft("action_refused", machine, body, now, f"action_refused:{machine}:{what}:{iso(now)}")


def lease_set(
    machine: str, expires: datetime, renew_until: datetime, why: str, now: datetime, *, host: str, who: RequestedBy
) -> Draft:
    """Return the line of a new lease."""
    body: bodies.LeaseSet = {
        "expires": iso(expires),
        "renew_until": iso(renew_until),
        "why": why,
        "host": host,
        **who,
    }
    return Draft("lease_set", machine, body, now, f"lease:{machine}:{iso(now)}:{iso(renew_until)}")


def lease_put_back(machine: Machine, now: datetime, *, host: str) -> Draft:
    """Return the line that a machine's old lease applies again, as setting the new one on the machine failed."""
    body: bodies.LeaseSet = {
        "expires": machine.expires,
        "renew_until": machine.renew_until,
        "why": "the machine did not take the new one",
        "host": host,
    }
    return Draft("lease_set", machine.id, body, now, f"lease:{machine.id}:{iso(now)}:put back")


def hold_set(machine: str, until: datetime | None, why: str, now: datetime, *, host: str, who: RequestedBy) -> Draft:
    """Return the line that sets a hold; None releases it."""
    end = None if until is None else iso(until)
    body: bodies.HoldSet = {"until": end, "why": why, "host": host, **who}
    return Draft("hold_set", machine, body, now, f"hold:{machine}:{iso(now)}:{end}")


def interruption_simulated(machine: str, at: datetime, now: datetime) -> Draft:
    """Return the line that a spot interruption is simulated: the machine is taken at `at`."""
    body: bodies.InterruptionSimulated = {"at": iso(at)}
    return Draft("interruption_simulated", machine, body, now, f"interrupt:{machine}:{iso(now)}")


def spot_interrupted(
    machine: str,
    at: datetime,
    how: bodies.InterruptionSource,
    *,
    noticed: datetime | None,
    ran_s: float,
    nanos: int,
    free: str,
) -> Draft:
    """Return the line that the provider took a spot machine at that time; once for each of its runs."""
    body: bodies.SpotInterrupted = {
        "how": how,
        "noticed_at": None if noticed is None else iso(noticed),
        "ran_s": round(ran_s, 3),
        "nanos": nanos,
        "free": free,
    }
    return Draft("spot_interrupted", machine, body, at, f"spot-interrupted:{machine}:{iso(at)}")


def machine_shared(
    machine: str,
    key: str,
    now: datetime,
    *,
    label: str,
    network: str | None,
    host_key: str | None,
    host: str,
    who: RequestedBy,
) -> Draft:
    """Return the line that a key, named by its fingerprint, may log in from this network."""
    body: bodies.MachineShared = {
        "key": key,
        "label": label,
        "from": network,
        "host_key": host_key,
        "host": host,
        **who,
    }
    return Draft("machine_shared", machine, body, now, f"shared:{machine}:{key}:{iso(now)}")


def machine_unshared(machine: str, key: str | None, now: datetime, *, host: str, who: RequestedBy) -> Draft:
    """Return the line that a shared key, or all of them (None), was removed."""
    body: bodies.MachineUnshared = {"key": key, "host": host, **who}
    return Draft("machine_unshared", machine, body, now, f"unshared:{machine}:{key}:{iso(now)}")


def timer_set(machine: str, at: datetime | None, why: str, now: datetime) -> Draft:
    """Return the line that a machine's cloud ends it by itself at `at`; None: never any more."""
    text = None if at is None else iso(at)
    return Draft("timer_set", machine, bodies.TimerSet(at=text, why=why), now, f"timer:{machine}:{text}:{iso(now)}")


# -- what the reaper said and did


def decision_made(
    machine: str,
    now: datetime,
    *,
    do: str,
    rule: str,
    why: str,
    activity: str | None,
    at: datetime | None,
    host: str,
) -> Draft:
    """Return the line of a run's decision about a machine; `at` is when it ends if nothing changes."""
    end = None if at is None else iso(at)
    body: bodies.DecisionMade = {"do": do, "rule": rule, "why": why, "activity": activity, "at": end, "host": host}
    return Draft("decision_made", machine, body, now, f"decided:{machine}:{iso(now)}:{do}:{rule}")


def decision_made_for_lab(
    machine: str, now: datetime, *, do: str, rule: str, why: str, host: str, who: RequestedBy
) -> Draft:
    """Return the line of the decision by a payer's run about a machine of another ledger."""
    body: bodies.DecisionMade = {
        "do": do,
        "rule": rule,
        "why": why,
        "activity": None,
        "at": None,
        "host": host,
        **who,
    }
    return Draft("decision_made", machine, body, now, f"decided:{machine}:{iso(now)}:foreign")


def warning_sent(
    machine: str, rule: str, due: datetime | None, why: str, now: datetime, *, how: Sequence[str], host: str
) -> Draft:
    """Return the line that people were warned that this rule ends a machine at `due`; None: it does not."""
    end = None if due is None else iso(due)
    body: bodies.WarningSent = {"rule": rule, "due": end, "why": why, "how": list(how), "host": host}
    return Draft("warning_sent", machine, body, now, f"warning:{machine}:{rule}:{iso(now)}")


def warning_cleared(machine: str, rule: str, why: str, now: datetime, *, host: str) -> Draft:
    """Return the line that a warning no longer applies."""
    body: bodies.WarningCleared = {"rule": rule, "why": why, "host": host}
    return Draft("warning_cleared", machine, body, now, f"cleared:{machine}:{rule}:{iso(now)}")


def orphan_removed(subject: str, removed: bodies.OrphanRemoved, now: datetime) -> Draft:
    """Return the line that an orphan was removed."""
    dedupe = f"orphan:{digest(removed['account'], removed['id'], iso(now))}"
    return Draft("orphan_removed", subject, removed, now, dedupe)
