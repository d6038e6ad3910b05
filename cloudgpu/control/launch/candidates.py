"""The accounts where a request may be launched, each with its own request: one account, or all cloud accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from cloudgpu.config.settings import ANY_PROVIDER
from cloudgpu.config.templates.find import Template
from cloudgpu.control.inputs.launch_request import ClusterRequest, UpRequest
from cloudgpu.control.inventory.retention import named_resources
from cloudgpu.control.launch.containers import check_container, with_disk_size
from cloudgpu.control.policies.resolve import ResolvedPolicy, resolve_policy
from cloudgpu.control.session.accounts import account_of, cloud_accounts, is_any_provider
from cloudgpu.control.session.identity import by_account
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_may_use_volumes
from cloudgpu.core.launch.plan import keeps_disk
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.launch import LaunchRequest, Setup
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Market, Offer, Requirements, Trust
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import Lifetime, LifetimeOverride, Policy
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.providers.abilities import HasFirewall, HasVolumes, Pausable, Resolves
from cloudgpu.providers.base import Provider

# An InvalidRequest about one of these options means that an account does not sell what was requested.
_OFFER_OPTIONS = ("--gpu", "--instance-type", "--region", "--zone", "--spot", "--on-demand")
_ACCOUNT_ERRORS = (AuthFailed, InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded)  # then others are tried


@dataclass(frozen=True, slots=True)
class Candidate:
    """An account where the machine may be launched, with the request and the policy as they would be there.

    Image, subnet or volume may fix the region there, and the settings may choose a policy by account.

    `policy` is within the lab's limits; None: it cannot be resolved, and only its `lifetime` (lease and renew-until) is
    known. `remarks` are sentences for the plan.
    """

    provider: Provider
    request: LaunchRequest
    lifetime: Lifetime
    policy: Policy | None
    remarks: tuple[str, ...] = ()

    @property
    def account(self) -> str:
        """The account's name."""
        return self.provider.account


@dataclass(frozen=True, slots=True)
class SkippedAccount:
    """An account that is skipped, and why."""

    account: str
    error: CloudgpuError


@dataclass(frozen=True, slots=True)
class Candidates:
    """The accounts to query for offers, in no order.

    `items` are the candidates; `skipped` cannot be used; `any_account`: `--provider any` was requested.
    """

    items: tuple[Candidate, ...]
    skipped: tuple[SkippedAccount, ...] = ()
    any_account: bool = False

    def for_account(self, account: str) -> Candidate:
        """Return the candidate of this account, which is one of them."""
        return next(candidate for candidate in self.items if candidate.account == account)

    def for_offer(self, offer: Offer) -> Candidate:
        """Return the candidate that has this offer."""
        return self.for_account(offer.configuration.account)

    @property
    def fingerprint_request(self) -> LaunchRequest:
        """The request from which the fingerprint is made: with `any` account, the same wherever it is launched."""
        request = self.items[0].request
        if not self.any_account:
            return request
        # Whether a disk is kept is decided by the policy, which may differ by account.
        return replace(
            request, provider=ANY_PROVIDER, account=ANY_PROVIDER, setup=replace(request.setup, keep_disk=True)
        )


@dataclass(frozen=True, slots=True)
class OffersFound:
    """All offers, in the order of trying, and the candidates that have them, each with its constrained request."""

    offers: tuple[Offer, ...]
    candidates: Candidates
    untrusted: tuple[Offer, ...] = ()  # less trusted than accepted: only for remarks and errors

    @property
    def remarks(self) -> tuple[str, ...]:
        """A remark for each account that was skipped, unless it only does not sell what was requested."""
        accounts_with_errors = (skipped for skipped in self.candidates.skipped if not _is_not_sold_error(skipped.error))
        return tuple(
            f"passed over: account {skipped.account}: {skipped.error.message}" for skipped in accounts_with_errors
        )


def _is_not_sold_error(error: CloudgpuError) -> bool:
    """Say whether an error only means that this account does not sell what was requested."""
    return isinstance(error, NoCapacity) or (isinstance(error, InvalidRequest) and error.field in _OFFER_OPTIONS)


