"""Checks a request against the budgets before money is spent, in the transaction that records its intent.

It also checks the credit of prepaid accounts. Credit that cannot be read is unknown, not zero: the plan says so, and
the launch continues.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from cloudgpu.control.budgets.store import budgets, fallback_prices, reservations_of_jobs
from cloudgpu.control.inventory.sync import sync_accounts
from cloudgpu.control.session.identity import identity_of
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_override
from cloudgpu.core.budgets.admission import AdmissionRequest, BilledUsages, admission_request
from cloudgpu.core.budgets.budget import Budget
from cloudgpu.core.budgets.credit import (
    WARN_BEFORE,
    CreditFit,
    CreditReading,
    credit_fit,
    credit_left,
    credit_refusal,
    hourly_spend,
    ledger_hourly_cost,
    time_left,
)
from cloudgpu.core.budgets.refusal import Remedy, refusal
from cloudgpu.core.events.general_events import budget_overridden
from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.model.checks import Check, Verdict, failed_check
from cloudgpu.core.model.identity import QueriedAccount, unanswered_text
from cloudgpu.core.model.machine import Machine, command_name, sync_subject_of
from cloudgpu.core.model.offers import Note, NoteKind
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import account_sync_subject
from cloudgpu.core.values.times import duration_text, from_iso, iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.log.base import View
from cloudgpu.providers.account_abilities import ReadsCredit
from cloudgpu.providers.base import Provider
from cloudgpu.providers.shared.calls import result_or_error

BuildEvents = Callable[[View], Sequence[Draft]]  # makes the events of a transaction from what the ledger has then
SYNC_VALID_FOR = timedelta(minutes=15)  # an older sync of an account is repeated before an admission


class NotAdmitted(Exception):
    """A budget does not admit the request; the transaction writes nothing. Becomes BudgetRefused for the user."""

    def __init__(self, request: AdmissionRequest) -> None:
        super().__init__("a budget does not allow it")
        self.request = request


def sync_before_admission(
    session: Session, region_by_account: Mapping[str, str], covers: Callable[[Budget], bool]
) -> None:
    """Sync these accounts, and those of the budgets for which `covers` is true, unless synced within SYNC_VALID_FOR.

    `region_by_account` has the accounts, each with the region to sync (of the user's own hosts). If an
    account does not answer, that is reported, and its machines count as recorded, up to renew-until. Only unrecorded
    machines can be missing.
    """
    regions: dict[str, str | None] = dict(region_by_account)
    covering = [budget for budget in budgets(session) if covers(budget)]
    if covering:
        regions = dict.fromkeys(_accounts_covered(session, covering)) | regions
    out_of_date = [account for account, region in regions.items() if _is_out_of_date(session, account, region)]
    for gap in sync_accounts(session, out_of_date).unanswered if out_of_date else ():
        session.report(
            f"{gap.scope} did not answer, so its machines count as last recorded. {unanswered_text(gap.scope, gap.why)}"
        )


def _accounts_covered(session: Session, covering: Sequence[Budget]) -> Iterable[str]:
    """Yield the accounts of the settings and the ledger that one of these budgets may cover."""
    providers = {name: account.provider for name, account in session.settings.accounts.items()}
    providers |= {
        machine.account: machine.provider for machine in session.ledger.machines() if machine.terminated_at is None
    }
    for account, provider in sorted(providers.items()):
        if any(budget.scope.may_cover(provider, account) for budget in covering):
            yield account


def _is_out_of_date(session: Session, account: str, region: str | None) -> bool:
    """Return whether the account's last sync is older than SYNC_VALID_FOR."""
    last_sync = session.ledger.last(scope) if (scope := _sync_scope(session, account, region)) else None
    return last_sync is None or session.clock() - from_iso(last_sync.occurred_at) >= SYNC_VALID_FOR


def _sync_scope(session: Session, account: str, region: str | None) -> str:
    """Return the ledger subject of an account's syncs; empty if the account or its identity is not known here."""
    configured = session.account(account)
    if configured is None:
        return ""
    try:
        return account_sync_subject(configured.provider, session.provider(account).identity(region).id)
    except CloudgpuError:
        return ""


def append_if_admitted(session: Session, build_events: BuildEvents, remedy: Remedy) -> tuple[Event, ...]:
    """Append what `build_events` returns in one transaction, as `Ledger.decide`; `build_events` calls `admit`.

    Raises BudgetRefused, with what would fit, if a budget does not admit it; `remedy` says how to request less.
    """
    try:
        return session.ledger.decide(build_events)
    except NotAdmitted as error:
        raise refusal(error.request, remedy) from None


def admit(
    session: Session,
    view: View,
    subject: Machine,
    override: str | None,
    *,
    others: Sequence[Machine] = (),
    of_cluster: str = "",
) -> list[Draft]:
    """Return the events to append with an admitted request: none, or that budgets were overridden.

    `override` is the reason to exceed budgets, None for none. `others` are the other nodes of the cluster `of_cluster`,
    launched all or none. Raises NotAdmitted if a budget refuses, without a reason or if it cannot be overridden.
    """
    request = evaluate_budgets(session, view, subject, others=others, of_cluster=of_cluster)
    refusals = request.admission().refusals if request.budget_sums else ()
    if not refusals:
        return []
    if override is None or not all(refusal.budget.allow_override for refusal in refusals):
        raise NotAdmitted(request)
    check_override(session, override)
    exceeded = [
        (refusal.budget.name, max(refusal.tightest.total - refusal.budget.limit, Money(0))) for refusal in refusals
    ]
    for name, amount in exceeded:
        session.report(f"Budget {name} overridden: it may be exceeded by up to {amount.text()}.")
    return [budget_overridden(subject, override, exceeded, session.clock(), platform.node())]


def evaluate_budgets(
    session: Session,
    view: View,
    subject: Machine,
    *,
    others: Sequence[Machine] = (),
    of_cluster: str = "",
) -> AdmissionRequest:
    """Return the request for admission, with what each budget that covers any of it has spent and committed already.

    `subject` is the machine as it would be in the ledger; `others` are the other nodes of the cluster `of_cluster`.
    """
    covering = [budget for budget in budgets(session) if any(map(budget.scope.covers, (subject, *others)))]
    now = session.clock()
    if not covering:
        return AdmissionRequest(subject, (), frozenset(), fallback_prices(session), now)

    def ended_costs(since: datetime | None) -> BilledUsages:
        return view.billed_costs("" if since is None else iso(since))

    def unpriced_usages(_since: datetime | None) -> BilledUsages:
        return view.ended_usages(unpriced=True)

    machines = [*view.exposures(), *reservations_of_jobs(session, view, subject)]
    prices = fallback_prices(session)
    return admission_request(covering, subject, machines, ended_costs, prices, now, unpriced_usages, others, of_cluster)


def read_credit(provider: Provider) -> PrepaidCredit | CloudgpuError | None:
    """Return the credit of the provider's account, or the error of reading it; None if the account is not prepaid."""
    return result_or_error(provider.credit) if isinstance(provider, ReadsCredit) else None


def evaluate_credit_fit(
    session: Session,
    view: View,
    credit: PrepaidCredit,
    machines: Sequence[Machine],
    scope: str,
    lease: timedelta,
) -> CreditFit:
    """Return how requested machines fit the credit of their account, in addition to what runs there.

    `scope` is the ledger subject of the account. A requested machine that runs already is not counted twice.
    """
    ids = {machine.id for machine in machines}
    other_machines = (
        present_machine
        for present_machine in view.present_machines()
        if present_machine.id not in ids and sync_subject_of(present_machine) == scope
    )
    others_hourly_cost = hourly_spend(credit, other_machines)
    return credit_fit(
        machines[0].account, credit, others_hourly_cost, ledger_hourly_cost(machines), lease, session.clock()
    )


def check_credit(
    session: Session,
    view: View,
    credit: PrepaidCredit | CloudgpuError | None,
    machines: Sequence[Machine],
    scope: str,
    lease: timedelta,
) -> None:
    """Raise BudgetRefused if the account's credit does not last for these machines to the end of their lease."""
    if credit is None or isinstance(credit, CloudgpuError):
        return
    fit = evaluate_credit_fit(session, view, credit, machines, scope, lease)
    if not fit.fits:
        raise credit_refusal(fit, machines[0].name if len(machines) == 1 else f"{len(machines)} machines", lease)


def credit_of_machine(session: Session, machine: Machine) -> PrepaidCredit | None:
    """Return the credit of a machine's account; None if it is not prepaid, or, with a report, could not be read."""
    credit = read_credit(session.provider_of(machine))
    if isinstance(credit, CloudgpuError):
        session.report(f"{_credit_not_read_text(machine.account)}{credit.message}")
        return None
    return credit


def check_credit_until(
    session: Session,
    view: View,
    credit: PrepaidCredit | None,
    machines: Sequence[Machine],
    until: datetime,
    ending: str,
    remedy: str,
) -> None:
    """Raise BudgetRefused if an account's credit does not last until `until` for what runs there, `machines` included.

    `ending` names what ends then, as "lease"; `remedy` says how to request less.
    """
    duration = until - session.clock()
    if credit is None or duration <= timedelta():
        return
    scope = sync_subject_of(machines[0])
    hourly = hourly_spend(credit, (machine for machine in view.present_machines() if sync_subject_of(machine) == scope))
    fit = credit_fit(machines[0].account, credit, hourly, Money(0), duration, session.clock())
    if not fit.fits:
        raise credit_refusal(fit, command_name(machines[0]), duration, ending, remedy)


def check_credit_of_hold(session: Session, machines: Sequence[Machine], until: datetime | None) -> None:
    """Raise BudgetRefused if the credit does not last to the end of a hold that is later than the lease.

    A hold ends at renew-until at the latest. `until` is None for a release, which is never refused.
    """
    held = [
        machine
        for machine in machines
        if until is not None and (machine.expires is None or from_iso(machine.expires) < until)
    ]
    if not held or until is None:
        return
    held_until = max(
        until if machine.renew_until is None else min(until, from_iso(machine.renew_until)) for machine in held
    )
    credit = credit_of_machine(session, held[0])
    session.ledger.read(
        lambda view: check_credit_until(session, view, credit, held, held_until, "hold", "hold it for a shorter time")
    )


def planned_credit_fit(
    session: Session, provider: Provider, subjects: Sequence[Machine], lease: timedelta
) -> CreditFit | CloudgpuError | None:
    """Return how a plan fits the credit of its account, or the error of reading it; None if it is not prepaid."""
    credit = read_credit(provider)
    if credit is None or isinstance(credit, CloudgpuError):
        return credit
    identity = result_or_error(identity_of, session, provider.account, subjects[0].region)
    if isinstance(identity, CloudgpuError):
        return identity
    scope = account_sync_subject(provider.kind, identity.id)
    return session.ledger.read(lambda view: evaluate_credit_fit(session, view, credit, subjects, scope, lease))


def _credit_not_read_text(account: str) -> str:
    return f"the credit of account {account} could not be read, so whether it is enough is not known: "


def credit_notes(fit: CreditFit | CloudgpuError | None, account: str) -> Iterator[Note]:
    """Yield the plan's note about the credit: how long it lasts after the launch, or that it is not known."""
    if isinstance(fit, CloudgpuError):
        yield Note(_credit_not_read_text(account) + fit.message, NoteKind.MONEY)
    elif fit is not None:
        lasts = "" if fit.lasts is None else f", for {duration_text(fit.lasts)} at {fit.hourly.text(4)} an hour"
        yield Note(f"the credit of account {account} is {fit.left.text()}{lasts}", NoteKind.MONEY)


def read_credits(session: Session, queried: Iterable[QueriedAccount]) -> Iterator[CreditReading]:
    """Yield the credit of each of these accounts that is prepaid; report those that cannot be read."""
    for account in queried:
        try:
            reading = _account_credit(session, account)
        except CloudgpuError as error:
            session.report(f"the credit of account {account.account} could not be read: {error.message}")
            continue
        if reading is not None:
            yield reading


def _account_credit(session: Session, account: QueriedAccount) -> CreditReading | None:
    """Return the credit of an account; None if it is not prepaid. Raises CloudgpuError if it cannot be read."""
    provider = session.provider(account.account)
    credit = provider.credit() if isinstance(provider, ReadsCredit) else None
    if credit is None:
        return None
    scope = account_sync_subject(account.provider, identity_of(session, account.account, None).id)
    machines = [machine for machine in session.ledger.present_machines() if sync_subject_of(machine) == scope]
    hourly = hourly_spend(credit, machines)
    return CreditReading(
        scope, account.account, account.provider, credit, hourly, hourly - ledger_hourly_cost(machines)
    )


def credit_checks(session: Session, account: str) -> Iterator[Check]:
    """Yield the check of a prepaid account's credit; nothing for other accounts. Calls the provider once."""
    try:
        reading = _account_credit(session, QueriedAccount(account, session.provider(account).kind))
    except CloudgpuError as error:
        yield failed_check(f"credit {account}", error)
    else:
        if reading is not None:
            yield _credit_check(reading, session.clock())


def _credit_check(reading: CreditReading, now: datetime) -> Check:
    name, left_text = f"credit {reading.account}", reading.credit.remaining.text()
    remaining = credit_left(reading.credit, reading.hourly, now)
    lasts = time_left(remaining, reading.hourly)
    if not remaining:
        return Check(
            name, Verdict.WARN, f"{left_text} left: nothing can be launched", f"Pay in at {reading.credit.payment_page}"
        )
    if lasts is None:
        return Check(name, Verdict.OK, f"{left_text} left; nothing is spent now")
    text = f"{left_text} left, for {duration_text(lasts)} at {reading.hourly.text(4)} an hour"
    if lasts > WARN_BEFORE:
        return Check(name, Verdict.OK, text)
    return Check(
        name, Verdict.WARN, f"{text}; at zero its data is deleted.", f"Pay in at {reading.credit.payment_page}"
    )
