"""`cloudgpu budget`: limits on what is spent, which refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_session, tell
from cloudgpu.cli.launch.options import OptionalText, text_option
from cloudgpu.cli.money.budget_text import check_text, list_text, sent_text, set_text
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.budgets.commands import BudgetOptions
    from cloudgpu.control.session.session import Session


Action = Literal["set", "ls", "rm", "check", "test"]


def command(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="set|ls|rm|check|test",
            help="set one; ls: list them; rm one; check: evaluate them and send alerts; test: send a sample alert.",
        ),
    ],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="set, rm, check: the budget's name.")] = None,
    *,
    amount: Annotated[OptionalText, text_option("N", "set: the limit, above zero, in USD or --currency.")] = None,
    period: Annotated[OptionalText, text_option("P", "set: day, week, month, total or rolling:30d.")] = None,
    scope: Annotated[
        str, text_option("K=V,...", "set: project, provider, owner, account, instance. By default all.")
    ] = "",
    currency: Annotated[
        OptionalText, text_option("CODE", "set: the currency of the amount; its rate is recorded.")
    ] = None,
    rate: Annotated[
        OptionalText, text_option("N", "set: how much of it one USD is; by default as in config.toml.")
    ] = None,
    rate_date: Annotated[OptionalText, text_option("DAY", "set: the day of that rate; by default today.")] = None,
    thresholds: Annotated[
        OptionalText, text_option("N,...", "set: alert at these percentages, or none. (50,80,100)")
    ] = None,
    forecast: Annotated[
        OptionalText, text_option("N", "set: alert when the forecast reaches this, or none. (100)")
    ] = None,
    actions: Annotated[
        str | None, typer.Option("--action", metavar="A,...", help="set: notify, refuse, stop. (notify,refuse)")
    ] = None,
    tz: Annotated[OptionalText, text_option("ZONE", "set: the time zone of its periods, like Asia/Seoul.")] = None,
    allow_override: Annotated[
        bool, typer.Option("--allow-override/--no-override", help="set: whether --override may exceed it.")
    ] = True,
    replace: Annotated[bool, typer.Option("--replace", help="set: replace a budget of this name.")] = False,
    every: Annotated[str, text_option("TIME", "check: how often you run it, to compute the worst overshoot.")] = "15m",
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Limit what is spent by month, week, day, in a rolling window or in total.

    Before up, start and extend act, a budget adds up what was spent, what running machines cost until renew-until, and
    the new request. If the sum exceeds the limit, the request is refused: exit code 3. `check` exits with 3 if a budget
    that refuses or stops is exceeded. For budgets in files, see docs/budgets.md.
    """
    set_options = {
        "--amount": amount, "--period": period, "--scope": scope, "--currency": currency, "--rate": rate,
        "--rate-date": rate_date, "--thresholds": thresholds, "--forecast": forecast, "--action": actions, "--tz": tz,
        "--replace": replace, "--no-override": not allow_override,
    }  # fmt: skip
    _check_options(action, name, set_options)
    session = open_session()
    if action == "set":
        options = _budget_options(
            name,
            amount,
            period,
            scope=scope or "all",
            currency=currency,
            rate=rate,
            rate_date=rate_date,
            thresholds=thresholds,
            forecast=forecast,
            action=actions,
            tz=tz,
            allow_override=allow_override,
        )
        _set_budget(session, options, output, overwrite=replace)
    elif action == "ls":
        _list(session, output)
    elif action == "rm":
        _remove(session, _required_name(name), output, yes=yes)
    elif action == "check":
        _check_budgets(session, name, every, output)
    else:
        _send_sample(session, output)


def _check_options(action: Action, name: str | None, set_options: dict[str, Any]) -> None:
    """Refuse what does not belong to the action, so that nothing is silently left out."""
    misplaced = [] if action == "set" else [option for option, value in set_options.items() if value]
    if misplaced:
        raise InvalidRequest(
            f"{misplaced[0]} belongs to budget set, not to budget {action}.",
            field=misplaced[0],
            value=None,
            next="Run: cloudgpu budget --help",
        )
    if name is not None and action in ("ls", "test"):
        example = f"For one budget: cloudgpu budget check {name}" if action == "ls" else "Run: cloudgpu budget test"
        raise InvalidRequest(f"budget {action} takes no name.", field="NAME", value=name, next=example)


def _required_name(name: str | None) -> str:
    if name is None:
        raise InvalidRequest("Which budget?", field="NAME", value=None, next="Run: cloudgpu budget ls")
    return name


def _budget_options(name: str | None, amount: str | None, period: str | None, **set_options: Any) -> BudgetOptions:
    from cloudgpu.control.budgets.commands import BudgetOptions

    example = "For example: cloudgpu budget set lab --amount 300 --period month"
    for field, value in (("NAME", name), ("--amount", amount), ("--period", period)):
        if value is None:
            raise InvalidRequest(f"A budget needs {field}.", field=field, value=None, next=example)
    return BudgetOptions(str(name), str(amount), str(period), **set_options)


def _set_budget(session: Session, options: BudgetOptions, output: Format, *, overwrite: bool) -> None:
    from cloudgpu.control.budgets.commands import set_budget_document

    document = set_budget_document(session, options, overwrite=overwrite)
    if document["warning"]:
        tell(document["warning"])
    emit(output, document, set_text(document))


def _list(session: Session, output: Format) -> None:
    from cloudgpu.cli.render import paragraph
    from cloudgpu.control.budgets.commands import list_budgets

    document = list_budgets(session)
    none_text = "No budget is set. For example: cloudgpu budget set lab --amount 300 --period month"
    emit(output, document, list_text(document["budgets"]) or paragraph(none_text))


def _remove(session: Session, name: str, output: Format, *, yes: bool) -> None:
    from cloudgpu.control.budgets.commands import remove_budget_of_name
    from cloudgpu.control.budgets.store import find_budgets
    from cloudgpu.control.team.roles import require_payer_role

    require_payer_role(session, "Removing a budget")
    find_budgets(session, name)  # nobody is asked about one that is not there
    confirm(f"Remove the budget {name}? Its limit then no longer applies.", yes=yes, why="This lets more be spent")
    emit(output, remove_budget_of_name(session, name), f"The budget {name} is removed.")


def _check_budgets(session: Session, name: str | None, every: str, output: Format) -> None:
    from cloudgpu.control.budgets.commands import CHECK_INTERVAL, check_budgets, has_exceeded_budget
    from cloudgpu.control.inputs.launch_request import parse_optional_duration

    document = check_budgets(session, name, every=parse_optional_duration(every, "--every") or CHECK_INTERVAL)
    emit(output, document, check_text(document, every))
    if has_exceeded_budget(document):
        raise typer.Exit(3)


def _send_sample(session: Session, output: Format) -> None:
    from cloudgpu.control.budgets.commands import send_sample

    document = send_sample(session)
    emit(output, document, sent_text(document))
    if document["failed"]:
        raise typer.Exit(8)
