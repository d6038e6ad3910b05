"""`cloudgpu up`: plan, ask, launch, wait until SSH is verified."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloudgpu.cli.common import Format, Output, Verbose, Yes, colour_for, confirm, emit, open_session, tell
from cloudgpu.cli.launch import options
from cloudgpu.cli.launch.planned import brief_plan_text, plan_text
from cloudgpu.cli.render import console_text, next_steps, paragraph, steps
from cloudgpu.cli.terminal import is_terminal
from cloudgpu.core.model.machine import is_on_prem
from cloudgpu.errors import CloudgpuError, InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.config.templates.find import Template
    from cloudgpu.control.launch.plan import PreparedLaunch
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.views.documents.machines.machines import (
        MachineDocument,
        PlannedUpDocument,
        RequestDifference,
        UpDocument,
    )


# The parts of --help, the common options first.
GROUPS = {
    "Common options": ("--gpu", "--provider", "--spot", "--template", "--name", "--lease", "--dry-run", "--yes"),
    "Which machine": (
        "--instance-type", "--account", "--region", "--zone", "--image", "--max-price", "--or-on-demand",
        "--persistent", "--trust", "--expose",
    ),
    "Several machines": ("--nodes", "--engine", "--on-node-loss"),
    "Disks": ("--disk", "--volume"),
    "Network": ("--ssh-from", "--ssh-from-anywhere", "--subnet", "--security-group", "--no-public-ip", "--jump"),
    "What ends it, and who pays": ("--policy", "--renew-until", "--owner", "--project", "--override",
                                   "--no-guard"),
    "Launching again, and waiting": ("--key", "--new", "--wait-start", "--no-wait"),
}  # fmt: skip


@options.takes(options.LaunchOptions, options.UpOptions)
def command(
    *,
    dry_run: options.DryRun = False,
    wait_start: Annotated[
        bool, typer.Option("--wait-start", help="Wait until the template's on_start has ended.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return as soon as the provider has accepted.")] = False,
    verbose: Verbose = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
    **typed_options: Any,
) -> None:
    """Launch a GPU machine.

    Shows the plan: what, where, price, when it ends, what it costs at most and what ends it, then every warning. Asks
    once, launches, and waits until SSH answers with the machine's host key. An answer after more than a minute asks
    again if the plan got worse meanwhile: a price, the place, what ends it, a new warning. -v shows the whole plan with
    its sources; --yes shows one line and the warnings.

    --nodes 4 launches four of one type in one zone under one name, all or none: NAME-0 to NAME-3. The price counts
    four times in the plan and in budgets.

    --provider any takes the cheapest offer of all cloud accounts. A stranger's computer is never among them unless you
    type --trust community: its owner can read everything on it, so volumes need --expose, too.

    The same request again returns the same machine. Exit code 3 if a budget does not allow it.

    The template's on_start may still be running when `up` returns. --wait-start waits for it, up to an hour; exit code
    2 if it failed. The machine keeps running in either case.
    """
    from cloudgpu.config.templates.find import opens_jupyter
    from cloudgpu.control.inputs.launch_request import parse_request
    from cloudgpu.control.launch.budget_preview import build_plan_document, check_budgets, sync_for_budgets
    from cloudgpu.control.launch.launch import launch, launch_document
    from cloudgpu.control.launch.plan import ask_for_agreement, prepare

    if wait_start and no_wait:
        raise InvalidRequest(
            "--wait-start and --no-wait contradict each other.",
            field="--wait-start",
            value=None,
            next="Leave one of them out.",
        )
    request = replace(parse_request(**typed_options), interactive=True)
    session = open_session()
    prepared = prepare(session, request)
    sync_for_budgets(session, prepared)
    document = build_plan_document(session, prepared)
    if dry_run:
        if not all(budget["fits"] for budget in document["plan"]["budgets"]):
            try:
                check_budgets(session, prepared)
            except CloudgpuError:
                tell_plan(document, session.clock(), output, verbose=verbose)
                raise
        emit(output, document, _plan_text(document, session.clock(), verbose=verbose))
        return
    session.check_launchable()

    def show_and_confirm(prepared_launch: PreparedLaunch) -> None:
        shown_document = document if prepared_launch is prepared else build_plan_document(session, prepared_launch)
        tell_plan(shown_document, session.clock(), output, verbose=verbose, briefly=yes)
        check_budgets(session, prepared_launch)
        confirm("Launch it?", yes=yes)

    agreed_launch = prepared
    if document["existing"] is None:
        agreed_launch = ask_for_agreement(
            session, prepared, lambda: prepare(session, request), show_and_confirm, launch_of=lambda prepared: prepared
        )
    launched = launch(session, agreed_launch, wait=not no_wait, confirm=lambda: show_and_confirm(agreed_launch))
    is_ready = not no_wait and all(node.state == "running" for node in launched.nodes)
    statuses = (
        [_on_start_status(session, node, agreed_launch.template, wait=wait_start) for node in launched.nodes]
        if is_ready
        else []
    )
    on_start = next((status for status in ("failed", "running", "done") if status in statuses), None)
    result = launch_document(session, agreed_launch, launched, on_start)
    emit(
        output,
        result,
        _result_text(
            result, has_waited=not no_wait, jupyter=opens_jupyter(launched.machine.template, session.template_paths())
        ),
    )


def _on_start_status(session: Session, machine: Machine, template: Template, *, wait: bool) -> str | None:
    """Return the status of the template's script; with `wait`, at its end."""
    from cloudgpu.control.access.on_start import on_start_state_of, wait_for_on_start

    if not wait:
        return on_start_state_of(session, machine, template)
    try:
        return wait_for_on_start(session, machine, template)
    except KeyboardInterrupt:
        billed_text = "" if is_on_prem(machine.provider) else " and billed"
        tell(f"Interrupted. {machine.name} is ready{billed_text}, and its on_start is still running.")
        raise


