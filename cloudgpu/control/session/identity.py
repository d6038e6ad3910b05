"""Which account here a machine belongs to, by the identities that providers report, whatever the accounts' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from cloudgpu.control.session.base import SessionBase, is_another_account, is_mine, missing_setting, remember_identity
from cloudgpu.control.session.last_run import OVERDUE_AFTER
from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.identity import (
    LOCAL,
    NOT_REACHABLE,
    AccountElsewhere,
    AccountIdentity,
    Unanswered,
    account_text,
    identity_region,
    is_local_or_ssh_host,
    may_be_ssh_host,
    recorded_identity_key,
)
from cloudgpu.core.model.machine import Machine, sync_subject_of
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import AnswerTimeout, CloudgpuError, NotReachableHere
from cloudgpu.providers.account_abilities import Registers
from cloudgpu.providers.shared.calls import gather, result_or_error

RegionIdentities = Mapping[
    tuple[str, str | None], "AccountIdentity | CloudgpuError"
]  # by account, and by region where each has its own
_RecordedAccount = tuple[str, str, str, "RecordedIdentity | None"]  # account, provider, region, identity
MAX_NAMED = 3  # machines in a sentence


class AccountScope:
    """The identity of an account, region by region: an answer of its provider covers the machines of no other account.

    A region may be a computer with an identity of its own. `error` is why the identity of a region is not known;
    `is_queried`: at least one query has come to its end, with identities or errors.
    """

    def __init__(self, session: SessionBase, account: str) -> None:
        self.account = account
        self.error: CloudgpuError | None = None
        self.is_queried = False
        self._session = session
        self._is_silent = False
        self._provider = ""
        self._identities: dict[str | None, AccountIdentity | CloudgpuError] = {}

    def query(self, regions: Iterable[str | None]) -> AccountScope:
        """Query the identity of these regions in parallel, or of the account where there is none. Raises nothing."""
        to_query = list(set(regions) or {None})
        for region, answered in zip(to_query, gather(to_query, self._query_region), strict=True):
            answer = self._identities.setdefault(region, answered)
            if isinstance(answer, CloudgpuError) and not isinstance(answer, NotReachableHere):
                self.error = answer
        self.is_queried = True
        return self

    def query_for(self, machines: Iterable[Machine]) -> AccountScope:
        """Query the regions where this account may have one of these machines."""
        regions = {machine.region for machine in machines if machine.provider == self._kind}
        return self.query(regions) if regions else self

    def record(self, identities: Mapping[str, AccountIdentity]) -> None:
        """Record the identities that regions have just reported."""
        for region, identity in identities.items():
            remember_identity(self._session, self.account, region, identity)
        self._identities.update(identities)

    def mark_silent(self, error: AnswerTimeout) -> AccountScope:
        """Treat regions without an answer as unknown: the provider has just timed out."""
        self.error, self._is_silent = error, True
        return self

    def identity(self, region: str | None) -> AccountIdentity | None:
        """Return the account identity of a region; None where it is not known."""
        if region not in self._identities and not self._is_silent:
            self.query([region])
        answer = self._identities.get(region)
        return None if isinstance(answer, CloudgpuError) else answer

    def error_of(self, region: str | None) -> CloudgpuError | None:
        """Return why the account identity of a region is not known."""
        answer = self._identities.get(region, self.error)
        return answer if isinstance(answer, CloudgpuError) else None

    def _query_region(self, region: str | None) -> AccountIdentity | CloudgpuError:
        """Query one region, and store the answer at once: it counts even if the wait for the others ends."""
        if region in self._identities:
            return self._identities[region]
        answer = result_or_error(identity_of, self._session, self.account, region)
        return answer if self._is_silent else self._identities.setdefault(region, answer)

    def covers(self, machine: Machine) -> bool:
        """Say whether a machine, or a retained resource, belongs to this account."""
        identity = self.identity(machine.region) if machine.provider == self._kind else None
        return identity is not None and identity.is_of(machine.identity)

    def select(self, machines: Iterable[Machine]) -> list[Machine]:
        """Return those of these machines that belong to this account; thousands have the same few regions."""
        is_covered: dict[tuple[str, RecordedIdentity | None], bool] = {}
        kind, selected = self._kind, list[Machine]()
        for machine in machines:
            if machine.provider != kind:
                continue
            recorded_account = machine.region, machine.identity
            if recorded_account not in is_covered:
                is_covered[recorded_account] = self.covers(machine)
            if is_covered[recorded_account]:
                selected.append(machine)
        return selected

    def may_cover(self, machine: Machine) -> bool:
        """Say whether a machine may belong to this account, whose identity in the machine's region is not known."""
        if machine.provider != self._kind or self.identity(machine.region) is not None:
            return False
        error = self.error_of(machine.region)
        return error is not None and _may_be(self._session, self.account, machine, error)

    def gap_name(self, machine: Machine) -> str:
        """Return the name of the gap in an answer where a machine's account is not known: a host has its own name."""
        return f"{self.account}/{machine.region}" if may_be_ssh_host(machine) else self.account

    @property
    def _kind(self) -> str:
        if not self._provider:
            account = self._session.account(self.account)
            self._provider = "" if account is None else account.provider
        return self._provider


