"""Writes down what machines cost at the time when it held: spot prices from the provider's history, others as asked.

A machine of one's own costs what its GPUs really drew, as the samples of its agent tell that, from now on alone: what
it has cost stays as it was counted. What nobody measured is not zero, and changes no price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from cloudgpu.config.policies.find import is_from
from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.core.activity.utilization import mean_draw
from cloudgpu.core.billing.discounts import agreed_price
from cloudgpu.core.events.log import OWN_CLOCK, Draft
from cloudgpu.core.events.observations import Priced, is_to_price, price_observed, spot_price_events
from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.machine import Machine, scope_of_row
from cloudgpu.core.model.offers import Accelerator, Available, Basis, Market, Offer, Price
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.last_seen import prices_queried_at
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.providers.abilities import HasMeteredPrice, HasPriceHistory
from cloudgpu.providers.attached_costs import discounted_prices

HISTORY_KEPT_FOR = timedelta(days=90)  # EC2 API Reference, DescribeSpotPriceHistory: up to the last 90 days


NO_PRICES = Priced()
_BY_SETTINGS = (Basis.SETTING, Basis.ASSUMED)


def available(machine: Machine, market: Market | None = None) -> Available:
    """Return what a machine was launched from, for a question about its price; on `market` where that is given."""
    gpus = tuple(Accelerator(*gpu) for gpu in machine.accelerators or ())
    location = (machine.provider, machine.account, machine.region, machine.zone or "", machine.instance_type or "")
    return Available(*location, market or Market(machine.market), gpus, machine=machine.provider_id)


def item_of(instance: Instance) -> Available:
    """Return what a machine that the provider shows was launched from."""
    location = (instance.provider, instance.account, instance.region, instance.zone, instance.instance_type)
    return Available(*location, instance.market, instance.accelerators, machine=instance.id)


def on_demand_of(session: Session, offer: Offer, others: Sequence[Offer] = ()) -> Price | None:
    """Return what the same machine costs on demand in its region: by `others`, the provider or the list; None unknown.

    An error of this query does not stop a launch.
    """
    item = offer.available
    if item.market is Market.ON_DEMAND:
        return offer.price
    for other in others:
        there = other.available
        if (there.market, there.instance_type, there.region) == (Market.ON_DEMAND, item.instance_type, item.region):
            return other.price
    return list_price(session, replace(item, market=Market.ON_DEMAND))


def list_price(session: Session, item: Available) -> Price | None:
    """Return an item's price from its provider, else from the dated list; None where neither has one."""
    now = session.clock()
    try:
        (price,) = discounted_prices(session.provider(item.account), [item], session.settings.discounts, now)
    except CloudgpuError:
        price = None
    return price or _discounted(session, item, _listed_price(item), now)


def _listed_price(item: Available) -> Price | None:
    """Return what an item costs by the dated list; None where that does not have it."""
    from cloudgpu.catalog import listed_price

    with suppress(CloudgpuError):
        return listed_price(item.provider, item.instance_type, item.region, item.market)
    return None


def _discounted(session: Session, item: Available, price: Price | None, at: datetime) -> Price | None:
    """Return what this user pays at that price: less, where config.toml says what was agreed on."""
    return agreed_price(session.settings.discounts, item, price, at)


@dataclass(frozen=True, slots=True)
class PricesDue:
    """Machines of all accounts whose prices may be queried now; and when they were last queried, by scope."""

    rows: Sequence[Machine] = ()
    before: Mapping[str, str | None] = field(default_factory=dict)

    def may_be_of(self, kind: str) -> bool:
        """Say whether an account of this kind of provider may have one of them."""
        return any(machine.provider == kind for machine in self.rows)

    def of(self, scope: AccountScope) -> tuple[str | None, list[Machine]]:
        """Return when this account's prices were last asked for, and those of its machines that are to be asked now.

        Its machines are those of its identity, whatever it is called where they were launched.
        """
        own = scope.own(self.rows)
        machines = [
            machine
            for machine in own
            if machine.terminated_at is None or machine.terminated_at >= (self._queried_at(machine) or "")
        ]
        queried_before = {self._queried_at(machine) for machine in machines}
        return (None if None in queried_before else min(filter(None, queried_before), default=None)), machines

    def _queried_at(self, machine: Machine) -> str | None:
        return self.before[scope_of_row(machine)]


