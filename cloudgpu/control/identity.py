"""Which account here a machine belongs to, by what providers say their accounts are, whatever they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.control.lastpass import TOO_LONG
from cloudgpu.control.reachable import remember, said_another
from cloudgpu.control.view import is_mine, scope_of_row
from cloudgpu.core.facts import NOT_HERE, Elsewhere, Unanswered
from cloudgpu.core.rows import stays
from cloudgpu.core.times import from_iso
from cloudgpu.errors import CloudgpuError, NotReachableHere, Silent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudgpu.control.session import Session
    from cloudgpu.core.facts import AccountIdentity

Row = dict[str, Any]
COMPUTERS = ("computer", "ssh host")  # kinds of identities that are one computer
NAMED = 3  # machines in a sentence


class Whose:
    """Which account an answer speaks for, region by region: it says nothing about the machines of any other.

    `fault` is why the identity of a region is not known; `is_told` says whether all that was asked for was answered,
    if by an error.
    """

    def __init__(self, session: Session, account: str) -> None:
        self.account = account
        self.fault: CloudgpuError | None = None
        self.is_told = False
        self._session = session
        self._known: dict[str | None, AccountIdentity | CloudgpuError] = {}

    def ask(self, regions: Iterable[str | None]) -> Whose:
        """Ask for the identity of these regions, or of the account where there is none. Raises nothing but defects."""
        for region in set(regions) or {None}:
            self.of(region)
        self.is_told = True
        return self

    def be_silent(self, fault: Silent) -> Whose:
        """Take what was not asked yet for unknown: the provider has just said nothing."""
        self.fault = fault
        return self

    def of(self, region: str | None) -> AccountIdentity | None:
        """Return which account a region of this one is; None where that is not known."""
        if region not in self._known and not isinstance(self.fault, Silent):
            try:
                self._known[region] = identity_of(self._session, self.account, region)
            except CloudgpuError as fault:
                self._known[region] = fault
                self.fault = self.fault if isinstance(fault, NotReachableHere) else fault
        found = self._known.get(region)
        return None if isinstance(found, CloudgpuError) else found

    def covers(self, row: Row) -> bool:
        """Say whether a machine, or a kept thing, belongs to this account."""
        found = self.of(row["region"]) if row["provider"] == self._kind else None
        return found is not None and found.is_of(row["identity"])

    def is_unknown(self, row: Row) -> bool:
        """Say whether it may belong to this account, whatever that is called, and nobody could say."""
        if row["provider"] != self._kind or self.of(row["region"]) is not None:
            return False
        fault = self._known.get(row["region"], self.fault)
        return isinstance(fault, CloudgpuError) and _may_be(self._session, self.account, row, fault)

    @property
    def _kind(self) -> str:
        found = self._session.account(self.account)
        return "" if found is None else found.provider


def identity_of(session: Session, account: str, region: str | None) -> AccountIdentity:
    """Return what this account says it is; it is remembered for those who may not ask."""
    found = session.provider(account).identity(region)
    remember(session, account, region, found)
    return found


def account_here(session: Session, row: Row) -> str:
    """Return what the account of this machine is called here: by its own name, else by another.

    Raises NotReachableHere where no account here is that one, and what the provider raises where one that may be it
    cannot say who it is, that of the same name before others.
    """
    here: AccountIdentity | None = None
    absent: NotReachableHere | None = None
    unknown: CloudgpuError | None = None
    for account in _candidates(session, row):
        try:
            found = identity_of(session, account, row["region"])
        except CloudgpuError as fault:
            if unknown is None and _may_be(session, account, row, fault):
                unknown = fault
            if account == row["account"] and isinstance(fault, NotReachableHere):  # it has no such host
                absent = fault
            continue
        if found.is_of(row["identity"]):
            return account
        here = found if account == row["account"] else here
    if unknown is not None:
        raise unknown
    raise not_reachable(row, here) if absent is None else _not_configured(session, row, absent)


def may_judge(session: Session, row: Row) -> bool:
    """Say whether a pass from here may judge a machine: not one that is known to belong to an account not here.

    Nor one of a colleague's while no account here can say who it is, where all of them last said that they are others.
    """
    try:
        account_here(session, row)
    except NotReachableHere:
        return False
    except CloudgpuError:
        here = _candidates(session, row)  # nobody can say just now: it is judged as one that did not answer
        return is_mine(session, row) or not all(said_another(session, account, row) for account in here)
    return True


def by_account(session: Session, rows: Sequence[Row]) -> tuple[dict[str, list[Row]], dict[str, CloudgpuError]]:
    """Return these machines by what their accounts are called here, and by machine why that is not known.

    The providers are made by that, so that threads make none.
    """
    groups: dict[str, list[Row]] = {}
    faults: dict[str, CloudgpuError] = {}
    for row in rows:
        try:
            groups.setdefault(account_here(session, row), []).append(row)
        except CloudgpuError as fault:
            faults[row["id"]] = fault
    return groups, faults


def reachable(session: Session, rows: Sequence[Row]) -> list[Row]:
    """Return these machines without those of which it is known that no account here is theirs."""
    _, faults = by_account(session, rows)
    return [row for row in rows if not isinstance(faults.get(row["id"]), NotReachableHere)]


def not_reachable(row: Row, here: AccountIdentity | None) -> NotReachableHere:
    """Return the error for a machine of another account; `here` is what the account of that name is here."""
    of, account = words_of(row), row["account"]
    but = f"no account here is that one (there it is called `{account}`)" if here is None else _but(account, here)
    ask = f"Ask {row['owner']}" if row["owner"] else "Ask its owner"
    belongs, there = ("runs on", f"on {of}") if is_on_computer(row) else ("belongs to", f"where an account is {of}")
    return NotReachableHere(
        f"{row['name']} {belongs} {of}; {but}.", field="name", value=row["name"], next=f"{ask}, or run this {there}."
    )


def _not_configured(session: Session, row: Row, absent: NotReachableHere) -> NotReachableHere:
    """Return the error for a machine on a host that config.toml does not have: its owner may have taken it out."""
    way = absent.next if is_mine(session, row) else not_reachable(row, None).next
    message = f"{row['name']} runs on {words_of(row)}. {absent.message}"
    return NotReachableHere(message, field="name", value=row["name"], next=way)


def is_on_computer(row: Row) -> bool:
    """Say whether the account of a machine is one computer, not a cloud."""
    return row["identity"] is not None and row["identity"]["kind"] in COMPUTERS


def words_of(row: Row) -> str:
    """Return the account of a machine, or of a kept thing, in words, as it was recorded."""
    return "an account that was never recorded" if row["identity"] is None else str(row["identity"]["words"])


def elsewhere(session: Session, rows: Sequence[Row], asked: Sequence[Whose]) -> list[Unanswered]:
    """Return what these accounts could not say: the machines of other accounts, and those whose account is not known.

    `rows` are the machines that the verb had to judge. One gap for each account, with its machines and owners.
    """
    gaps: dict[str, Unanswered] = {}
    others: dict[str, list[Row]] = {}
    for row in rows:
        if any(one.covers(row) for one in asked):
            continue
        unknown = next((one for one in asked if one.is_unknown(row)), None)
        if unknown is not None and unknown.fault is not None:
            gaps[unknown.account] = Unanswered(unknown.account, unknown.fault.message)
        else:
            others.setdefault(words_of(row), []).append(row)
    there = (Elsewhere(words, _why(session, found), _is_tended(session, found)) for words, found in others.items())
    return [*gaps.values(), *there]


def _is_tended(session: Session, rows: Iterable[Row]) -> bool:
    """Say whether somebody else has asked for these machines lately, wholly; a launch counts as a look."""
    looks = [(row["intended_at"], session.ledger.last(scope_of_row(row))) for row in rows]
    latest = [max(began, "" if look is None else look.occurred_at) for began, look in looks]
    return session.clock() - from_iso(min(latest)) < TOO_LONG


def _why(session: Session, rows: Sequence[Row]) -> str:
    names = [row["name"] for row in rows[:NAMED]] + ([f"{len(rows) - NAMED} more"] if len(rows) > NAMED else [])
    listed = ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
    owners = sorted({f"{row['owner']}'s `{row['account']}`" if row["owner"] else f"`{row['account']}`" for row in rows})
    is_are = "are machines" if len(rows) > 1 else "is a machine"
    return f"{NOT_HERE}: {listed} {is_are} of {', '.join(owners)}{_named_here(session, rows[0])}."


def _named_here(session: Session, row: Row) -> str:
    if session.account(row["account"]) is None:
        return f", and config.toml here has no account {row['account']}"
    try:
        return f"; {_but(row['account'], session.provider(row['account']).identity(row['region']))}"
    except NotReachableHere as absent:
        way = f" {absent.next}" if is_mine(session, row) else ""
        return f". {absent.message}{way}".removesuffix(".")
    except CloudgpuError:
        pass
    return ""


def _but(account: str, here: AccountIdentity) -> str:
    return f"`{account}` here is {here.words}"


def is_there(row: Row) -> bool:
    """Say whether something of this machine may cost money now, so that a look has to judge it."""
    return row["ended"] is None or stays(row)


def _candidates(session: Session, row: Row) -> list[str]:
    """Return the accounts here that may be a machine's, that of its own name first."""
    named = row["account"]
    session.account(named)  # a cloud's own name may stand for an account that config.toml does not name
    accounts = session.settings.accounts
    of_kind = (name for name, one in accounts.items() if one.provider == row["provider"])
    return sorted(of_kind, key=lambda name: (name != named, name))


def _may_be(session: Session, account: str, row: Row, fault: CloudgpuError) -> bool:
    """Say whether an account that cannot say now who it is may be a machine's.

    One of another name is not where it last said that it is another one, nor where its settings list no such host.
    """
    if isinstance(fault, NotReachableHere):
        return False
    if account == row["account"]:
        return True
    is_unlisted = (fault.field, fault.value) == (f"accounts.{account}.hosts", row["region"])
    return not is_unlisted and not said_another(session, account, row)
