"""Which account here a machine belongs to, by what providers say their accounts are, whatever they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from cloudgpu.control.session.base import SessionBase, absence, is_another_account, is_mine, remember
from cloudgpu.control.session.last_run import OVERDUE_AFTER
from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.identity import (
    NOT_HERE,
    AccountElsewhere,
    AccountIdentity,
    Unanswered,
    account_text,
    identity_region,
    is_of_a_region,
    is_on_computer,
    recorded_identity_region,
)
from cloudgpu.core.model.machine import Machine, scope_of_row
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, NotReachableHere, Silent
from cloudgpu.providers.account_abilities import Registers
from cloudgpu.providers.shared.calls import gather

RegionIdentities = Mapping[
    tuple[str, str | None], "AccountIdentity | CloudgpuError"
]  # by account, and region where that counts
_RecordedAccount = tuple[str, str, str, "RecordedIdentity | None"]
NAMED = 3  # machines in a sentence


class AccountScope:
    """Which account an answer speaks for, region by region: it says nothing about the machines of any other.

    A region may be a computer of its own, with an identity of its own. `fault` is why that of one is not known;
    `is_told` says whether all that was asked for was answered, if by an error.
    """

    def __init__(self, session: SessionBase, account: str) -> None:
        self.account = account
        self.fault: CloudgpuError | None = None
        self.is_told = False
        self._session = session
        self._is_silent = False
        self._provider = ""
        self._known: dict[str | None, AccountIdentity | CloudgpuError] = {}

    def ask(self, regions: Iterable[str | None]) -> AccountScope:
        """Ask for the identity of these regions, or of the account where there is none. Raises nothing but defects.

        They are asked side by side: one that says nothing keeps no other one from being known.
        """
        wanted = list(set(regions) or {None})
        for region, answer in zip(wanted, gather(wanted, self._asked), strict=True):
            found = self._known.setdefault(region, answer)
            if isinstance(found, CloudgpuError) and not isinstance(found, NotReachableHere):
                self.fault = found
        self.is_told = True
        return self

    def ask_of(self, machines: Iterable[Machine]) -> AccountScope:
        """Ask for the regions where it may have one of these machines; nothing where there is none."""
        regions = {machine.region for machine in machines if machine.provider == self._kind}
        return self.ask(regions) if regions else self

    def take(self, identities: Mapping[str, AccountIdentity]) -> None:
        """Take what regions have just said that they are."""
        for region, found in identities.items():
            remember(self._session, self.account, region, found)
        self._known.update(identities)

    def be_silent(self, error: Silent) -> AccountScope:
        """Take what was not answered yet for unknown: the provider has just said nothing."""
        self.fault, self._is_silent = error, True
        return self

    def of(self, region: str | None) -> AccountIdentity | None:
        """Return which account a region of this one is; None where that is not known."""
        if region not in self._known and not self._is_silent:
            self.ask([region])
        found = self._known.get(region)
        return None if isinstance(found, CloudgpuError) else found

    def fault_of(self, region: str | None) -> CloudgpuError | None:
        """Return why it is not known which account a region of this one is."""
        found = self._known.get(region, self.fault)
        return found if isinstance(found, CloudgpuError) else None

    def _asked(self, region: str | None) -> AccountIdentity | CloudgpuError:
        """Ask for one, and keep it at once: it counts, too, where nobody waits for the others any more."""
        if region in self._known:
            return self._known[region]
        found = _tried(self._session, self.account, region)
        return found if self._is_silent else self._known.setdefault(region, found)

    def covers(self, machine: Machine) -> bool:
        """Say whether a machine, or a retained resource, belongs to this account."""
        found = self.of(machine.region) if machine.provider == self._kind else None
        return found is not None and found.is_of(machine.identity)

    def own(self, machines: Iterable[Machine]) -> list[Machine]:
        """Return those of these machines that belong to this account; thousands have the same few regions."""
        known: dict[tuple[str, RecordedIdentity | None], bool] = {}
        kind, found = self._kind, list[Machine]()
        for machine in machines:
            if machine.provider != kind:
                continue
            recorded = machine.region, machine.identity
            if recorded not in known:
                known[recorded] = self.covers(machine)
            if known[recorded]:
                found.append(machine)
        return found

    def is_unknown(self, machine: Machine) -> bool:
        """Say whether it may belong to this account, whatever that is called, and nobody could say."""
        if machine.provider != self._kind or self.of(machine.region) is not None:
            return False
        error = self.fault_of(machine.region)
        return error is not None and _may_be(self._session, self.account, machine, error)

    def scope(self, machine: Machine) -> str:
        """Return what is not known where a machine's account is not: a host has a name of its own."""
        return f"{self.account}/{machine.region}" if is_of_a_region(machine) else self.account

    @property
    def _kind(self) -> str:
        if not self._provider:
            found = self._session.account(self.account)
            self._provider = "" if found is None else found.provider
        return self._provider