def machines_to_price(session: Session, machines: Sequence[Machine]) -> PricesDue:
    """Return those of these machines whose prices may be queried now.

    Those are what is billed now, and spot machines that ended since the last time: what they cost to their end is not
    written yet, whatever process died over it.
    """
    earliest = iso(session.clock() - HISTORY_KEPT_FOR)
    due = [
        machine
        for machine in machines
        if machine.instance_type and machine.provider_id and is_to_price(machine, earliest)
    ]
    accounts = {scope_of_row(machine): machine for machine in due}
    return PricesDue(due, {scope: prices_queried_at(session.ledger, machine) for scope, machine in accounts.items()})


def ask(session: Session, account: str, since: str | None, machines: Sequence[Machine]) -> Priced:
    """Ask what these machines cost; spot machines with their history, by as few calls as the provider needs.

    Writes nothing, so that it can run beside other questions. On-demand prices of clouds are read from the dated list.
    """
    try:
        has_history = isinstance(session.provider(account), HasPriceHistory) if machines else False
        spot = [machine for machine in machines if has_history and machine.market == Market.SPOT]
        others = [
            machine
            for machine in machines
            if machine.terminated_at is None and not (has_history and machine.market == Market.SPOT)
        ]
        history, now = _history(session, account, spot), _current_prices(session, account, others)
        metered = _metered(session, account, others, now)
        return Priced(since, history, counting(session, others, now), metered=counting(session, others, metered))
    except CloudgpuError as error:
        return Priced(since, gap=error.message)


def _history(session: Session, account: str, machines: Sequence[Machine]) -> dict[str, Sequence[Price]]:
    if not machines:
        return {}
    items = [_item_in_account(machine, account) for machine in machines]
    found = history_of(session, account, items, min(map(_price_known_until, machines)))
    return {machine.id: prices for machine, prices in zip(machines, found, strict=True)}


def history_of(
    session: Session, account: str, items: Sequence[Available], since: datetime
) -> Sequence[Sequence[Price]]:
    """Return what each of these spot machines cost this user since then, as `HasPriceHistory` says; nothing elsewhere.

    Raises what the provider raises.
    """
    provider = session.provider(account)
    if not isinstance(provider, HasPriceHistory):
        return [() for _ in items]
    found = zip(items, provider.price_history(items, since), strict=True)
    return [[_discounted(session, item, price, price.as_of) or price for price in prices] for item, prices in found]


def _item_in_account(machine: Machine, account: str) -> Available:
    """Return what a machine was launched from, under the name that its account has here."""
    return replace(available(machine), account=account)


def _price_known_until(machine: Machine) -> datetime:
    """Return from when on it is not known what the machine cost."""
    return from_iso(machine.price.as_of if machine.price else machine.intended_at)


def _current_prices(session: Session, account: str, machines: Sequence[Machine]) -> dict[str, Price]:
    """Return what machines cost now; the clouds' on-demand prices by the list, which costs no call."""
    from cloudgpu.catalog.rules import PROVIDERS

    listed = [machine for machine in machines if machine.provider in PROVIDERS and machine.market == Market.ON_DEMAND]
    found = _list_prices(session, account, listed)
    to_query = [machine for machine in machines if machine.id not in found]
    if to_query:
        items = [_item_in_account(machine, account) for machine in to_query]
        prices = discounted_prices(session.provider(account), items, session.settings.discounts, session.clock())
        found |= zip([machine.id for machine in to_query], prices, strict=True)
    return {machine: price for machine, price in found.items() if price is not None}


def _list_prices(session: Session, account: str, machines: Sequence[Machine]) -> dict[str, Price | None]:
    """Return what machines cost on demand by the list, which is asked once for all that are alike."""
    now, prices, found = session.clock(), dict[tuple[str | None, ...], Price | None](), dict[str, Price | None]()
    for machine in machines:
        price_key = machine.provider, machine.region, machine.instance_type
        if price_key not in prices:
            item = _item_in_account(machine, account)
            prices[price_key] = _discounted(session, item, _listed_price(item), now)
        found[machine.id] = prices[price_key]
    return found


def counting(session: Session, machines: Sequence[Machine], prices: Mapping[str, Price]) -> dict[str, Price]:
    """Return those of these prices that count from here: a price by settings does from the home of the launch alone.

    Two homes may say different things of one host or one account: its price would be whose sync came last.
    """
    if not prices:
        return {}
    home = session.home_terms
    return {
        machine.id: prices[machine.id]
        for machine in machines
        if machine.id in prices
        and (machine.terms is None or is_from(home, machine) or not _is_by_settings(machine, prices[machine.id]))
    }


