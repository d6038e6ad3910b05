"""Finds the offers of a request: priced and ranked ones of all providers, and the first that can be launched.

`Refusals` keeps the offers that were refused, and says which further ones need not be tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cloudgpu.control.network.reachability import client_cidr
from cloudgpu.control.session.guarding import check_launch_guarded
from cloudgpu.core.catalog.matching import fits, matching_offers, price_offers
from cloudgpu.core.model.launch import LaunchRequest, Setup
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import (
    Accelerator,
    Availability,
    Available,
    Market,
    Offer,
    Requirements,
    TrafficPrices,
    Trust,
    price_from_json,
)
from cloudgpu.core.values.money import Money
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.providers.abilities import Reachable, Resolved, Resolves, limited_to_abilities, needs_reaper_run
from cloudgpu.providers.attached_costs import discounted_prices
from cloudgpu.providers.base import Provider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.launch.candidates import Candidate, Candidates
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.catalog.catalog import ListedQuota

Faults = tuple[type[CloudgpuError], ...]
_OFFER_ERRORS: Faults = (NoCapacity, QuotaExceeded)
_ACCOUNT_ERRORS: Faults = (AuthFailed, InvalidRequest, ProviderUnavailable)


@dataclass
class Refusals:
    """The refusals so far, in order. `anywhere`: offers of several accounts are tried, and one's fault is its own."""

    anywhere: bool
    items: list[tuple[Offer, CloudgpuError]] = field(default_factory=list)
    _full: set[tuple[str, str, str]] = field(default_factory=set)  # account, region and market whose quota is used up

    @property
    def unsent(self) -> Faults:
        """The faults of a look-up after which the next offer is tried: nothing was asked for yet."""
        return _OFFER_ERRORS + _ACCOUNT_ERRORS if self.anywhere else _OFFER_ERRORS

    @property
    def sent(self) -> Faults:
        """The faults of a launch after which the next offer is tried: nothing was made, and that is known for sure."""
        return (NoCapacity, QuotaExceeded, AuthFailed) if self.anywhere else (NoCapacity,)

    def add(self, offer: Offer, error: CloudgpuError, *, sent: bool = False) -> str:
        """Remember a refusal, and return the sentence that says it. Raises what says nothing about an offer."""
        if isinstance(error, LedgerUnavailable):
            raise error
        self.items.append((offer, error))
        item = offer.available
        if sent and isinstance(error, QuotaExceeded):
            self._full.add((item.account, item.region, str(item.market)))
        where = f"{item.account}, {item.zone or item.region}" if self.anywhere else item.zone
        return f"{where}: {error.message}"

    def rules_out(self, offer: Offer) -> bool:
        """Say whether what was refused rules this offer out too: a limit of the account, or the account itself."""
        item = offer.available
        if self.anywhere and (item.account, item.region, str(item.market)) in self._full:
            return True
        return item.account in self.accounts or is_limited(offer, self.items)

    @property
    def accounts(self) -> set[str]:
        """The accounts of which no offer can be launched."""
        return {stopped.available.account for stopped, fault in self.items if isinstance(fault, _ACCOUNT_ERRORS)}

    @property
    def first(self) -> CloudgpuError | None:
        """The first refusal, of the kinds that say most: a quota can be raised, capacity comes back."""
        faults = [fault for _, fault in self.items]
        return next((fault for fault in faults if isinstance(fault, _OFFER_ERRORS)), next(iter(faults), None))


def is_limited(offer: Offer, refusals: Sequence[tuple[Offer, CloudgpuError]]) -> bool:
    """Say whether a limit that stopped an offer in the same region stops this one: it needs no less of the same."""
    return any(isinstance(fault, QuotaExceeded) and _limits(fault, stopped, offer) for stopped, fault in refusals)


def _limits(error: QuotaExceeded, stopped: Offer, offer: Offer) -> bool:
    from cloudgpu.catalog import quotas_of  # reads the whole catalogue

    other, item = stopped.available, offer.available
    if (other.provider, other.account) != (item.provider, item.account):
        return False
    limits = [one for one in quotas_of(item.provider, item.instance_type, item.market) if one.code == error.value]
    limits = [one for one in limits if one.is_overall or other.region == item.region]
    return any(_limit_use(one, item) >= _limit_use(one, other) for one in limits)


