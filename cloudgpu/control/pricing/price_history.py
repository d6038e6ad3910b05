"""Records what machines cost over time: spot prices from the provider's history, others as they are when queried.

An on-premises machine costs the power that its GPUs really drew, by the samples of its agent. That changes its price
from now on: what it has cost so far stays. What nobody measured is not zero, and changes no price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from cloudgpu.config.policies.find import is_launched_by
from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.core.activity.utilization import mean_draw
from cloudgpu.core.billing.discounts import effective_price
from cloudgpu.core.events.log import OWN_CLOCK, Draft
from cloudgpu.core.events.observations import AccountPrices, needs_prices, price_observed, spot_price_events
from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.machine import Machine, sync_subject_of
from cloudgpu.core.model.offers import Accelerator, Basis, MachineConfiguration, Market, Offer, Price
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.last_seen import prices_queried_at
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.providers.abilities import HasMeteredPrice, HasPriceHistory
from cloudgpu.providers.attached_costs import discounted_prices

HISTORY_KEPT_FOR = timedelta(days=90)  # EC2 API Reference, DescribeSpotPriceHistory: up to the last 90 days


NO_PRICES = AccountPrices()
_BY_SETTINGS = (Basis.SETTING, Basis.ASSUMED)  # bases of prices that come from a home's settings


def configuration_of(machine: Machine, market: Market | None = None) -> MachineConfiguration:
    """Return a launched machine as an offer without its price, to query that; on `market` where that is given."""
    gpus = tuple(Accelerator(*gpu) for gpu in machine.accelerators or ())
    location = (machine.provider, machine.account, machine.region, machine.zone or "", machine.instance_type or "")
    return MachineConfiguration(*location, market or Market(machine.market), gpus, machine=machine.provider_id)


def configuration_of_instance(instance: Instance) -> MachineConfiguration:
    """Return a machine, as its provider lists it, as an offer without its price, to query that."""
    location = (instance.provider, instance.account, instance.region, instance.zone, instance.instance_type)
    return MachineConfiguration(*location, instance.market, instance.accelerators, machine=instance.id)


def on_demand_of(session: Session, offer: Offer, other_offers: Sequence[Offer] = ()) -> Price | None:
    """Return what the same machine costs on demand in its account and region; None where that is not known.

    Looks in the `other_offers`, then asks the provider, then reads the dated list. An error of the provider
    does not stop a launch.
    """
    configuration = offer.configuration
    if configuration.market is Market.ON_DEMAND:
        return offer.price
    wanted = (Market.ON_DEMAND, configuration.account, configuration.instance_type, configuration.region)
    for other in other_offers:
        found = other.configuration
        if (found.market, found.account, found.instance_type, found.region) == wanted:
            return other.price
    return list_price(session, replace(configuration, market=Market.ON_DEMAND))


def list_price(session: Session, configuration: MachineConfiguration) -> Price | None:
    """Return the price of an offer from its provider, else from the dated list; None where neither has one."""
    now = session.clock()
    price = None
    with suppress(CloudgpuError):
        (price,) = discounted_prices(
            session.provider(configuration.account), [configuration], session.settings.discounts, now
        )
    return price or effective_price(session.settings.discounts, configuration, _listed_price(configuration), now)


def _listed_price(configuration: MachineConfiguration) -> Price | None:
    """Return what an offer costs by the dated list; None where that does not have it."""
    from cloudgpu.catalog import listed_price

    with suppress(CloudgpuError):
        return listed_price(
            configuration.provider, configuration.instance_type, configuration.region, configuration.market
        )
    return None


@dataclass(frozen=True, slots=True)
class PricesDue:
    """Machines of all accounts whose prices may be queried now; and when they were last queried, by scope."""

    machines: Sequence[Machine] = ()
    queried_at: Mapping[str, str | None] = field(default_factory=dict)

    def may_concern(self, kind: str) -> bool:
        """Say whether an account of this kind of provider may have one of them."""
        return any(machine.provider == kind for machine in self.machines)

    def due_in(self, scope: AccountScope) -> tuple[str | None, list[Machine]]:
        """Return when this account's prices were last queried, and which of its machines are due now.

        Its machines are those of its identity, whatever it is called where they were launched.
        """
        machines = [
            machine
            for machine in scope.select(self.machines)
            if machine.terminated_at is None or machine.terminated_at >= (self._queried_at(machine) or "")
        ]
        query_times = {self._queried_at(machine) for machine in machines}
        return (None if None in query_times else min(filter(None, query_times), default=None)), machines

    def _queried_at(self, machine: Machine) -> str | None:
        return self.queried_at[sync_subject_of(machine)]


def machines_to_price(session: Session, machines: Sequence[Machine]) -> PricesDue:
    """Return those of these machines whose prices may be queried now.

    Those are the machines that are billed now, and spot machines that ended since the last query: what they cost up to
    their end is not recorded yet.
    """
    earliest = iso(session.clock() - HISTORY_KEPT_FOR)
    due_machines = [
        machine
        for machine in machines
        if machine.instance_type and machine.provider_id and needs_prices(machine, earliest)
    ]
    accounts = {sync_subject_of(machine): machine for machine in due_machines}
    return PricesDue(
        due_machines, {scope: prices_queried_at(session.ledger, machine) for scope, machine in accounts.items()}
    )


def query_prices(session: Session, account: str, since: str | None, machines: Sequence[Machine]) -> AccountPrices:
    """Query what these machines cost; spot machines with their history, by as few calls as the provider needs.

    Writes nothing, so that it can run in parallel. On-demand prices of clouds are read from the dated list.
    """
    try:
        has_history = bool(machines) and isinstance(session.provider(account), HasPriceHistory)
        spot_machines = [machine for machine in machines if has_history and machine.market == Market.SPOT]
        other_machines = [
            machine
            for machine in machines
            if machine.terminated_at is None and not (has_history and machine.market == Market.SPOT)
        ]
        history, current = (
            _spot_histories(session, account, spot_machines),
            _current_prices(session, account, other_machines),
        )
        metered = _metered_prices(session, account, other_machines, current)
        return AccountPrices(
            since,
            history,
            prices_in_effect(session, other_machines, current),
            metered=prices_in_effect(session, other_machines, metered),
        )
    except CloudgpuError as error:
        return AccountPrices(since, why_unanswered=error.message)


def _spot_histories(session: Session, account: str, machines: Sequence[Machine]) -> dict[str, Sequence[Price]]:
    """Return the price history of each spot machine, by id, since its last recorded price."""
    if not machines:
        return {}
    configurations = [_configuration_in_account(machine, account) for machine in machines]
    known_until = min(machine.price.as_of if machine.price else machine.intended_at for machine in machines)
    histories = spot_price_history(session, account, configurations, from_iso(known_until))
    return {machine.id: prices for machine, prices in zip(machines, histories, strict=True)}


def spot_price_history(
    session: Session, account: str, configurations: Sequence[MachineConfiguration], since: datetime
) -> Sequence[Sequence[Price]]:
    """Return the price history of each of these spot machines since then; empty where the provider has none.

    Raises what the provider raises.
    """
    provider = session.provider(account)
    if not isinstance(provider, HasPriceHistory):
        return [() for _ in configurations]
    histories = zip(configurations, provider.price_history(configurations, since), strict=True)
    return [
        [effective_price(session.settings.discounts, configuration, price, price.as_of) or price for price in prices]
        for configuration, prices in histories
    ]


def _configuration_in_account(machine: Machine, account: str) -> MachineConfiguration:
    """Return a machine as an offer without its price, under the name that its account has here."""
    return replace(configuration_of(machine), account=account)


def _current_prices(session: Session, account: str, machines: Sequence[Machine]) -> dict[str, Price]:
    """Return what machines cost now; the clouds' on-demand prices by the list, which costs no call."""
    from cloudgpu.catalog.rules import PROVIDERS

    listed_machines = [
        machine for machine in machines if machine.provider in PROVIDERS and machine.market == Market.ON_DEMAND
    ]
    prices_by_machine = _list_prices(session, account, listed_machines)
    to_query = [machine for machine in machines if machine.id not in prices_by_machine]
    if to_query:
        configurations = [_configuration_in_account(machine, account) for machine in to_query]
        prices = discounted_prices(
            session.provider(account), configurations, session.settings.discounts, session.clock()
        )
        prices_by_machine |= zip([machine.id for machine in to_query], prices, strict=True)
    return {machine: price for machine, price in prices_by_machine.items() if price is not None}


