"""What a launch costs up to a moment, with attached costs, and the machine that its ledger entry makes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from cloudgpu.core.billing.charges import charge, money
from cloudgpu.core.billing.rates import Rate
from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.events.projection import machine_of
from cloudgpu.core.model.facts import AttachedCost
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import Note, NoteKind, Offer
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso

_MAY_COST_LESS = "it may cost less than its price says"


@dataclass(frozen=True, slots=True)
class AddedCost:
    """An attached cost of a launch, like a disk, per month; None: no price is known. `upper_bound`: it may cost less.

    `what` describes the resource to the user. `running`: it costs while the machine runs; `kept`: it costs while the
    machine is stopped or parked. `rate` is its price as it is billed. `named`: it is a volume that the user keeps by
    name, and is billed as that and not with the machine.
    """

    what: str
    per_month: Money | None
    kept: bool
    source: str
    upper_bound: bool = False
    running: bool = True
    rate: Rate | None = None
    named: bool = False


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run costs: from `low` to `amount`, mostly the same; `machine` is the machine's part of `amount`.

    `reasons` say why it is a range. `unpriced` names what has no known price, and is in no amount.
    """

    amount: Money
    low: Money
    machine: Money
    reasons: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()

    def times(self, number: int) -> RunCost:
        """Return what so many such machines cost, each billed by itself."""
        if number == 1:
            return self
        amount, low, machine = (Money(part.nanos * number) for part in (self.amount, self.low, self.machine))
        return replace(self, amount=amount, low=low, machine=machine)


def cost_between(
    offer: Offer, added_costs: Iterable[AddedCost], begin: datetime, end: datetime, licence: str = ""
) -> RunCost:
    """Return what the machine of an offer costs from `begin` to `end`, at its price of now, with attached costs.

    By the rules of the bill (`core.billing`), in the more expensive reading where they have two. What is kept goes on
    costing after `end`, and that is not in it. `licence` is the operating system's, where that has a rule of billing of
    its own (`rhel`, `suse`; empty: it has none).
    """
    machine_charge = charge(_machine_usage(offer, begin, licence), end)
    attached_charges = [(extra, charge(_attached_usage(offer, extra, begin), end)) for extra in added_costs]
    charges = [machine_charge, *(attached_charge for _, attached_charge in attached_charges)]
    unpriced = tuple(extra.what for extra, attached_charge in attached_charges if attached_charge.unpriced_us)
    reasons = tuple(reason for each_charge in charges if each_charge.high for reason in each_charge.reasons)
    return RunCost(
        amount=money(sum(each_charge.high for each_charge in charges)),
        low=money(sum(each_charge.low for each_charge in charges)),
        machine=money(machine_charge.high),
        reasons=tuple(dict.fromkeys(reasons)),
        unpriced=unpriced,
    )


def costs_while_running(added_costs: Iterable[AddedCost], *, volume_there: bool) -> Iterator[AddedCost]:
    """Yield the costs that a launch adds while its machine runs: no image of a later stop, no existing volume."""
    return (extra for extra in added_costs if extra.running and not (extra.named and volume_there))


def _machine_usage(offer: Offer, begin: datetime, licence: str) -> Usage:
    configuration, price, begin_text = offer.configuration, offer.price, iso(begin)
    price_interval = PriceInterval(begin_text, price.per_hour.nanos, price.source, iso(price.as_of), str(price.basis))
    return Usage(
        resource=Resource.INSTANCE,
        id="",
        what=configuration.instance_type,
        provider=configuration.provider,
        market=str(configuration.market),
        kind=configuration.instance_type,
        quantity=1,
        per=Per.HOUR,
        begin=begin_text,
        end=None,
        segments=(price_interval,),
        licence=licence,
    )


def _attached_usage(offer: Offer, extra: AddedCost, begin: datetime) -> Usage:
    """Return an attached cost as a usage; one with only a monthly price is billed like a disk."""
    configuration, rate, begin_text = offer.configuration, extra.rate, iso(begin)
    price = rate.price if rate else extra.per_month
    why = (rate.why_maybe_less if rate else "") or _MAY_COST_LESS * extra.upper_bound
    price_intervals = () if price is None else (PriceInterval(begin_text, price.nanos, extra.source, None, ""),)
    return Usage(
        resource=rate.resource if rate else Resource.DISK,
        id="",
        what=extra.what,
        provider=configuration.provider,
        market=str(configuration.market),
        kind=rate.stored_as if rate else "",
        quantity=rate.quantity if rate else 1,
        per=rate.per if rate else Per.MONTH,
        begin=begin_text,
        end=None,
        segments=price_intervals,
        why_maybe_less=why,
    )


def attached_cost_of(extra: AddedCost) -> AttachedCost:
    """Return an attached cost as the ledger records it."""
    entry = AttachedCost(
        what=extra.what,
        nanos_per_month=None if extra.per_month is None else extra.per_month.nanos,
        at_most=extra.upper_bound,
        running=extra.running,
        kept=extra.kept,
        named=extra.named,
    )
    rate = extra.rate
    if rate is None:
        return entry
    return entry._replace(
        resource=str(rate.resource), stored_as=rate.stored_as, quantity=rate.quantity, **rate.record()
    )


def traffic_remarks(offer: Offer) -> Iterator[str]:
    """Yield what the bytes cost that the machine of an offer sends and receives, where that has prices of its own."""
    price = offer.configuration.traffic
    if price is not None:
        yield Note(
            f"traffic costs, too: {price.into.text(4)} for each GB it receives, {price.out.text(4)} for each it sends",
            NoteKind.MONEY,
        )


def machine_of_launch(draft: Draft, predecessor: Machine | None = None) -> Machine:
    """Return the machine that a launch's ledger entry makes, with what is retained of its `predecessor`."""
    occurred_at = iso(draft.occurred_at)
    event = Event(1, occurred_at, draft.clock, occurred_at, "", draft.kind, draft.subject, draft.dedupe, "", draft.body)
    return not_none(machine_of([event]))._replace(retained=predecessor.retained if predecessor else ())


def as_running(machine: Machine, renew_until: datetime) -> Machine:
    """Return a machine as it will be once it runs under this renew-until."""
    return machine._replace(renew_until=iso(renew_until), state="running", billed=True, pending_action="start")
