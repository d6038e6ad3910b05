"""`cloudgpu start`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, Verbose, Yes, confirm, emit, open_session, tell
from cloudgpu.cli.launch import options
from cloudgpu.cli.render import dollars, next_steps, price_briefly, price_text, short_duration
from cloudgpu.core.model.machine import Machine, can_be_restored

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session

UP_STATES = ("running", "pending")  # in these a machine is not started again


def command(
    name: MaybeName = None,
    *,
    lease: Annotated[str | None, typer.Option(metavar="TIME", help="The new lease, like 8h.")] = None,
    renew_until: options.RenewUntil = None,
    override: options.Override = None,
    no_guard: options.NoGuard = False,
    max_price: Annotated[
        str | None,
        typer.Option(metavar="USD", help="The most to pay per hour, if it is launched from its image."),
    ] = None,
    move: Annotated[
        bool,
        typer.Option("--move", help="Without capacity: launch its image elsewhere, as any type with its GPUs."),
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the start is accepted.")] = False,
    verbose: Verbose = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Start a stopped machine under a new lease, and wait until SSH is verified.

    A parked or interrupted machine is launched again from its image, under its old name and its --max-price. The image
    is removed once the machine runs. Exit code 4 if there is no capacity: the disk or image stays.

    A cluster starts as a whole: if there is no capacity for one node, those that have started are stopped again.
    """
    from cloudgpu.control.inputs.launch_request import check_reason, parse_optional_duration
    from cloudgpu.control.launch.restore import check_max_price, settle_restore
    from cloudgpu.control.team.authorization import check_override, check_right
    from cloudgpu.core.values.typed import parse_price
    from cloudgpu.views.machines import machine_document

    session = open_session()
    start_options = options.StartOptions(
        parse_optional_duration(lease, "--lease"),
        parse_optional_duration(renew_until, "--renew-until"),
        check_reason(override),
        verbose,
        yes,
        no_guard,
        parse_price(max_price),
    )
    machine, *other_nodes = session.find_all_nodes(name, "start")
    check_right(session, machine, "start")
    check_override(session, start_options.override)
    if machine.cluster_node:
        check_max_price(machine, start_options.max_price, move_it=move)
        from cloudgpu.cli.clusters.acting import start as start_cluster
        from cloudgpu.control.clusters.start import check_no_move_option

        check_no_move_option(machine, move=move)
        start_cluster(session, [machine, *other_nodes], start_options, wait=not no_wait, output=output)
        return
    machine = settle_restore(session, machine)
    check_max_price(machine, start_options.max_price, move_it=move)
    if move and not can_be_restored(machine):
        machine = _move_out_of_zone(session, machine, start_options)
    if can_be_restored(machine):
        machine = _launch_from_image(session, machine, start_options, move=move, wait=not no_wait, output=output)
    else:
        machine = _confirm_and_start(session, machine, start_options, wait=not no_wait, output=output)
    document = machine_document(machine, session.clock())
    emit(output, document, f"{machine.name} is {machine.state}.{_next_text(session, machine)}")


def _next_text(session: Session, machine: Machine) -> str:
    from cloudgpu.config.templates.find import opens_jupyter

    if machine.state != "running":
        return f" See: cloudgpu show {machine.name} --refresh"
    return "\n" + next_steps(machine.name, jupyter=opens_jupyter(machine.template, session.template_paths()))


def _confirm_and_start(
    session: Session, machine: Machine, start_options: options.StartOptions, *, wait: bool, output: Format
) -> Machine:
    from cloudgpu.cli.launch.running_text import start_question
    from cloudgpu.cli.machine_text import machine_line
    from cloudgpu.control.inventory.sync import refresh
    from cloudgpu.control.launch.restore import start_stopped
    from cloudgpu.control.lifecycle.start import new_lease
    from cloudgpu.core.launch.plan import duration_cost
    from cloudgpu.core.values.money import Money, usd
    from cloudgpu.core.values.times import iso
    from cloudgpu.views.machines import machine_document

    lease = new_lease(session, machine, start_options.lease, start_options.renew_until)
    if machine.state in UP_STATES:
        machine = refresh(session, machine)
    if machine.state not in UP_STATES:  # otherwise nothing is spent
        before_start = machine_document(machine, session.clock())
        lease_length = lease.expires - session.clock()
        cost = usd(duration_cost(Money(machine.price.nanos_per_hour), lease_length)) if machine.price else None
        if start_options.yes and output is Format.TEXT:
            tell(machine_line({**before_start, "expires": iso(lease.expires)}))
        lease_text = short_duration(lease_length.total_seconds())
        lease_cost_text = f"{dollars(cost)} for the machine to the end of its new lease in {lease_text}"
        hourly_text = (
            price_text(before_start["price"]) if start_options.verbose else price_briefly(before_start["price"])
        )
        about = start_question(before_start, hourly_text, lease_cost_text, iso(lease.expires), session.clock())
        confirm(f"Start {machine.name}?", yes=start_options.yes, about=about)
    return start_stopped(
        session, machine, lease, wait=wait, override=start_options.override, no_guard=start_options.no_guard
    )


def _move_out_of_zone(session: Session, machine: Machine, start_options: options.StartOptions) -> Machine:
    """Ask, with what it costs, end the stopped machine and make an image of its disk."""
    from cloudgpu.control.launch.restore import check_move, move, plan_move
    from cloudgpu.control.lifecycle.start import new_lease

    lease = new_lease(session, machine, start_options.lease, start_options.renew_until)
    plan = plan_move(session, machine, lease, start_options.max_price)
    check_move(session, plan, start_options.override, no_guard=start_options.no_guard)
    cheapest, per_month = plan.offers[0], plan.image_cost.per_month
    image_cost_text = (
        "its price is not known" if per_month is None else f"at most {per_month.text()} a month until it runs"
    )
    destination = (
        f"out of {machine.zone}"
        if cheapest.configuration.zone != machine.zone
        else f"to another type in {machine.zone}"
    )
    confirm(
        f"Move {machine.name} {destination}? It ends, and its disk becomes an image "
        f"({image_cost_text}), which is "
        f"launched from {cheapest.price.per_hour.text(4)} an hour on ({cheapest.configuration.instance_type}).",
        yes=start_options.yes,
    )
    return move(session, machine, why="it is moved")


def _launch_from_image(
    session: Session, machine: Machine, start_options: options.StartOptions, *, move: bool, wait: bool, output: Format
) -> Machine:
    """Show the plan of the launch from the image, ask, and execute it."""
    from cloudgpu.cli.machines.up import tell_plan
    from cloudgpu.control.launch.budget_preview import build_plan_document, check_budgets
    from cloudgpu.control.launch.restore import plan_restore, restore_machine

    prepared = plan_restore(
        session,
        machine,
        start_options.lease,
        renewable_for=start_options.renew_until,
        override=start_options.override,
        any_type=move,
        no_guard=start_options.no_guard,
        max_price=start_options.max_price,
    )

    def agree() -> None:
        document = build_plan_document(session, prepared)
        tell_plan(document, session.clock(), output, verbose=start_options.verbose, briefly=start_options.yes)
        declined = f"{machine.name} was not launched; its image is kept."
        confirm(f"Launch {machine.name} again from its image?", yes=start_options.yes, declined=declined)

    check_budgets(session, prepared)
    agree()
    return restore_machine(session, prepared, wait=wait, confirm=agree)
