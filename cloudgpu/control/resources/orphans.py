"""Asks all accounts what there is, looks as `ls --refresh` does, and returns what is left over, with its price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.control.inputs.launch_request import duration
from cloudgpu.control.inventory.sync import sync_accounts
from cloudgpu.control.resources.named import complete
from cloudgpu.control.session.accounts import account_gap, split_gaps, used_accounts
from cloudgpu.control.session.identity import by_account
from cloudgpu.core.model.identity import QueriedAccount, Unanswered, is_in_unanswered, may_cost_money
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, Instance
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.resources.orphan import Cleanup, CleanupOptions, Cost, LedgerKnowledge, Orphan, image_name, is_saved
from cloudgpu.core.resources.orphans import orphans
from cloudgpu.core.values.money import ZERO
from cloudgpu.core.values.naming import lock_name, unknown_word
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import HasOrphans, HasResources, SetsTimer
from cloudgpu.providers.account_abilities import HasRegions
from cloudgpu.providers.attached_costs import image_cost, resource_rate
from cloudgpu.views.machines import queried_accounts_value
from cloudgpu.views.orphans import orphans_value

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import OrphansDocument


@dataclass(frozen=True, slots=True)
class Survey:
    """What is left over in all accounts, and who did not answer: of those there may be more.

    `queried` are the accounts that were asked; `not_queried` are those that only a credential on this computer names,
    and that it does not open.
    """

    orphans: tuple[Orphan, ...]
    unanswered: tuple[Unanswered, ...]
    queried: tuple[QueriedAccount, ...] = ()
    not_queried: tuple[Unanswered, ...] = ()


def survey(session: Session, request: CleanupOptions, *, region: str | None = None) -> Survey:
    """Look at all accounts and return what is left over in all regions, or in this one.

    What a sync puts in order is told. Raises InvalidRequest for a region that no account has.
    """
    accounts = _accounts(session)
    with Pool(len(accounts), "accounts") as pool:
        more = [pool.submit(_beside_of, session, account) for account in accounts]
        look = sync_accounts(session, accounts, retained=True)
        answers = [one.result() for one in more]
    for sentence in look.sentences:
        session.report(sentence)
    rows = _named_here(session)
    resources = [*look.resources, *(resource for answer in answers for resource in answer.resources)]
    resources += [resource for answer in answers for resource in _timers(session, answer, rows)]
    beside, _ = split_gaps(session, (gap for answer in answers for gap in answer.unanswered))
    gaps = _once([*look.unanswered, *beside])
    known = _known(session, rows, look.foreign, gaps, resources)
    found = [one for one in orphans(resources, known, request) if _concerns(one, session.ledger.id)]
    if region is not None:
        _check_region(session, accounts, region, [*found, *rows])
        found = [one for one in found if one.region == region]
        gaps = [gap for gap in gaps if any(is_in_unanswered((gap.scope,), account, region) for account in accounts)]
    return Survey(tuple(found), tuple(gaps), look.queried, tuple(look.not_queried))


def refresh_orphan(session: Session, orphan: Orphan) -> Orphan | None:
    """Return how something that is left over is now: asked anew, judged anew. None where it is gone, or in use.

    The caller holds its lock, so no process of this ledger is at work on it. Raises what the provider raises.
    """
    rows = _named_here(session)
    now = [resource for resource in resources_of_kind(session, orphan) if resource.id == orphan.id]
    known = _known(session, rows, (), (), now, but=orphan.machine.id if orphan.machine else None)
    return next(iter(orphans(now, known)), None)


def _named_here(session: Session) -> list[Machine]:
    """Return all machines, each with what its account is called here, where it may still use what lies there."""
    machines = session.ledger.machines()
    groups, _ = by_account(session, [machine for machine in machines if may_cost_money(machine)])
    names = {machine.id: account for account, some in groups.items() for machine in some}
    return [machine._replace(account=names.get(machine.id, machine.account)) for machine in machines]


def resources_of_kind(session: Session, orphan: Orphan) -> list[ProviderResource]:
    """Return all things of this kind in its region. Raises ProviderUnavailable for a part that did not answer."""
    provider, kind = session.provider(orphan.account), Kind(orphan.what)
    if kind is Kind.TIMER:
        fires = provider.timers(orphan.region) if isinstance(provider, SetsTimer) else {}
        rows = _named_here(session)
        return _timers(session, _AccountResources(orphan.account, provider.kind, timers=fires), rows)
    if kind in (Kind.DISK, Kind.VOLUME, Kind.SNAPSHOT, Kind.IMAGE):
        return complete(
            provider.resources(orphan.region) if isinstance(provider, HasResources) else ResourceListing(())
        )
    return complete(provider.orphans(orphan.region) if isinstance(provider, HasOrphans) else ResourceListing(()))


@dataclass(frozen=True, slots=True)
class _AccountResources:
    """What an account has beside machines, disks and images; `timers` say when they fire, by the machine's id."""

    account: str
    provider: str
    resources: tuple[ProviderResource, ...] = ()
    timers: Mapping[str, datetime] | None = None
    unanswered: tuple[Unanswered, ...] = ()


def _accounts(session: Session) -> list[str]:
    """Return the accounts to ask; their providers are made here, since two threads would make two."""
    accounts = used_accounts(session)
    for account in accounts:
        with suppress(CloudgpuError):  # said by whoever asks it
            session.provider(account)
    return accounts


