"""Plans a launch: options checked, account and template found, offers priced and ranked. Launches nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from cloudgpu.config.templates.find import Template
from cloudgpu.config.templates.render import package_remarks, parts_for_offer
from cloudgpu.control.clusters.engine import check_engine_installed
from cloudgpu.control.inputs.launch_request import UpRequest, validate_request
from cloudgpu.control.launch.any_provider import offers_of_any_provider
from cloudgpu.control.launch.candidates import (
    Candidate,
    Candidates,
    OffersFound,
    candidate_in,
    candidates_of,
    check_volume,
    owner_of,
    volumes_by_account,
)
from cloudgpu.control.launch.containers import container_remarks, filter_runnable
from cloudgpu.control.launch.offers import (
    ResolvedOffer,
    first_launchable,
    offers_of_constrained,
    offers_or_launched_one,
    with_client_ssh_ingress,
    with_placement_constraint,
)
from cloudgpu.control.network.reachability import relaunch_network
from cloudgpu.control.policies.resolve import policy_of
from cloudgpu.control.session.guarding import guarding_run_of_launch
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_override, check_owner
from cloudgpu.core.budgets.credit import CreditFit
from cloudgpu.core.budgets.refusal import Remedy, shorter_launch
from cloudgpu.core.launch.attempt import fingerprint_of, launched_machine, unfinished_attempt
from cloudgpu.core.launch.plan import LaunchPlan, launch_plan, nodes_of, safeguard_texts_of, setup_remarks
from cloudgpu.core.launch.plan_changes import plan_changes
from cloudgpu.core.launch.plan_cost import traffic_remarks
from cloudgpu.core.launch.trust import check_exposure, password_remarks, settings_with_passwords, trust_remarks
from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Note, NoteKind, Offer
from cloudgpu.core.policies.guards import ScheduledRun
from cloudgpu.core.policies.policy import Lifetime
from cloudgpu.core.values.naming import derived_key, lock_name
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import launch_safeguards, needs_reaper_run, user_directory_write_remarks
from cloudgpu.providers.attached_costs import added_costs
from cloudgpu.providers.base import Provider

Planned = TypeVar("Planned")  # any plan that may contain a launch
PRICE_VALID_FOR = timedelta(minutes=1)  # after this, the plan is made again before the launch


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A planned launch with all its offers; nothing is launched yet."""

    plan: LaunchPlan
    offers: tuple[Offer, ...]  # all that fit, in the order of trying
    candidates: Candidates  # the accounts of the offers, each with its own request
    template: Template
    fingerprint: str  # a hash of the request: the same request has the same one, and finds its machine by it
    lock: str  # the name of the lock that a launch of this request holds
    existing: Machine | None  # the machine of this request that exists already
    key: str | None = None
    name: str | None = None
    new: bool = False  # --new: launch another machine, even if one of this request exists
    is_restore: bool = False  # it restores a parked machine from its image
    # The plan's offer with its looked-up image, network and so on. None: a machine existed, so nothing was looked up,
    # and the requests are not constrained to a region or zone.
    resolved_offer: ResolvedOffer | None = None
    override: str | None = None  # the reason for overriding a budget
    no_guard: bool = False  # launched though nothing would end it
    # A cache: empty until the account's prepaid credit is read, then its one result.
    credit: list[CreditFit | CloudgpuError | None] = field(default_factory=list, compare=False)

    def remedy(self, now: datetime) -> Remedy:
        """Return the remedy after a budget's refusal: how to request less than this plan."""
        # "add": the options are added to the command that the user typed
        command = f"cloudgpu start {self.name}" if self.is_restore else "add"
        return Remedy(shorter_launch(now, self.plan.expires - now, command), offers=self.offers)