def candidates_of(session: Session, request: UpRequest, template: Template) -> Candidates:
    """Return the accounts where a request may be launched. Asks no provider.

    Raises InvalidRequest for an invalid request; with several accounts, where it is invalid at all of them.
    """
    if not is_any_provider(session, account=request.account, provider=request.provider):
        name = account_of(session, account=request.account, provider=request.provider)
        return Candidates((candidate_in(session, request, template, name),))
    candidates: list[Candidate] = []
    _check_valid_for_any_account(request)
    names = cloud_accounts(session)
    quiet_session = replace(
        session, report=cache(session.report)
    )  # reports each sentence once: most are the same for all accounts
    skipped = skip_failing_accounts(
        names, lambda name: candidates.append(candidate_in(quiet_session, request, template, name))
    )
    if not candidates:
        raise skipped[0].error
    return Candidates(tuple(candidates), skipped, any_account=True)


def _check_valid_for_any_account(request: UpRequest) -> None:
    """Raise InvalidRequest for an option whose value has a meaning in one account only."""
    group = request.setup.network.security_group
    if group is not None:
        raise InvalidRequest(
            "--security-group names a group of one account, and --provider any means all accounts.",
            field="--security-group",
            value=group,
            next="Name the account that has it: --account NAME",
        )


def skip_failing_accounts(accounts: Sequence[str], act: Callable[[str], None]) -> tuple[SkippedAccount, ...]:
    """Call `act` for each account, and return those where it failed with an error of that account alone."""
    skipped = []
    for account in accounts:
        try:
            act(account)
        except _ACCOUNT_ERRORS as error:
            if isinstance(error, LedgerUnavailable):
                raise
            skipped.append(SkippedAccount(account, error))
    return tuple(skipped)


def candidate_in(session: Session, request: UpRequest, template: Template, account: str) -> Candidate:
    """Return the candidate of a request at this account.

    Raises InvalidRequest for what is unsupported there, or what the limits do not allow.
    """
    provider = session.provider(account)
    launch_request, resolved_policy = _launch_request(session, request, provider, template)
    return Candidate(
        provider, launch_request, resolved_policy.lifetime, resolved_policy.policy, resolved_policy.remarks
    )


def _launch_request(
    session: Session, request: UpRequest, provider: Provider, template: Template
) -> tuple[LaunchRequest, ResolvedPolicy]:
    """Return the launch request of these options, and its policy."""
    market = (
        Market(session.settings.market) if request.spot is None else Market.SPOT if request.spot else Market.ON_DEMAND
    )
    _check_setup(provider, request.setup, market, or_on_demand=request.requirements.or_on_demand)
    cluster = _cluster_of(request, template)
    check_container(provider, template, cluster)
    _check_spot(request, provider, market)
    owner = owner_of(session, request)
    project = request.project.strip() if request.project else session.settings.project
    # by what the settings may choose a policy
    policy_facts = {"owner": owner, "project": project, "template": template.name, "provider": provider.kind}
    policy_facts |= {"account": provider.account, "market": str(market), "name": request.name or ""}
    trust = request.trust or Trust(session.settings.trust)
    resolved_policy = resolve_policy(
        session, request.policy, LifetimeOverride(request.lease, request.renew_until), policy_facts
    )
    keep_disk = keeps_disk(resolved_policy.policy, request.setup, market, pausable=isinstance(provider, Pausable))
    return LaunchRequest(
        key=request.key or "",
        name=request.name or "",
        provider=provider.kind,
        account=provider.account,
        requirements=replace(request.requirements, market=market, persistent=request.setup.persistent, trust=trust),
        template=template.name,
        owner=owner,
        project=project,
        policy=resolved_policy.policy.name,
        lease_s=int(resolved_policy.lifetime.lease.total_seconds()),
        renew_s=int(resolved_policy.lifetime.renew_until.total_seconds()),
        setup=_complete_setup(request.setup, template, keep_disk=keep_disk),
        policy_by=resolved_policy.chosen_by,
        terms=resolved_policy.terms.record(),
        cluster=cluster,
    ), resolved_policy


