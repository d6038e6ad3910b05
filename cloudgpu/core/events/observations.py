"""Compares what a provider reports of a machine with the ledger's record, and makes the ledger lines of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

from cloudgpu.core.events import bodies
from cloudgpu.core.events.bodies import RequestedBy
from cloudgpu.core.events.log import MACHINE, OWN_CLOCK, PROVIDER, Draft
from cloudgpu.core.model.facts import MachineAddress, Retained, Terms, record_of
from cloudgpu.core.model.identity import AccountIdentity, Unanswered
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
from cloudgpu.core.model.offers import Basis, Market, Price, price_to_json
from cloudgpu.core.model.records import AddressRecord, RateRecord
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.values.naming import digest
from cloudgpu.core.values.times import from_epoch, from_iso, iso


def instance_observed(
    instance: Instance,
    now: datetime,
    *,
    machine: Machine | None = None,
    before: bodies.BeforeTheEnd | None = None,
    resized: bodies.Resized | None = None,
) -> Draft:
    """Return the line that says how the provider reports this machine now.

    `before` says, for an end, when the machine was last seen to exist and to be billed. `resized` is its new type if
    that has changed. `machine` is its record: the line is about that one even if its tags were removed, and keeps its
    last activity if the provider reports none.
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
    return _observed(subject, body, now, PROVIDER if instance.since else OWN_CLOCK)


def instance_observed_by_itself(machine: Machine, last_active: datetime, now: datetime) -> Draft:
    """Return the line of the last activity that a machine itself reported; all else is as it was seen last."""
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
    return _observed(machine.id, body, now, OWN_CLOCK)


def _observed(subject: str, body: bodies.InstanceObserved, now: datetime, clock: str) -> Draft:
    return Draft("instance_observed", subject, body, now, f"seen:{digest(subject, iso(now), repr(body))}", clock)


def _address(address: Address) -> AddressRecord:
    return {"host": address.host, "port": address.port, "user": address.user}  # ten times as fast as `asdict`


def address_now(machine: Machine, instance: Instance) -> MachineAddress | None:
    """Return the reported address of a machine; without one, the known address if it has kept running.

    Azure's listings have no addresses: a missing one does not mean that the machine has lost it.
    """
    address = instance.address
    if address is not None:
        return MachineAddress(address.host, address.port, address.user)
    same = machine.provider_id == instance.id and machine.state == State.RUNNING
    return machine.address if same and instance.state is State.RUNNING else None


def instance_vanished(machine: str, provider_id: str, proof: str, now: datetime, last_seen: str | None = None) -> Draft:
    """Return the line that a machine's end is confirmed by `proof`: some time after `last_seen`, None for just now."""
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
    """Return the line of a machine's retained resources; no entries: there are none.

    `last_seen` is when a resource that others have removed was last known to exist.
    """
    body: bodies.ResourcesRetained = {"retained": [entry.record() for entry in entries]}
    if last_seen:
        body["alive_at"] = last_seen
    return Draft(
        "resources_retained", machine.id, body, now, f"retained:{machine.id}:{digest(iso(now), repr(entries))}"
    )


def price_observed(machine: str, price: Price, at: datetime, *, on_demand: Price | None = None, clock: str) -> Draft:
    """Return the line of one price of a machine, from `at` on by this clock."""
    return _priced(machine, bodies.PriceObserved(price=price_to_json(price)), at, on_demand, clock)


def _priced(machine: str, body: bodies.PriceObserved, at: datetime, on_demand: Price | None, clock: str) -> Draft:
    if on_demand is not None:
        body["on_demand"] = price_to_json(on_demand)
    # The date of the price is part of the dedupe text, as two prices may have changed before the launch.
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
    received: bodies.ReceivedTraffic | None = None,
) -> Draft:
    """Return the line of the bytes that a machine sent from `since` to `until`; `counted` is all it ever counted.

    `stored_as` is the catalogue's name of what is billed, as for a disk. `received` is what it received meanwhile,
    where that costs.
    """
    fields = {"bytes_out": sent, "since": since, "until": until, "counted": counted, "stored_as": stored_as, **rate}
    body = cast("bodies.TrafficObserved", fields)
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