def prepare(session: Session, request: UpRequest) -> PreparedLaunch:
    """Return the plan of a request. Queries providers for offers; launches and writes nothing.

    Raises InvalidRequest for an invalid request, NoCapacity when nothing fits, QuotaExceeded when the account's quota
    excludes all that does, RoleNeeded for an owner or an override that needs the payer's role, or a colleague's volume.
    """
    validate_request(request)
    if request.override is not None:
        check_override(session, request.override)
    check_owner(session, owner_of(session, request))
    template = session.find_template(request.template)
    passwords = settings_with_passwords(template.name, template.settings, session.settings.templates)
    check_exposure(request.trust, passwords, expose=request.expose)
    candidates = candidates_of(session, request, template)
    fingerprint = fingerprint_of(candidates.fingerprint_request, request.name)
    machines = session.ledger.machines()
    existing = None if request.new else launched_machine(machines, request.key, fingerprint)
    lock = lock_name(request.key or derived_key(fingerprint, 1))  # the same lock for all its generations
    # Else the machine of an interrupted launch: whether it was made is only found out, or settled, by the launch.
    existing_or_unsettled = existing or unfinished_attempt(machines, lock)
    if existing and candidates.any_account:
        candidate = candidate_in(session, request, template, session.account_name_here(existing))
        candidates = replace(candidates, items=(candidate,), skipped=())
    volume = request.setup.volume
    if existing_or_unsettled is None and volume is not None and not candidates.any_account:
        check_volume(session, candidates, volume.name)
    offers_found = find_offers(session, candidates, existing_or_unsettled)
    if existing_or_unsettled is None and volume is not None:
        check_volume(session, offers_found.candidates, volume.name)  # the zone is known only now
    unfit_remarks: tuple[str, ...] = ()
    if existing_or_unsettled is None:
        offers, unfit_remarks = filter_runnable(template, offers_found.offers)
        offers_found = replace(
            offers_found, offers=offers, candidates=with_client_ssh_ingress(session, offers_found.candidates)
        )
    resolved_offer = (
        ResolvedOffer(offers_found.offers[0])
        if existing_or_unsettled
        else first_launchable(session, offers_found.candidates, offers_found.offers, no_guard=request.no_guard)
    )
    offers_found = replace(
        offers_found,
        offers=tuple(
            offer
            for offer in offers_found.offers
            if offer.configuration.account not in resolved_offer.unusable_accounts
        ),
    )
    return PreparedLaunch(
        plan=_plan(session, offers_found, template, resolved_offer, unfit_remarks, no_guard=request.no_guard),
        offers=offers_found.offers,
        candidates=offers_found.candidates,
        template=template,
        fingerprint=fingerprint,
        lock=lock,
        existing=existing,
        key=request.key,
        name=request.name,
        new=request.new,
        resolved_offer=None if existing_or_unsettled else resolved_offer,
        override=request.override,
        no_guard=request.no_guard,
    )


def ask_for_agreement(
    session: Session,
    planned: Planned,
    replan: Callable[[], Planned],
    ask: Callable[[Planned], None],
    launch_of: Callable[[Planned], PreparedLaunch | None],
) -> Planned:
    """Have the user confirm a plan with `ask`, and return the confirmed plan.

    If its prices are too old by then, it is made again with `replan`. What became worse or different in kind, as
    `plan_changes` says, is reported, and that plan has to be confirmed, too. `launch_of` returns the launch in a plan,
    or None. Raises what `replan` and `ask` raise.
    """
    while True:
        ask(planned)
        confirmed = launch_of(planned)
        if confirmed is None or session.clock() - _planned_at(confirmed) <= PRICE_VALID_FOR:
            return planned
        latest = replan()
        replanned = launch_of(latest)
        if replanned is None or replanned.existing is not None:
            return latest
        changes = plan_changes(confirmed.plan, replanned.plan)
        if not changes:
            return latest
        session.report(f"The plan has changed since it was made: {'; '.join(changes)}.")
        planned = latest


def _planned_at(prepared: PreparedLaunch) -> datetime:
    """Return when a plan was made."""
    return prepared.plan.expires - timedelta(seconds=prepared.plan.request.lease_s)


