"""The accounts at which a request may be launched, each with its request: the one that is meant, or all of clouds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cloudgpu.config.settings import ANY
from cloudgpu.config.templates.find import Template
from cloudgpu.control.inputs.launch_request import ClusterRequest, UpRequest
from cloudgpu.control.inventory.retention import named_resources
from cloudgpu.control.launch.containers import check_container, with_disk_size
from cloudgpu.control.policies.resolve import ResolvedPolicy, resolve_policy
from cloudgpu.control.session.accounts import account_of, cloud_accounts, is_any_provider
from cloudgpu.control.session.identity import by_account
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_may_use
from cloudgpu.core.launch.plan import keeps_disk
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.launch import LaunchRequest, Setup
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Market, Offer, Requirements, Trust
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import Lifetime, Policy, PolicyText
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.providers.abilities import HasVolumes, Pausable, Reachable, Resolves
from cloudgpu.providers.base import Provider

_SOLD_ELSEWHERE = ("--gpu", "--instance-type", "--region", "--zone", "--spot", "--on-demand")
_ACCOUNT_ERRORS = (AuthFailed, InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded)  # another may answer


@dataclass(frozen=True, slots=True)
class Candidate:
    """An account, the request as it would be made there, and what that is under: a policy may be an account's own.

    `policy` is inside the lab's limits; None: its name cannot be resolved, only its lease counts. `remarks` are
    sentences for the plan.
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
    """An account that is passed over, and why."""

    account: str
    fault: CloudgpuError


@dataclass(frozen=True, slots=True)
class Candidates:
    """The accounts that are asked, in no order; `anywhere`: every one was meant, and those in `skipped` cannot be."""

    items: tuple[Candidate, ...]
    skipped: tuple[SkippedAccount, ...] = ()
    anywhere: bool = False

    def at(self, account: str) -> Candidate:
        """Return the candidate of this account, which is one of them."""
        return next(one for one in self.items if one.account == account)

    def of(self, offer: Offer) -> Candidate:
        """Return the candidate that an offer is of."""
        return self.at(offer.available.account)

    @property
    def identity(self) -> LaunchRequest:
        """The request as it counts for whether two are the same: of `any` account, wherever it is launched then."""
        request = self.items[0].request
        if not self.anywhere:
            return request
        # Whether a disk is kept is the policy's to say, and that may be one account's own.
        return replace(request, provider=ANY, account=ANY, setup=replace(request.setup, keep_disk=True))


@dataclass(frozen=True, slots=True)
class OffersFound:
    """All offers, in the order of trying, and the candidates that have them, each with its constrained request."""

    offers: tuple[Offer, ...]
    candidates: Candidates
    untrusted: tuple[Offer, ...] = ()  # of less trust than is accepted: only spoken of

    @property
    def remarks(self) -> tuple[str, ...]:
        """Who was passed over for another reason than that it has nothing to offer."""
        others = (one for one in self.candidates.skipped if not _is_not_sold_error(one.fault))
        return tuple(f"passed over: account {one.account}: {one.fault.message}" for one in others)


def _is_not_sold_error(error: CloudgpuError) -> bool:
    """Say whether a fault means no more than that this account does not sell what is meant."""
    return isinstance(error, NoCapacity) or (isinstance(error, InvalidRequest) and error.field in _SOLD_ELSEWHERE)


def candidates_of(session: Session, request: UpRequest, template: Template) -> Candidates:
    """Return the accounts where a request may be launched. Asks no provider anything.

    Raises InvalidRequest for a request that cannot be; of several accounts, where it can be at none.
    """
    if not is_any_provider(session, account=request.account, provider=request.provider):
        name = account_of(session, account=request.account, provider=request.provider)
        return Candidates((candidate(session, request, template, name),))
    candidates: list[Candidate] = []
    _check_valid_for_any_account(request)
    names = cloud_accounts(session)
    quiet = replace(session, report=_report_once(session.report))
    skipped = skip_failing_accounts(names, lambda name: candidates.append(candidate(quiet, request, template, name)))
    if not candidates:
        raise skipped[0].fault
    return Candidates(tuple(candidates), skipped, anywhere=True)