def _list_prices(session: Session, account: str, machines: Sequence[Machine]) -> dict[str, Price | None]:
    """Return what machines cost on demand by the dated list, which is read once for all of the same type and region."""
    now, prices_by_type, prices_by_machine = (
        session.clock(),
        dict[tuple[str | None, ...], Price | None](),
        dict[str, Price | None](),
    )
    for machine in machines:
        price_key = machine.provider, machine.region, machine.instance_type
        if price_key not in prices_by_type:
            configuration = _configuration_in_account(machine, account)
            prices_by_type[price_key] = effective_price(
                session.settings.discounts, configuration, _listed_price(configuration), now
            )
        prices_by_machine[machine.id] = prices_by_type[price_key]
    return prices_by_machine


def prices_in_effect(session: Session, machines: Sequence[Machine], prices: Mapping[str, Price]) -> dict[str, Price]:
    """Return those of these prices that this home may record: a price from settings only where it launched the machine.

    The settings of two homes may differ about one host or account: else the price would be that of the last sync.
    """
    if not prices:
        return {}
    home = session.home_terms
    return {
        machine.id: prices[machine.id]
        for machine in machines
        if machine.id in prices
        and (machine.terms is None or is_launched_by(home, machine) or not _is_by_settings(machine, prices[machine.id]))
    }