def tell_plan(document: PlannedUpDocument, now: Any, output: Format, *, verbose: bool, briefly: bool = False) -> None:
    """Show the plan on stderr, so that stdout has only the answer; `briefly`, in one line, if there is no question."""
    import sys

    from cloudgpu.cli.launch.planned import plan_line

    if output is Format.TEXT:
        is_brief = briefly and not verbose
        text = plan_line(document["plan"]) if is_brief else _plan_text(document, now, verbose=verbose)
        if is_brief and is_terminal(sys.stderr):
            first_line, *warnings = text.split("\n")
            text = "\n".join([paragraph(first_line), *warnings])
        sys.stderr.write(colour_for(text, sys.stderr) + "\n")


def _plan_text(document: PlannedUpDocument, now: Any, *, verbose: bool) -> str:
    text = "Plan\n" + (plan_text if verbose else brief_plan_text)(document["plan"], now)
    if document["existing"]:
        cluster = document["existing"]["cluster"]
        name = cluster["name"] if cluster else document["existing"]["name"]
        text += f"\n{name} was already launched by the same request: up returns it."
        text += "".join(f"\n  {_difference_text(difference)}" for difference in document["differences"])
    return text


def _result_text(result: UpDocument, *, has_waited: bool, jupyter: bool) -> str:
    from cloudgpu.cli.machine_text import machine_line

    machine = result["machine"]
    name = machine["name"]
    if result["nodes"]:
        return _cluster_text(result, has_waited=has_waited)
    if result["found"]:
        tell(f"{machine_line(machine)} (already launched by this request; --new: another)")
        for difference in result["differences"]:
            tell(_difference_text(difference))
    if machine["retained"] and machine["terminated_at"]:
        return f"{name} does not run; its disk remains. Start it again: cloudgpu start {name}"
    if machine["state"] in ("stopped", "deallocated"):
        return f"{name} is {machine['state']}. Start it again: cloudgpu start {name}"
    if not has_waited:
        return f"{name} is launched ({machine['state']}). See: cloudgpu show {name} --refresh\n{_console_line(machine)}"
    steps_text = next_steps(name, jupyter=jupyter)
    ready_text = paragraph(f"{name} is ready{_on_start_text(name, result['on_start'])}.")
    return f"{ready_text}\n{_console_line(machine)}{steps_text}"


def _cluster_text(result: UpDocument, *, has_waited: bool) -> str:
    """Return the result of the launch of several machines, and what can be done with them."""
    first_name, last_name = result["nodes"][0]["name"], result["nodes"][-1]["name"]
    name = first_name.rpartition("-")[0]
    if result["found"]:
        tell(f"{name} was already launched by this request. (--new: another)")
        for difference in result["differences"]:
            tell(_difference_text(difference))
    running = sum(node["state"] == "running" for node in result["nodes"])
    total = len(result["nodes"])
    if not has_waited or running < total:
        slurm_text = " The same up without --no-wait sets Slurm up." if result["plan"]["engine"] == "slurm" else ""
        text = f"{name}: {running} of {total} machines run, {first_name} to {last_name}."
        return f"{text} See: cloudgpu ls --nodes --refresh{slurm_text}"
    run_step, shell_step = (
        (f"exec {name} --all-nodes -- CMD", "run a command on each"),
        (f"ssh {name}", "a shell on its first node"),
    )
    queue_steps = (
        [(f"run --on {name} --nodes {total} -- CMD", "queue a job")] if result["plan"]["engine"] == "slurm" else []
    )
    text = steps([*queue_steps, run_step, shell_step, (f"down {name}", "end it")])
    on_start_text = _on_start_text(f"{name} --all-nodes", result["on_start"], follow=False)
    ready_text = paragraph(f"{name} is ready: {total} machines, {first_name} to {last_name}{on_start_text}.")
    return f"{ready_text}\n{text}"


def _on_start_text(target: str, on_start: str | None, *, follow: bool = True) -> str:
    """Return the status of the template's script, after `ready`; empty if it has succeeded.

    `target` is what `exec` takes; `follow`: whether its log can be followed while it runs.
    """
    from cloudgpu.control.access.on_start import LOG_PATH

    show_log = f"cloudgpu exec {target} --"
    if on_start == "running":
        return f"; on_start still runs (its log: {show_log} {'tail -f' if follow else 'cat'} {LOG_PATH})"
    return f", but on_start failed (its log: {show_log} cat {LOG_PATH})" if on_start == "failed" else ""


def _difference_text(difference: RequestDifference) -> str:
    """Return how an existing machine differs from the request, and how to change it."""
    message = f"{difference['option']} {difference['requested']} was ignored: the machine has {difference['current']}"
    return f"{message}. To change it: {difference['next']}"


def _console_line(machine: MachineDocument) -> str:
    """Return the line that says how to find a machine in its cloud's console; empty where there is no console."""
    console_id = None if is_on_prem(machine["provider"]) else console_text(machine)
    return f"  at the cloud: {console_id}\n" if console_id else ""
