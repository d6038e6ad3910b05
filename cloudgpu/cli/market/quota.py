"""`cloudgpu quota`: the account's limits on machines with GPUs, and a request for a higher one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloudgpu.cli.common import (
    Format,
    Output,
    Yes,
    confirm,
    emit,
    exit_if_unanswered,
    open_session,
    provider_option,
    tell,
)
from cloudgpu.cli.render import clipped, paragraph, table
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.market import (
        PlannedQuotaIncrease,
        QuotaDocument,
        QuotaLimit,
        QuotaRequestDocument,
    )

MAX_NAME_WIDTH = 35  # columns of a limit's name


def command(
    *,
    provider: Annotated[
        str | None, provider_option("Whose limits: aws, azure, gcp, or a plug-in that tells them.")
    ] = None,
    account: Annotated[
        str | None, typer.Option(metavar="NAME", help="An account of the provider in config.toml.")
    ] = None,
    region: Annotated[str | None, typer.Option(metavar="NAME", help="Only this region.")] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME[:COUNT]", help="Only limits that count machines with this GPU.")
    ] = None,
    request: Annotated[
        str | None,
        typer.Option(metavar="CODE=VALUE", help="Request this limit; `enough` for what --gpu needs."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", help="With --request enough: for this many more machines.")
    ] = None,
    spot: Annotated[
        bool, typer.Option("--spot/--on-demand", help="With --request enough: the limit of which market.")
    ] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """List the account's limits on machines with GPUs, or request a higher one.

    A limit counts what everybody in the account runs at the same time, by region and market. --request shows the
    request, asks once, and sends it; the provider decides within minutes or days. Exit code 8 if a region did not
    answer.
    """
    from cloudgpu.control.catalog.quotas import quotas_document

    session = open_session()
    if request is not None:
        from cloudgpu.control.catalog.quotas import QuotaOptions
        from cloudgpu.core.model.offers import Market

        quota_options = QuotaOptions(request, region, gpu, count, Market.SPOT if spot else Market.ON_DEMAND)
        _plan_and_request(session, quota_options, account, provider, yes=yes, output=output)
        return
    for option, is_given in (("--count", count is not None), ("--spot", spot), ("--yes", yes)):
        if is_given:
            raise InvalidRequest(
                f"{option} goes with --request.", field=option, value=None, next=f"Leave {option} out."
            )
    document = quotas_document(session, region=region, gpu=gpu, account=account, provider=provider)
    emit(output, document, _quotas_text(document))
    exit_if_unanswered(document["unanswered"], "{} did not answer: {}".format)


def _plan_and_request(
    session: Any, quota_options: Any, account: str | None, provider: str | None, *, yes: bool, output: Format
) -> None:
    from cloudgpu.control.catalog.quotas import plan_quota_increase, request_quota

    increase = plan_quota_increase(session, quota_options, account=account, provider=provider)
    if output is Format.TEXT:
        tell(_request_text(increase.document()))
    confirm("Ask for it?", yes=yes, why="This asks the provider for something in your name")
    document = request_quota(increase)
    emit(output, document, _answer_text(document))


def _answer_text(document: QuotaRequestDocument) -> str:
    command = f"cloudgpu quota --provider {document['provider']} --region {document['region']}"
    return f"Requested: {document['id']}. See its state: {command}"


def _request_text(increase: PlannedQuotaIncrease) -> str:
    current, place_text = increase["current"], f"{increase['code']} in {increase['region']}"
    if current is None:
        return f"limit {place_text}: to be {increase['requested']:g}; what it is now is not known"
    limit_text = f"{_figure(current['limit'])} {current['unit']} now, {_figure(current['used'])} used"
    return f"{current['name']} ({place_text}): {limit_text}; to be {increase['requested']:g}"


def _quotas_text(document: QuotaDocument) -> str:
    rows = [
        [
            regions[0] + (f" +{len(regions) - 1}" if len(regions) > 1 else ""),
            quota["code"],
            _figure(quota["used"]),
            _figure(quota["limit"]),
            clipped(quota["name"], MAX_NAME_WIDTH, ".."),
        ]
        for quota, regions in _merged_regions(document["quotas"])
    ]
    lines = [table(rows, ["REGION", "CODE", "USED", "LIMIT", "COUNTS"], right=(2, 3))]
    units = sorted({quota["unit"] for quota in document["quotas"]})
    lines += ["", paragraph(f"In {' and '.join(units)}, at once; ? is not known; +N: and N more regions alike.")]
    for need in document["needs"]:
        market = need["market"].replace("_", "-")
        lines.append(paragraph(f"{need['instance_type']} {market} counts {need['amount']} of {need['code']}."))
    return "\n".join(lines)


def _merged_regions(quotas: list[QuotaLimit]) -> list[tuple[QuotaLimit, list[str]]]:
    """Return each limit once, with the regions in which limit and use are the same."""
    quotas_by_figures: dict[tuple[Any, ...], tuple[QuotaLimit, list[str]]] = {}
    for quota in quotas:
        key = (quota["code"], quota["used"], quota["limit"])
        quotas_by_figures.setdefault(key, (quota, []))[1].append(quota["region"])
    return list(quotas_by_figures.values())


def _figure(amount: float | None) -> str:
    return "?" if amount is None else f"{amount:g}"
