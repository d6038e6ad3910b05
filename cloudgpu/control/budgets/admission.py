"""Admits a request by its budgets before money is spent: in the transaction that records what is about to happen."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from cloudgpu.control.budgets.store import budgets, counted_prices, reserved
from cloudgpu.control.inventory.sync import sync_accounts
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_override
from cloudgpu.core.budgets.admission import AdmissionRequest, Billed, admission_request
from cloudgpu.core.budgets.budget import Budget
from cloudgpu.core.budgets.refusal import Remedy, refusal
from cloudgpu.core.events.general_lines import budget_overridden
from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.model.identity import unanswered_text
from cloudgpu.core.model.machine import Budgeted
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import scope_of
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.log.base import View

Decision = Callable[["View"], Sequence[Draft]]
SYNC_VALID_FOR = timedelta(minutes=15)


class NotAdmitted(Exception):
    """A budget does not admit the request; the transaction ends with nothing written."""

    def __init__(self, request: AdmissionRequest) -> None:
        super().__init__("a budget does not allow it")
        self.ask = request


def sync_before_admission(session: Session, accounts: Mapping[str, str], covers: Callable[[Budget], bool]) -> None:
    """Sync these accounts, and those of the budgets for which `covers` is true, unless that was done lately.

    Lately is within a quarter of an hour; `accounts` come with the region to sync, where that is a host. If an account
    does not answer, the user is told, and its machines count as the ledger has them, up to renew-until. Only
    unrecorded machines can be missing.
    """
    wanted: dict[str, str | None] = dict(accounts)
    spanning = [budget for budget in budgets(session) if covers(budget)]
    if spanning:
        wanted = dict.fromkeys(_accounts_spanned(session, spanning)) | wanted
    old = [account for account, region in wanted.items() if _is_old(session, account, region)]
    if not old:
        return
    for gap in sync_accounts(session, old).unanswered:
        session.report(
            f"{gap.scope} did not answer, so its machines count as last recorded. {unanswered_text(gap.scope, gap.why)}"
        )


def _accounts_spanned(session: Session, spanning: Sequence[Budget]) -> Iterable[str]:
    configured = session.settings.accounts
    known = {name: one.provider for name, one in configured.items()}
    known |= {
        machine.account: machine.provider for machine in session.ledger.machines() if machine.terminated_at is None
    }
    for account, provider in sorted(known.items()):
        if any(budget.scope.may_cover(provider, account) for budget in spanning):
            yield account


def _is_old(session: Session, account: str, region: str | None) -> bool:
    last = session.ledger.last(scope) if (scope := _scope(session, account, region)) else None
    return last is None or session.clock() - from_iso(last.occurred_at) >= SYNC_VALID_FOR


def _scope(session: Session, account: str, region: str | None) -> str:
    """Return the ledger subject of an account's syncs; empty where it is not known which account that is here."""
    found = session.account(account)
    if found is None:
        return ""
    try:
        return scope_of(found.provider, session.provider(account).identity(region).id)
    except CloudgpuError:
        return ""


def append_if_admitted(session: Session, decision: Decision, remedy: Remedy) -> tuple[Event, ...]:
    """Append what `decision` returns in one transaction, as `Ledger.decide`; it evaluates the budgets with `admit`.

    Raises BudgetRefused, with what would fit, if they do not admit it; `remedy` says how to request less.
    """
    try:
        return session.ledger.decide(decision)
    except NotAdmitted as refused:
        raise refusal(refused.ask, remedy) from None


def admit(
    session: Session,
    view: View,
    subject: Budgeted,
    override: str | None,
    *,
    others: Sequence[Budgeted] = (),
    of_cluster: str = "",
) -> list[Draft]:
    """Return the events to append with an admitted request: none, or that budgets were overridden.

    `others` are wanted with it, all or none: the further nodes of the cluster of this name.
    Raises NotAdmitted where a budget refuses it, and no reason is given or it does not allow to be overridden.
    """
    ask = evaluate_budgets(session, view, subject, others=others, of_cluster=of_cluster)
    refusals = ask.admission().refusals if ask.budget_sums else ()
    if not refusals:
        return []
    if override is None or not all(one.budget.allow_override for one in refusals):
        raise NotAdmitted(ask)
    check_override(session, override)
    passed = [(one.budget.name, max(one.tightest.total - one.budget.limit, Money(0))) for one in refusals]
    for name, amount in passed:
        session.report(f"Budget {name} overridden: it may be exceeded by up to {amount.text()}.")
    return [budget_overridden(subject, override, passed, session.clock(), platform.node())]


def evaluate_budgets(
    session: Session, view: View, subject: Budgeted, *, others: Sequence[Budgeted] = (), of_cluster: str = ""
) -> AdmissionRequest:
    """Return the request, a machine as it would be in the ledger, with what the budgets that cover it count already.

    `others` are wanted with it: the further nodes of the cluster of this name.
    """
    covering = [budget for budget in budgets(session) if budget.scope.covers(subject)]
    now = session.clock()
    if not covering:
        return AdmissionRequest(subject, (), frozenset(), counted_prices(session), now)

    def ended(since: datetime | None) -> Billed:
        return view.billed_costs("" if since is None else iso(since))

    def unpriced(_since: datetime | None) -> Billed:
        return view.ended_usages(unpriced=True)

    machines = [*view.exposures(), *reserved(session, view, subject)]
    prices = counted_prices(session)
    return admission_request(covering, subject, machines, ended, prices, now, unpriced, others, of_cluster)
