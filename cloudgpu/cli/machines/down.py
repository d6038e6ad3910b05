"""`cloudgpu down`."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, Yes, _complete_name, confirm, emit, open_session, tell
from cloudgpu.cli.launch.running_text import down_question, running_lines
from cloudgpu.cli.render import spent_text, when, without_price

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.ended import RetainedFiles
    from cloudgpu.views.documents.machines.machines import MachineDocument

CONFIRMED_WITHIN = timedelta(minutes=20)  # `down` waits at most this long for the end that it requested


def command(
    names: Annotated[
        list[str] | None, typer.Argument(help="The machines to end.", autocompletion=_complete_name)
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="All machines of this ledger; in a team, all of yours.")] = False,
    lost: Annotated[
        str | None,
        typer.Option("--lost", metavar="WHY", help="Record a machine that cannot be reached from here as gone."),
    ] = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """End machines and everything that was created for them, and prove that they are gone.

    A parked machine's image is deleted with it. Volumes and saved images stay, and are listed with what they cost. A
    cluster ends as a whole, its node 0 last. If `down` was interrupted or got no answer, run it again; else the next
    run of `reap` finishes it, unless you start, extend or hold the machine. Exit code 9 if the end of a machine could
    not be proved; the others are ended.

    --lost is for a machine whose computer or account will never answer again, such as a host that was reinstalled.
    Nothing is sent to the machine: the ledger records it as gone from now on, with your name and reason. Refused if the
    machine can be reached from here.
    """
    from cloudgpu.cli.clusters.acting import question_machines, terminated_machines
    from cloudgpu.cli.machine_text import account_lines
    from cloudgpu.cli.storage.retained import monthly
    from cloudgpu.control.api.down import end_machines, machines_to_end
    from cloudgpu.control.lifecycle.termination_summary import machines_with_processes, termination_sentences
    from cloudgpu.control.team.authorization import ownership_note
    from cloudgpu.core.model.machine import command_name
    from cloudgpu.views.machines import named_volume_costs

    session = open_session()
    if all_ and not names:
        session.check_ever_used(os.environ)
    session.check_can_end_machines()
    if lost is not None:
        _record_as_gone(session, names or [], lost, all_=all_, yes=yes, output=output)
        return
    request = machines_to_end(session, names or [], all_=all_)
    busy_machines = machines_with_processes(session, request.machines)
    for line in running_lines(busy_machines):
        tell(line)
    if request.machines:
        names_text = ", ".join(dict.fromkeys(command_name(machine) for machine in request.machines))
        other_owner_text = "".join(sorted({ownership_note(session, machine, "end") for machine in request.machines}))
        shown_machines = question_machines(session, request.machines)
        named_volumes = [cost for machine in request.machines for cost in named_volume_costs(machine)]
        about = down_question(
            shown_machines, named_volumes, termination_sentences(session, request.machines), other_owner_text
        )
        confirm(f"End {names_text}?", yes=yes, about=about)
    document, worst_error = end_machines(session, request, busy_machines)
    now = session.clock()
    lines = [
        f"{_gone_text(terminated, now)} It cost {_cost_text(session, terminated)}{without_price(terminated)}."
        for terminated in terminated_machines(document)
    ]
    lines += [
        f"Not removed: {resource['kind']} {resource['name']}, {monthly(resource)}." for resource in document["retained"]
    ]
    lines += [_kept_files_text(retained_files) for retained_files in document["kept_files"]]
    lines += [
        f"Left alone: {machine.name}, for {machine.owner or 'nobody that is known'}." for machine in request.others
    ]
    if worst_error and not lines and len(document["failed"]) == 1:
        raise worst_error
    accounts = account_lines(document) if all_ and not worst_error else []
    emit(output, document, "\n".join([*(lines or ([] if worst_error else ["No machine is running."])), *accounts]))
    for error in document["failed"]:
        tell(f"error: {error['message']} {error['next'] or ''}")
    if worst_error:
        raise typer.Exit(worst_error.exit_code)


def _cost_text(session: Session, terminated: MachineDocument) -> str:
    """Return what a machine or a cluster cost; `at most` that if its power on this computer is recorded later."""
    from cloudgpu.control.pricing.shared_computer import may_cost_less

    machine, cost = session.ledger.machine(terminated["id"]), spent_text(terminated, 4)
    at_most = not terminated["unpriced"] and machine is not None and may_cost_less(session, machine)
    return f"at most {cost.removeprefix('<')}" if at_most else cost


def _record_as_gone(session: Session, names: list[str], why: str, *, all_: bool, yes: bool, output: Format) -> None:
    from cloudgpu.control.inventory.listing import build_machine_document
    from cloudgpu.control.lifecycle.lost import record_as_lost
    from cloudgpu.errors import InvalidRequest

    if all_ or len(names) != 1:
        raise InvalidRequest(
            "--lost is about one machine, which has to be named.",
            field="--lost",
            value=why,
            next="Run: cloudgpu down NAME --lost WHY",
        )
    machine = session.find_one(names[0], "--lost")
    confirm(f"Record {machine.name} as gone? Nothing is sent to it: if it runs, it keeps running.", yes=yes)
    shown_machine = build_machine_document(session, record_as_lost(session, machine, why))
    message = (
        f"{shown_machine['name']} is recorded as gone. It cost at least "
        f"{spent_text(shown_machine, 4)}{without_price(shown_machine)}."
    )
    emit(
        output,
        {"terminated": [shown_machine], "running": [], "retained": [], "kept_files": []}
        | {"failed": [], "others": [], "queried": [], "not_queried": []},
        message,
    )


def _kept_files_text(retained_files: RetainedFiles) -> str:
    """Return which files stay on the user's own computer, since they were added or changed."""
    hidden_count = retained_files["count"] - len(retained_files["files"])
    files_text = ", ".join(retained_files["files"]) + (f" and {hidden_count} more" if hidden_count else "")
    return (
        f"Kept where {retained_files['name']} was, as you changed or added it: in {retained_files['where']}: "
        f"{files_text}."
    )


def _gone_text(machine: MachineDocument, now: datetime) -> str:
    """Return that a machine is gone, and since when if it had ended long before this command."""
    from cloudgpu.core.values.times import from_iso

    had_ended = machine["terminated_at"] and now - from_iso(machine["terminated_at"]) > CONFIRMED_WITHIN
    return f"{machine['name']} is gone{' since ' + when(machine['terminated_at'], now) if had_ended else ''}."
