"""Backs up, restores, checks and repairs a ledger: `ledger backup`, `ledger restore` and `cost --verify`.

To repair a ledger that may be incomplete, every account is synced, and what is found there is adopted. A ledger that
was restored may have no entry of an account, where machines may run. Then this home only knows that account by the
identity that an account of config.toml last reported, by the saved calls of launches (each is a file that is kept until
the end of its machine is confirmed), and by entries in the outbox, which wait to be written to the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.inventory.listing import sync_reported
from cloudgpu.control.inventory.sync import SyncResult
from cloudgpu.control.session.accounts import recent_machines
from cloudgpu.control.session.base import remembered_identities
from cloudgpu.control.session.identity import by_account, identity_of
from cloudgpu.core.events.general_events import ledger_doubted
from cloudgpu.core.model.identity import (
    NOT_REACHABLE,
    SSH_HOST,
    AccountElsewhere,
    QueriedAccount,
    Unanswered,
    account_text,
)
from cloudgpu.core.model.machine import sync_subject_of
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, NotReachableHere
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.ledger.sqlite import backup
from cloudgpu.views.machines import queried_accounts_document

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.setup.ledger import BackupDocument, RestoreDocument, VerifyDocument

HOSTS_PROVIDER = (
    "ssh"  # the provider of on-premises hosts: each host, which is a region there, has an identity of its own
)


def back_up(session: Session, file: str) -> BackupDocument:
    """Write a copy of the ledger to a new file, check it, and return what it holds.

    Raises InvalidRequest for a file that exists, LedgerUnavailable for a ledger that is incomplete.
    """
    copy = backup.write_backup(session.ledger, _absolute_path(file))
    return {
        "file": str(copy.path),
        "bytes": copy.path.stat().st_size,
        "ledger": copy.ledger_id,
        "lines": copy.line_count,
        "recorded_at": copy.recorded_at,
    }


def restore_backup(session: Session, file: str, *, even_if_older: bool = False) -> RestoreDocument:
    """Put a backup in the ledger's place, and return what it holds, where the old ledger is, and what may be missing.

    Raises InvalidRequest, with nothing changed, for a file that is no complete backup, and for a ledger that has
    entries which the backup lacks, unless `even_if_older`.
    """
    restored = backup.restore(session.ledger, _absolute_path(file), even_if_older=even_if_older)
    return {
        "file": str(restored.copy.path),
        "ledger": restored.copy.ledger_id,
        "lines": restored.copy.line_count,
        "recorded_at": restored.copy.recorded_at,
        "missing_lines": restored.missing_line_count,
        "previous_ledger": restored.previous_ledger,
        "integrity_problem": session.integrity_problem(),
    }


def _absolute_path(file: str) -> Path:
    return Path(file).expanduser().absolute()


def verify_document(session: Session, *, agree: Callable[[str], None]) -> VerifyDocument:
    """Check the ledger, repair it where it may be incomplete, and return the answer of `cost --verify`.

    `agree` gets the problem before the repair, and raises where the user does not agree. `queried` in the answer are
    the synced accounts, `unanswered` those that this home knows and that were not queried. Raises LedgerUnavailable for
    a ledger that was altered, or an account that does not answer.
    """
    problem, verification = session.integrity_problem(), session.ledger.verify()
    faults = verification.faults
    if problem is None and verification.rebuildable:  # its tables were made by another version, or changed by hand
        session.ledger.rebuild()
        session.report(f"{faults[0]} The entries are complete: it was rebuilt from them.")
        verification = session.ledger.verify()
    if verification.faults and problem is None:
        raise LedgerUnavailable(
            f"The ledger was altered: {verification.faults[0]}",
            field="ledger",
            value=str(session.home.ledger),
            next="Restore the latest backup of the ledger directory. Machines can still be stopped meanwhile.",
        )
    entries, head_hash = verification.line_count, verification.head_hash
    if problem is None:
        return {
            "lines": entries,
            "head_hash": head_hash,
            "errors": list(faults),
            "settled": False,
            "queried": [],
            "not_queried": [],
            "unanswered": [],
        }
    agree(problem)
    synced, not_queried_here = settle_ledger(session, problem)
    session.report(
        "Budgets that were set or changed in a part that was missing are not known any more: cloudgpu budget ls"
    )
    if session.ledger.sharing() is not None:
        session.report(
            "Accounts that only a colleague has are known after a look from there: have each of them run "
            "cloudgpu ls --refresh"
        )
    accounts = queried_accounts_document(synced.queried, synced.not_queried)
    return {
        "lines": entries,
        "head_hash": head_hash,
        "errors": list(faults),
        "settled": True,
        "integrity_problem": problem,
        "queried": accounts["queried"],
        "not_queried": accounts["not_queried"],
        "unanswered": [{"scope": gap.scope, "why": gap.why} for gap in not_queried_here],
    }


def settle_ledger(session: Session, problem: str) -> tuple[SyncResult, list[Unanswered]]:
    """Sync every account, adopt what is there, and accept the ledger as it is then: the problem is settled.

    Returns the sync, and the accounts that this home knows and that were not queried. Raises LedgerUnavailable when an
    account did not answer. A colleague's account has to be synced from there, after the problem was recorded.
    """
    known_accounts = accounts_known_here(session)
    synced = _sync_and_settle(session, problem)
    return synced, accounts_not_queried(session, known_accounts, synced.queried)


def _sync_and_settle(session: Session, problem: str) -> SyncResult:
    """Record the problem, sync all accounts, check that all answered, and settle the problem; return the sync."""
    if session.ledger.head()[0] == 0:  # the file is gone: a sync can only be written into a new one
        accounts = sorted(session.settings.accounts)
        _check_complete(session, [gap for account in accounts for gap in _unanswered_parts(session, account)])
        # The new ledger lacks what the sync is to find, and launches are refused until then.
        session.ledger.settle(problem, followed_by=ledger_doubted(problem, 0, session.clock()))
    doubt_seq = _record_problem(session, problem)
    synced = sync_reported(session)
    _check_complete(session, [gap for gap in synced.unanswered if not isinstance(gap, AccountElsewhere)])
    _check_synced(session, doubt_seq)
    session.ledger.settle(problem)
    return synced


def _record_problem(session: Session, problem: str) -> int:
    """Return the number of the entry that says that the ledger may be incomplete; write it where there is none yet."""
    last_event = session.ledger.last("ledger")
    if last_event is None or last_event.kind != "ledger_doubted":
        (last_event,) = session.ledger.append([ledger_doubted(problem, 0, session.clock())])
    return last_event.seq


def _check_synced(session: Session, doubt_seq: int) -> None:
    """Raise LedgerUnavailable for an account elsewhere that nobody has synced since the entry with this number."""
    machines = recent_machines(session)  # those that exist, too, and ended ones that retain a disk
    _, errors = by_account(session, machines)
    for machine in (machine for machine in machines if isinstance(errors.get(machine.id), NotReachableHere)):
        last_sync = session.ledger.last(sync_subject_of(machine))
        if last_sync is None or last_sync.seq <= doubt_seq:
            colleague = machine.owner or "whoever has that account"
            raise LedgerUnavailable(
                f"The ledger cannot be repaired until somebody has queried {account_text(machine)}: "
                f"what runs there is not known, and it is {NOT_REACHABLE}.",
                field="ledger",
                value=str(session.home.ledger),
                next=f"Ask {colleague} to run: cloudgpu ls --refresh; then run it again.",
            )


def _unanswered_parts(session: Session, account: str) -> Sequence[Unanswered]:
    try:
        return session.provider(account).list().unanswered
    except CloudgpuError as error:
        return [Unanswered(account, error.message)]


def _check_complete(session: Session, gaps: Sequence[Unanswered]) -> None:
    """Raise LedgerUnavailable for an account, or a part of one, that did not answer."""
    if gaps:
        raise LedgerUnavailable(
            f"The ledger cannot be repaired while {gaps[0].scope} does not answer: {gaps[0].why}",
            field="ledger",
            value=str(session.home.ledger),
            next="Try again when it answers, or take that account out of config.toml.",
        )


@dataclass(frozen=True, slots=True)
class KnownAccount:
    """An account that this home knows; `why` says from where.

    `kind` and `id` are its identity, `description` is that in words. `region` is the host, in an account of on-premises
    hosts, where each host has an identity of its own; None for a cloud's account.
    """

    kind: str
    id: str
    description: str
    region: str | None
    why: str


def accounts_known_here(session: Session) -> list[KnownAccount]:
    """Return the accounts that this home knows, each once. Call this before a sync, which overwrites them."""
    accounts = [*_accounts_of_saved_calls(session), *_accounts_in_outbox(session), *_remembered_accounts(session)]
    return list({(account.kind, account.id): account for account in reversed(accounts)}.values())[::-1]


def accounts_not_queried(
    session: Session, known_accounts: Iterable[KnownAccount], queried: Iterable[QueriedAccount]
) -> list[Unanswered]:
    """Return those of `known_accounts` that were not queried: what runs there is not known."""
    known = list(known_accounts)
    hosts = {None, *(known_account.region for known_account in known)}
    account_regions = [
        (queried_account.account, region)
        for queried_account in queried
        for region in (hosts if queried_account.provider == HOSTS_PROVIDER else (None,))
    ]
    queried_ids = {id_ for account, region in account_regions for id_ in _current_identities(session, account, region)}
    return [
        Unanswered(known_account.description, known_account.why)
        for known_account in known
        if (known_account.kind, known_account.id) not in queried_ids
    ]


def _current_identities(session: Session, account: str, region: str | None) -> Iterator[tuple[str, str]]:
    """Yield the kind and id of an account's identity; nothing for a host that this account does not have."""
    try:
        identity = identity_of(session, account, region)
    except CloudgpuError:
        return
    yield identity.kind, identity.id