def _is_by_settings(machine: Machine, price: Price) -> bool:
    """Say whether settings make a price or the one in force.

    A meter's price is by a tariff of the settings: it may replace what was only assumed.
    """
    last = None if machine.price is None else machine.price.basis
    if price.basis is Basis.MEASURED:
        return last in (Basis.SETTING, Basis.MEASURED)
    return price.basis in _BY_SETTINGS or last in _BY_SETTINGS


def _metered(session: Session, account: str, machines: Sequence[Machine], now: Mapping[str, Price]) -> dict[str, Price]:
    """Return the prices by a meter that are news of these machines, where the account's machines have one."""
    if not machines or not isinstance(provider := session.provider(account), HasMeteredPrice):
        return {}

    found = {row.id: metered_price(session, provider, row, _item_in_account(row, account), now) for row in machines}
    return {machine: price for machine, price in found.items() if price is not None}


def start_price_events(session: Session, machine: Machine, price: Price, now: datetime) -> list[Draft]:
    """Return the line of the price of a start, where it is not the one of the launch any more."""
    if machine.price and price.per_hour.nanos == machine.price.nanos_per_hour:
        return []
    on_demand = (
        price if machine.market == Market.ON_DEMAND else list_price(session, available(machine, Market.ON_DEMAND))
    )
    return [price_observed(machine.id, price, now, on_demand=on_demand, clock=OWN_CLOCK)]


def own_price_events(session: Session, machine: Machine | None, instance: Instance, now: datetime) -> list[Draft]:
    """Return the line of what a new machine costs by its own word, where its plan said otherwise.

    It holds since the launch was written down: the plan's price never did. None once a price was read again.
    """
    if machine is None or instance.per_hour is None:
        return []
    if machine.price is not None and machine.price.as_of > machine.intended_at:
        return []
    asked_price = Price(instance.per_hour, f"{machine.provider}'s own word of this machine", now, Basis.ASKED)
    price = agreed_price(session.settings.discounts, item_of(instance), asked_price, now)
    return [] if price is None else start_price_events(session, machine, price, from_iso(machine.intended_at))


def record_spot_cost(session: Session, machine: Machine) -> None:
    """Write what a spot machine cost up to now, when it has just ended or stopped. What fails is left to a sync."""
    if machine.market != Market.SPOT or not machine.provider_id or not machine.instance_type:
        return
    with suppress(CloudgpuError):
        found = ask(session, session.account_here(machine), None, [machine])
        drafts = spot_price_events(machine, found.history.get(machine.id, ()))
        session.ledger.append(drafts)


MIN_MEASURED = timedelta(hours=1)  # measured in this run, and between two prices of one machine by its meter
LOOK_BACK = timedelta(days=7)  # of a run: what it did before says less of what it will draw
MIN_CHANGE = Fraction(1, 10)  # of the price in force: what moved by no more is no line in the ledger


def metered_price(
    session: Session, provider: HasMeteredPrice, machine: Machine, item: Available, metered: Mapping[str, Price]
) -> Price | None:
    """Return the price that replaces the machine's own from now on; None where that one stays.

    `metered` are prices by the settings, by the machine's id: an assumed one may be measured, a set one never is.
    """
    last, settings_price, now = machine.price, metered.get(machine.id), session.clock()
    if last is None or settings_price is None:
        return None
    was_metered = last.basis == Basis.MEASURED
    if settings_price.basis is not Basis.ASSUMED:
        return settings_price if was_metered and settings_price.basis is Basis.SETTING else None
    if was_metered and now - from_iso(last.as_of) < MIN_MEASURED:
        return None
    draw = _mean_draw(session, machine, now)
    price = draw and agreed_price(session.settings.discounts, item, provider.metered_price(item, *draw), now)
    return price if price and _has_moved(last.nanos_per_hour, price.per_hour.nanos) else None


def _mean_draw(session: Session, machine: Machine, now: datetime) -> tuple[Decimal, timedelta] | None:
    """Return the mean of watts in the machine's run, and for how long it was measured; None for too short a time."""
    if machine.state != State.RUNNING or machine.since is None:
        return None
    begin, end = max(from_iso(machine.since), now - LOOK_BACK).timestamp(), now.timestamp()
    mean = mean_draw(SampleStore(session.home.samples, machine.id).utilization(begin, end), begin, end)
    if mean is None or mean[1] < MIN_MEASURED.total_seconds():
        return None
    return Decimal(round(mean[0])), timedelta(minutes=mean[1] // 60)


def _has_moved(before: int, after: int) -> bool:
    return abs(after - before) > before * MIN_CHANGE
