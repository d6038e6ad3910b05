"""Makes the ledger lines of what machines and resources were seen to be: one function for each kind.

Each has its body, and its dedupe text: the same text is written once, whoever tries again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from cloudgpu.core.events import bodies
from cloudgpu.core.events.bodies import RequestedBy
from cloudgpu.core.events.log import MACHINE, OWN, PROVIDER, Draft
from cloudgpu.core.model.facts import MachineAddress, Retained, Terms, record_of
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import (
    TAG_EXPIRES,
    TAG_HOLD_UNTIL,
    TAG_ID,
    TAG_OWNER,
    TAG_PROJECT,
    TAG_RENEW_UNTIL,
    Address,
    Instance,
    State,
)
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import Price, price_to_json
from cloudgpu.core.model.records import AddressRecord, RateRecord
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.values.naming import digest
from cloudgpu.core.values.times import from_epoch, iso


def instance_observed(
    instance: Instance,
    now: datetime,
    *,
    machine: Machine | None = None,
    before: bodies.BeforeTheEnd | None = None,
    resized: bodies.Resized | None = None,
) -> Draft:
    """Return the line that says how the provider reports this machine now.

    `before` is what else is known of the time before its end, `resized` what it is now that was another before.
    `machine` is what is known of it: the line is about that one, though somebody may have taken the machine's tags
    away, and its word of its use stays where an answer has none.
    """
    body: bodies.InstanceObserved = {
        "provider_id": instance.id,
        "state": str(instance.state),
        "billed": instance.billed,
        "since": _text(instance.since),
        "launched_at": _text(instance.launched_at),
        "address": _address(instance.address) if instance.address else None,
        "reason": instance.reason,
        "last_active": _text(instance.last_active),
        "expires": tag_time(instance.tags, TAG_EXPIRES),
        "renew_until": tag_time(instance.tags, TAG_RENEW_UNTIL),
        "hold_until": tag_time(instance.tags, TAG_HOLD_UNTIL),
    }
    if machine is not None:
        body["address"] = record_of(address_now(machine, instance))
    if before is not None:
        body = {**body, **before}
    if resized is not None:
        body["resized"] = resized
    if machine is not None and body["last_active"] is None and machine.provider_id == instance.id:
        body["last_active"] = machine.last_active
    subject = instance.tags[TAG_ID] if machine is None else machine.id
    return _observed(subject, body, now, PROVIDER if instance.since else OWN)


def instance_observed_by_itself(machine: Machine, last_active: datetime, now: datetime) -> Draft:
    """Return the line that says when a machine was last in use by its own word; all else is as it was seen last."""
    body: bodies.InstanceObserved = {
        "provider_id": not_none(machine.provider_id),
        "state": machine.state,
        "billed": machine.billed,
        "since": machine.since,
        "launched_at": machine.launched_at,
        "address": record_of(machine.address),
        "reason": machine.state_reason,
        "expires": machine.expires,
        "renew_until": machine.renew_until,
        "hold_until": machine.hold_until,
        "last_active": iso(last_active),
    }
    return _observed(machine.id, body, now, OWN)


def _observed(subject: str, body: bodies.InstanceObserved, now: datetime, clock: str) -> Draft:
    return Draft("instance_observed", subject, body, now, f"seen:{digest(subject, iso(now), repr(body))}", clock)


def _address(address: Address) -> AddressRecord:
    return {"host": address.host, "port": address.port, "user": address.user}  # a tenth of what `asdict` takes


def address_now(machine: Machine, instance: Instance) -> MachineAddress | None:
    """Return where a machine answers by this word; one that goes on running keeps its address where that says none.

    Azure's listings tell no address: silence about it is not a word that the machine has lost it.
    """
    address = instance.address
    if address is not None:
        return MachineAddress(address.host, address.port, address.user)
    same = machine.provider_id == instance.id and machine.state == State.RUNNING
    return machine.address if same and instance.state is State.RUNNING else None


def instance_vanished(machine: str, provider_id: str, proof: str, now: datetime, last_seen: str | None = None) -> Draft:
    """Return the line that a machine is proved gone, and by what; some time after `last_seen`, None for just now."""
    body: bodies.InstanceVanished = {
        "provider_id": provider_id,
        "proof": proof,
        "alive_at": last_seen,
        "ended_at": None,
    }
    return Draft("instance_vanished", machine, body, now, f"gone:{machine}:{provider_id}:{iso(now)}")


def resources_retained(
    machine: Machine, entries: Sequence[Retained], now: datetime, last_seen: str | None = None
) -> Draft:
    """Return the line that says what stays of a machine without it; no entries: nothing does.

    `last_seen` is when what is missing now was last known to be there, where others have removed it.
    """
    body: bodies.ResourcesRetained = {"retained": [entry.record() for entry in entries]}
    if last_seen:
        body["alive_at"] = last_seen
    return Draft(
        "resources_retained", machine.id, body, now, f"retained:{machine.id}:{digest(iso(now), repr(entries))}"
    )


def price_observed(machine: str, price: Price, at: datetime, *, on_demand: Price | None = None, clock: str) -> Draft:
    """Return the line of one price of a machine, from `at` on by this clock."""
    body: bodies.PriceObserved = {"price": price_to_json(price)}
    return _priced(machine, body, at, on_demand, clock)


def price_changed(
    machine: str, price: Price, since: str | None, now: datetime, *, on_demand: Price | None = None
) -> Draft:
    """Return the line of a price that holds now; perhaps since `since`, None where it does from now on."""
    body: bodies.PriceObserved = {"price": price_to_json(price), "maybe_from": since}
    return _priced(machine, body, now, on_demand, OWN)


def _priced(machine: str, body: bodies.PriceObserved, at: datetime, on_demand: Price | None, clock: str) -> Draft:
    if on_demand is not None:
        body["on_demand"] = price_to_json(on_demand)
    # Its own date is part of what makes it one: of two that changed before the launch, the later one holds.
    return Draft("price_observed", machine, body, at, f"price:{machine}:{iso(at)}:{body['price']['as_of']}", clock)


def traffic_observed(
    machine: str,
    rate: RateRecord,
    now: datetime,
    *,
    stored_as: str,
    sent: int,
    counted: int,
    since: str,
    until: str,
    received: bodies.Received | None = None,
) -> Draft:
    """Return the line of the bytes that a machine sent from `since` to `until`; `counted` is all it ever counted.

    `received` is what it received meanwhile, where that costs.
    """
    said = {"bytes_out": sent, "since": since, "until": until, "counted": counted, "stored_as": stored_as, **rate}
    body = cast("bodies.TrafficObserved", said)
    if received is not None:
        body["received"] = received
    return Draft("traffic_observed", machine, body, now, f"traffic:{machine}:{counted}:{until}", MACHINE)


def terms_set(machine: str, terms: Terms, now: datetime) -> Draft:
    """Return the line of the policy and limits that a machine is under from now on."""
    body: bodies.TermsSet = {"terms": terms.record()}
    return Draft("terms_set", machine, body, now, f"terms:{machine}:{digest(repr(terms), iso(now))}")


def tag_time(tags: Mapping[str, str], key: str) -> str | None:
    """Return a tag's epoch seconds as a ledger time; a tag that is missing, `0` or no time says nothing."""
    text = tags.get(key, "")
    try:
        return iso(from_epoch(text)) if int(text or 0) else None
    except ValueError:
        return None