# -- named resources


def resource_observed(
    resource: ProviderResource, retained: Retained, identity: AccountIdentity, machine: Machine | None, now: datetime
) -> Draft:
    """Return the line of the present state of a named volume or image.

    `retained` is what it costs, `machine` its record if the ledger has one. Owner and project are read from its tags,
    which may be shortened; the line of a machine has the full text.
    """
    body: bodies.ResourceObserved = {
        **retained.record(),
        "name": resource.name or resource.id,
        "provider": resource.provider,
        "account": resource.account if machine is None else machine.account,
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
    """Return the line that a named resource (`machine` is its record) is gone: at `ended`, or after `last_seen`."""
    body: bodies.ResourceVanished = {
        "id": not_none(machine.provider_id),
        "proof": proof,
        "alive_at": last_seen,
        "ended_at": ended,
        **who,
    }
    return Draft("resource_vanished", machine.id, body, now, f"gone:{machine.id}:{iso(now)}")


def subject_of(resource: ProviderResource, identity: AccountIdentity) -> str:
    """Return the ledger's subject of a named resource, by the provider's id of its account."""
    return f"resource:{identity.id}/{resource.id}"


ACTIVITY_INTERVAL = timedelta(minutes=15)  # between two recorded times at which a machine was last active
_TAG_OF_LEASE_FIELD = {"expires": TAG_EXPIRES, "renew_until": TAG_RENEW_UNTIL, "hold_until": TAG_HOLD_UNTIL}


def not_before(machine: Machine, now: datetime) -> datetime:
    """Return `now`, or the time of the machine's last entry if this clock is behind it.

    Entries are applied in the order of their times: one from a clock that was set back would come before the launch.
    """
    return max([now, *(from_iso(at) for at in (machine.intended_at, machine.seen_at) if at)])


def is_too_recent(machine: Machine, proves_after: timedelta, now: datetime) -> bool:
    """Say whether a machine is so young that its absence from an answer proves nothing."""
    return bool(now - from_iso(machine.intended_at) < proves_after)


def differs_from_record(machine: Machine, instance: Instance) -> bool:
    """Return whether the provider's report differs from the record: a sync writes no event without a change.

    Times are compared as times: formatting thousands of them takes longer than all the rest.
    """
    known = (machine.provider_id, machine.state, machine.billed, machine.state_reason)
    if (
        known != (instance.id, str(instance.state), instance.billed, instance.reason)
        or is_resized(machine, instance)
        or machine.address != address_now(machine, instance)
        or _time(machine.since) != instance.since
        or is_later_activity(_time(machine.last_active), instance.last_active)
    ):
        return True
    if machine.guards is not None and not machine.guards.tagged:
        return False  # tags are never updated there: later leases and holds are not in them
    return any(_tag_differs(getattr(machine, name), instance.tags, key) for name, key in _TAG_OF_LEASE_FIELD.items())


def is_resized(machine: Machine, instance: Instance) -> bool:
    """Say whether a machine is of another type, or on another market, than recorded; not while it ends."""
    ends = instance.state in (State.STOPPING, State.TERMINATED, State.UNKNOWN)
    if ends or not machine.instance_type or not instance.instance_type:
        return False
    same = machine.instance_type.lower() == instance.instance_type.lower() and machine.market == instance.market
    return machine.provider_id == instance.id and not same


def _time(text: str | None) -> datetime | None:
    return from_iso(text) if text is not None else None


def is_later_activity(known: datetime | None, time: datetime | None) -> bool:
    """Return whether a machine's last activity is later than recorded by ACTIVITY_INTERVAL, or was not recorded."""
    if time is None or known is None:
        return time is not None
    return time - known >= ACTIVITY_INTERVAL


def _tag_differs(known: str | None, tags: Mapping[str, str], key: str) -> bool:
    """Return whether a tag has another time than recorded; a missing or empty one has not."""
    text = tags.get(key, "")
    if not text or (known is not None and text.isdecimal() and from_iso(known).timestamp() == int(text)):
        return False
    tagged = tag_time(tags, key)
    return tagged is not None and tagged != known


@dataclass(frozen=True, slots=True)
class AccountPrices:
    """What an account answered about prices, by machine id: spot prices (`history`, oldest first) and those of `now`.

    `since` is when it was last queried, None for never; `why_unanswered` is why it did not answer now, empty if it did.
    `metered` are electricity prices from now on, measured by a machine or assumed by settings, which replace the
    present ones.
    """

    since: str | None = None
    history: Mapping[str, Sequence[Price]] = field(default_factory=dict)
    now: Mapping[str, Price] = field(default_factory=dict)
    why_unanswered: str = ""
    metered: Mapping[str, Price] = field(default_factory=dict)


def price_lines(priced: AccountPrices, machines: Sequence[Machine], now: datetime) -> list[Draft]:
    """Return the lines of the prices of these machines that have changed."""
    drafts: list[Draft] = []
    for machine in machines:
        drafts += spot_price_events(machine, priced.history.get(machine.id, ()))
        price, metered = priced.now.get(machine.id), priced.metered.get(machine.id)
        if metered is not None:
            drafts.append(_price_change_line(machine, metered, None, now))
        elif price is not None and _price_differs(machine, price):
            drafts.append(
                _price_change_line(machine, price, max(filter(None, (priced.since, machine.intended_at))), now)
            )
    return drafts


def spot_price_events(machine: Machine, history: Sequence[Price]) -> list[Draft]:
    """Return a line for each price that a spot machine has had since the last one that is recorded, until its end."""
    last, drafts = machine.price, []
    nanos, known = (last.nanos_per_hour, last.as_of) if last else (None, "")
    for price in history:
        at = max(iso(price.as_of), machine.intended_at)
        if (
            iso(price.as_of) <= known
            or price.per_hour.nanos == nanos
            or (machine.terminated_at and at > machine.terminated_at)
        ):
            continue
        nanos = price.per_hour.nanos
        drafts.append(price_observed(machine.id, price, from_iso(at), clock=PROVIDER))
    return drafts


def _price_differs(machine: Machine, price: Price) -> bool:
    """Return whether a queried price differs from the recorded one; a measured one changes all the time: False."""
    last = machine.price
    if last is None:
        return True
    if Basis.MEASURED in (last.basis, price.basis):
        return False
    if iso(price.as_of) < last.as_of and bool(last.is_negotiated) == price.is_negotiated:
        return False  # an older list does not replace the price of the launch, unless a discount begins or ends
    return bool(price.per_hour.nanos != last.nanos_per_hour)


def _price_change_line(machine: Machine, price: Price, since: str | None, now: datetime) -> Draft:
    """Return the line of a price that holds now; perhaps since `since`, None where it does from now on."""
    body: bodies.PriceObserved = {"price": price_to_json(price), "maybe_from": since}
    return _priced(machine.id, body, now, price if machine.market == Market.ON_DEMAND else None, OWN_CLOCK)


def needs_prices(machine: Machine, earliest: str) -> bool:
    """Say whether prices of a machine may be asked: it is billed, or on spot and has not ended before `earliest`."""
    if machine.terminated_at is None:
        return bool(machine.billed)
    return bool(machine.market == Market.SPOT and machine.terminated_at >= earliest)


def one_per_machine(
    instances: Sequence[Instance], machines: Mapping[str, Machine]
) -> tuple[list[Instance], list[Unanswered]]:
    """Return one instance per id of a machine: preferably one that exists, and that the ledger has recorded.

    The second list has an `Unanswered` for each further instance that exists under the same id; its scope is that id.
    """

    def preference(instance: Instance) -> tuple[bool, bool]:
        record = machines.get(instance.tags[TAG_ID])
        return instance.state is State.TERMINATED, record is not None and record.provider_id != instance.id

    chosen, duplicates = dict[str, Instance](), list[Unanswered]()
    for instance in sorted(instances, key=preference):
        machine = instance.tags[TAG_ID]
        if machine in chosen and instance.state is not State.TERMINATED:
            instance_ids = f"{chosen[machine].id} and {instance.id}"
            why = f"it has two living machines, {instance_ids}, and cloudgpu manages only the first"
            duplicates.append(Unanswered(machine, why))
        chosen.setdefault(machine, instance)
    return list(chosen.values()), duplicates