def _beside_of(session: Session, account: str) -> _AccountResources:
    """Ask one account; what did not answer is named, and never an error."""
    try:
        provider = session.provider(account)
        found = provider.orphans() if isinstance(provider, HasOrphans) else ResourceListing(())
    except CloudgpuError as error:
        return _AccountResources(account, "", unanswered=(account_gap(account, error),))
    try:
        fires = provider.timers() if isinstance(provider, SetsTimer) and not provider.why_no_timer() else {}
    except CloudgpuError as error:
        gap = Unanswered(account, f"its timers are not known: {error.message}")
        return _AccountResources(account, provider.kind, found.items, unanswered=(*found.unanswered, gap))
    return _AccountResources(account, provider.kind, found.items, fires, found.unanswered)


def _timers(session: Session, answer: _AccountResources, machines: Sequence[Machine]) -> list[ProviderResource]:
    """Return the timers of an account as things, each at its machine."""
    of = {machine.provider_id: machine for machine in machines if machine.account == answer.account}
    return [_timer(session, answer, id_, of.get(id_)) for id_ in answer.timers or {}]


def _timer(session: Session, answer: _AccountResources, machine: str, row: Machine | None) -> ProviderResource:
    tags = {TAG_LEDGER: session.ledger.id} | ({TAG_ID: row.id} if row else {})
    return ProviderResource(
        provider=answer.provider,
        account=answer.account,
        region=row.region if row else machine.partition("/")[0],
        zone="",
        id=machine,
        kind=Kind.TIMER,
        name="",
        size_gb=0,
        stored_as="",
        tags=tags,
    )


def _known(
    session: Session,
    machines: Sequence[Machine],
    foreign: Sequence[Instance],
    gaps: Sequence[Unanswered],
    resources: Sequence[ProviderResource],
    but: str | None = None,
) -> LedgerKnowledge:
    """Return what is known beside the things; `but` is the machine whose lock is our own."""
    named = {resource.tags.get(TAG_ID) for resource in resources}
    in_question = [machine for machine in machines if machine.id in named or machine.terminated_at is None]
    busy = (
        machine
        for machine in in_question
        if machine.id != but and session.is_locked(lock_name(machine.key or machine.id))
    )
    return LedgerKnowledge(
        ledger=session.ledger.id,
        rows=machines,
        foreign=foreign,
        busy=frozenset(machine.id for machine in busy),
        silent=frozenset(gap.scope for gap in gaps),
        costs={resource.id: _cost(resource) for resource in resources},
        now=session.clock(),
    )


def _cost(resource: ProviderResource) -> Cost:
    if not resource.stored_as:
        return Cost(ZERO, source="it costs nothing by itself")
    rate = resource_rate(resource)
    return Cost(rate.per_month, bool(rate.why_maybe_less), rate.source)


def _concerns(orphan: Orphan, ledger: str) -> bool:
    """Say whether this is worth a line: what others have for nothing is not."""
    return orphan.origin.ledger == ledger or orphan.do is not Cleanup.STAY or orphan.cost.per_month != ZERO


def _once(gaps: Sequence[Unanswered]) -> list[Unanswered]:
    return list({gap.scope: gap for gap in reversed(gaps)}.values())[::-1]


def _check_region(session: Session, accounts: Sequence[str], region: str, found: Sequence[Any]) -> None:
    known = {one["region"] if isinstance(one, dict) else one.region for one in found}
    for account in accounts:
        with suppress(CloudgpuError):  # an account that does not answer is named elsewhere
            provider = session.provider(account)
            known |= {one.name for one in provider.regions()} if isinstance(provider, HasRegions) else set()
    if region not in known:
        raise unknown_word(
            f"No account has a region {region!r}", region, known, field="--region", next="See them: cloudgpu regions"
        )


def cleanup_options(
    *, clean: bool, snapshot: bool, older_than: timedelta | str | None, stopped_older_than: timedelta | str | None
) -> CleanupOptions:
    """Return what is asked for. Raises InvalidRequest for what is no duration, or says how to clean without --clean."""
    for option, given in (("--snapshot", snapshot), ("--stopped-older-than", stopped_older_than is not None)):
        if given and not clean:
            raise InvalidRequest(
                f"{option} needs --clean.",
                field=option,
                value=None,
                next="Add --clean: it shows what would be removed, and asks.",
            )
    older = duration(older_than, "--older-than")
    spare = older is None and not snapshot  # whoever says neither may not mean what `start` brings back
    return CleanupOptions(older, duration(stopped_older_than, "--stopped-older-than"), spare=spare)


def orphans_document(survey: Survey, *, snapshot: bool = False) -> OrphansDocument:
    """Return what is left over; with `snapshot` also the images that are made before disks go, and what they cost."""
    images = _images(survey.orphans) if snapshot else {}
    accounts = queried_accounts_value(survey.queried, survey.not_queried)
    return orphans_value(survey.orphans, survey.unanswered, images, accounts)


def _images(orphans: Sequence[Orphan]) -> dict[str, tuple[str, Cost]]:
    return {one.id: (image_name(one), price_of(one)) for one in orphans if is_saved(one)}


def price_of(orphan: Orphan) -> Cost:
    """Return what an image of a disk costs a month, at most."""
    found = image_cost(orphan.provider, orphan.region, orphan.size_gb)
    return Cost(found.per_month, at_most=True, source=found.source)