def _text(at: datetime | None) -> str | None:
    return None if at is None else iso(at)


# -- what is kept by name


def resource_observed(
    resource: ProviderResource, retained: Retained, identity: AccountIdentity, known: Machine | None, now: datetime
) -> Draft:
    """Return the line that says how a volume or an image is now, that is kept by name. `known` is its row.

    `retained` is what it costs. Whose it is stands in its tags, as far as they can carry it; a machine's line has the
    full text.
    """
    body: bodies.ResourceObserved = {
        **retained.record(),
        "name": resource.name or resource.id,
        "provider": resource.provider,
        "account": resource.account if known is None else known.account,
        "identity": identity.to_json(),
        "owner": resource.tags.get(TAG_OWNER, ""),
        "project": resource.tags.get(TAG_PROJECT, ""),
        "attached_to": resource.attached_to,
    }
    subject = subject_of(resource, identity)
    return Draft("resource_observed", subject, body, now, f"resource:{digest(subject, iso(now), repr(body))}")


def resource_vanished(
    machine: Machine,
    proof: str,
    now: datetime,
    *,
    last_seen: str | None = None,
    ended: str | None = None,
    who: RequestedBy,
) -> Draft:
    """Return the line that says that it is gone: since `ended`, or some time after `last_seen`."""
    body: bodies.ResourceVanished = {
        "id": not_none(machine.provider_id),
        "proof": proof,
        "alive_at": last_seen,
        "ended_at": ended,
        **who,
    }
    return Draft("resource_vanished", machine.id, body, now, f"gone:{machine.id}:{iso(now)}")


def subject_of(resource: ProviderResource, identity: AccountIdentity) -> str:
    """Return the subject of something that is kept by name in an account, whatever that is called here."""
    return f"resource:{identity.id}/{resource.id}"