def identity_of(session: SessionBase, account: str, region: str | None) -> AccountIdentity:
    """Return the identity that this account reports, and store it for callers that may not query."""
    identity = session.provider(account).identity(region)
    if session.identified.get((account, identity_region(region, identity.kind))) != identity:
        remember_identity(session, account, region, identity)
    return identity


def ensure_identity(session: SessionBase, account: str, region: str | None) -> AccountIdentity:
    """Return the identity of this account; store one there first if it has none. Call it before a launch."""
    provider = session.provider(account)
    if isinstance(provider, Registers):
        provider.register()
    return identity_of(session, account, region)


def account_name_here(session: SessionBase, machine: Machine, identities: RegionIdentities | None = None) -> str:
    """Return the name that the account of this machine has here; the account of the recorded name is tried first.

    `identities` are those that accounts have just reported; other accounts are queried. Raises NotReachableHere where
    no account here is that one, and the provider's error where one that may be it cannot report its identity.
    """
    identity_here: AccountIdentity | None = None
    absent_error: NotReachableHere | None = None
    unknown_error: CloudgpuError | None = None
    current_name, candidates = _names_and_candidates(session, machine)
    for account in candidates:
        known = None if identities is None else identities.get(recorded_identity_key(account, machine))
        answer = result_or_error(identity_of, session, account, machine.region) if known is None else known
        if isinstance(answer, CloudgpuError):
            if unknown_error is None and _may_be(session, account, machine, answer):
                unknown_error = answer
            if account == current_name and isinstance(answer, NotReachableHere):  # config.toml lists no such host
                absent_error = answer
            continue
        if answer.is_of(machine.identity):
            return account
        identity_here = answer if account == current_name else identity_here
    if unknown_error is not None:
        raise unknown_error
    raise (
        _not_reachable(session, machine, identity_here)
        if absent_error is None
        else _not_configured(session, machine, absent_error)
    )


def by_account(
    session: SessionBase, machines: Sequence[Machine]
) -> tuple[dict[str, list[Machine]], dict[str, CloudgpuError]]:
    """Return these machines by the names that their accounts have here, and the errors of the others, by machine id.

    This also opens the providers, so that threads open none. Hosts are queried in parallel.
    """
    machines_by_account: dict[str, list[Machine]] = {}
    errors: dict[str, CloudgpuError] = {}
    identities, account_names = _identities_of(session, machines), dict[_RecordedAccount, str]()
    for machine in machines:
        recorded_account = _recorded_account(machine)
        try:
            if recorded_account not in account_names:
                account_names[recorded_account] = account_name_here(session, machine, identities)
            machines_by_account.setdefault(account_names[recorded_account], []).append(machine)
        except CloudgpuError as error:
            errors[machine.id] = error
    return machines_by_account, errors


def _recorded_account(machine: Machine) -> _RecordedAccount:
    """Return the recorded fields that decide a machine's account here: thousands of machines share a few values."""
    return machine.account, machine.provider, machine.region, machine.identity


def _identities_of(session: SessionBase, machines: Sequence[Machine]) -> RegionIdentities:
    """Query in parallel the identities of the accounts that are most likely these machines'."""
    one_per_account = {_recorded_account(machine): machine for machine in machines}.values()
    region_by_account = {
        recorded_identity_key(account, machine): machine.region
        for machine in one_per_account
        for account in _likely_accounts(session, machine)
    }
    open_providers(session, {account for account, _ in region_by_account})
    account_regions = list(region_by_account)
    answers = (
        gather(
            account_regions,
            lambda account_region: result_or_error(
                identity_of, session, account_region[0], region_by_account[account_region]
            ),
        )
        if len(account_regions) > 1
        else []
    )
    return dict(zip(account_regions, answers, strict=False))


def open_providers(session: SessionBase, accounts: Iterable[str]) -> None:
    """Open the providers of these accounts, which several threads are to use: two threads would open two."""
    for account in accounts:
        with suppress(CloudgpuError):  # raised again when it is used
            session.provider(account)