def find_offers(session: Session, candidates: Candidates, existing: Machine | None) -> OffersFound:
    """Return the offers of these accounts; with an `existing` machine there need not be one."""
    if candidates.any_account:
        return offers_of_any_provider(session, candidates, existing)
    (candidate,) = candidates.items
    unconstrained = candidate.request.requirements
    if existing is None:
        candidate = replace(candidate, request=with_placement_constraint(candidate.provider, candidate.request))
    untrusted: list[Offer] = []  # on hosts that --trust does not accept
    offers = offers_of_constrained(session, candidate.provider, candidate.request, unconstrained, existing, untrusted)
    return OffersFound(tuple(offers), replace(candidates, items=(candidate,)), tuple(untrusted))


def prepare_restore(
    session: Session,
    request: LaunchRequest,
    machine: Machine,
    lifetime: Lifetime,
    override: str | None = None,
    *,
    no_guard: bool = False,
) -> PreparedLaunch:
    """Return the plan that restores `machine`: the same key, id and name, by a launch of `request`.

    Raises as `prepare` does.
    """
    provider = session.provider(request.account)
    request = with_placement_constraint(provider, request)
    template, offers, unfit_remarks = restore_offers(session, provider, request)
    request = replace(request, setup=replace(request.setup, network=relaunch_network(session, request.setup.network)))
    candidate = Candidate(provider, request, lifetime, policy_of(session, machine).policy)
    offers_found = OffersFound(offers, with_client_ssh_ingress(session, Candidates((candidate,))))
    resolved_offer = first_launchable(session, offers_found.candidates, offers, no_guard=no_guard)
    return PreparedLaunch(
        plan=_plan(session, offers_found, template, resolved_offer, unfit_remarks, no_guard=no_guard),
        offers=offers_found.offers,
        candidates=offers_found.candidates,
        template=template,
        fingerprint=machine.request,
        lock=lock_name(machine.key or derived_key(machine.request, 1)),  # as in `prepare`
        existing=None,
        key=machine.key,
        name=machine.name,
        is_restore=True,
        resolved_offer=resolved_offer,
        override=override,
        no_guard=no_guard,
    )


def restore_offers(
    session: Session, provider: Provider, request: LaunchRequest
) -> tuple[Template, tuple[Offer, ...], tuple[str, ...]]:
    """Return the template and the offers of a constrained request to restore a machine, and remarks.

    The remarks are on offers whose GPUs the template's container does not support. Raises NoCapacity when nothing fits,
    and InvalidRequest for a template that is missing, has an error, or cannot run there.
    """
    template = session.find_template(request.template)
    fitting_offers = offers_or_launched_one(session, provider, request.requirements, None)
    offers, unfit_remarks = filter_runnable(template, fitting_offers)
    parts_for_offer(template, request, offers[0])
    return template, offers, unfit_remarks