def identity_of(session: SessionBase, account: str, region: str | None) -> AccountIdentity:
    """Return what this account says it is; it is remembered for those who may not ask."""
    found = session.provider(account).identity(region)
    if session.identified.get((account, identity_region(region, found.kind))) != found:
        remember(session, account, region, found)
    return found


def registered_identity(session: SessionBase, account: str, region: str | None) -> AccountIdentity:
    """Return what this account says it is, once what it is known by is there: to be called before something is made."""
    provider = session.provider(account)
    if isinstance(provider, Registers):
        provider.register()
    return identity_of(session, account, region)


def _tried(session: SessionBase, account: str, region: str | None) -> AccountIdentity | CloudgpuError:
    try:
        return identity_of(session, account, region)
    except CloudgpuError as error:
        return error


def account_here(session: SessionBase, machine: Machine, identities: RegionIdentities | None = None) -> str:
    """Return what the account of this machine is called here: by its own name, else by another.

    `identities` is what accounts have just reported that they are; others are asked. Raises NotReachableHere where no
    account here is that one, and what the provider raises where one that may be it cannot say who it is, that of the
    same name before others.
    """
    here: AccountIdentity | None = None
    absent: NotReachableHere | None = None
    unknown: CloudgpuError | None = None
    named, names = _names(session, machine)
    for account in names:
        found = (identities and identities.get(recorded_identity_region(account, machine))) or _tried(
            session, account, machine.region
        )
        if isinstance(found, CloudgpuError):
            fault = found
            if unknown is None and _may_be(session, account, machine, fault):
                unknown = fault
            if account == named and isinstance(fault, NotReachableHere):  # it has no such host
                absent = fault
            continue
        if found.is_of(machine.identity):
            return account
        here = found if account == named else here
    if unknown is not None:
        raise unknown
    raise _not_reachable(session, machine, here) if absent is None else _not_configured(session, machine, absent)


def by_account(
    session: SessionBase, machines: Sequence[Machine]
) -> tuple[dict[str, list[Machine]], dict[str, CloudgpuError]]:
    """Return these machines by what their accounts are called here, and by machine why that is not known.

    The providers are made by that, so that threads make none. A silent host is waited for beside the others.
    """
    groups: dict[str, list[Machine]] = {}
    faults: dict[str, CloudgpuError] = {}
    identities, found = _identities_of(session, machines), dict[_RecordedAccount, str]()
    for machine in machines:
        recorded = _recorded_account(machine)
        try:
            if recorded not in found:
                found[recorded] = account_here(session, machine, identities)
            groups.setdefault(found[recorded], []).append(machine)
        except CloudgpuError as error:
            faults[machine.id] = error
    return groups, faults


def _recorded_account(machine: Machine) -> _RecordedAccount:
    """Return what of a machine says which account here is its: thousands of machines have the same few."""
    return machine.account, machine.provider, machine.region, machine.identity