def _likely_accounts(session: SessionBase, machine: Machine) -> list[str]:
    """Return the account of the machine's recorded name, where it may be the right one; else all candidates."""
    current_name, candidates = _names_and_candidates(session, machine)
    return [current_name] if current_name in candidates else candidates


def reachable_machines(session: SessionBase, machines: Sequence[Machine]) -> list[Machine]:
    """Return these machines without those that are known to belong to no account here."""
    _, errors = by_account(session, machines)
    return [machine for machine in machines if not isinstance(errors.get(machine.id), NotReachableHere)]


def machines_to_evaluate(session: SessionBase, machines: Sequence[Machine]) -> list[Machine]:
    """Return those of these machines that a run of the reaper may evaluate here: not those of accounts elsewhere.

    Nor a colleague's, where no account here can report its identity now and all last reported other ones. A machine
    whose account is otherwise unknown now is evaluated as one that did not answer.
    """
    _, errors = by_account(session, machines)
    return [
        machine
        for machine in machines
        if machine.id not in errors or _may_be_here(session, machine, errors[machine.id])
    ]


def _may_be_here(session: SessionBase, machine: Machine, error: CloudgpuError) -> bool:
    """Return whether a machine whose account was not found, by this error, may still be of an account here."""
    if isinstance(error, NotReachableHere):
        return False
    return is_mine(session, machine) or not all(
        is_another_account(session, candidate_account, machine)
        for candidate_account in candidate_accounts(session, machine)
    )


def _not_reachable(session: SessionBase, machine: Machine, identity_here: AccountIdentity | None) -> NotReachableHere:
    """Return the error for a machine of another account; `identity_here` is that of the account of this name here."""
    account_label, account = account_text(machine), machine.account
    missing = missing_setting(session, machine)
    if missing is not None:
        belongs_text = "runs on" if is_local_or_ssh_host(machine) else "belongs to"
        message = f"{machine.name} {belongs_text} {account_label}. {missing.why}"
        return NotReachableHere(message, field="name", value=machine.name, next=missing.remedy)
    mismatch = (
        f"no account here is that one (there it is called `{account}`)"
        if identity_here is None
        else _mismatch_text(account, identity_here)
    )
    belongs_text, elsewhere = (
        ("runs on", f"on {account_label}")
        if is_local_or_ssh_host(machine)
        else ("belongs to", f"where an account is {account_label}")
    )
    ask_text = f"Ask {machine.owner}" if machine.owner else "Ask its owner"
    remedy = _owner_remedy(machine, elsewhere) if is_mine(session, machine) else f"{ask_text}, or run this {elsewhere}."
    return NotReachableHere(
        f"{machine.name} {belongs_text} {account_label}; {mismatch}.", field="name", value=machine.name, next=remedy
    )


def _owner_remedy(machine: Machine, elsewhere: str) -> str:
    """Return the remedy for the owner of a machine whose account, or computer, is not the one of this name here."""
    step = f"Run this {elsewhere}."
    if may_be_ssh_host(machine):
        step = f"If {machine.region} has another name in config.toml now, give it back the one of the launch."
    condition = "computer was reinstalled, or is gone" if is_local_or_ssh_host(machine) else "account is closed"
    return f"{step} If that {condition}: cloudgpu down {machine.name} --lost WHY"


def _not_configured(session: SessionBase, machine: Machine, absent_error: NotReachableHere) -> NotReachableHere:
    """Return the error for a machine on a host that is not in config.toml."""
    remedy = absent_error.next if is_mine(session, machine) else _not_reachable(session, machine, None).next
    message = f"{machine.name} runs on {account_text(machine)}. {absent_error.message}"
    return NotReachableHere(message, field="name", value=machine.name, next=remedy)


def covered_ids(machines: Iterable[Machine], queried: Iterable[AccountScope]) -> set[str]:
    """Return the ids of those of these machines that belong to one of these accounts."""
    ids, remaining = set[str](), list(machines)
    for scope in queried:
        ids |= {machine.id for machine in scope.select(remaining)}
        remaining = [machine for machine in remaining if machine.id not in ids]
    return ids