def _remembered_accounts(session: Session) -> Iterator[KnownAccount]:
    for account, regions in remembered_identities(session).items():
        for region, (kind, id_) in regions.items():
            why = f"`{account}` here was that account, and no account here is that one now"
            yield KnownAccount(kind, id_, f"{kind} {id_}", region or None, why)


def _accounts_of_saved_calls(session: Session) -> Iterator[KnownAccount]:
    """Yield the account of each launch of this ledger whose call is saved, until its machine's end is confirmed."""
    for token, _ in saved.all_saved(session.home.attempts):
        try:
            call = saved.load(session.home.attempts, token)
        except LedgerUnavailable:  # reported by the command that finds out whether that launch made a machine
            continue
        if call is not None and call.identity is not None and call.ledger == session.ledger.id:
            identity, region = call.identity, call.offer.configuration.region
            why = f"a saved call of this home launched {call.request.name} there"
            yield KnownAccount(
                identity.kind, identity.id, identity.display_name, region if identity.kind == SSH_HOST else None, why
            )


def _accounts_in_outbox(session: Session) -> Iterator[KnownAccount]:
    """Yield the accounts that waiting lines name; a file that cannot be read in place of those that it may name."""
    for outbox in (session.ledger.outbox, *session.ledger.outbox.other_outboxes()):
        try:
            entries = outbox.waiting(session.ledger.id)
        except OSError as error:
            why = f"it cannot be read ({error.strerror}): which accounts it names is not known"
            yield KnownAccount("outbox", str(outbox.path), str(outbox.path), None, why)
            continue
        for entry in entries:
            identity = entry.body.get("identity")
            if identity is not None:
                region = entry.body.get("region") if identity["kind"] == SSH_HOST else None
                yield KnownAccount(
                    identity["kind"],
                    identity["id"],
                    identity["words"],
                    region,
                    "lines in the outbox of this home name it",
                )
