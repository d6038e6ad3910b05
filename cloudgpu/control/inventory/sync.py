"""Asks the providers and writes what they say: one sync of an account, at all of them, at one machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cloudgpu.control.inventory.adoption import adoption_events
from cloudgpu.control.inventory.local_files import clean_up_local_files
from cloudgpu.control.inventory.retention import is_silent, resource_events
from cloudgpu.control.inventory.retention_sync import settle_retained
from cloudgpu.control.inventory.settle import close_by_listing, covers, is_too_early, refused_launch_events, request_end
from cloudgpu.control.inventory.stop_proof import change_events, get_or_raise
from cloudgpu.control.inventory.sync_accounts import Answer, ask_accounts
from cloudgpu.control.pricing import price_history as pricing
from cloudgpu.control.pricing.shared_computer import record_shared_costs
from cloudgpu.control.session.accounts import queried_accounts, split_gaps, used_accounts
from cloudgpu.control.session.identity import AccountScope, unqueried_accounts
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.core.events.general_lines import account_synced, ledger_doubted
from cloudgpu.core.events.launch_lines import launch_settled
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_lines import start_refused
from cloudgpu.core.events.observations import (
    instance_observed,
    instance_vanished,
    is_resized,
    lines_of,
    not_before,
    one_per_machine,
    too_fresh,
)
from cloudgpu.core.events.projection import project_event
from cloudgpu.core.model.identity import QueriedAccount, Unanswered, account_text, may_cost_money, regions_that_may_cost
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, TAG_SEQ, Instance, Listing, State
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.resources.retention import is_of_earlier_life, is_remnant
from cloudgpu.core.values.naming import account_scope, lock_name
from cloudgpu.core.values.times import duration_text, from_iso
from cloudgpu.errors import CloudgpuError, InstanceNotFound, LedgerUnavailable, Silent
from cloudgpu.ledger.last_seen import last_seen_at
from cloudgpu.providers.abilities import SharesComputer


@dataclass
class SyncResult:
    """What a sync of all accounts found, beside the rows in the ledger.

    `foreign` are machines of other ledgers: shown, never touched. `sentences` say what was put right. `answered` are
    the machines, by id, of which a provider has said what they are now. `resources` are all disks and images that there
    are, of any ledger, where they were asked for. `queried` are the accounts that were asked; `not_queried` are those
    that only a credential on this computer names, and that it does not open. `gpus_now` says, by the machine's id, who
    uses the GPUs of its computer, if known.
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
    gpus_now: dict[str, tuple[str, ...]] = field(default_factory=dict)


def sync_all(session: Session) -> SyncResult:
    """Ask every account in parallel, write the news, settle what a listing can settle, clean up."""
    return sync_accounts(session, used_accounts(session), retained=True)


def sync_accounts(
    session: Session,
    accounts: Sequence[str],
    *,
    retained: bool | Collection[str] = False,
    retry_after_s: float | None = None,
) -> SyncResult:
    """Ask these accounts; with `retained` also what stays of machines, and finish what was interrupted there.

    `retained` may name the accounts of which that is asked. An account that did not answer wholly is asked once more
    after `retry_after_s` seconds (None: it is not).

    What prices were since the last sync is asked, too, and stands in the ledger together with what was seen.
    """
    result, asked_at = SyncResult(), session.clock()
    shared: dict[str, SharesComputer] = {}
    for account in accounts:
        with suppress(CloudgpuError):  # said by whoever asks it; made here, for two threads would make two
            if isinstance(provider := session.provider(account), SharesComputer):
                shared[account] = provider
    machines = session.ledger.machines()
    retained_accounts = (accounts if retained else ()) if isinstance(retained, bool) else retained
    to_price, regions = pricing.machines_to_price(session, machines), regions_that_may_cost(machines)
    account_scopes = []
    for answer in ask_accounts(
        session, accounts, asked_at, to_price, regions, retained_accounts=retained_accounts, retry_after_s=retry_after_s
    ):
        _, not_queried = split_gaps(session, answer.listing.unanswered)
        if not_queried:
            result.not_queried += not_queried
            continue
        account_scopes.append(answer.scope)
        _write_listing(session, answer, result)
        if answer.account in shared:
            record_shared_costs(session, shared[answer.account], answer.scope)
        resources = answer.resources
        if resources is not None:
            result.resources += resources.items
            named = {gap.scope for gap in result.unanswered}
            result.unanswered += [gap for gap in resources.unanswered if gap.scope not in named]
            result.sentences += settle_retained(session, answer.scope, resources, asked_at)
    result.unanswered += _gaps_of_other_accounts(session, accounts, account_scopes, result)
    result.queried = queried_accounts(session, accounts, result.not_queried)
    clean_up_local_files(session)
    return result