def _is_by_settings(machine: Machine, price: Price) -> bool:
    """Say whether this price, or the one in force, is from the settings.

    A metered price uses a tariff of the settings, but it may replace an assumed price.
    """
    basis_in_force = None if machine.price is None else machine.price.basis
    if price.basis is Basis.MEASURED:
        return basis_in_force in (Basis.SETTING, Basis.MEASURED)
    return price.basis in _BY_SETTINGS or basis_in_force in _BY_SETTINGS


def _metered_prices(
    session: Session, account: str, machines: Sequence[Machine], settings_prices: Mapping[str, Price]
) -> dict[str, Price]:
    """Return the metered prices of these machines that differ from those in force; none where they have no meter."""
    if not machines or not isinstance(provider := session.provider(account), HasMeteredPrice):
        return {}
    prices = {
        machine.id: metered_price(
            session, provider, machine, _configuration_in_account(machine, account), settings_prices
        )
        for machine in machines
    }
    return {machine_id: price for machine_id, price in prices.items() if price is not None}


def start_price_events(session: Session, machine: Machine, price: Price, now: datetime) -> list[Draft]:
    """Return the event of the price at a start, where it differs from the price in force."""
    if machine.price and price.per_hour.nanos == machine.price.nanos_per_hour:
        return []
    on_demand = (
        price
        if machine.market == Market.ON_DEMAND
        else list_price(session, configuration_of(machine, Market.ON_DEMAND))
    )
    return [price_observed(machine.id, price, now, on_demand=on_demand, clock=OWN_CLOCK)]


def reported_price_events(session: Session, machine: Machine | None, instance: Instance, now: datetime) -> list[Draft]:
    """Return the event of the price that the provider reports for a new machine, where the plan had another one.

    It holds from the launch on: the plan's price never did. None once a later price was recorded.
    """
    if (
        machine is None
        or instance.per_hour is None
        or (machine.price is not None and machine.price.as_of > machine.intended_at)
    ):
        return []
    reported_price = Price(instance.per_hour, f"{machine.provider}'s own word of this machine", now, Basis.QUOTED)
    price = effective_price(session.settings.discounts, configuration_of_instance(instance), reported_price, now)
    return [] if price is None else start_price_events(session, machine, price, from_iso(machine.intended_at))


def record_spot_cost(session: Session, machine: Machine) -> None:
    """Record what a spot machine cost until it ended or stopped just now. What fails is left to the next sync."""
    if machine.market != Market.SPOT or not machine.provider_id or not machine.instance_type:
        return
    with suppress(CloudgpuError):
        prices = query_prices(session, session.account_name_here(machine), None, [machine])
        session.ledger.append(spot_price_events(machine, prices.history.get(machine.id, ())))


MIN_MEASURED_TIME = timedelta(hours=1)  # measured in this run, and between two metered prices of one machine
MEASUREMENT_WINDOW = timedelta(days=7)  # what it drew before says less of what it will draw
MIN_CHANGE = Fraction(1, 10)  # of the price in force: a smaller change is not recorded


def metered_price(
    session: Session,
    provider: HasMeteredPrice,
    machine: Machine,
    configuration: MachineConfiguration,
    settings_prices: Mapping[str, Price],
) -> Price | None:
    """Return the metered price that replaces the one in force from now on; None where that one stays.

    `settings_prices` are by the machine's id: an assumed price may be replaced by a metered one, a set price never is.
    """
    price_in_force, settings_price, now = machine.price, settings_prices.get(machine.id), session.clock()
    if price_in_force is None or settings_price is None:
        return None
    was_metered = price_in_force.basis == Basis.MEASURED
    if settings_price.basis is not Basis.ASSUMED:
        return settings_price if was_metered and settings_price.basis is Basis.SETTING else None
    if was_metered and now - from_iso(price_in_force.as_of) < MIN_MEASURED_TIME:
        return None
    watts_and_time = _mean_draw(session, machine, now)
    price = watts_and_time and effective_price(
        session.settings.discounts, configuration, provider.metered_price(configuration, *watts_and_time), now
    )
    nanos_in_force = price_in_force.nanos_per_hour
    return price if price and abs(price.per_hour.nanos - nanos_in_force) > nanos_in_force * MIN_CHANGE else None


def _mean_draw(session: Session, machine: Machine, now: datetime) -> tuple[Decimal, timedelta] | None:
    """Return the mean watts in the machine's run, and how long they were measured; None for too short a time."""
    if machine.state != State.RUNNING or machine.since is None:
        return None
    begin, end = max(from_iso(machine.since), now - MEASUREMENT_WINDOW).timestamp(), now.timestamp()
    mean = mean_draw(SampleStore(session.home.samples, machine.id).utilization(begin, end), begin, end)
    watts, measured_s = mean or (0.0, 0.0)
    if measured_s < MIN_MEASURED_TIME.total_seconds():
        return None
    return Decimal(round(watts)), timedelta(minutes=measured_s // 60)