def _identities_of(session: SessionBase, machines: Sequence[Machine]) -> RegionIdentities:
    """Ask the accounts that are most likely these machines' who they are, side by side."""
    one_each = {_recorded_account(machine): machine for machine in machines}.values()
    wanted = {
        recorded_identity_region(account, machine): machine.region
        for machine in one_each
        for account in _likely(session, machine)
    }
    for account in {one for one, _ in wanted}:
        with suppress(CloudgpuError):  # said by whoever asks it; made here, for two threads would make two
            session.provider(account)
    account_regions = list(wanted)
    answers = (
        gather(account_regions, lambda account_region: _tried(session, account_region[0], wanted[account_region]))
        if len(account_regions) > 1
        else []
    )
    return dict(zip(account_regions, answers, strict=False))


def _likely(session: SessionBase, machine: Machine) -> list[str]:
    """Return the account of a machine's own name, where that may be its; else all that may be."""
    named, found = _names(session, machine)
    return [named] if named in found else found


def reachable(session: SessionBase, machines: Sequence[Machine]) -> list[Machine]:
    """Return these machines without those of which it is known that no account here is theirs."""
    _, faults = by_account(session, machines)
    return [machine for machine in machines if not isinstance(faults.get(machine.id), NotReachableHere)]


def judged_here(session: SessionBase, machines: Sequence[Machine]) -> list[Machine]:
    """Return those of these machines that a run from here may judge: not those of an account that is not here.

    Nor a colleague's while no account here can say who it is, where all of them last said that they are others. What
    else nobody can say just now is judged as what did not answer.
    """
    _, faults = by_account(session, machines)
    return [
        machine
        for machine in machines
        if machine.id not in faults or _may_be_here(session, machine, faults[machine.id])
    ]


def _may_be_here(session: SessionBase, machine: Machine, error: CloudgpuError) -> bool:
    if isinstance(error, NotReachableHere):
        return False
    return is_mine(session, machine) or not all(
        is_another_account(session, one, machine) for one in names_of(session, machine)
    )


def _not_reachable(session: SessionBase, machine: Machine, here: AccountIdentity | None) -> NotReachableHere:
    """Return the error for a machine of another account; `here` is what the account of that name is here."""
    of, account = account_text(machine), machine.account
    lost = absence(session, machine)
    if lost is not None:
        belongs = "runs on" if is_on_computer(machine) else "belongs to"
        message = f"{machine.name} {belongs} {of}. {lost.why}"
        return NotReachableHere(message, field="name", value=machine.name, next=lost.way)
    but = f"no account here is that one (there it is called `{account}`)" if here is None else _but(account, here)
    belongs, there = ("runs on", f"on {of}") if is_on_computer(machine) else ("belongs to", f"where an account is {of}")
    ask = f"Ask {machine.owner}" if machine.owner else "Ask its owner"
    remedy = _owner_remedy(machine, there) if is_mine(session, machine) else f"{ask}, or run this {there}."
    return NotReachableHere(f"{machine.name} {belongs} {of}; {but}.", field="name", value=machine.name, next=remedy)


def _owner_remedy(machine: Machine, there: str) -> str:
    """Return what the owner of a machine can do whose account, or computer, is another one here."""
    way = f"Run this {there}."
    if is_of_a_region(machine):
        way = f"If {machine.region} has another name in config.toml now, give it back the one of the launch."
    what = "computer was reinstalled, or is gone" if is_on_computer(machine) else "account is closed"
    return f"{way} If that {what}: cloudgpu down {machine.name} --lost WHY"


def _not_configured(session: SessionBase, machine: Machine, absent: NotReachableHere) -> NotReachableHere:
    """Return the error for a machine on a host that config.toml does not have: its owner may have taken it out."""
    remedy = absent.next if is_mine(session, machine) else _not_reachable(session, machine, None).next
    message = f"{machine.name} runs on {account_text(machine)}. {absent.message}"
    return NotReachableHere(message, field="name", value=machine.name, next=remedy)


def covered(machines: Iterable[Machine], queried: Iterable[AccountScope]) -> set[str]:
    """Return which of these machines, by id, belong to one of these accounts; each account is asked of the rest."""
    found, left = set[str](), list(machines)
    for one in queried:
        found |= {machine.id for machine in one.own(left)}
        left = [machine for machine in left if machine.id not in found]
    return found