def _gaps_of_other_accounts(
    session: Session, accounts: Sequence[str], scopes: Sequence[AccountScope], sync: SyncResult
) -> list[Unanswered]:
    """Return the notices about machines of other accounts with the names of queried accounts.

    All machines of the ledger where all accounts were asked: nobody else of this computer can tell of them.
    """
    named = {gap.scope for gap in sync.unanswered}
    machines = [one for one in session.ledger.machines() if may_cost_money(one) and one.account not in named]
    theirs = [machine for machine in machines if machine.account in accounts]
    if len(theirs) < len(machines) and not set(accounts) >= set(used_accounts(session)):
        machines = theirs
    return [gap for gap in unqueried_accounts(session, machines, scopes) if gap.scope not in named]


def refresh(session: Session, machine: Machine, *, record_unchanged: bool = False) -> Machine:
    """Ask about one machine and return the updated machine; a machine that is gone is recorded as gone.

    `record_unchanged`: that it was checked is written down even if nothing changed, if the ledger takes it. Raises
    ProviderUnavailable when nothing could be learned.
    """
    provider = session.provider_of(machine)
    now = not_before(machine, session.clock())
    try:
        instance = get_or_raise(session, machine)
    except InstanceNotFound:
        if too_fresh(machine, provider.token_rule.not_found_proves_end_after, now):
            return machine
        alive = last_seen_at(session.ledger, machine)
        events = [
            instance_vanished(machine.id, not_none(machine.provider_id), "the provider has no such machine", now, alive)
        ]
    else:
        close_request(session, machine, instance)
        events = change_events(session, machine, instance, now)
        if record_unchanged and not events:
            return _record_last_seen(session, machine, instance_observed(instance, now, machine=machine))
    return session.ledger.append_to(machine, events)


def _record_last_seen(session: Session, machine: Machine, line: Draft) -> Machine:
    """Write a line that changes nothing but when the machine was seen, and in use; a full disk keeps nobody from it."""
    try:
        return session.ledger.append_to(machine, [line])
    except CloudgpuError:
        return project_event(machine, line)


def _write_listing(session: Session, answer: Answer, sync: SyncResult) -> None:
    account, listing, now = answer.account, answer.listing, answer.asked_at
    sync.unanswered += listing.unanswered
    sync.unlisted |= {account} if answer.silent else set()
    ledger = session.ledger.id
    sync.foreign += [one for one in listing.instances if one.tags.get(TAG_LEDGER) != ledger]
    by_id = {machine.id: machine for machine in session.ledger.machines()}
    mine = [one for one in listing.instances if one.tags.get(TAG_LEDGER) == ledger]
    machines = _machines_of_answer(by_id, answer, [one.tags[TAG_ID] for one in mine])
    drafts: list[Draft] = lines_of(answer.priced, list(machines.values()), now)
    ours: set[str] = set()
    mine = [one for one in mine if _is_ours(one, by_id, machines, answer, sync)]
    chosen, duplicates = one_per_machine([one for one in mine if _is_of_current_launch(machines, one)], machines)
    sync.unanswered += duplicates
    for instance in chosen:
        ours.add(instance.tags[TAG_ID])
        sync.gpus_now[instance.tags[TAG_ID]] = instance.gpus_now
        drafts += _observed_events(session, machines.get(instance.tags[TAG_ID]), instance, sync, answer)
    sync.answered |= ours
    unseen = []
    for machine in (machine for machine in living_machines(list(machines.values())) if machine.id not in ours):
        is_conclusive = (
            listing.is_complete_in(machine.region)
            and from_iso(machine.intended_at) < now
            and _is_listed(machine, listing)
        )
        events = _missing_events(session, machine, sync, answer) if is_conclusive else None
        drafts += events or []
        unseen += [machine.id] if events is None else []
        sync.answered |= {machine.id} if events is not None else set()
    if answer.resources is not None:
        lines, silent = resource_events(session.ledger, answer.scope, answer.resources, now)
        drafts += lines
        unseen += [
            *silent,
            *(
                one
                for one, machine in machines.items()
                if machine.retained and is_silent(answer.resources, machine.region, answer.account)
            ),
        ]
    drafts += _integrity_events(session, listing, now)
    listed, pinned = answer.resources is not None, not answer.priced.gap
    drafts += [
        account_synced(scope, len(ours), listing.unanswered, now, unseen=unseen, resources=listed, pinned=pinned)
        for scope in _sync_subjects(answer, machines.values())
    ]
    if answer.priced.gap:
        sync.sentences.append(f"{account}: what prices were since the last look is not known ({answer.priced.gap})")
    session.ledger.append(drafts)
    for line in drafts:
        if line.kind == "terminate_requested":  # of what a refused launch left
            request_end(session, line.subject)


