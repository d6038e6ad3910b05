"""Asks the budgets before money is spent: in the transaction that records what is about to happen."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from cloudgpu.control.budgets.store import budgets, counted_prices, reserved
from cloudgpu.control.inventory.sync import look_at
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.law import check_override
from cloudgpu.core.budgets.admission import Asking, Billed, asking
from cloudgpu.core.budgets.budget import Budget
from cloudgpu.core.budgets.refusal import Way, refusal
from cloudgpu.core.events.lab_lines import budget_overridden
from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.model.identity import gap_text
from cloudgpu.core.model.machine import Budgeted
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import scope_of
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.log.base import View

Decision = Callable[["View"], Sequence[Draft]]
FRESH_FOR = timedelta(minutes=15)


class NotCarried(Exception):
    """A budget does not carry what was asked; the transaction ends with nothing written."""

    def __init__(self, ask: Asking) -> None:
        super().__init__("a budget does not allow it")
        self.ask = ask


def look_first(session: Session, accounts: Mapping[str, str], covers: Callable[[Budget], bool]) -> None:
    """Look at these accounts, and at those that the budgets which `covers` names span, where the view is old.

    Older than a quarter of an hour, that is; `accounts` come with the region whose look counts, where that is a host.
    An account that does not answer is said to; what the ledger knows of it counts, to its renew-until: machines that
    nobody recorded are all that can be missing.
    """
    wanted: dict[str, str | None] = dict(accounts)
    spanning = [budget for budget in budgets(session) if covers(budget)]
    if spanning:
        wanted = dict.fromkeys(_spanned(session, spanning)) | wanted
    old = [account for account, region in wanted.items() if _is_old(session, account, region)]
    if not old:
        return
    for gap in look_at(session, old).unanswered:
        session.tell(f"Of {gap.scope} what the ledger knows counts. {gap_text(gap.scope, gap.why)}")


def _spanned(session: Session, spanning: Sequence[Budget]) -> Iterable[str]:
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
    return last is None or session.clock() - from_iso(last.occurred_at) >= FRESH_FOR


def _scope(session: Session, account: str, region: str | None) -> str:
    """Return the subject of the looks at an account; empty where it is not known which account that is here."""
    found = session.account(account)
    if found is None:
        return ""
    try:
        return scope_of(found.provider, session.provider(account).identity(region).id)
    except CloudgpuError:
        return ""


def decided(session: Session, decision: Decision, way: Way) -> tuple[Event, ...]:
    """Write what `decision` returns in one transaction, as `Ledger.decide`; it asks the budgets by `carried`.

    Raises BudgetRefused, with what would fit, where they do not carry it; `way` says how to ask for less.
    """
    try:
        return session.ledger.decide(decision)
    except NotCarried as refused:
        raise refusal(refused.ask, way) from None


def carried(
    session: Session,
    view: View,
    wanted: Budgeted,
    override: str | None,
    *,
    others: Sequence[Budgeted] = (),
    of_cluster: str = "",
) -> list[Draft]:
    """Return the lines that go with the admission of what is wanted: none, or that budgets were overridden.

    `others` are wanted with it, all or none: the further nodes of the cluster of this name.
    Raises NotCarried where a budget refuses it, and no reason is given or it does not allow to be overridden.
    """
    ask = ask_budgets(session, view, wanted, others=others, of_cluster=of_cluster)
    refusals = ask.admission().refusals if ask.accounts else ()
    if not refusals:
        return []
    if override is None or not all(one.budget.allow_override for one in refusals):
        raise NotCarried(ask)
    check_override(session, override)
    passed = [(one.budget.name, _too_much(one.tightest.total, one.budget.limit)) for one in refusals]
    session.tell("let past: " + ", ".join(f"{name} (by up to {amount.text()})" for name, amount in passed))
    return [budget_overridden(wanted, override, passed, session.clock(), platform.node())]


def _too_much(total: Money, limit: Money) -> Money:
    return max(total - limit, Money(0))


def ask_budgets(
    session: Session, view: View, wanted: Budgeted, *, others: Sequence[Budgeted] = (), of_cluster: str = ""
) -> Asking:
    """Return what is wanted, a row as it would be in the ledger, with what the budgets that cover it carry already.

    `others` are wanted with it: the further nodes of the cluster of this name.
    """
    covering = [budget for budget in budgets(session) if budget.scope.covers(wanted)]
    now = session.clock()
    if not covering:
        return Asking(wanted, (), frozenset(), counted_prices(session), now)

    def ended(since: datetime | None) -> Billed:
        return view.billed("" if since is None else iso(since))

    def unpriced(_since: datetime | None) -> Billed:
        return view.uses(unpriced=True)

    rows = [*view.exposures(), *reserved(session, view, wanted)]
    prices = counted_prices(session)
    return asking(covering, wanted, rows, ended, prices, now, unpriced, others, of_cluster)