def unqueried_accounts(
    session: SessionBase, machines: Sequence[Machine], queried: Sequence[AccountScope]
) -> list[Unanswered]:
    """Return what these accounts could not say: the machines of other accounts, and those whose account is not known.

    `machines` are those that the verb had to judge. One gap for each account, with its machines and owners.
    """
    gaps: dict[str, Unanswered] = {}
    others: dict[str, list[Machine]] = {}
    known = covered(machines, queried)
    for machine in (machine for machine in machines if machine.id not in known):
        unknown = next((one for one in queried if one.is_unknown(machine)), None)
        error = None if unknown is None else unknown.fault_of(machine.region)
        if unknown is not None and error is not None:
            scope = unknown.scope(machine)
            gaps[scope] = Unanswered(scope, error.message)
        else:
            others.setdefault(account_text(machine), []).append(machine)
    there = (
        AccountElsewhere(words, _why(session, found), _is_tended(session, found)) for words, found in others.items()
    )
    return [*gaps.values(), *there]


def _is_tended(session: SessionBase, machines: Iterable[Machine]) -> bool:
    """Say whether somebody else has asked for these machines lately, wholly; a launch counts as a sync."""
    looks = [(machine.intended_at, session.ledger.last(scope_of_row(machine))) for machine in machines]
    latest = [max(began, "" if look is None else look.occurred_at) for began, look in looks]
    return session.clock() - from_iso(min(latest)) < OVERDUE_AFTER


def _why(session: SessionBase, machines: Sequence[Machine]) -> str:
    names = [machine.name for machine in machines[:NAMED]] + (
        [f"{len(machines) - NAMED} more"] if len(machines) > NAMED else []
    )
    listed = ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
    owners = sorted(
        {f"{machine.owner}'s `{machine.account}`" if machine.owner else f"`{machine.account}`" for machine in machines}
    )
    is_are = "are machines" if len(machines) > 1 else "is a machine"
    return f"{NOT_HERE}: {listed} {is_are} of {', '.join(owners)}{_named_here(session, machines[0])}."


def _named_here(session: SessionBase, machine: Machine) -> str:
    lost = absence(session, machine)
    if lost is not None:
        return f". {lost.why} {lost.way}".removesuffix(".")
    named = name_now(session, machine)
    if session.account(named) is None:
        return f", and config.toml here has no account {named}"
    try:
        return f"; {_but(named, session.provider(named).identity(machine.region))}"
    except NotReachableHere as absent:
        way = f" {absent.next}" if is_mine(session, machine) else ""
        return f". {absent.message}{way}".removesuffix(".")
    except CloudgpuError:
        pass
    return ""


def _but(account: str, here: AccountIdentity) -> str:
    return f"`{account}` here is {here.words}"


def names_of(session: SessionBase, machine: Machine) -> list[str]:
    """Return the accounts here that may be a machine's, that of its own name first."""
    return _names(session, machine)[1]


def _names(session: SessionBase, machine: Machine) -> tuple[str, list[str]]:
    """Return the name of a machine's account, and the accounts here that may be it, that of this name first."""
    named = name_now(session, machine)
    session.account(named)  # a cloud's own name may stand for an account that config.toml does not name
    accounts = session.settings.accounts
    of_kind = sorted(name for name, one in accounts.items() if one.provider == machine.provider)
    return named, [named] * (named in of_kind) + [name for name in of_kind if name != named]


def name_now(session: SessionBase, machine: Machine) -> str:
    """Return the name of a machine's account: as it was launched, or as it was renamed since."""
    return session.names().account(machine.account)


def _may_be(session: SessionBase, account: str, machine: Machine, error: CloudgpuError) -> bool:
    """Say whether an account that cannot say now who it is may be a machine's.

    One of another name is not where it last said that it is another one, nor where its settings list no such host.
    """
    if isinstance(error, NotReachableHere):
        return False
    if account == name_now(session, machine):
        return True
    is_unlisted = (error.field, error.value) == (f"accounts.{account}.hosts", machine.region)
    return not is_unlisted and not is_another_account(session, account, machine)