def _machines_of_answer(by_id: Mapping[str, Machine], answer: Answer, listed: Sequence[str]) -> dict[str, Machine]:
    """Return the machines of which this answer can tell: those of the account that answered, whatever it is called."""
    ids = {*listed, *answer.priced.history, *answer.priced.now}
    candidates = (machine for machine in by_id.values() if machine.id in ids or may_cost_money(machine))
    return {machine.id: machine for machine in answer.scope.select(candidates)}


def _is_ours(
    instance: Instance, by_id: Mapping[str, Machine], machines: Mapping[str, Machine], answer: Answer, sync: SyncResult
) -> bool:
    """Say whether an instance is a machine of this account by the ledger, or one that has no record there.

    One that the ledger has in another account is left alone, and so is one that appeared while it is not known which
    account answered.
    """
    machine = instance.tags[TAG_ID]
    if machine in machines:
        return True
    identity = answer.scope.identity(instance.region)
    if machine in by_id and identity is not None:
        other_account = account_text(by_id[machine])
        why = f"{instance.id} in {identity.words} bears its tags, and the ledger has it in {other_account}"
        sync.unanswered.append(Unanswered(by_id[machine].name or machine, why))
    elif identity is None and machine not in by_id and (error := answer.scope.error_of(instance.region)) is not None:
        sync.unanswered.append(Unanswered(answer.account, error.message))
    return machine not in by_id and identity is not None


def _sync_subjects(answer: Answer, machines: Iterable[Machine]) -> list[str]:
    """Return the subjects under which the sync is written: the accounts for which it speaks, by their identities."""
    ids = {not_none(machine.identity).id for machine in machines}
    if not ids:
        default_identity = answer.scope.identity(None)
        ids = {answer.account if default_identity is None else default_identity.id}
    return [account_scope(answer.kind, one) for one in sorted(ids)]


def _is_listed(machine: Machine, listing: Listing) -> bool:
    """Say whether the listing, or a question of its own, can tell what became of this machine."""
    return machine.launch_status != "open" or covers(listing, machine)


def _is_of_current_launch(machines: Mapping[str, Machine], instance: Instance) -> bool:
    """Say whether this is no machine of an earlier launch, which clouds go on showing for a while after its end."""
    row = machines.get(instance.tags[TAG_ID])
    has_ended = instance.state in (State.TERMINATED, State.STOPPING)
    return row is None or not has_ended or not is_of_earlier_life(row, instance.tags)


def _integrity_events(session: Session, listing: Listing, now: datetime) -> list[Draft]:
    """Doubt a ledger that is shorter than its machines remember: it was restored, together with its head record."""
    ledger = session.ledger.id
    mine = [one.tags.get(TAG_SEQ, "") for one in listing.instances if one.tags.get(TAG_LEDGER) == ledger]
    remembered = max((int(text) for text in mine if text.isdecimal()), default=0)
    length = session.ledger.head()[0]
    if remembered <= length or remembered <= _last_doubted_seq(session):
        return []
    why = f"It has {length} lines, and a machine was launched when it had {remembered}."
    return [ledger_doubted(why, remembered, now)]


