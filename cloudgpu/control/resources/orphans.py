"""Queries all accounts for resources, syncs as `ls --refresh` does, and returns the orphaned ones with their prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.control.inputs.launch_request import parse_optional_duration
from cloudgpu.control.inventory.sync import sync_accounts
from cloudgpu.control.resources.named import complete_resources
from cloudgpu.control.session.accounts import account_gap, split_gaps, used_accounts
from cloudgpu.control.session.identity import by_account, open_providers
from cloudgpu.core.model.identity import QueriedAccount, Unanswered, is_in_unanswered, may_cost_money
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, Instance
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.resources.orphan import (
    Cleanup,
    CleanupOptions,
    Cost,
    LedgerKnowledge,
    Orphan,
    image_name,
    is_imaged_first,
)
from cloudgpu.core.resources.orphans import orphans
from cloudgpu.core.values.money import ZERO
from cloudgpu.core.values.naming import lock_name, unknown_word
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import HasOrphans, HasResources, SetsTimer
from cloudgpu.providers.account_abilities import HasRegions
from cloudgpu.providers.attached_costs import image_cost, resource_rate
from cloudgpu.views.machines import queried_accounts_document
from cloudgpu.views.orphans import orphans_document

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import OrphansDocument


@dataclass(frozen=True, slots=True)
class Survey:
    """The orphaned resources of all accounts, and the gaps where there may be more.

    `queried` are the accounts that were asked; `not_queried` are those of which this computer has only a credential
    that is refused.
    """

    orphans: tuple[Orphan, ...]
    unanswered: tuple[Unanswered, ...]
    queried: tuple[QueriedAccount, ...] = ()
    not_queried: tuple[Unanswered, ...] = ()


def survey(session: Session, options: CleanupOptions, *, region: str | None = None) -> Survey:
    """Query all accounts and return the orphaned resources in all regions, or in this one.

    Reports what the sync corrects. Raises InvalidRequest for a region that no account has.
    """
    accounts = used_accounts(session)
    open_providers(session, accounts)
    with Pool(len(accounts), "accounts") as pool:
        futures = [pool.submit(_query_account, session, account) for account in accounts]
        sync = sync_accounts(session, accounts, retained=True)
        answers = [future.result() for future in futures]
    for sentence in sync.sentences:
        session.report(sentence)
    machines = _machines_here(session)
    resources = [*sync.resources, *(resource for answer in answers for resource in answer.resources)]
    resources += [resource for answer in answers for resource in _timer_resources(session, answer, machines)]
    account_gaps, _ = split_gaps(session, (gap for answer in answers for gap in answer.unanswered))
    gaps = _unique_gaps([*sync.unanswered, *account_gaps])
    knowledge = _ledger_knowledge(session, machines, sync.foreign, gaps, resources)
    shown = [orphan for orphan in orphans(resources, knowledge, options) if _is_shown(orphan, session.ledger.id)]
    if region is not None:
        others = _known_regions(session, accounts, region, [*shown, *machines]) - {region}
        shown = [orphan for orphan in shown if orphan.region == region]
        # A gap may also be one machine, whose region cannot be read.
        gaps = [
            gap
            for gap in gaps
            if gap.scope in accounts or not any(is_in_unanswered((gap.scope,), "", other) for other in others)
        ]
    return Survey(tuple(shown), tuple(gaps), sync.queried, tuple(sync.not_queried))


def refresh_orphan(session: Session, orphan: Orphan) -> Orphan | None:
    """Return an orphan as it is now: queried and evaluated again. None where it is gone, or in use.

    The caller holds its lock, so no process of this ledger changes it. Raises what the provider raises.
    """
    machines = _machines_here(session)
    current = [resource for resource in resources_of_kind(session, orphan) if resource.id == orphan.id]
    knowledge = _ledger_knowledge(
        session, machines, (), (), current, locked_here=orphan.machine.id if orphan.machine else None
    )
    # Stopped machines are among the answers, too.
    return next((one for one in orphans(current, knowledge) if (one.what, one.id) == (orphan.what, orphan.id)), None)


def _machines_here(session: Session) -> list[Machine]:
    """Return all machines, with the names that their accounts have here."""
    machines = session.ledger.machines()
    groups, _ = by_account(session, [machine for machine in machines if may_cost_money(machine)])
    names = {machine.id: account for account, group in groups.items() for machine in group}
    return [machine._replace(account=names.get(machine.id, machine.account)) for machine in machines]


def resources_of_kind(session: Session, orphan: Orphan) -> list[ProviderResource]:
    """Return all resources of this kind in its region. Raises ProviderUnavailable where a part did not answer."""
    provider, kind = session.provider(orphan.account), Kind(orphan.what)
    if kind is Kind.TIMER:
        timers = provider.timers(orphan.region) if isinstance(provider, SetsTimer) else {}
        answer = _AccountResources(orphan.account, provider.kind, timers=timers)
        return _timer_resources(session, answer, _machines_here(session))
    if kind in (Kind.DISK, Kind.VOLUME, Kind.SNAPSHOT, Kind.IMAGE):
        return complete_resources(
            provider.resources(orphan.region) if isinstance(provider, HasResources) else ResourceListing(())
        )
    return complete_resources(
        provider.orphans(orphan.region) if isinstance(provider, HasOrphans) else ResourceListing(())
    )


@dataclass(frozen=True, slots=True)
class _AccountResources:
    """What an account has besides machines, disks and images; `timers`: when each fires, by the provider's id."""

    account: str
    provider: str
    resources: tuple[ProviderResource, ...] = ()
    timers: Mapping[str, datetime] | None = None
    unanswered: tuple[Unanswered, ...] = ()


