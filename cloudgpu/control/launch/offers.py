"""Finds the offers of a request: priced and ranked ones of all providers, and the first that can be launched.

`Refusals` keeps the offers that were refused, and says which further ones need not be tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cloudgpu.control.network.reachability import client_cidr
from cloudgpu.control.session.guarding import check_launch_guarded
from cloudgpu.core.catalog.matching import fits, matching_offers, price_offers
from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import (
    Accelerator,
    Availability,
    MachineConfiguration,
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
from cloudgpu.providers.abilities import (
    HasFirewall,
    PlacementConstraint,
    Resolved,
    Resolves,
    limited_to_abilities,
    needs_reaper_run,
)
from cloudgpu.providers.attached_costs import discounted_prices
from cloudgpu.providers.base import Provider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.launch.candidates import Candidate, Candidates
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.catalog.catalog import ListedQuota

ErrorTypes = tuple[type[CloudgpuError], ...]
_OFFER_ERRORS: ErrorTypes = (NoCapacity, QuotaExceeded)
_ACCOUNT_ERRORS: ErrorTypes = (AuthFailed, InvalidRequest, ProviderUnavailable)


@dataclass
class Refusals:
    """The offers of a launch that were refused so far: `items` has each with its error, in order.

    `any_account`: offers of several accounts are tried, so an error of one account does not end the search.
    """

    any_account: bool
    items: list[tuple[Offer, CloudgpuError]] = field(default_factory=list)
    # Account, region and market whose quota is used up.
    _exhausted_quotas: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def errors_before_sending(self) -> ErrorTypes:
        """The errors before a call is sent after which the next offer is tried."""
        return _OFFER_ERRORS + _ACCOUNT_ERRORS if self.any_account else _OFFER_ERRORS

    @property
    def errors_after_sending(self) -> ErrorTypes:
        """The errors of a sent call after which the next offer is tried: they prove that no machine was launched."""
        return (NoCapacity, QuotaExceeded, AuthFailed) if self.any_account else (NoCapacity,)

    def add(self, offer: Offer, error: CloudgpuError, *, was_sent: bool = False) -> str:
        """Add a refusal, and return a sentence on it. Raises LedgerUnavailable, which is no refusal."""
        if isinstance(error, LedgerUnavailable):
            raise error
        self.items.append((offer, error))
        configuration = offer.configuration
        if was_sent and isinstance(error, QuotaExceeded):
            self._exhausted_quotas.add((configuration.account, configuration.region, str(configuration.market)))
        location_text = (
            f"{configuration.account}, {configuration.zone or configuration.region}"
            if self.any_account
            else configuration.zone or configuration.region
        )
        return f"{location_text}: {error.message}"

    def rules_out(self, offer: Offer) -> bool:
        """Say whether earlier refusals rule this offer out: by a quota, or by an error of the whole account."""
        configuration = offer.configuration
        quota_scope = (configuration.account, configuration.region, str(configuration.market))
        if self.any_account and quota_scope in self._exhausted_quotas:
            return True
        return configuration.account in self.unusable_accounts or is_over_quota(offer, self.items)

    @property
    def unusable_accounts(self) -> set[str]:
        """The accounts of which no offer can be launched."""
        return {offer.configuration.account for offer, error in self.items if isinstance(error, _ACCOUNT_ERRORS)}

    @property
    def first_error(self) -> CloudgpuError | None:
        """The first error for want of quota or capacity, which a user can wait out or raise, else the first of all."""
        errors = [error for _, error in self.items]
        return next((error for error in errors if isinstance(error, _OFFER_ERRORS)), next(iter(errors), None))


def is_over_quota(offer: Offer, refusals: Sequence[tuple[Offer, CloudgpuError]]) -> bool:
    """Say whether a quota that refused another offer refuses this one, which needs at least as much of it."""
    return any(
        isinstance(error, QuotaExceeded) and _quota_applies(error, refused_offer, offer)
        for refused_offer, error in refusals
    )


def _quota_applies(error: QuotaExceeded, refused_offer: Offer, offer: Offer) -> bool:
    """Say whether a quota that refused one offer also refuses another."""
    from cloudgpu.catalog import quotas_of  # reads the whole catalogue

    refused, other = refused_offer.configuration, offer.configuration
    if (refused.provider, refused.account) != (other.provider, other.account):
        return False
    return any(
        quota.code == error.value
        and (quota.is_overall or refused.region == other.region)
        and _quota_units(quota, other) >= _quota_units(quota, refused)
        for quota in quotas_of(other.provider, other.instance_type, other.market)
    )


def _quota_units(quota: ListedQuota, configuration: MachineConfiguration) -> int:
    """Return how many units of a quota, GPUs or vCPUs, an offer needs."""
    return sum(gpu.count for gpu in configuration.accelerators) if quota.unit == "GPU" else configuration.vcpus or 0


_NOTHING_RESOLVED = Resolved({})


@dataclass(frozen=True, slots=True)
class ResolvedOffer:
    """An offer, with what its provider looked up for its launch (`resolved`): image, network and so on.

    `passed_over` has notes about the offers before it, which cannot be launched. `unusable_accounts` have no offer that
    can be.
    """

    offer: Offer
    resolved: Resolved = _NOTHING_RESOLVED
    passed_over: tuple[str, ...] = ()
    unusable_accounts: frozenset[str] = frozenset()


def placement_constraint(provider: Provider, request: LaunchRequest) -> PlacementConstraint:
    """Return the region and zone of the image, subnet or volume of a request.

    Raises InvalidRequest where that contradicts the request.
    """
    if not isinstance(provider, Resolves):
        return PlacementConstraint()
    return provider.placement_constraint(request.setup, request.requirements)


def constrained(request: LaunchRequest, constraint: PlacementConstraint) -> LaunchRequest:
    """Return the request constrained to this region and zone."""
    region, zone = constraint.region or request.requirements.region, constraint.zone or request.requirements.zone
    return replace(request, requirements=replace(request.requirements, region=region, zone=zone))


def with_placement_constraint(provider: Provider, request: LaunchRequest) -> LaunchRequest:
    """Return the request constrained to the region and zone of its image, subnet or volume.

    Raises InvalidRequest where that contradicts the request.
    """
    return constrained(request, placement_constraint(provider, request))


def with_client_ssh_ingress(session: Session, candidates: Candidates) -> Candidates:
    """Return these candidates with this client's address in the SSH firewall rule, where no other one is requested.

    A candidate is an account with the request as it would be there.
    Queries a service for that address at most once. Called only once there is an offer: a missing SDK, credential or
    offer is the more important error. Raises InvalidRequest where the address is needed and not known.
    """
    if not any(map(_needs_client_address, candidates.items)):
        return candidates
    cidr = client_cidr(session)  # the same for all accounts
    opened = (
        _open_candidate(candidate, cidr) if _needs_client_address(candidate) else candidate
        for candidate in candidates.items
    )
    return replace(candidates, items=tuple(opened))


def _open_candidate(candidate: Candidate, cidr: str) -> Candidate:
    """Return the candidate with this network in its SSH firewall rule."""
    setup = candidate.request.setup
    network = replace(setup.network, ssh_from=(cidr,))
    return replace(candidate, request=replace(candidate.request, setup=replace(setup, network=network)))


def _needs_client_address(candidate: Candidate) -> bool:
    """Say whether SSH is to be opened for this client's address alone: no networks, group or jump host are given.

    It takes a provider with a firewall that cloudgpu can change (`HasFirewall`). A machine without a public address is
    reached from inside its network, which the provider allows.
    """
    network = candidate.request.setup.network
    is_open = network.ssh_from or network.security_group or network.jump or not network.public_ip
    return isinstance(candidate.provider, HasFirewall) and not is_open


def first_launchable(
    session: Session, candidates: Candidates, offers: Sequence[Offer], *, no_guard: bool = False
) -> ResolvedOffer:
    """Return the first of these offers, one or more, whose launch its provider can resolve: image, quota and so on.

    `passed_over` has a note for each offer before it. Where all are refused, raises the first QuotaExceeded, else
    `Refusals.first_error`; with any account, that may be an account's error. Unless `no_guard`, raises InvalidRequest
    where nothing would end the machine; with any account, that rules out all offers of the offer's account.
    """
    refusals = Refusals(candidates.any_account)
    for offer in offers:
        if refusals.rules_out(offer):
            continue
        candidate = candidates.for_offer(offer)
        try:
            resolved = resolve(candidate.provider, candidate.request, offer)
            if not no_guard and needs_reaper_run(candidate.provider, offer, resolved):
                check_launch_guarded(session, offer)
        except refusals.errors_before_sending as error:
            session.report(refusals.add(offer, error))
            continue
        notes = dict.fromkeys(
            f"passed over: {_account_prefix(refused_offer, refusals)}{error.message}"
            for refused_offer, error in refusals.items
        )
        return ResolvedOffer(offer, resolved, tuple(notes), frozenset(refusals.unusable_accounts))
    errors = [error for _, error in refusals.items]
    raise next((error for error in errors if isinstance(error, QuotaExceeded)), refusals.first_error or errors[0])


def _account_prefix(offer: Offer, refusals: Refusals) -> str:
    return f"account {offer.configuration.account}: " if refusals.any_account else ""


def resolve(provider: Provider, request: LaunchRequest, offer: Offer) -> Resolved:
    """Return what the provider looks up for the call that launches this offer; empty where it looks up nothing."""
    return provider.resolve(request, offer.configuration) if isinstance(provider, Resolves) else _NOTHING_RESOLVED


def offers_or_launched_one(
    session: Session,
    provider: Provider,
    needs: Requirements,
    existing: Machine | None,
    untrusted: list[Offer] | None = None,
) -> list[Offer]:
    """Return the offers that fit; where there are none, the one from which `existing` was launched.

    `existing` is the machine that this request has launched already, None for none: then the error is raised.
    Offers that fit but are less trusted than requested go into `untrusted`, so that an error can name them.
    """
    try:
        return _query_offers(session, provider, needs, [] if untrusted is None else untrusted)
    except (InvalidRequest, NoCapacity, ProviderUnavailable):  # InvalidRequest: not sold on that market any more
        if existing is None or existing.price is None:
            raise
        return [_offer_of(existing)]


def offers_of_constrained(
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
        return offers_or_launched_one(session, provider, request.requirements, existing, untrusted)
    except NoCapacity as error:
        setup, needs = request.setup, request.requirements
        if (needs.region, needs.zone) != (requirements.region, requirements.zone):
            volume = setup.volume.name if setup.volume else None
            options = {"--image": setup.image, "--volume": volume, "--subnet": setup.network.subnet}
            options_text = " and ".join(f"{option} {value}" for option, value in options.items() if value)
            remedy = f"The place is that of {options_text}: name another, or leave it out."
            # The error's own remedy would be about a region or zone that the user did not type.
            is_about_location = error.field in ("--region", "--zone")
            error.next = remedy if is_about_location or not error.next else f"{remedy} {error.next}"
        raise


def _offer_of(machine: Machine) -> Offer:
    """Return the offer from which a machine was launched, at its last known price.

    What is not known of the machine counts as possible: that it can be stopped, and that it can be parked (ended, with
    an image of its disk kept, from which `start` launches it again).
    """
    configuration = MachineConfiguration(
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
    return Offer(configuration, price_from_json(not_none(machine.price).record()))


def _query_offers(session: Session, provider: Provider, needs: Requirements, untrusted: list[Offer]) -> list[Offer]:
    """Return the offers that fit, the preferred ones first; raise the error that explains why there are none."""
    availability, needs_any_trust = provider.available(needs), replace(needs, trust=Trust.COMMUNITY)
    for gap in availability.unanswered:
        session.report(f"{gap.scope} did not answer, so nothing there is offered: {gap.why}")
    available = [limited_to_abilities(provider, item) for item in availability.items if fits(item, needs_any_trust)]
    priced_offers, unpriced = price_offers(
        available, discounted_prices(provider, available, session.settings.discounts, session.clock())
    )
    offers = matching_offers(priced_offers, needs)
    untrusted += (
        offer
        for offer in matching_offers(priced_offers, needs_any_trust)
        if not needs.trust.accepts(offer.configuration.trust)
    )
    if offers:
        return offers
    if untrusted and not availability.unanswered:
        from cloudgpu.core.launch.trust import too_little_trust_error

        raise too_little_trust_error(needs, untrusted)
    from cloudgpu.control.launch.no_match import explain_no_match  # reads the whole catalogue

    raise _unanswered_error(availability) or explain_no_match(
        provider,
        needs,
        availability.items,
        [offer for offer in priced_offers if fits(offer.configuration, needs)],
        has_no_price=bool(unpriced),
    )


def _unanswered_error(availability: Availability) -> CloudgpuError | None:
    """Return the error for a search without offers of which a part did not answer; None where all answered."""
    if not availability.unanswered:
        return None
    gap = availability.unanswered[0]
    return ProviderUnavailable(
        f"Nothing that fits was found, and {gap.scope} did not answer: {gap.why}",
        field="--region",
        value=gap.scope,
        next="Run it again, or name another --region.",
    )
