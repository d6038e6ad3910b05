"""The lines of what a user keeps by name: when a volume or an image was seen, changed, or was gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import by, ownership_of_named
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import resource_observed, resource_vanished, subject_of
from cloudgpu.core.model.facts import Retained
from cloudgpu.core.model.identity import AccountIdentity, is_hidden
from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.resources import ProviderResource, ResourceListing
from cloudgpu.core.resources.retention import is_on_purpose
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.last_seen import last_seen_at
from cloudgpu.ledger.log.base import Ledger
from cloudgpu.providers.attached_costs import rate_of_resource

_LASTING = "size_gb stored_as ready attached_to nanos per why_maybe_less".split()


def is_ours(resource: ProviderResource, ledger: str) -> bool:
    """Say whether this ledger bills it: it is named, and a snapshot only where it is no part of an image."""
    return resource.tags.get(TAG_LEDGER) == ledger and is_on_purpose(resource)


def named_resources(ledger: Ledger) -> list[Machine]:
    """Return the rows of what is kept by name, as far as it is known."""
    return [
        machine for machine in ledger.billable_machines() if machine.is_named_resource and machine.terminated_at is None
    ]


def observation_event(
    resource: ProviderResource, identity: AccountIdentity, known: Machine | None, now: datetime
) -> list[Draft]:
    """Return the line that says how a thing is now, none where that is no news. `known` is its row, None for none."""
    line = resource_observed(resource, retained_entry(resource), identity, known, now)
    last = known.retained[0] if known is not None and known.retained else None
    if last is not None and all(getattr(last, name) == line.body.get(name) for name in _LASTING):
        return []
    return [line]


def resource_events(
    ledger: Ledger, whose: AccountScope, found: ResourceListing, now: datetime
) -> tuple[list[Draft], list[str]]:
    """Return the lines of what is kept by name on an account, and the subjects of which this answer says nothing.

    What a region that answered does not have is gone, unless it was seen or made after the question was sent, or is of
    another account.
    """
    rows = {machine.id: machine for machine in named_resources(ledger) if whose.covers(machine)}
    drafts: list[Draft] = []
    for resource in (one for one in found.items if is_ours(one, ledger.id)):
        identity = whose.of(resource.region)
        if identity is not None:
            drafts += observation_event(resource, identity, rows.pop(subject_of(resource, identity), None), now)
    unseen = []
    for machine in rows.values():
        if is_silent(found, machine.region, whose.account) or not_none(machine.seen_at) >= iso(now):
            unseen.append(machine.id)
        else:
            alive = last_seen_at(ledger, machine)
            drafts.append(resource_vanished(machine, "missing from a complete answer", now, last_seen=alive, who={}))
    return drafts, unseen


def is_silent(found: ResourceListing, region: str, account: str) -> bool:
    """Say whether an answer of an account says nothing about a region: that did not answer, or was not asked."""
    if found.regions is not None and region not in found.regions:
        return True
    return is_hidden((gap.scope for gap in found.unanswered), account, region)


def record_resources(session: Session, resources: Sequence[ProviderResource]) -> None:
    """Write how these things are now, as far as it is news."""
    now, drafts = session.clock(), list[Draft]()
    known = {machine.id: machine for machine in named_resources(session.ledger)} if resources else {}
    for resource in (one for one in resources if is_ours(one, session.ledger.id)):
        identity = session.provider(resource.account).identity(resource.region)
        drafts += observation_event(resource, identity, known.get(subject_of(resource, identity)), now)
    if drafts:
        session.ledger.append(drafts)


def write_removed(session: Session, resource: ProviderResource) -> None:
    """Write that we have removed a thing, just now."""
    subject = subject_of(resource, session.provider(resource.account).identity(resource.region))
    machines = [machine for machine in named_resources(session.ledger) if machine.id == subject]
    now, who = session.clock(), by(session, ownership_of_named(resource), "remove")
    session.ledger.append(
        [
            resource_vanished(machine, "removed and no longer there", now, ended=iso(now), who=who)
            for machine in machines
        ]
    )


def retained_entry(resource: ProviderResource) -> Retained:
    """Return what is kept as the ledger has it: `nanos_per_month` is at most what it costs, None where nobody knows."""
    rate = rate_of_resource(resource)
    entry = Retained(
        id=resource.id,
        kind=str(resource.kind),
        region=resource.region,
        zone=resource.zone,
        size_gb=resource.size_gb,
        stored_as=resource.stored_as,
        made_at=None if resource.made_at is None else iso(resource.made_at),
        ready=resource.ready,
        nanos_per_month=None if rate.per_month is None else rate.per_month.nanos,
    )
    return entry._replace(**rate.terms())
