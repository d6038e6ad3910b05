"""Backs up, restores, checks and settles a ledger.

It answers `ledger backup` and `ledger restore`. To settle a ledger that misses a part of its past, it asks every
account and takes up what is there.

A restore may lose every line of an account. What this home remembers of it is then all that is known: what its accounts
last said who they are, its saved calls, and the lines that wait in its outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.inventory.sync import SyncResult, sync_all
from cloudgpu.control.session.accounts import recent_machines
from cloudgpu.control.session.base import remembered_identities
from cloudgpu.control.session.identity import by_account, identity_of
from cloudgpu.core.events.general_lines import ledger_doubted
from cloudgpu.core.model.identity import (
    NOT_REACHABLE,
    SSH_HOST,
    AccountElsewhere,
    QueriedAccount,
    Unanswered,
    account_text,
)
from cloudgpu.core.model.machine import scope_of_machine
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, NotReachableHere
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.ledger.sqlite import backup
from cloudgpu.views.machines import queried_accounts_value

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.setup.ledger import BackupDocument, RestoreDocument, VerifyDocument

HOSTS = "ssh"  # the provider of which a region is an account of its own


def backed_up(session: Session, file: str) -> BackupDocument:
    """Write a copy of the ledger to a new file, check it, and return what it holds.

    Raises InvalidRequest for a file that exists, LedgerUnavailable for a ledger that is not whole.
    """
    copy = backup.write_backup(session.ledger, _path(file))
    return {
        "file": str(copy.path),
        "bytes": copy.path.stat().st_size,
        "ledger": copy.ledger,
        "lines": copy.lines,
        "recorded_at": copy.recorded_at,
    }


def restored(session: Session, file: str, *, even_if_older: bool = False) -> RestoreDocument:
    """Put a backup in the ledger's place, and return what it holds, where the old ledger is, and what is in doubt now.

    Raises InvalidRequest, with nothing changed, for a file that is no whole backup, and for a ledger that has lines
    which the backup lacks, unless `even_if_older`.
    """
    done = backup.restore(session.ledger, _path(file), even_if_older=even_if_older)
    return {
        "file": str(done.copy.path),
        "ledger": done.copy.ledger,
        "lines": done.copy.lines,
        "recorded_at": done.copy.recorded_at,
        "missing_lines": done.lacks,
        "previous_ledger": done.aside,
        "integrity_problem": session.integrity_problem(),
    }


def _path(file: str) -> Path:
    return Path(file).expanduser().absolute()


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a sync found that settled the ledger; `unknown` are accounts that this home knows and that nobody asked."""

    look: SyncResult
    unknown: tuple[Unanswered, ...]


def verify_document(session: Session, *, agree: Callable[[str], None]) -> VerifyDocument:
    """Check the ledger, settle it when it is in doubt, and return the answer of `cost --verify`.

    `agree` is given the doubt before the ledger is settled, and raises where the user does not agree. `asked` says then
    by whose answers it is settled, and `unanswered` names the accounts that this home knows and that were not asked.
    Raises LedgerUnavailable for a ledger that was altered, or an account that does not answer.
    """
    doubt, found = session.integrity_problem(), session.ledger.verify()
    faults = found.faults
    if doubt is None and found.rebuildable:  # another cloudgpu folded them, or somebody changed them
        session.ledger.rebuild()
        session.report(f"{faults[0]} The entries are complete: it was rebuilt from them.")
        found = session.ledger.verify()
    if found.faults and doubt is None:
        raise LedgerUnavailable(
            f"The ledger was altered: {found.faults[0]}",
            field="ledger",
            value=str(session.home.ledger),
            next="Restore the latest backup of the ledger directory. Machines can still be stopped meanwhile.",
        )
    lines, head_hash = found.lines, found.head_hash
    if doubt is None:
        return {
            "lines": lines,
            "head_hash": head_hash,
            "errors": list(faults),
            "settled": False,
            "queried": [],
            "not_queried": [],
            "unanswered": [],
        }
    agree(doubt)
    settled = settle_ledger(session, doubt)
    for sentence in settled.look.sentences:
        session.report(sentence)
    session.report(
        "Budgets that were set or changed in a part that was missing are not known any more: cloudgpu budget ls"
    )
    if session.ledger.sharing() is not None:
        session.report(
            "Accounts that only a colleague has are known after a look from there: have each of them run "
            "cloudgpu ls --refresh"
        )
    who = queried_accounts_value(settled.look.queried, settled.look.not_queried)
    return {
        "lines": lines,
        "head_hash": head_hash,
        "errors": list(faults),
        "settled": True,
        "integrity_problem": doubt,
        "queried": who["queried"],
        "not_queried": who["not_queried"],
        "unanswered": [{"scope": gap.scope, "why": gap.why} for gap in settled.unknown],
    }


def settle_ledger(session: Session, problem: str) -> Resolution:
    """Ask every account, take up what is there, and take the ledger's present end as the true one.

    Raises LedgerUnavailable when an account did not answer: what it has is then not known. An account that is not here
    (a colleague's) has to be looked at from where it is, after the doubt was written down.
    """
    known = known_here(session)
    look = _resolve(session, problem)
    return Resolution(look, tuple(accounts_not_queried(session, known, look.queried)))