def _plan(
    session: Session,
    offers_found: OffersFound,
    template: Template,
    resolved_offer: ResolvedOffer,
    unfit_remarks: tuple[str, ...] = (),
    *,
    no_guard: bool,
) -> LaunchPlan:
    """Return the plan of `resolved_offer`, followed by those after it; `unfit_remarks` name skipped GPUs."""
    candidate, resolved = offers_found.candidates.for_offer(resolved_offer.offer), resolved_offer.resolved
    request, provider = candidate.request, candidate.provider
    if request.cluster is not None:
        check_engine_installed(provider.kind, request.cluster)
    safeguards = launch_safeguards(provider, resolved)
    # Raises for an error in the template before anything is done.
    parts = parts_for_offer(template, request, resolved_offer.offer)
    relies_on_runs = needs_reaper_run(
        provider, resolved_offer.offer, resolved
    )  # nothing but runs of the reaper would end it
    guarding_run = guarding_run_of_launch(session, resolved_offer.offer) if relies_on_runs else None
    # boot parts: what the template and the options would have done at the first boot
    unsupported_parts = {part.kind for part in parts} - provider.supported_parts
    offers = offers_found.offers[offers_found.offers.index(resolved_offer.offer) :]
    remarks = (
        *user_directory_write_remarks(provider, request.name or "NAME", parts),
        *(package_remarks(request, parts) if "packages" in unsupported_parts else ()),
        *trust_remarks(offers, offers_found.untrusted),
        *traffic_remarks(resolved_offer.offer),
        *password_remarks(
            offers, settings_with_passwords(template.name, template.settings, session.settings.templates)
        ),
        *offers_found.remarks,
        *unfit_remarks,
        *resolved_offer.passed_over,
        *container_remarks(template, resolved_offer.offer),
        *setup_remarks(request.setup),
        *resolved.remarks,
        *candidate.remarks,
        *_cluster_remarks(session, request, resolved_offer.offer),
        *(_scheduled_run_notes(session, guarding_run, request) if relies_on_runs else ()),
        *_other_account_remarks(offers_found, candidate),
    )
    return launch_plan(
        request,
        offers,
        left_out=tuple(sorted(unsupported_parts | set(resolved.left_out))),
        safeguard_texts=safeguard_texts_of(safeguards, resolved.guards, nodes_of(request)),
        safeguards=safeguards,
        scheduled_run=guarding_run,
        waived=no_guard and relies_on_runs,
        now=session.clock().replace(microsecond=0),
        added_costs=added_costs(resolved_offer.offer, resolved),
        remarks=remarks,
        lifetime_origins=(candidate.lifetime.lease_origin, candidate.lifetime.renew_origin),
        licence=resolved.licence,
        volume_there=_is_billed_already(session, request),
        any_provider=offers_found.candidates.any_account,
        policy=candidate.policy,
    )


def _cluster_remarks(session: Session, request: LaunchRequest, offer: Offer) -> Iterator[str]:
    """Yield remarks on the speed and the risks of a cluster; none for one machine."""
    if request.cluster is not None and request.cluster.nodes > 1:
        from cloudgpu.control.clusters.remarks import cluster_remarks

        yield from cluster_remarks(request.cluster.nodes, offer.configuration, session.ledger.machines())


def _scheduled_run_notes(session: Session, run: ScheduledRun | None, request: LaunchRequest) -> Iterator[Note]:
    """Yield notes on a machine that only scheduled runs of the reaper end: where they run, and who is alerted if not.

    Where the time between runs is longer than the lease, a machine ends late, and costs more.
    """
    if run is None:
        yield Note("nothing ends this machine by itself: no scheduled run of the reaper is relied on", NoteKind.GUARD)
        return
    interval = duration_text(run.every)
    yield Note(
        f"scheduled runs of the reaper are all that ends this machine: it relies on those on {run.host}, "
        f"every {interval}",
        NoteKind.GUARD,
    )
    if run.every > timedelta(seconds=request.lease_s):
        sentence = (
            f"it is billed for up to {interval} past its lease or renew-until, until the next of those runs ends it"
        )
        yield Note(sentence, NoteKind.MONEY)
    if session.settings.alerts.deadman is None:
        yield Note(
            "nobody hears when those runs stop: [alerts] deadman in config.toml is not set (see docs/alerts.md)",
            NoteKind.GUARD,
        )


def _other_account_remarks(offers: OffersFound, planned: Candidate) -> Iterator[str]:
    """Yield the policy and lease of accounts that may be tried next, where they differ from the plan's."""
    for candidate in offers.candidates.items:
        terms = (candidate.request.policy, candidate.request.lease_s, candidate.request.renew_s)
        if terms != (planned.request.policy, planned.request.lease_s, planned.request.renew_s):
            lifetime = candidate.lifetime
            yield (
                f"if it is launched at account {candidate.account}, policy {candidate.request.policy} holds: "
                f"lease {duration_text(lifetime.lease)}, renew-until {duration_text(lifetime.renew_until)}"
            )


def _is_billed_already(session: Session, request: LaunchRequest) -> bool:
    """Say whether the volume of a launch exists, so that this machine does not add its cost."""
    volume = request.setup.volume
    return volume is not None and request.account in volumes_by_account(session, volume.name)
