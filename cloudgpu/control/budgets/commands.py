"""Parses the options of a budget, and makes the documents of the `budget` commands."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypedDict

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.config.money.currencies import exchange_rate, typed_rate
from cloudgpu.control.budgets.admission import sync_before_admission
from cloudgpu.control.budgets.store import budget_states, find_budgets, remove_budget, set_budget
from cloudgpu.control.inputs.periods import check_rate_is_past
from cloudgpu.control.session.accounts import provider_kinds
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.control.team.roles import require_payer_role
from cloudgpu.core.budgets import parsing
from cloudgpu.core.budgets.budget import Action, Budget, Scope
from cloudgpu.core.budgets.enforcement import budget_stops
from cloudgpu.core.budgets.status import BudgetState
from cloudgpu.core.policies.guards import gentlest_ending
from cloudgpu.core.policies.policy import ReaperAction
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import NAME, NAME_RULE, unknown_word
from cloudgpu.core.values.units import QuotedAmount
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.views.budgets import budget_document, status_document, stop_document, stop_sentences

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.budgets import (
        BudgetCheckDocument,
        BudgetEvaluation,
        BudgetRemovedDocument,
        BudgetsDocument,
        BudgetSetDocument,
        BudgetTestDocument,
    )

CHECK_INTERVAL = timedelta(minutes=15)  # how often budgets are checked by default


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """The options of a budget, as typed. None: the default. `BudgetChoices` explains the optional ones."""

    name: str
    amount: str
    period: str
    scope: str = "all"
    currency: str | None = None
    rate: str | None = None
    rate_date: str | None = None
    thresholds: str | None = None
    forecast: str | None = None
    action: str | None = None
    tz: str | None = None
    allow_override: bool = True


class BudgetChoices(TypedDict, total=False):
    """The optional fields of a budget; `BudgetOptions` has the defaults."""

    scope: str  # "all", "project=vision,owner=ada"
    currency: str | None  # of the amount, "KRW"; None: US dollars
    rate: str | None  # how much of the currency one dollar is; None: the setting
    rate_date: str | None  # the day of that rate
    thresholds: str | None  # percents at which an alert is sent, "50,80,100"; "none"
    forecast: str | None  # the percent from which a forecast is alerted; "none"
    action: str | None  # of notify, refuse, stop: "notify,refuse"
    tz: str | None  # the time zone of its periods, "Asia/Seoul"; None: the setting
    allow_override: bool  # whether a launch with `override` may exceed it


def budget_of_options(session: Session, options: BudgetOptions) -> Budget:
    """Return the budget of these options. Raises InvalidRequest for the first that is invalid."""
    _check_types(options)
    if not NAME.fullmatch(options.name):
        message = f"{options.name[:60]!r} cannot be a budget's name: {NAME_RULE}."
        raise InvalidRequest(message, field="NAME", value=options.name[:60], next="Choose a name like lab.")
    amount = parsing.parse_amount(options.amount, "--amount")
    quoted_limit = _limit_currency(session, options, amount)
    tz = options.tz or session.settings.tz
    scope = parsing.parse_scope(options.scope, "--scope")
    _check_scope_names(session, scope)
    default_budget = Budget(options.name, Money(0), parsing.parse_period(options.period, "--period"))
    thresholds, actions = options.thresholds, options.action
    return replace(
        default_budget,
        limit=parsing.limit_in_usd(amount, quoted_limit, "--amount"),
        scope=scope,
        thresholds=default_budget.thresholds
        if thresholds is None
        else parsing.parse_thresholds(thresholds.split(","), "--thresholds"),
        forecast=_forecast_percent(options.forecast, default_budget.forecast),
        actions=default_budget.actions if actions is None else parsing.parse_actions(actions.split(","), "--action"),
        tz=tz,
        zone=zone_of(tz),
        allow_override=options.allow_override,
        quoted_limit=quoted_limit,
    )


_REQUIRED_TEXTS = ("name", "amount", "period", "scope")


def _check_types(options: BudgetOptions) -> None:
    """Raise InvalidRequest for a value of the library of another type than on the command line."""
    allow_override: object = options.allow_override
    if not isinstance(allow_override, bool):
        message = f"{allow_override!r} is neither, and allow_override takes True or False."
        raise InvalidRequest(
            message, field="allow_override", value=str(allow_override), next="Write allow_override=False."
        )
    for key in (
        "name",
        "amount",
        "period",
        "scope",
        "currency",
        "rate",
        "rate_date",
        "thresholds",
        "forecast",
        "action",
        "tz",
    ):
        value = getattr(options, key)
        if not isinstance(value, str) and (value is not None or key in _REQUIRED_TEXTS):
            option = "NAME" if key == "name" else f"--{key.replace('_', '-')}"
            message = f"{value!r} is not text, and {option} takes text."
            raise InvalidRequest(message, field=option, value=str(value), next=f'Write it as text: "{value}".')


def _forecast_percent(text: str | None, default: int | None) -> int | None:
    return default if text is None else None if text == "none" else parsing.parse_percent(text, "--forecast")


def _limit_currency(session: Session, options: BudgetOptions, amount: Decimal) -> QuotedAmount | None:
    """Return the limit in its currency, with the typed rate or that of config.toml; None for US dollars."""
    code = (options.currency or "USD").upper()
    if options.rate is None:
        if options.rate_date is not None:
            message, remedy = "--rate-date needs the rate that it is of.", "Add --rate, for example --rate 1385.2."
            raise InvalidRequest(message, field="--rate-date", value=options.rate_date, next=remedy)
        currency = exchange_rate(session.settings.currencies, code)
        return None if currency.code == "USD" else QuotedAmount(amount, currency)
    if code == "USD":
        raise InvalidRequest(
            "A rate needs the currency that it is for.",
            field="--rate",
            value=options.rate,
            next="Add --currency, for example --currency KRW --rate 1385.2, or leave --rate out.",
        )
    today = session.clock().astimezone(zone_of(options.tz or session.settings.tz)).date()
    currency = typed_rate(code, options.rate, options.rate_date or today)
    check_rate_is_past(currency, session.clock())
    return QuotedAmount(amount, currency)


def _check_scope_names(session: Session, scope: Scope) -> None:
    """Raise InvalidRequest for an unknown account or provider, and a cluster: the budget would cover no machine."""
    machines = session.ledger.machines()
    accounts = {*session.settings.accounts, *(machine.account for machine in machines)}
    providers = {*provider_kinds(), *(account.provider for account in session.settings.accounts.values())}
    providers |= {machine.provider for machine in machines}
    for key, name, known in (("account", scope.account, accounts | providers), ("provider", scope.provider, providers)):
        if name is not None and name not in known:
            raise unknown_word(
                f"No {key} is called {name!r}",
                name,
                known,
                field="--scope",
                value=f"{key}={name}",
                next=f"Use one of: {', '.join(sorted(known))}.",
            )
    living = living_machines(machines)
    nodes = [machine.name for machine in living if machine.cluster_node and machine.cluster_node.name == scope.instance]
    if nodes and all(machine.name != scope.instance for machine in living):
        raise InvalidRequest(
            f"{scope.instance} is a cluster, and instance= is one machine.",
            field="--scope",
            value=f"instance={scope.instance}",
            next=f"Use its project= or owner=, or set a budget for each machine: instance={min(nodes)}, and so on.",
        )


def set_budget_document(session: Session, options: BudgetOptions, *, overwrite: bool) -> BudgetSetDocument:
    """Set a budget and return its status, and the one that it replaced."""
    require_payer_role(session, "Setting a budget")
    budget = budget_of_options(session, options)
    replaced = set_budget(session, budget, overwrite=overwrite)
    (state,) = budget_states(session, [budget])
    return {
        "budget": status_document(state, CHECK_INTERVAL),
        "replaced": None if replaced is None else budget_document(replaced),
        "terminates": _machines_terminated(session, budget),
        "warning": _below_committed_warning(session, state),
    }


def _below_committed_warning(session: Session, state: BudgetState) -> str | None:
    """Return the warning about a budget below what is spent and committed already, else None."""
    committed = state.spent + state.committed
    if committed <= state.budget.limit:
        return None
    message = (
        f"{state.budget.name} is below what is committed: {state.spent.text()} is spent and {state.committed.text()} "
        f"is committed to what runs, {committed.text()} of {state.budget.limit.text()}."
    )
    stops = budget_stops([state], session.ledger.machines(), {}, session.clock())
    consequences = [f"At the next run {text}." for text in stop_sentences([stop_document(stop) for stop in stops])]
    if state.is_exceeded and not consequences:
        consequences.append("The next run reports that it is exceeded.")
    if not state.is_exceeded:
        consequences.append("It is not exceeded yet, but will be if everything runs until renew-until.")
    if state.budget.refuses:
        consequences.append("No launch is admitted under it meanwhile.")
    return " ".join([message, *consequences])


def _machines_terminated(session: Session, budget: Budget) -> list[str]:
    """Return the names of covered machines that this budget would terminate, because they cannot be stopped."""
    if Action.STOP not in budget.actions:
        return []
    covered = (machine for machine in living_machines(session.ledger.machines()) if budget.scope.covers(machine))
    return [machine.name for machine in covered if gentlest_ending(machine) is ReaperAction.TERMINATE]


def list_budgets(session: Session) -> BudgetsDocument:
    """Return the status of every budget, by the ledger."""
    states = budget_states(session, find_budgets(session, None))
    return {"budgets": [status_document(state, CHECK_INTERVAL) for state in states]}


def remove_budget_of_name(session: Session, name: str) -> BudgetRemovedDocument:
    """Remove a budget and return it."""
    return {"removed": budget_document(remove_budget(session, name))}


def check_budgets(session: Session, name: str | None, *, every: timedelta = CHECK_INTERVAL) -> BudgetCheckDocument:
    """Sync accounts that are out of date, evaluate the budgets (or one), send alerts, and return the result.

    `every` is how often this is done: a budget that stops machines can be exceeded by what they cost in between.
    `stops` is what the budgets would stop now; nothing is stopped here. A check of all budgets ends with a call of the
    dead-man's address, as failed if it did not finish or a receiver has not accepted its alerts.
    """
    if name is not None:
        return {**_evaluate_and_alert(session, name, every), "deadman": None}
    from cloudgpu.control.alerts.alerts import ping

    try:
        document = _evaluate_and_alert(session, None, every)
    except Exception:
        with suppress(CloudgpuError):  # the error that ended the run is the one to show
            ping(session, ok=False)
        raise
    alerts = document["alerts"]
    return {**document, "deadman": ping(session, ok=alerts is None or not alerts["failed"])}


def _evaluate_and_alert(session: Session, name: str | None, every: timedelta) -> BudgetEvaluation:
    """Return the status of the budgets (or of one), and send alerts only for all of them."""
    from cloudgpu.control.alerts.alerts import budget_findings, deliver, record_findings

    budgets = find_budgets(session, name)
    sync_before_admission(session, {}, lambda budget: budget in budgets)
    now, states = session.clock(), budget_states(session, budgets)
    findings = list(budget_findings(session, states))
    delivery = None
    if name is None:
        delivery = deliver(session, findings).document()
    else:
        record_findings(session, findings, clearable=())
    return {
        "budgets": [status_document(state, every) for state in states],
        "stops": [stop_document(stop) for stop in budget_stops(states, session.ledger.machines(), {}, now)],
        "alerts": delivery,
        "exhausted": [state.budget.name for state in states if state.is_exceeded],
    }


def has_exceeded_budget(document: BudgetsDocument | BudgetEvaluation) -> bool:
    """Return whether a budget with the action `refuse` or `stop` is exceeded."""
    return any(
        budget["exhausted"] and set(budget["actions"]) & {Action.REFUSE, Action.STOP} for budget in document["budgets"]
    )


def send_sample(session: Session) -> BudgetTestDocument:
    """Send a sample alert to every receiver; return who has accepted it and who has not."""
    from cloudgpu.control.alerts.alerts import outcomes_document, send_sample_alert

    return outcomes_document(send_sample_alert(session))