def unqueried_accounts(
    session: SessionBase, machines: Sequence[Machine], queried: Sequence[AccountScope]
) -> list[Unanswered]:
    """Return the gaps of an answer: the machines of other accounts, and those whose account is not known.

    `machines` are those that the verb had to evaluate. One gap for each account, with its machines and owners.
    """
    gaps: dict[str, Unanswered] = {}
    elsewhere_machines: dict[str, list[Machine]] = {}
    covered = covered_ids(machines, queried)
    for machine in (machine for machine in machines if machine.id not in covered):
        uncertain_scope = next((queried_scope for queried_scope in queried if queried_scope.may_cover(machine)), None)
        error = None if uncertain_scope is None else uncertain_scope.error_of(machine.region)
        if uncertain_scope is not None and error is not None:
            scope = uncertain_scope.gap_name(machine)
            gaps[scope] = Unanswered(scope, error.message)
        else:
            elsewhere_machines.setdefault(account_text(machine), []).append(machine)
    elsewhere = (
        AccountElsewhere(
            account_label,
            _elsewhere_text(session, account_machines),
            _is_synced_elsewhere(session, account_machines),
            _is_only_there(session, account_machines),
        )
        for account_label, account_machines in elsewhere_machines.items()
    )
    return [*gaps.values(), *elsewhere]


def _is_only_there(session: SessionBase, machines: Iterable[Machine]) -> bool:
    """Say whether these are local machines of another computer, or of another person's home on this one."""
    this_computer, *_ = session.location
    ours = f"{this_computer}/"
    return all(
        machine.identity is not None
        and machine.identity.kind == LOCAL
        and not (machine.identity.id.startswith(ours) and is_mine(session, machine))
        for machine in machines
    )


def _is_synced_elsewhere(session: SessionBase, machines: Iterable[Machine]) -> bool:
    """Say whether another home has synced all of these machines within 26 hours; a launch counts as a sync."""
    syncs = [(machine.intended_at, session.ledger.last(sync_subject_of(machine))) for machine in machines]
    latest = [max(launched, "" if sync is None else sync.occurred_at) for launched, sync in syncs]
    now = session.clock()
    return all(abs(now - from_iso(at)) < OVERDUE_AFTER for at in latest)  # one far ahead is from a wrong clock


def _elsewhere_text(session: SessionBase, machines: Sequence[Machine]) -> str:
    names = [machine.name for machine in machines[:MAX_NAMED]] + (
        [f"{len(machines) - MAX_NAMED} more"] if len(machines) > MAX_NAMED else []
    )
    names_text = ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
    owners = sorted(
        {f"{machine.owner}'s `{machine.account}`" if machine.owner else f"`{machine.account}`" for machine in machines}
    )
    is_are = "are machines" if len(machines) > 1 else "is a machine"
    return f"{NOT_REACHABLE}: {names_text} {is_are} of {', '.join(owners)}{_elsewhere_reason(session, machines[0])}."


def _elsewhere_reason(session: SessionBase, machine: Machine) -> str:
    """Return, as the end of a sentence, why the account is not reachable here; empty if that is not known."""
    missing = missing_setting(session, machine)
    if missing is not None:
        return f". {missing.why} {missing.remedy}".removesuffix(".")
    current_name = current_account_name(session, machine)
    if session.account(current_name) is None:
        return f", and config.toml here has no account {current_name}"
    try:
        return f"; {_mismatch_text(current_name, session.provider(current_name).identity(machine.region))}"
    except NotReachableHere as absent:
        remedy = f" {absent.next}" if is_mine(session, machine) else ""
        return f". {absent.message}{remedy}".removesuffix(".")
    except CloudgpuError:
        return ""


def _mismatch_text(account: str, identity: AccountIdentity) -> str:
    return f"`{account}` here is {identity.display_name}"


def candidate_accounts(session: SessionBase, machine: Machine) -> list[str]:
    """Return the accounts here that may be a machine's, that of its recorded name first."""
    return _names_and_candidates(session, machine)[1]


def _names_and_candidates(session: SessionBase, machine: Machine) -> tuple[str, list[str]]:
    """Return the current name of a machine's account, and the accounts here that may be it, that of this name first."""
    current_name = current_account_name(session, machine)
    # A cloud's name may mean an account that is not in config.toml: this adds it to the settings.
    session.account(current_name)
    accounts = session.settings.accounts
    same_provider = sorted(name for name, configured in accounts.items() if configured.provider == machine.provider)
    return current_name, [current_name] * (current_name in same_provider) + [
        name for name in same_provider if name != current_name
    ]


def current_account_name(session: SessionBase, machine: Machine) -> str:
    """Return the current name of a machine's account: that of the launch, or the one it was renamed to."""
    return session.names().account(machine.account)


def _may_be(session: SessionBase, account: str, machine: Machine, error: CloudgpuError) -> bool:
    """Say whether an account that cannot report its identity now may be a machine's.

    An account of another name may not be, if it last reported another identity, or its settings list no such host.
    """
    if isinstance(error, NotReachableHere):
        return False
    if account == current_account_name(session, machine):
        return True
    is_unlisted = (error.field, error.value) == (f"accounts.{account}.hosts", machine.region)
    return not is_unlisted and not is_another_account(session, account, machine)