def _limit_use(quota: ListedQuota, item: Available) -> int:
    """Return how much of a limit an offer takes, in its unit."""
    return sum(gpu.count for gpu in item.accelerators) if quota.unit == "GPU" else item.vcpus or 0


_NOTHING_RESOLVED = Resolved({})


@dataclass(frozen=True, slots=True)
class ResolvedOffer:
    """An offer with what was looked up for it; `passed_over` says why offers before it cannot be launched.

    `unusable_accounts` have no offer that can be launched.
    """

    offer: Offer
    resolved: Resolved = _NOTHING_RESOLVED
    passed_over: tuple[str, ...] = ()
    unusable_accounts: frozenset[str] = frozenset()


def with_constraint(provider: Provider, request: LaunchRequest) -> LaunchRequest:
    """Return the request with the place that its image or volume lies in.

    Raises InvalidRequest where that contradicts what was asked for.
    """
    if not isinstance(provider, Resolves):
        return request
    constraint = provider.placement_constraint(request.setup, request.want)
    region, zone = constraint.region or request.want.region, constraint.zone or request.want.zone
    return replace(request, want=replace(request.want, region=region, zone=zone))


def open_to_caller(session: Session, candidates: Candidates) -> Candidates:
    """Return these candidates with the address that may open SSH, where it is this client's.

    Asks an address service, at most once: to be called when there is an offer, so that whoever lacks an SDK, a
    credential or an offer hears of that first. Raises InvalidRequest where the address is needed and not known.
    """
    closed_accounts = {one.account for one in candidates.items if _needs_caller(one.provider, one.request.setup)}
    if not closed_accounts:
        return candidates
    caller = client_cidr(session)  # the same for all accounts
    opened = (_open_candidate(one, caller) if one.account in closed_accounts else one for one in candidates.items)
    return replace(candidates, items=tuple(opened))


def _open_candidate(candidate: Candidate, caller: str) -> Candidate:
    setup = candidate.request.setup
    network = replace(setup.network, ssh_from=(caller,))
    return replace(candidate, request=replace(candidate.request, setup=replace(setup, network=network)))


def _needs_caller(provider: Provider, setup: Setup) -> bool:
    """Say whether this client's address has to be known: it alone is let in."""
    return isinstance(provider, Reachable) and not _is_open_already(setup)


def _is_open_already(setup: Setup) -> bool:
    """Say whether nobody's address has to be found: somebody is named, or this client does not come straight from it.

    Behind a jump host or without a public address a machine is reached from inside its network: the provider's to say.
    """
    network = setup.network
    return bool(network.ssh_from or network.security_group or network.jump or not network.public_ip)


def first_launchable(
    session: Session, candidates: Candidates, offers: Sequence[Offer], *, no_guard: bool = False
) -> ResolvedOffer:
    """Return the first offer for which all can be looked up; those before it are said to be passed over.

    Raises QuotaExceeded when a quota is what stood in the way of the first, else NoCapacity; where every account was
    meant, what stood in the way of them all. InvalidRequest where nothing would end the machine, unless `no_guard`.
    """
    refused = Refusals(candidates.anywhere)
    for offer in offers:
        if refused.rules_out(offer):
            continue
        target = candidates.of(offer)
        try:
            resolved = resolve(target.provider, target.request, offer)
            if not no_guard and needs_reaper_run(target.provider, offer, resolved):
                check_launch_guarded(session, offer)
        except refused.unsent as error:
            session.report(refused.add(offer, error))
            continue
        notes = dict.fromkeys(
            f"passed over: {_account_prefix(one, refused)}{error.message}" for one, error in refused.items
        )
        return ResolvedOffer(offer, resolved, tuple(notes), frozenset(refused.accounts))
    errors = [error for _, error in refused.items]
    raise next((error for error in errors if isinstance(error, QuotaExceeded)), refused.first or errors[0])


def _account_prefix(offer: Offer, refused: Refusals) -> str:
    return f"account {offer.available.account}: " if refused.anywhere else ""


