"""Syncs accounts or one machine: queries the providers and records what has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cloudgpu.control.inventory.adoption import adoption_events
from cloudgpu.control.inventory.local_files import clean_up_local_files
from cloudgpu.control.inventory.retention import is_silent, resource_events
from cloudgpu.control.inventory.retention_sync import settle_retained
from cloudgpu.control.inventory.settle import (
    close_by_listing,
    covers_region_of,
    is_too_early,
    launch_found_event,
    refused_launch_events,
    request_remnant_end,
)
from cloudgpu.control.inventory.stop_proof import answer_events, cancel_spot_request, change_events, get_or_raise
from cloudgpu.control.inventory.sync_accounts import Answer, ask_accounts
from cloudgpu.control.pricing import price_history as pricing
from cloudgpu.control.pricing.shared_computer import record_shared_costs
from cloudgpu.control.session.accounts import account_gap, queried_accounts, split_gaps, used_accounts
from cloudgpu.control.session.identity import AccountScope, unqueried_accounts
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.core.events.general_events import account_synced, ledger_doubted
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import start_refused
from cloudgpu.core.events.observations import (
    instance_observed,
    instance_vanished,
    is_resized,
    is_too_recent,
    not_before,
    one_per_machine,
    price_lines,
)
from cloudgpu.core.events.projection import project_event
from cloudgpu.core.model.identity import QueriedAccount, Unanswered, account_text, may_cost_money, regions_that_may_cost
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, TAG_SEQ, Instance, Listing, State
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.resources.retention import is_of_earlier_life, is_remnant
from cloudgpu.core.values.naming import account_sync_subject, lock_name
from cloudgpu.core.values.times import duration_text, from_iso
from cloudgpu.errors import AnswerTimeout, CloudgpuError, InstanceNotFound, LedgerMoved, LedgerUnavailable
from cloudgpu.ledger.last_seen import last_seen_at
from cloudgpu.providers.abilities import SharesComputer


@dataclass
class SyncResult:
    """What a sync found in addition to what it recorded in the ledger.

    `foreign` are machines of other ledgers: shown, never touched. `sentences` say what the sync has corrected.
    `answered` are the ids of machines whose present state is known. `resources` are all disks and images of any ledger,
    if they were queried. `queried` are the accounts that were queried; `not_queried` are accounts with credentials on
    this computer that are not valid. `silent` are accounts and regions, and `unlisted` accounts, that did not answer at
    all; `unread` are accounts of which no machine could be read, though there may be some. `gpus_now` are the users of
    the GPUs of each machine's computer, by machine id, if known.
    """

    foreign: list[Instance] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    resources: list[ProviderResource] = field(default_factory=list)
    queried: tuple[QueriedAccount, ...] = ()
    not_queried: list[Unanswered] = field(default_factory=list)
    silent: set[tuple[str, str]] = field(default_factory=set)
    unlisted: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    gpus_now: dict[str, tuple[str, ...]] = field(default_factory=dict)


def sync_all(session: Session) -> SyncResult:
    """Query every account in parallel, record what has changed, settle interrupted launches, and clean up."""
    return sync_accounts(session, used_accounts(session), retained=True)


def sync_accounts(
    session: Session,
    accounts: Sequence[str],
    *,
    retained: bool | Collection[str] = False,
    retry_after_s: float | None = None,
) -> SyncResult:
    """Query these accounts and record what has changed, with the prices since the last sync.

    With `retained` also disks and images, and finish interrupted parkings and deletions; it may name the accounts for
    that. An account with an incomplete answer is queried once more after `retry_after_s` seconds (None: it is not).
    """
    result, asked_at = SyncResult(), session.clock()
    sharing_providers: dict[str, SharesComputer] = {}
    for account in accounts:
        with suppress(CloudgpuError):  # its query reports the error; made here so that threads do not make it twice
            if isinstance(provider := session.provider(account), SharesComputer):
                sharing_providers[account] = provider
    machines = session.ledger.machines()
    retained_accounts = (accounts if retained else ()) if isinstance(retained, bool) else retained
    prices_due, regions = pricing.machines_to_price(session, machines), regions_that_may_cost(machines)
    account_scopes = []
    for answer in ask_accounts(
        session,
        accounts,
        asked_at,
        prices_due,
        regions,
        retained_accounts=retained_accounts,
        retry_after_s=retry_after_s,
    ):
        _, not_queried = split_gaps(session, answer.listing.unanswered)
        if not_queried:
            result.not_queried += not_queried
            continue
        account_scopes.append(answer.scope)
        try:
            _write_listing(session, answer, result)
            if answer.account in sharing_providers:
                record_shared_costs(session, sharing_providers[answer.account], answer.scope)
            if answer.resources is not None:
                result.resources += answer.resources.items
                named_scopes = {gap.scope for gap in result.unanswered}
                result.unanswered += [gap for gap in answer.resources.unanswered if gap.scope not in named_scopes]
                result.sentences += settle_retained(
                    session, answer.scope, answer.resources, asked_at, answered=result.answered
                )
        except (LedgerUnavailable, LedgerMoved):
            raise
        except Exception as error:  # noqa: BLE001  (it hides no machine of another account)
            result.unanswered.append(account_gap(answer.account, error))
    result.unanswered += _gaps_of_other_accounts(session, accounts, account_scopes, result)
    result.queried = queried_accounts(session, accounts, result.not_queried)
    clean_up_local_files(session)
    return result


def _gaps_of_other_accounts(
    session: Session, accounts: Sequence[str], scopes: Sequence[AccountScope], sync: SyncResult
) -> list[Unanswered]:
    """Return a gap for machines whose account has the name of a queried one, but another identity.

    If all accounts were queried, for all machines of accounts that this computer does not have.
    """
    named_scopes = {gap.scope for gap in sync.unanswered}
    machines = [
        machine
        for machine in session.ledger.machines()
        if may_cost_money(machine) and machine.account not in named_scopes
    ]
    of_queried_accounts = [machine for machine in machines if machine.account in accounts]
    if len(of_queried_accounts) < len(machines) and not set(accounts) >= set(used_accounts(session)):
        machines = of_queried_accounts
    return [gap for gap in unqueried_accounts(session, machines, scopes) if gap.scope not in named_scopes]


def refresh(session: Session, machine: Machine, *, record_unchanged: bool = False) -> Machine:
    """Query one machine, record what has changed, and return the updated machine; one that is gone is recorded so.

    `record_unchanged`: also record that an unchanged machine was seen, if the ledger can be written. Raises
    ProviderUnavailable if the provider does not answer.
    """
    now = not_before(machine, session.clock())
    try:
        answer: Instance | InstanceNotFound = get_or_raise(session, machine)
    except InstanceNotFound as gone:
        answer = gone
    events = answer_events(session, machine, answer, now)
    if record_unchanged and not events and isinstance(answer, Instance):
        event = instance_observed(answer, now, machine=machine)
        try:
            return session.ledger.append_to(machine, [event])
        except CloudgpuError:  # the caller gets it all the same
            return project_event(machine, event)
    return session.ledger.append_to(machine, events)


def _write_listing(session: Session, answer: Answer, sync: SyncResult) -> None:
    """Record what a listing has changed: machines seen, missing, adopted and priced; add what it found to `sync`."""
    account, listing, now = answer.account, answer.listing, answer.asked_at
    sync.unanswered += listing.unanswered
    sync.unlisted |= {account} if answer.silent else set()
    sync.unread |= {account} if listing.unanswered and not listing.instances else set()
    ledger_id = session.ledger.id
    sync.foreign += [instance for instance in listing.instances if instance.tags.get(TAG_LEDGER) != ledger_id]
    by_id = {machine.id: machine for machine in session.ledger.machines()}
    ledger_instances = [instance for instance in listing.instances if instance.tags.get(TAG_LEDGER) == ledger_id]
    machines = _machines_of_answer(
        by_id, answer, [ledger_instance.tags[TAG_ID] for ledger_instance in ledger_instances]
    )
    drafts: list[Draft] = price_lines(answer.prices, list(machines.values()), now)
    seen_ids: set[str] = set()
    account_instances = [
        ledger_instance
        for ledger_instance in ledger_instances
        if _is_of_account(ledger_instance, by_id, machines, answer, sync)
    ]
    current_instances = [
        account_instance for account_instance in account_instances if _is_of_current_launch(machines, account_instance)
    ]
    unique_instances, duplicates = one_per_machine(current_instances, machines)
    sync.unanswered += duplicates
    for instance in unique_instances:
        seen_ids.add(instance.tags[TAG_ID])
        sync.gpus_now[instance.tags[TAG_ID]] = instance.gpus_now
        drafts += _observed_events(session, machines.get(instance.tags[TAG_ID]), instance, sync, answer)
    answered_ids, unseen_ids = set(seen_ids), list[str]()
    for machine in (machine for machine in living_machines(list(machines.values())) if machine.id not in seen_ids):
        is_conclusive = (
            listing.is_complete_in(machine.region)
            and from_iso(machine.intended_at) < now
            and (machine.launch_status != "open" or covers_region_of(listing, machine))
        )
        events = _missing_events(session, machine, sync, answer) if is_conclusive else None
        drafts += events or []
        unseen_ids += [machine.id] if events is None else []
        answered_ids |= {machine.id} if events is not None else set()
    if answer.resources is not None:
        resource_drafts, unseen_resources = resource_events(session.ledger, answer.scope, answer.resources, now)
        drafts += resource_drafts
        unseen_ids += [
            *unseen_resources,
            *(
                one
                for one, machine in machines.items()
                if machine.retained and is_silent(answer.resources, machine.region, answer.account)
            ),
        ]
    drafts += _integrity_events(session, listing, now)
    has_resources, has_prices = answer.resources is not None, not answer.prices.why_unanswered
    drafts += [
        account_synced(
            scope, len(seen_ids), listing.unanswered, now, unseen=unseen_ids, resources=has_resources, pinned=has_prices
        )
        for scope in _sync_subjects(answer, machines.values())
    ]
    if answer.prices.why_unanswered:
        sync.sentences.append(
            f"{account}: what prices were since the last look is not known ({answer.prices.why_unanswered})"
        )
    session.ledger.append(drafts)
    sync.answered |= answered_ids  # only now are their records as the cloud says
    for draft in drafts:
        if draft.kind == "terminate_requested":  # of what a refused launch left
            request_remnant_end(session, draft.subject)


def _machines_of_answer(by_id: Mapping[str, Machine], answer: Answer, listed_ids: Sequence[str]) -> dict[str, Machine]:
    """Return the machines of the account that answered, under whatever name the ledger has the account."""
    ids = {*listed_ids, *answer.prices.history, *answer.prices.now}
    candidates = (machine for machine in by_id.values() if machine.id in ids or may_cost_money(machine))
    return {machine.id: machine for machine in answer.scope.select(candidates)}


def _is_of_account(
    instance: Instance, by_id: Mapping[str, Machine], machines: Mapping[str, Machine], answer: Answer, sync: SyncResult
) -> bool:
    """Return whether an instance is a machine of this account by the ledger, or has no record there.

    An instance that the ledger has in another account is left alone, and so is an unknown one while the identity of
    the account is not known.
    """
    machine_id = instance.tags[TAG_ID]
    if machine_id in machines:
        return True
    identity = answer.scope.identity(instance.region)
    if machine_id in by_id and identity is not None:
        other_account = account_text(by_id[machine_id])
        why = f"{instance.id} in {identity.display_name} bears its tags, and the ledger has it in {other_account}"
        sync.unanswered.append(Unanswered(by_id[machine_id].name or machine_id, why))
    elif identity is None and machine_id not in by_id and (error := answer.scope.error_of(instance.region)) is not None:
        sync.unanswered.append(Unanswered(answer.account, error.message))
    return machine_id not in by_id and identity is not None


def _sync_subjects(answer: Answer, machines: Iterable[Machine]) -> list[str]:
    """Return the ledger subjects of the sync: the accounts that it covers, by their identities."""
    ids = {not_none(machine.identity).id for machine in machines}
    if not ids:
        default_identity = answer.scope.identity(None)
        ids = {answer.account if default_identity is None else default_identity.id}
    return [account_sync_subject(answer.kind, id_) for id_ in sorted(ids)]


def _is_of_current_launch(machines: Mapping[str, Machine], instance: Instance) -> bool:
    """Return False for an ended instance of an earlier launch, which clouds still list for a while."""
    machine = machines.get(instance.tags[TAG_ID])
    has_ended = instance.state in (State.TERMINATED, State.STOPPING)
    return machine is None or not has_ended or not is_of_earlier_life(machine, instance.tags)


def _integrity_events(session: Session, listing: Listing, now: datetime) -> list[Draft]:
    """Return an event if the ledger is shorter than it was at a machine's launch, by the machine's tag.

    Then an old copy of it was restored, together with its head record.
    """
    ledger_id = session.ledger.id
    tags = [
        instance.tags.get(TAG_SEQ, "") for instance in listing.instances if instance.tags.get(TAG_LEDGER) == ledger_id
    ]
    length_at_launch = max((int(tag) for tag in tags if tag.isdecimal()), default=0)
    length = session.ledger.head()[0]
    if length_at_launch <= length or length_at_launch <= _last_doubted_seq(session):
        return []
    why = f"It has {length} lines, and a machine was launched when it had {length_at_launch}."
    return [ledger_doubted(why, length_at_launch, now)]


def _last_doubted_seq(session: Session) -> int:
    """Return the highest length at a launch that was reported already; 0 if none was."""
    doubts = (event for event in session.ledger.events("ledger") if event.kind == "ledger_doubted")
    return max((int(event.body["seq"]) for event in doubts), default=0)


def _observed_events(
    session: Session, machine: Machine | None, instance: Instance, sync: SyncResult, answer: Answer
) -> list[Draft]:
    """Return the events of a listed machine, and add to `sync` what was corrected."""
    drafts, now = list[Draft](), answer.asked_at
    if machine is None:
        sync.sentences.append(
            f"Machine {instance.tags[TAG_ID]}, which this ledger did not know, was added to the ledger."
        )
        return [*adoption_events(session, instance, answer.resources, now), instance_observed(instance, now)]
    if machine.launch_status == "open":
        if session.is_locked(lock_name(machine.key)):
            return []  # the process that launches it is alive and writes this itself
        if is_remnant(machine, instance):
            sync.sentences.append(f"{machine.name}: its launch was refused and left a stopped machine, which is ended.")
            return refused_launch_events(session, machine, instance, now)
        sync.sentences.append(f"{machine.name}: an interrupted launch was found to have succeeded.")
        drafts.append(launch_found_event(machine, now))
    if not _cancel_spot_request(session, machine, instance, sync):
        return drafts  # seen as ended once that is done: the next sync tries it again
    if is_resized(machine, instance):
        sync.sentences.append(
            f"{machine.name} was changed by others from {machine.instance_type} ({machine.market}) to "
            f"{instance.instance_type} ({instance.market}); it is billed as that."
        )
    drafts += change_events(session, machine, instance, now)
    return drafts + (
        abandoned_start_event(session, machine, instance, now) if machine.pending_action == "start" else []
    )


def _cancel_spot_request(session: Session, machine: Machine, instance: Instance, sync: SyncResult) -> bool:
    """Cancel the persistent spot request of a machine that has ended by itself; return False if that failed."""
    try:
        if cancel_spot_request(session, machine, instance):
            sync.sentences.append(f"{machine.name} has ended; its request, which would launch the next, is cancelled.")
    except CloudgpuError as error:
        sync.unanswered.append(Unanswered(machine.name, error.message))
        return False
    return True


def _missing_events(session: Session, machine: Machine, sync: SyncResult, answer: Answer) -> list[Draft] | None:
    """Return the events of a machine that a complete listing lacks; None if it is not known what became of it."""
    provider, now = session.provider(answer.account), answer.asked_at
    proves_after = provider.token_rule.not_found_proves_end_after
    if machine.launch_status == "open":
        return _attempt_events(session, machine, sync, answer)
    if (machine.account, machine.region) in sync.silent:
        sync.unanswered.append(Unanswered(machine.name, f"{machine.region} did not answer just now"))
        return None
    try:
        instance = provider.get(not_none(machine.provider_id))
    except InstanceNotFound:
        if is_too_recent(machine, proves_after, now):
            return None
        sync.sentences.append(f"{machine.name} is gone: the provider has no such machine any more.")
        proof, last_seen = "missing from a complete listing and unknown to get", last_seen_at(session.ledger, machine)
        return [instance_vanished(machine.id, not_none(machine.provider_id), proof, now, last_seen)]
    except CloudgpuError as error:
        sync.unanswered.append(Unanswered(machine.name, error.message))
        sync.silent |= {(machine.account, machine.region)} if isinstance(error, AnswerTimeout) else set()
        return None
    is_cancelled = _cancel_spot_request(session, machine, instance, sync)  # else the next sync records the end
    return change_events(session, machine, instance, not_before(machine, session.clock())) if is_cancelled else None


def _attempt_events(session: Session, machine: Machine, sync: SyncResult, answer: Answer) -> list[Draft] | None:
    """Close an attempt whose machine the listing lacks, if no process works on it: by a new listing, under its lock.

    The first listing may have been requested before the call was sent, because the clocks of two computers differ.
    """
    if session.is_locked(lock_name(machine.key)):
        return None
    if is_too_early(session, machine, session.provider(answer.account).token_rule, answer.asked_at):
        sync.sentences.append(
            f"{machine.name}: the outcome of an interrupted launch is not known; up or down finds out."
        )
        return None
    try:
        with session.lock(lock_name(machine.key), wait=False):
            latest = not_none(session.ledger.machine(machine.id))
            if latest.launch_status != "open":
                return None  # the process that launched it has recorded the outcome
            settled = close_by_listing(session, latest)
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        if not session.is_locked(lock_name(machine.key)):  # else another one has begun to settle it
            sync.unanswered.append(Unanswered(machine.name, error.message))
        return None
    outcome = "was found to have succeeded" if settled.terminated_at is None else "left no machine"
    sync.sentences.append(f"{machine.name}: an interrupted launch {outcome}.")
    return []


STOPPED_STATES = (State.STOPPED, State.DEALLOCATED)
START_VISIBLE_WITHIN = timedelta(hours=1)  # every cloud shows an accepted start sooner; large machines need minutes


def abandoned_start_event(session: Session, machine: Machine, instance: Instance, now: datetime) -> list[Draft]:
    """Return the event that a requested start was refused, if its process ended without an answer: budgets are freed.

    The provider has to show the machine stopped START_VISIBLE_WITHIN after the request, and no process may work on it:
    an accepted start would be visible by then.
    """
    if instance.billed or instance.state not in STOPPED_STATES:
        return []
    start_times = [event.occurred_at for event in session.ledger.events(machine.id) if event.kind == "start_requested"]
    since_request = now - from_iso(max(start_times)) if start_times else START_VISIBLE_WITHIN
    if since_request < START_VISIBLE_WITHIN or session.is_locked(lock_name(machine.key or machine.id)):
        return []
    return [
        start_refused(machine.id, f"the provider shows it {instance.state} {duration_text(since_request)} later", now)
    ]