def _query_account(session: Session, account: str) -> _AccountResources:
    """Query one account; what did not answer becomes a gap. Raises nothing."""
    try:
        provider = session.provider(account)
        listing = provider.orphans() if isinstance(provider, HasOrphans) else ResourceListing(())
    except CloudgpuError as error:
        return _AccountResources(account, "", unanswered=(account_gap(account, error),))
    try:
        timers = provider.timers() if isinstance(provider, SetsTimer) and not provider.why_no_timer() else {}
    except CloudgpuError as error:
        gap = Unanswered(account, f"its timers are not known: {error.message}")
        return _AccountResources(account, provider.kind, listing.items, unanswered=(*listing.unanswered, gap))
    return _AccountResources(account, provider.kind, listing.items, timers, listing.unanswered)


def _timer_resources(
    session: Session, answer: _AccountResources, machines: Sequence[Machine]
) -> list[ProviderResource]:
    """Return the timers of an account as resources, each in the region of its machine.

    The account may have several names here: its machines are known under one of them, and listed under each.
    """
    by_provider_id = {machine.provider_id: machine for machine in machines if machine.provider == answer.provider}
    return [_timer_resource(session, answer, id_, by_provider_id.get(id_)) for id_ in answer.timers or {}]


def _timer_resource(
    session: Session, answer: _AccountResources, provider_id: str, machine: Machine | None
) -> ProviderResource:
    tags = {TAG_LEDGER: session.ledger.id} | ({TAG_ID: machine.id} if machine else {})
    return ProviderResource(
        provider=answer.provider,
        account=answer.account,
        region=machine.region if machine else provider_id.partition("/")[0],
        zone="",
        id=provider_id,
        kind=Kind.TIMER,
        name="",
        size_gb=0,
        stored_as="",
        tags=tags,
    )