def _last_doubted_seq(session: Session) -> int:
    """Return the highest line that a machine remembered when a sync doubted the ledger: it was said, or is settled."""
    doubts = (line for line in session.ledger.events("ledger") if line.kind == "ledger_doubted")
    return max((int(line.body["seq"]) for line in doubts), default=0)


def _observed_events(
    session: Session, machine: Machine | None, instance: Instance, sync: SyncResult, answer: Answer
) -> list[Draft]:
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
        drafts.append(
            launch_settled(machine.id, not_none(machine.token), "made", "found in the provider's listing", now)
        )
    if not _close_request(session, machine, instance, sync):
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


def _close_request(session: Session, machine: Machine, instance: Instance, sync: SyncResult) -> bool:
    """End the standing request of a machine that has ended by itself. Say whether nothing is left to do about it."""
    try:
        if close_request(session, machine, instance):
            sync.sentences.append(f"{machine.name} has ended; its request, which would launch the next, is cancelled.")
    except CloudgpuError as error:
        sync.unanswered.append(Unanswered(machine.name, error.message))
        return False
    return True


def close_request(session: Session, machine: Machine, instance: Instance) -> bool:
    """Cancel a persistent request whose machine others have ended, as it would launch the next; say whether it did.

    Before the end is written down: a process that dies in between leaves it to the next sync.
    """
    persistent = bool(machine.setup and machine.setup.persistent)
    if instance.state is not State.TERMINATED or machine.terminated_at is not None or not persistent:
        return False
    session.provider_of(machine).terminate(instance.id)
    return True


def _missing_events(session: Session, machine: Machine, sync: SyncResult, answer: Answer) -> list[Draft] | None:
    """Return what it means that a complete listing lacks this machine; None: nothing, for silence proves nothing."""
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
        if too_fresh(machine, proves_after, now):
            return None
        sync.sentences.append(f"{machine.name} is gone: the provider has no such machine any more.")
        proof, last_seen = "missing from a complete listing and unknown to get", last_seen_at(session.ledger, machine)
        return [instance_vanished(machine.id, not_none(machine.provider_id), proof, now, last_seen)]
    except CloudgpuError as error:
        sync.unanswered.append(Unanswered(machine.name, error.message))
        sync.silent |= {(machine.account, machine.region)} if isinstance(error, Silent) else set()
        return None
    observed_at = not_before(machine, session.clock())
    return change_events(session, machine, instance, observed_at)


def _attempt_events(session: Session, machine: Machine, sync: SyncResult, answer: Answer) -> list[Draft] | None:
    """Close an attempt that the listing lacks, once no process is at it: by another listing, under its lock.

    This one may have been asked before the call was sent, whatever the clocks of two computers say.
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
            row = not_none(session.ledger.machine(machine.id))
            if row.launch_status != "open":
                return None  # the process that launched it has written how that ended
            settled = close_by_listing(session, row)
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
START_VISIBLE_WITHIN = timedelta(hours=1)  # no cloud shows an accepted start later; the largest machines need minutes


def abandoned_start_event(session: Session, machine: Machine, instance: Instance, now: datetime) -> list[Draft]:
    """Return the line that frees what a start holds back in budgets whose process has died before it was answered.

    Sure only where the provider shows the machine at rest an hour after it was asked, and no process is at it: a start
    that the provider took would have shown by then, whatever became of it since.
    """
    if instance.billed or instance.state not in STOPPED_STATES:
        return []
    start_times = [line.occurred_at for line in session.ledger.events(machine.id) if line.kind == "start_requested"]
    since = now - from_iso(max(start_times)) if start_times else START_VISIBLE_WITHIN
    if since < START_VISIBLE_WITHIN or session.is_locked(lock_name(machine.key or machine.id)):
        return []
    return [start_refused(machine.id, f"the provider shows it {instance.state} {duration_text(since)} later", now)]
