"""`cloudgpu catalog`: present and past prices of the catalogue, and their refresh."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session, tell
from cloudgpu.cli.market.prices import difference_text, overview_text, refresh_text, shown_text
from cloudgpu.errors import InvalidRequest, ProviderUnavailable

Action = Literal["show", "diff", "refresh"]


def command(
    action: Annotated[Action, typer.Argument(metavar="show|diff|refresh", help="What to do.")] = "show",
    name: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="show: a machine type, or a kind of disk like gp3.")
    ] = None,
    *,
    provider: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Only this provider; refresh without: aws, azure and gcp.")
    ] = None,
    account: Annotated[
        str | None, typer.Option(metavar="NAME", help="refresh: use this account's credentials.")
    ] = None,
    region: Annotated[str | None, typer.Option(metavar="NAME", help="show: only prices of this region.")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="show: include earlier prices, with source and date.")
    ] = False,
    last: Annotated[
        bool, typer.Option("--last", help="diff: against the previous refresh, not the embedded list.")
    ] = False,
    factor: Annotated[
        str | None, typer.Option(metavar="N", help="refresh, diff: report prices that changed by more than this. (2)")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="refresh: use prices that changed by more than that, too.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Show dated prices with their sources, refresh them from the providers' price lists, or compare two versions.

    Refreshed prices replace the embedded ones. If a part of a price list does not answer, its old prices and dates
    stay, and it is named: exit code 8. A price that changed by more than --factor is reported and not used, unless you
    add --accept. A price that is not in US dollars or not above zero is refused by name.
    """
    _check_options(action, name, region, history=history, last=last, accept=accept, account=account)
    if factor is not None and action == "show":
        raise InvalidRequest(
            "--factor belongs to cloudgpu catalog refresh and diff, not to cloudgpu catalog show.",
            field="--factor",
            value=factor,
            next="Run: cloudgpu catalog diff --help",
        )
    if action == "refresh":
        _refresh(provider or [], account, factor, accept=accept, output=output)
        return
    from cloudgpu.control.catalog.market import use_refreshed_prices

    use_refreshed_prices(os.environ)
    only_provider = _single_provider(provider)
    if action == "diff":
        _diff(only_provider, factor, last=last, output=output)
    else:
        _show(name, only_provider, region, history=history, output=output)


def _check_options(action: Action, name: str | None, region: str | None, **flags: Any) -> None:
    """Refuse what does not belong to the action, so that nothing is silently left out."""
    action_of = {"TYPE": "show", "--region": "show", "--history": "show", "--last": "diff"}
    action_of |= {"--accept": "refresh", "--account": "refresh"}
    fields = {"TYPE": name, "--region": region, **{f"--{option}": value for option, value in flags.items()}}
    for option, proper_action in action_of.items():
        if fields[option] and action != proper_action:
            raise InvalidRequest(
                f"{option} belongs to cloudgpu catalog {proper_action}, not to cloudgpu catalog {action}.",
                field=option,
                value=None,
                next=f"Run: cloudgpu catalog {proper_action} --help",
            )
    for option in ("--region", "--history"):
        if fields[option] and not name:
            raise InvalidRequest(
                f"{option} needs the type that it is about.",
                field="TYPE",
                value=None,
                next="Run: cloudgpu catalog show g5.xlarge",
            )


def _single_provider(provider: list[str] | None) -> str | None:
    if provider and len(provider) > 1:
        raise InvalidRequest(
            "One provider at a time, or all.", field="--provider", value=provider[1], next="Leave all but one out."
        )
    return provider[0] if provider else None


def _show(name: str | None, provider: str | None, region: str | None, *, history: bool, output: Format) -> None:
    from cloudgpu.control.catalog.prices import catalog_overview, show_prices

    now = datetime.now(UTC)
    if name is None:
        document = catalog_overview(provider, now)
        emit(output, document, overview_text(document))
    else:
        prices = show_prices(name, provider, region, now, history=history)
        emit(output, prices, shown_text(prices))


def _diff(provider: str | None, factor: str | None, *, last: bool, output: Format) -> None:
    from cloudgpu.control.catalog.prices import price_difference_document
    from cloudgpu.control.catalog.refresh import parse_factor

    document = price_difference_document(provider, parse_factor(factor), last=last)
    emit(output, document, difference_text(document))


def _refresh(providers: list[str], account: str | None, factor: str | None, *, accept: bool, output: Format) -> None:
    from cloudgpu.control.catalog.refresh import is_complete, parse_factor, refresh

    document = refresh(open_session(), providers, account, factor=parse_factor(factor), accept=accept)
    emit(output, document, refresh_text(document))
    for provider in document["providers"]:
        for unanswered_part in provider["unanswered"]:
            tell(f"{unanswered_part['scope']}: no answer, so its prices and their dates stay: {unanswered_part['why']}")
        for refused_row in provider["refused"]:
            tell(f"{provider['provider']}: refused: {refused_row['row']} {refused_row['why']}.")
    if not is_complete(document):
        raise typer.Exit(ProviderUnavailable.exit_code)