def _check_setup(provider: Provider, setup: Setup, market: Market, *, or_on_demand: bool) -> None:
    """Raise InvalidRequest for an option that this provider or market does not support: none is ever ignored."""
    for option, is_given in (("--persistent", setup.persistent), ("--or-on-demand", or_on_demand)):
        if is_given and market is not Market.SPOT:
            raise InvalidRequest(
                f"{option} is for spot machines, and this one is on demand.",
                field=option,
                value=str(market),
                next=f"Add --spot, or leave {option} out.",
            )
    for option, feature in _unsupported_options(provider, setup):
        raise InvalidRequest(
            f"The {provider.kind} provider has no {feature}, so {option} cannot be used there.",
            field=option,
            value=provider.kind,
            next=f"Leave {option} out, or choose another --provider.",
        )


def _unsupported_options(provider: Provider, setup: Setup) -> Iterator[tuple[str, str]]:
    """Yield each given option that the provider does not support, and the feature that it is about."""
    resolves, network = isinstance(provider, Resolves), setup.network
    has_firewall = isinstance(provider, HasFirewall)
    options = (
        ("--image", setup.image, "images", resolves),
        ("--disk", setup.disk_gb, "system disk of a chosen size", resolves),
        ("--volume", setup.volume, "data disks", isinstance(provider, HasVolumes)),
        ("--subnet", network.subnet, "subnets", resolves),
        ("--security-group", network.security_group, "security groups", has_firewall),
        ("--ssh-from", network.ssh_from, "rules about who may connect", has_firewall),
        ("--no-public-ip", not network.public_ip, "public addresses to leave out", resolves),
        ("--jump", network.jump, "networks behind a jump host", resolves),
        ("--persistent", setup.persistent, "spot requests", resolves),
    )
    return ((option, feature) for option, value, feature, supported in options if value and not supported)


def _check_spot(request: UpRequest, provider: Provider, market: Market) -> None:
    """Raise InvalidRequest for an `interactive` spot machine whose provider interrupts without notice."""
    if market is Market.SPOT and request.interactive and getattr(provider, "spot_for_jobs", False):
        raise InvalidRequest(
            f"A higher bid stops a spot machine of {provider.kind} at once and without notice: only jobs run there.",
            field="--spot",
            value=provider.kind,
            next="Leave --spot out, or use: cloudgpu run --spot",
        )


def _cluster_of(request: UpRequest, template: Template) -> ClusterNode | None:
    """Return the cluster of the request; a template with an engine makes one machine a cluster of one."""
    cluster = request.cluster or (ClusterRequest(1) if template.engine not in (None, "none") else None)
    return None if cluster is None else cluster.first_node(template.engine)


def check_volume(session: Session, candidates: Candidates, name: str) -> None:
    """Raise RoleNeeded where the ledger has a volume of this name that is somebody else's."""
    volumes = volumes_by_account(session, name)
    for candidate in candidates.items:
        check_may_use_volumes(
            session,
            [
                machine
                for machine in volumes.get(candidate.account, ())
                if _may_be_in_location(machine, candidate.request.requirements)
            ],
        )


def volumes_by_account(session: Session, name: str) -> dict[str, list[Machine]]:
    """Return the ledger's records of the volumes of this name, by the account here that has them."""
    named = (machine for machine in named_resources(session.ledger) if machine.name == name)
    return by_account(session, [machine for machine in named if machine.state == Kind.VOLUME])[0]  # or an image


def _may_be_in_location(machine: Machine, needs: Requirements) -> bool:
    """Say whether a volume may be in the required region and zone, as far as both are known."""
    pairs = [(needs.region, machine.region), (needs.zone, machine.zone)]
    return all(wanted == actual for wanted, actual in pairs if wanted and actual)


def owner_of(session: Session, request: UpRequest) -> str:
    """Return the owner of the machine: as typed, else as in config.toml."""
    return request.owner.strip() if request.owner else session.settings.owner


def _complete_setup(setup: Setup, template: Template, *, keep_disk: bool) -> Setup:
    """Return the setup with the template's image and disk size where the user gave none, and with `keep_disk`."""
    image, disk_gb = setup.image or template.image or None, setup.disk_gb or template.disk_gb
    return with_disk_size(replace(setup, image=image, disk_gb=disk_gb, keep_disk=keep_disk), template)