def _ledger_knowledge(
    session: Session,
    machines: Sequence[Machine],
    foreign: Sequence[Instance],
    gaps: Sequence[Unanswered],
    resources: Sequence[ProviderResource],
    locked_here: str | None = None,
) -> LedgerKnowledge:
    """Return what the ledger knows about the resources; `locked_here` is the machine whose lock the caller holds."""
    tagged_ids = {resource.tags.get(TAG_ID) for resource in resources}
    candidates = [machine for machine in machines if machine.id in tagged_ids or machine.terminated_at is None]
    return LedgerKnowledge(
        ledger=session.ledger.id,
        machines=machines,
        foreign_instances=foreign,
        busy_ids=frozenset(
            machine.id
            for machine in candidates
            if machine.id != locked_here and session.is_locked(lock_name(machine.key or machine.id))
        ),
        silent_scopes=frozenset(gap.scope for gap in gaps),
        costs={resource.id: _cost(resource) for resource in resources},
        now=session.clock(),
    )


def _cost(resource: ProviderResource) -> Cost:
    """Return what a resource costs a month."""
    if not resource.stored_as:
        return Cost(ZERO, source="it costs nothing by itself")
    rate = resource_rate(resource)
    return Cost(rate.per_month, bool(rate.why_maybe_less), rate.source)


def _is_shown(orphan: Orphan, ledger_id: str) -> bool:
    """Say whether an orphan is shown: not where it is another ledger's, stays and costs nothing."""
    return orphan.origin.ledger == ledger_id or orphan.do is not Cleanup.STAY or orphan.cost.per_month != ZERO


def _unique_gaps(gaps: Sequence[Unanswered]) -> list[Unanswered]:
    """Return one gap for each scope, the first of each."""
    return list({gap.scope: gap for gap in reversed(gaps)}.values())[::-1]


def _known_regions(
    session: Session, accounts: Sequence[str], region: str, located: Sequence[Orphan | Machine]
) -> set[str]:
    """Return the regions of the accounts and of these resources; raise InvalidRequest where `region` is not there."""
    regions = {resource.region for resource in located}
    for account in accounts:
        with suppress(CloudgpuError):  # an account that does not answer is named elsewhere
            provider = session.provider(account)
            regions |= {listed.name for listed in provider.regions()} if isinstance(provider, HasRegions) else set()
    if region not in regions:
        raise unknown_word(
            f"No account has a region {region!r}", region, regions, field="--region", next="See them: cloudgpu regions"
        )
    return regions


def cleanup_options(
    *, clean: bool, snapshot: bool, older_than: timedelta | str | None, stopped_older_than: timedelta | str | None
) -> CleanupOptions:
    """Return the options of a cleanup. Raises InvalidRequest for an invalid duration, or options without --clean."""
    for option, is_given in (("--snapshot", snapshot), ("--stopped-older-than", stopped_older_than is not None)):
        if is_given and not clean:
            raise InvalidRequest(
                f"{option} needs --clean.",
                field=option,
                value=None,
                next="Add --clean: it shows what would be removed, and asks.",
            )
    minimum_age = parse_optional_duration(older_than, "--older-than")
    spares_restorable = minimum_age is None and not snapshot  # without either option, what `start` can restore stays
    return CleanupOptions(
        minimum_age, parse_optional_duration(stopped_older_than, "--stopped-older-than"), spare=spares_restorable
    )


def build_orphans_document(survey: Survey, *, snapshot: bool = False) -> OrphansDocument:
    """Return the orphans as a document; with `snapshot` also the images that would be saved of disks, with costs."""
    to_save = [orphan for orphan in survey.orphans if is_imaged_first(orphan)] if snapshot else []
    images = {orphan.id: (image_name(orphan), image_cost_of(orphan)) for orphan in to_save}
    accounts = queried_accounts_document(survey.queried, survey.not_queried)
    return orphans_document(survey.orphans, survey.unanswered, images, accounts)


def image_cost_of(orphan: Orphan) -> Cost:
    """Return what an image of an orphaned disk costs a month at most."""
    price = image_cost(orphan.provider, orphan.region, orphan.size_gb)
    return Cost(price.per_month, is_upper_bound=True, source=price.source)