def _resolve(session: Session, doubt: str) -> SyncResult:
    if session.ledger.head()[0] == 0:  # the file is gone: a sync can only be written into a new one
        accounts = sorted(session.settings.accounts)
        _check_complete(session, [gap for account in accounts for gap in _gaps(session, account)])
        session.ledger.settle(doubt)
        return sync_all(session)
    since = _written(session, doubt)
    look = sync_all(session)
    _check_complete(session, [gap for gap in look.unanswered if not isinstance(gap, AccountElsewhere)])
    _check_synced(session, since)
    session.ledger.settle(doubt)
    return look


def _written(session: Session, doubt: str) -> int:
    """Return the line that says that the ledger is in doubt; write it where only this computer knew."""
    last = session.ledger.last("ledger")
    if last is None or last.kind != "ledger_doubted":
        now = session.clock()
        (last,) = session.ledger.append([ledger_doubted(doubt, 0, now)])
    return last.seq


def _check_synced(session: Session, since: int) -> None:
    """Raise LedgerUnavailable for an account that no account here is, and that nobody has looked at since this line."""
    _, faults = by_account(session, recent_machines(session))
    away = [machine for machine in recent_machines(session) if isinstance(faults.get(machine.id), NotReachableHere)]
    for machine in away:
        last = session.ledger.last(scope_of_machine(machine))
        if last is None or last.seq <= since:
            whom = machine.owner or "whoever has that account"
            raise LedgerUnavailable(
                f"The ledger cannot be repaired until somebody has queried {account_text(machine)}: "
                f"what runs there is not known, and it is {NOT_REACHABLE}.",
                field="ledger",
                value=str(session.home.ledger),
                next=f"Ask {whom} to run: cloudgpu ls --refresh; then run it again.",
            )


def _gaps(session: Session, account: str) -> Sequence[Unanswered]:
    try:
        return session.provider(account).list().unanswered
    except CloudgpuError as error:
        return [Unanswered(account, error.message)]


def _check_complete(session: Session, gaps: Sequence[Unanswered]) -> None:
    if gaps:
        raise LedgerUnavailable(
            f"The ledger cannot be repaired while {gaps[0].scope} does not answer: {gaps[0].why}",
            field="ledger",
            value=str(session.home.ledger),
            next="Try again when it answers, or take that account out of config.toml.",
        )


@dataclass(frozen=True, slots=True)
class KnownAccount:
    """An account that this home knows; `why` says from where. `region` names the host where each is one of its own."""

    kind: str
    id: str
    words: str
    region: str | None
    why: str


def known_here(session: Session) -> list[KnownAccount]:
    """Return the accounts that this home knows, each once. A sync overwrites what it last said: ask before it."""
    found = [*_saved(session), *_waiting(session), *_known_accounts(session)]
    return list({(one.kind, one.id): one for one in reversed(found)}.values())[::-1]


def accounts_not_queried(
    session: Session, known_accounts: Iterable[KnownAccount], queried: Iterable[QueriedAccount]
) -> list[Unanswered]:
    """Return those of `known_accounts` that are none of the accounts that were asked: what runs there is not known."""
    wanted = list(known_accounts)
    hosts = {None, *(one.region for one in wanted)}
    places = [(one.account, region) for one in queried for region in (hosts if one.provider == HOSTS else (None,))]
    now = {found for account, region in places for found in _now(session, account, region)}
    return [Unanswered(one.words, one.why) for one in wanted if (one.kind, one.id) not in now]


def _now(session: Session, account: str, region: str | None) -> Iterator[tuple[str, str]]:
    try:
        found = identity_of(session, account, region)
    except CloudgpuError:  # of hosts, one that this account does not have
        return
    yield found.kind, found.id


def _known_accounts(session: Session) -> Iterator[KnownAccount]:
    for account, regions in remembered_identities(session).items():
        for region, (kind, id_) in regions.items():
            why = f"`{account}` here was that account, and no account here is that one now"
            yield KnownAccount(kind, id_, f"{kind} {id_}", region or None, why)


def _saved(session: Session) -> Iterator[KnownAccount]:
    for token, _ in saved.unresolved(session.home.attempts):
        try:
            call = saved.load(session.home.attempts, token)
        except LedgerUnavailable:  # said by whoever settles it
            continue
        if call is not None and call.identity is not None and call.ledger == session.ledger.id:
            one, region = call.identity, call.offer.available.region
            why = f"a saved call of this home launched {call.request.name} there"
            yield KnownAccount(one.kind, one.id, one.words, region if one.kind == SSH_HOST else None, why)


def _waiting(session: Session) -> Iterator[KnownAccount]:
    for outbox in (session.ledger.outbox, *session.ledger.outbox.others()):
        for line in outbox.waiting(session.ledger.id):
            one = line.body.get("identity")
            if one is not None:
                region = line.body.get("region") if one["kind"] == SSH_HOST else None
                yield KnownAccount(
                    one["kind"], one["id"], one["words"], region, "lines in the outbox of this home name it"
                )