def resolve(provider: Provider, request: LaunchRequest, offer: Offer) -> Resolved:
    """Return what the exact call of this offer needs; nothing, where a provider looks nothing up."""
    return provider.resolve(request, offer.available) if isinstance(provider, Resolves) else _NOTHING_RESOLVED


def offers_unless_launched(
    session: Session,
    provider: Provider,
    needs: Requirements,
    existing: Machine | None,
    untrusted: list[Offer] | None = None,
) -> list[Offer]:
    """Return the offers; an `existing` machine of the request needs no other offer to be returned or resolved.

    Offers that fit but are less trusted than requested go into `untrusted`, so that an error can name them.
    """
    try:
        return _offers(session, provider, needs, [] if untrusted is None else untrusted)
    except (NoCapacity, ProviderUnavailable):
        if existing is None or existing.price is None:
            raise
        return [_offer_of(existing)]


def offers_in(
    session: Session,
    provider: Provider,
    request: LaunchRequest,
    requirements: Requirements,
    existing: Machine | None,
    untrusted: list[Offer],
) -> list[Offer]:
    """Return the offers of a constrained request; if there is none, the error names the constraint.

    Offers that fit but are less trusted than requested go into `untrusted`.
    """
    try:
        return offers_unless_launched(session, provider, request.want, existing, untrusted)
    except NoCapacity as error:
        setup, want = request.setup, request.want
        if (want.region, want.zone) != (requirements.region, requirements.zone):
            volume = setup.volume.name if setup.volume else None
            named = {"--image": setup.image, "--volume": volume, "--subnet": setup.network.subnet}
            message = " and ".join(f"{option} {value}" for option, value in named.items() if value)
            why = f"The place is that of {message}: name another, or leave it out."
            placed = error.field in ("--region", "--zone")  # its way out is about a request that was not the user's
            error.next = why if placed or not error.next else f"{why} {error.next}"
        raise


def _offer_of(machine: Machine) -> Offer:
    item = Available(
        provider=machine.provider,
        account=machine.account,
        region=machine.region,
        zone=machine.zone or "",
        instance_type=not_none(machine.instance_type),
        market=Market(machine.market),
        accelerators=tuple(Accelerator(*gpu) for gpu in machine.accelerators or ()),
        stoppable=machine.stoppable is not False,
        stop_effect=machine.stop_effect or "",
        parkable=machine.parkable is not False,
        trust=Trust(machine.trust or Trust.CLOUD),
        traffic=machine.traffic_prices and TrafficPrices(*map(Money, machine.traffic_prices)),
    )
    return Offer(item, price_from_json(not_none(machine.price).record()))


def _offers(session: Session, provider: Provider, needs: Requirements, untrusted: list[Offer]) -> list[Offer]:
    found, any_trust = provider.available(needs), replace(needs, trust=Trust.COMMUNITY)
    for gap in found.unanswered:
        session.report(f"{gap.scope} did not answer, so nothing there is offered: {gap.why}")
    available = [limited_to_abilities(provider, item) for item in found.items if fits(item, any_trust)]
    priced, unpriced = price_offers(
        available, discounted_prices(provider, available, session.settings.discounts, session.clock())
    )
    offers = matching_offers(priced, needs)
    untrusted += (
        offer for offer in matching_offers(priced, any_trust) if not needs.trust.accepts(offer.available.trust)
    )
    if offers:
        return offers
    if untrusted and not found.unanswered:
        from cloudgpu.core.launch.trust import too_little_trust

        raise too_little_trust(needs, untrusted)
    from cloudgpu.control.launch.no_match import explain_no_match  # reads the whole catalogue

    raise _unanswered_error(found) or explain_no_match(
        provider, needs, found.items, [one for one in priced if fits(one.available, needs)], unpriced=bool(unpriced)
    )


def _unanswered_error(availability: Availability) -> CloudgpuError | None:
    """Return the fault of a search of which a part did not answer: nothing was found, and something may be there."""
    if not availability.unanswered:
        return None
    gap = availability.unanswered[0]
    return ProviderUnavailable(
        f"Nothing that fits was found, and {gap.scope} did not answer: {gap.why}",
        field="--region",
        value=gap.scope,
        next="Run it again, or name another --region.",
    )