def _report_once(forward: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that reports each sentence once, since those of several accounts are mostly equal."""
    reported: set[str] = set()

    def report(sentence: str) -> None:
        if sentence not in reported:
            reported.add(sentence)
            forward(sentence)

    return report


def _check_valid_for_any_account(request: UpRequest) -> None:
    """Raise InvalidRequest for what is one account's own, and may mean something else in another."""
    group = request.setup.network.security_group
    if group is not None:
        raise InvalidRequest(
            "--security-group names a group of one account, and --provider any means all accounts.",
            field="--security-group",
            value=group,
            next="Name the account that has it: --account NAME",
        )


def skip_failing_accounts(accounts: Sequence[str], act: Callable[[str], None]) -> tuple[SkippedAccount, ...]:
    """Do this for each account, and return those at which it cannot be done, for a reason of their own."""
    skipped = []
    for account in accounts:
        try:
            act(account)
        except _ACCOUNT_ERRORS as error:
            if isinstance(error, LedgerUnavailable):
                raise
            skipped.append(SkippedAccount(account, error))
    return tuple(skipped)


def candidate(session: Session, request: UpRequest, template: Template, account: str) -> Candidate:
    """Return the candidate of a request at this account.

    Raises InvalidRequest for what cannot mean anything there, or what its policy does not allow.
    """
    provider = session.provider(account)
    launch, terms = _request(session, request, provider, template)
    return Candidate(provider, launch, terms.lifetime, terms.policy, terms.remarks)


def _request(
    session: Session, request: UpRequest, provider: Provider, template: Template
) -> tuple[LaunchRequest, ResolvedPolicy]:
    """Return the launch request of these options, and what it is under."""
    market = (
        Market(session.settings.market) if request.spot is None else Market.SPOT if request.spot else Market.ON_DEMAND
    )
    _check_setup(provider, request.setup, market, or_on_demand=request.requirements.or_on_demand)
    cluster = _cluster(request, template)
    check_container(provider, template, cluster)
    _check_spot(request, provider, market)
    owner = owner_of(session, request)
    project = request.project.strip() if request.project else session.settings.project
    facts = {"owner": owner, "project": project, "template": template.name, "provider": provider.kind}
    facts |= {"account": provider.account, "market": str(market), "name": request.name or ""}
    trust = request.trust or Trust(session.settings.trust)
    terms = resolve_policy(session, request.policy, PolicyText(request.lease, request.renew_until), facts)
    pausable = isinstance(provider, Pausable)
    keep_disk = keeps_disk(terms.policy, request.setup, market, pausable=pausable)
    return LaunchRequest(
        key=request.key or "",
        name=request.name or "",
        provider=provider.kind,
        account=provider.account,
        want=replace(request.requirements, market=market, persistent=request.setup.persistent, trust=trust),
        template=template.name,
        owner=owner,
        project=project,
        policy=terms.policy.name,
        lease_s=int(terms.lifetime.lease.total_seconds()),
        renew_s=int(terms.lifetime.renew_until.total_seconds()),
        setup=_setup(request.setup, template, keep_disk=keep_disk),
        policy_by=terms.chosen_by,
        terms=terms.terms.record(),
        cluster=cluster,
    ), terms


def _check_setup(provider: Provider, setup: Setup, market: Market, *, or_on_demand: bool) -> None:
    """Raise InvalidRequest for what was asked for and cannot mean anything at this provider or on this market.

    Nothing that was typed is ever ignored.
    """
    for option, given in (("--persistent", setup.persistent), ("--or-on-demand", or_on_demand)):
        if given and market is not Market.SPOT:
            raise InvalidRequest(
                f"{option} is for spot machines, and this one is on demand.",
                field=option,
                value=str(market),
                next=f"Add --spot, or leave {option} out.",
            )
    for option, what in _unsupported_options(provider, setup):
        raise InvalidRequest(
            f"The {provider.kind} provider has no {what}, so {option} cannot be used there.",
            field=option,
            value=provider.kind,
            next=f"Leave {option} out, or choose another --provider.",
        )


def _unsupported_options(provider: Provider, setup: Setup) -> Iterator[tuple[str, str]]:
    """Yield each given option that the provider does not support, and its subject."""
    resolves, network = isinstance(provider, Resolves), setup.network
    has_firewall = isinstance(provider, Reachable)
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
    return ((option, what) for option, given, what, supported in options if given and not supported)


def _check_spot(request: UpRequest, provider: Provider, market: Market) -> None:
    """Raise InvalidRequest where a spot machine is taken without any notice, and no job would begin again."""
    if market is Market.SPOT and request.by_hand and getattr(provider, "spot_for_jobs", False):
        raise InvalidRequest(
            f"A higher bid stops a spot machine of {provider.kind} at once and without notice: only jobs run there.",
            field="--spot",
            value=provider.kind,
            next="Leave --spot out, or use: cloudgpu run --spot",
        )


def _cluster(request: UpRequest, template: Template) -> ClusterNode | None:
    """Return what the request says of its cluster; a template with an engine makes one machine a cluster of one."""
    cluster = request.cluster or (ClusterRequest(1) if template.engine not in (None, "none") else None)
    return None if cluster is None else cluster.node(template.engine)


def check_volume(session: Session, candidates: Candidates, name: str) -> None:
    """Raise RoleNeeded where the volume of this name is there and somebody else's, as far as the ledger knows it."""
    machines = [
        machine for machine in named_resources(session.ledger) if machine.name == name and machine.state == Kind.VOLUME
    ]
    known = by_account(session, machines)[0]
    for one in candidates.items:
        check_may_use(
            session, [machine for machine in known.get(one.account, ()) if _may_be_in_place(machine, one.request.want)]
        )


def _may_be_in_place(machine: Machine, needs: Requirements) -> bool:
    same = [(needs.region, machine.region), (needs.zone, machine.zone)]
    return all(wished == known for wished, known in same if wished and known)


def owner_of(session: Session, request: UpRequest) -> str:
    """Return who the machine is for: as typed, else as config.toml says."""
    return request.owner.strip() if request.owner else session.settings.owner


def _setup(setup: Setup, template: Template, *, keep_disk: bool) -> Setup:
    """Return the setup with the template's values for what the user left open, and the policy's."""
    image, disk_gb = setup.image or template.image or None, setup.disk_gb or template.disk_gb
    return with_disk_size(replace(setup, image=image, disk_gb=disk_gb, keep_disk=keep_disk), template)
