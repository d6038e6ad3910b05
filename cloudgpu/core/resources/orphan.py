"""An orphaned resource or stopped machine as a value, and what is known to judge it: machines, holds, open work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, TAG_NAME, TAG_OWNER, TAG_PROJECT, Instance, State
from cloudgpu.core.model.machine import Machine, has_retained_resources, not_none
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import digest
from cloudgpu.core.values.times import from_iso

STOPPED, ALLOCATED = "stopped_machine", "allocated_machine"
STARTABLE_STATES = (State.STOPPED, State.DEALLOCATED)  # from which `start` brings a machine back


class Cleanup(StrEnum):
    """What a cleanup does with an orphan."""

    REMOVE = "remove"
    END = "end"  # the machine, with all that is kept of it
    STAY = "stay"  # nothing: `Orphan.stays` says why


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs in a month of 730 hours; None where no price is known. `is_upper_bound`: it may be less."""

    per_month: Money | None
    is_upper_bound: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which launch a resource came from, as its ledger or its tags say; an empty `id` is a launch that is not known."""

    id: str
    name: str
    owner: str
    project: str
    ledger: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """An orphaned resource, and what a cleanup does with it (`do`).

    `why` is why it counts as one, `stays` why a cleanup leaves it (empty: it does not), `command` what to type for it.

    `what` is a `resources.Kind`, or STOPPED or ALLOCATED for a stopped machine: ALLOCATED is billed as if it ran.
    `since` is when it was orphaned, None where nobody knows. `machine` is the one that it came from, None where its
    launch is not known.
    """

    what: str
    id: str
    name: str
    provider: str
    account: str
    region: str
    zone: str
    size_gb: int
    cost: Cost
    origin: Origin
    since: datetime | None
    why: str
    do: Cleanup
    stays: str = ""
    command: str = ""
    resource: ProviderResource | None = None
    machine: Machine | None = None


@dataclass(frozen=True, slots=True)
class CleanupOptions:
    """The options of a cleanup: `older_than` leaves out newer orphans; `stopped_older_than` ends stopped machines, too.

    `spare` keeps resources from which a machine that ended by itself can be restored.
    """

    older_than: timedelta | None = None
    stopped_older_than: timedelta | None = None
    spare: bool = False


@dataclass(frozen=True, slots=True)
class LedgerKnowledge:
    """What is known besides the resources: the machines of the ledger with the id `ledger`, other ledgers' instances.

    `busy_ids` are of machines that a running process works on, `silent_scopes` are zones, regions, accounts and single
    machines that did not answer, `costs` is what resources cost, by their ids.
    """

    ledger: str
    machines: Sequence[Machine]
    foreign_instances: Sequence[Instance]
    busy_ids: frozenset[str]
    silent_scopes: frozenset[str]
    costs: Mapping[str, Cost]
    now: datetime


def is_paused(machine: Machine) -> bool:
    """Say whether a machine is stopped, or parked, which is how one stops that cannot be stopped."""
    return bool(machine.parked and has_retained_resources(machine)) or (
        machine.terminated_at is None and machine.state in STARTABLE_STATES
    )


def is_startable(orphan: Orphan) -> bool:
    """Say whether a machine that ended by itself can be started again from this."""
    return (
        orphan.machine is not None
        and orphan.resource is not None
        and orphan.command == f"cloudgpu start {orphan.machine.name}"
    )


def restart_text(machine: Machine) -> str:
    """Return why a paused machine is left alone, unless somebody asks for its end."""
    if machine.terminated_at is not None:
        return f"{machine.name} was parked, and comes back from it"
    return f"{machine.name} can be started again"


def machine_exists(machine: Machine | None) -> bool:
    """Say whether the machine exists: it is not confirmed as terminated."""
    return machine is not None and machine.terminated_at is None


def work_in_progress(machines: Sequence[Machine], knowledge: LedgerKnowledge) -> str:
    """Return a sentence on work under way at one of these machines, or on its unsettled launch; empty for none."""
    for machine in machines:
        if machine.id in knowledge.busy_ids:
            return f"something is under way at {machine.name}"
        if machine.launch_status == "open":
            return f"the launch of {machine.name} was interrupted (cloudgpu up or down resolves it)"
    return ""


def has_hold(machine: Machine, now: datetime) -> bool:
    """Say whether a hold covers this machine."""
    return bool(machine.hold_until) and from_iso(not_none(machine.hold_until)) > now


def origin_of(tags: Mapping[str, str], machine: Machine | None, knowledge: LedgerKnowledge) -> Origin:
    """Return which launch this came from: as the ledger says, else as the tags do."""
    if machine is not None:
        return Origin(machine.id, machine.name, machine.owner or "", machine.project or "", knowledge.ledger)
    return Origin(*(tags.get(key, "") for key in (TAG_ID, TAG_NAME, TAG_OWNER, TAG_PROJECT, TAG_LEDGER)))


def is_imaged_first(orphan: Orphan) -> bool:
    """Say whether `--snapshot` makes an image of it before its removal: it is a disk."""
    return orphan.do is Cleanup.REMOVE and orphan.what == Kind.DISK


def image_name(orphan: Orphan) -> str:
    """Return the name of the image: derived from the disk, so that a retry makes no second image."""
    base = re.sub(r"[^a-z0-9]+", "-", orphan.origin.name.lower()).strip("-")[:31]
    return f"{base if base[:1].isalpha() else 'disk'}-{digest(orphan.id)[:8]}"
