"""`cloudgpu up`: plan, ask, launch, wait until SSH is verified."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_here, tell


def command(
    *,
    provider: Annotated[
        str | None, typer.Option(metavar="KIND", help="Where to launch. This version has: local.")
    ] = None,
    account: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which configured account of the provider.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="NAME[:COUNT]", help="For example v100 or a100:8.")] = None,
    instance_type: Annotated[str | None, typer.Option(metavar="TYPE", help="An exact instance type.")] = None,
    region: Annotated[str | None, typer.Option(metavar="NAME", help="Only this region.")] = None,
    zone: Annotated[str | None, typer.Option(metavar="NAME", help="Only this zone.")] = None,
    spot: Annotated[bool | None, typer.Option("--spot/--on-demand", help="On which market to buy.")] = None,
    max_price: Annotated[str | None, typer.Option(metavar="USD", help="The most to pay per hour.")] = None,
    template: Annotated[str | None, typer.Option(metavar="NAME", help="The launch template (jupyter).")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its name; without one, two words.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="One machine per key, whoever asks again.")] = None,
    new: Annotated[bool, typer.Option("--new", help="A second machine of the same request.")] = False,
    lease: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it lives unless renewed, like 8h.")
    ] = None,
    renew_until: Annotated[str | None, typer.Option(metavar="TIME", help="How far use may renew it, like 3d.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="TEXT", help="Who it is for.")] = None,
    project: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is charged to.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and do nothing.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the provider has accepted.")] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Launch a GPU machine.

    Shows what it will launch, where, on which market, at which price with its source, until when, and what `stop`
    will mean; asks once; then launches, records, and waits until SSH has shown the host key of the launch.
    The same request again returns the same machine.
    """
    from cloudgpu.control.asked import wish_of
    from cloudgpu.control.documents import launched, planned
    from cloudgpu.control.launch import launch
    from cloudgpu.control.prepare import prepare

    wish = wish_of(
        provider=provider,
        account=account,
        gpu=gpu,
        instance_type=instance_type,
        region=region,
        zone=zone,
        spot=spot,
        max_price=max_price,
        template=template,
        name=name,
        key=key,
        new=new,
        lease=lease,
        renew_until=renew_until,
        owner=owner,
        project=project,
    )
    session = open_here()
    prepared = prepare(session, wish)
    document = planned(session, prepared)
    if dry_run:
        emit(output, document, _plan_text(document, session.clock()))
        return
    session.check_launchable()

    def agree() -> None:
        tell_plan(document, session.clock(), output)
        confirm("Launch it?", yes=yes)

    if document["existing"] is None:
        agree()
    try:
        done = launch(session, prepared, wait=not no_wait, agree=agree)
    except KeyboardInterrupt:
        tell("Interrupted. The machine may be there: cloudgpu ls --refresh shows it, the same up again settles it.")
        raise
    result = launched(session, prepared, done)
    emit(output, result, _result_text(result, ready=not no_wait))


def tell_plan(document: dict[str, Any], now: Any, output: Format) -> None:
    """Show the plan on stderr, so that stdout stays the answer's."""
    import sys

    if output is Format.TEXT:
        sys.stderr.write(_plan_text(document, now) + "\n")


def _plan_text(document: dict[str, Any], now: Any) -> str:
    from cloudgpu.cli.render import plan

    text = "Plan\n" + plan(document["plan"], now)
    if document["existing"]:
        text += f"\n{document['existing']['name']}, launched by the same request, is there already: up returns it."
    return text


def _result_text(result: dict[str, Any], *, ready: bool) -> str:
    machine = result["machine"]
    name = machine["name"]
    if result["found"]:
        tell(f"{name} was already launched by the same request; --new launches a second one")
    if machine["state"] in ("stopped", "deallocated"):
        return f"{name} is {machine['state']}. Start it again: cloudgpu start {name}"
    if not ready:
        return f"{name} is launched ({machine['state']}). See: cloudgpu show {name} --refresh"
    ways = [("tunnel", "Jupyter"), ("ssh", "a shell"), ("down", "end it")]
    return f"{name} is ready.\n" + "\n".join(f"  cloudgpu {verb} {name}".ljust(32) + what for verb, what in ways)
