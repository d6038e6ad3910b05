"""`cloudgpu run`: plan a job, ask, and run it in the foreground, or leave it to `watch` or `reap`."""

from __future__ import annotations

import os
import select
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from cloudgpu.cli import interrupt, progress
from cloudgpu.cli.common import Verbose, Yes, colour_for, confirm, on_terminal, open_session, read_answer, tell
from cloudgpu.cli.jobs.text import ended_text, state_text
from cloudgpu.cli.launch import options
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.control.jobs.inputs.request import RunRequest
    from cloudgpu.control.jobs.plan import PlannedRun
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.views.documents.jobs.jobs import JobDocument
    from cloudgpu.views.documents.machines.plans import Plan

# The parts of --help, the common options first.
GROUPS = {
    "Common options": (
        "--gpu", "--provider", "--spot", "--on", "--setup", "--timeout", "--max-cost", "--detach", "--dry-run", "--yes",
    ),
    "What travels, and what comes back": (
        "--workdir", "--include", "--data", "--results", "--results-to", "--checkpoint", "--every",
        "--results-wait",
    ),
    "In Slurm: on several nodes, or with --on": (
        "--nodes", "--gpus-per-node", "--array", "--after", "--partition", "--slurm-account", "--once",
    ),
    "When it has to be done": ("--deadline", "--work", "--spot-policy"),
    "What the command is given": ("--env", "--env-file", "--secret", "--port"),
    "When it fails, or its machine is lost": ("--retries", "--restarts", "--keep", "--stall"),
    "Which machine": (
        "--instance-type", "--account", "--region", "--zone", "--image", "--max-price", "--or-on-demand",
        "--persistent", "--trust", "--expose", "--template", "--disk", "--volume",
    ),
    "Network": ("--ssh-from", "--ssh-from-anywhere", "--subnet", "--security-group", "--no-public-ip", "--jump"),
    "What ends its machine, and who pays": (
        "--policy", "--lease", "--renew-until", "--owner", "--project", "--override", "--no-guard", "--key",
    ),
}  # fmt: skip
CONTEXT = {"ignore_unknown_options": False}  # settings of the parser
COMMAND_MARK = "\0"  # marks where the command begins: nobody can type it


def order_arguments(args: list[str]) -> list[str]:
    """Return the arguments with a mark where the command begins, and nothing in it read as an option of `run`."""
    command_index = args.index("--") if "--" in args else len(args)
    return (
        [*args[:command_index], "--", COMMAND_MARK, *args[command_index + 1 :]] if command_index < len(args) else args
    )


@options.takes(options.LaunchOptions, options.RunOptions)
def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The job's name; without one, two words.")] = None,
    argv: Annotated[list[str] | None, typer.Argument(metavar="-- CMD [ARG]...", help="The command.")] = None,
    *,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once the command has begun.")] = False,
    dry_run: options.DryRun = False,
    verbose: Verbose = False,
    yes: Yes = False,
    **typed_options: Any,
) -> None:
    """Run a command on a machine of its own, bring its results back, and end the machine.

    The directory travels without .git, without what .cloudgpuignore (else .gitignore) names, and without files that
    look like secrets. The command runs there under a supervisor that outlives every connection. What it writes to
    $CLOUDGPU_RESULTS comes back to RESULTS/NAME. With --on it runs on a machine that is there, and leaves it running.
    Where that is a cluster, or a machine with sbatch, Slurm queues it, and runs it on each of its nodes. Without
    --on, --nodes N launches a cluster for the job, and ends it afterwards.

    Shows the plan and asks once. An answer after more than a minute asks again if the plan got worse meanwhile. stdout
    and stderr are the command's own. Ctrl-C asks whether to leave the job running or to cancel it. The NAME or --key of
    a job that lives follows that job; otherwise every run is a new job.

    Exit code: the command's own, and 128 + N after signal N; 255 if cloudgpu itself failed. Before the command has
    begun, as for every verb: 3 if a budget does not allow it. 130 after Ctrl-C, if the job keeps running.
    """
    from cloudgpu.control.jobs.inputs.request import parse_run
    from cloudgpu.control.jobs.listing import find_same_living_job

    request = parse_run(**typed_options, **_name_and_command(name, argv or []), detach=detach)
    session = open_session()
    job = None if dry_run else find_same_living_job(session, request)
    if job is None:
        planned = _plan_and_ask(session, request, dry_run=dry_run, verbose=verbose, yes=yes)
        if dry_run:
            return
        from cloudgpu.control.jobs.plan import record_request

        job = record_request(session, planned)
    else:
        tell(f"{job.name} is {job.state} already: this follows it.")
    raise typer.Exit(_run_until_begun(session, job) if detach else _run_in_foreground(session, job))


def _name_and_command(name: str | None, words: list[str]) -> dict[str, Any]:
    """Return the typed name and command; the parser may have put one in the place of the other."""
    if name == COMMAND_MARK:
        name, words = None, [COMMAND_MARK, *words]
    if (words and words[0] != COMMAND_MARK) or (name is not None and not words):
        typed_words = [*filter(None, (name, *words))]
        raise InvalidRequest(
            f"The command has to follow --, and {typed_words[-1]!r} does not.",
            field="CMD",
            value=" ".join(typed_words),
            next=f"For example: cloudgpu run -- {' '.join(typed_words)}",
        )
    return {"name": name, "argv": words[1:]}


def _plan_and_ask(session: Session, request: RunRequest, *, dry_run: bool, verbose: bool, yes: bool) -> PlannedRun:
    """Return the plan once the user has agreed; with `dry_run`, only show it."""
    from cloudgpu.control.jobs.plan import plan_run
    from cloudgpu.control.launch.plan import ask_for_agreement

    def show_and_confirm(planned: PlannedRun) -> None:
        _show_plan(session, planned, sys.stderr, verbose=verbose, brief=yes and not verbose)
        session.check_launchable()
        if planned.prepared is not None:  # a machine that is there costs no more than before
            confirm("Run it?", yes=yes)

    planned = plan_run(session, request, os.environ)
    if dry_run:
        _show_plan(session, planned, sys.stdout, verbose=verbose, brief=False)
        return planned
    plan_again = partial(plan_run, session, request, os.environ)
    return ask_for_agreement(session, planned, plan_again, show_and_confirm, launch_of=lambda run: run.prepared)


def _show_plan(session: Session, planned: PlannedRun, stream: TextIO, *, verbose: bool, brief: bool) -> None:
    """Show a plan; raise BudgetRefused if a budget does not admit its launch."""
    from cloudgpu.cli.jobs.planned import brief_text, plan_text
    from cloudgpu.control.launch.budget_preview import check_budgets

    document = _launch_document(session, planned)
    text = brief_text(planned, document) if brief else plan_text(planned, document, session.clock(), verbose=verbose)
    stream.write(f"{colour_for(text, stream)}\n")
    stream.flush()
    if planned.prepared is not None:
        check_budgets(session, planned.prepared)


def _launch_document(session: Session, planned: PlannedRun) -> Plan | None:
    if planned.prepared is None:
        return None
    from cloudgpu.control.launch.budget_preview import build_plan_document

    return build_plan_document(session, planned.prepared)["plan"]


def _run_in_foreground(session: Session, job: Job) -> int:
    """Follow a job to its end, and return its exit status; 130 if it continues without this process."""
    from cloudgpu.control.jobs.cancel import request_cancel
    from cloudgpu.control.jobs.follow import follow
    from cloudgpu.control.jobs.ports import ForwardedPorts
    from cloudgpu.views.jobs import OWN_FAILURE_CODE, exit_code

    progress.end()
    sys.stdout.flush()
    out, err = WriteOnce(sys.stdout.fileno()), WriteOnce(sys.stderr.fileno())
    while True:
        try:
            try:
                with ForwardedPorts(session, job):
                    job = follow(session, job, os.environ, stdout=out.rewound(), stderr=err.rewound())
            except KeyboardInterrupt:
                interrupt.stop_reraising_interrupt()
                if not _wants_to_cancel(job):
                    return _leave_running(session, job)
                request_cancel(session, job)
                continue
        except CloudgpuError as error:
            if not _has_begun(session, job):
                raise
            _report_error(error)
            return OWN_FAILURE_CODE
        _tell_or_report(partial(_tell_end, session, job))
        exit_status = exit_code(job)
        return OWN_FAILURE_CODE if exit_status is None else exit_status


def _tell_end(session: Session, job: Job) -> None:
    from cloudgpu.control.jobs.listing import job_document

    tell(ended_text(job_document(session, job), session.clock()))


def _has_begun(session: Session, job: Job) -> bool:
    from cloudgpu.control.jobs.store import job_by_id
    from cloudgpu.views.jobs import first_began_at

    try:
        return first_began_at(job_by_id(session, job.id)) is not None
    except LedgerUnavailable:
        return True  # it is not known


def _report_error(error: CloudgpuError) -> None:
    """Print an error whose exit code is not that of this process."""
    for sentence in filter(None, (f"error: {error.message}", error.next)):
        tell(sentence)


def _tell_or_report(tell_state: Callable[[], None]) -> None:
    """Tell how a job is; where the ledger cannot be read for that, say so. The exit code is about the job alone."""
    try:
        tell_state()
    except CloudgpuError as error:
        _report_error(error)


def _leave_running(session: Session, job: Job) -> int:
    """Say how to follow a job that runs on after Ctrl-C, and return the exit status."""
    _tell_or_report(partial(tell_how_to_follow, session, job))
    return interrupt.EXIT_CODE


def _run_until_begun(session: Session, job: Job) -> int:
    """Follow a job until its command has begun, and say how to follow it on; Ctrl-C leaves it to `watch` or `reap`."""
    from cloudgpu.control.jobs.follow import reconcile_until_begun

    try:
        job = reconcile_until_begun(session, job, os.environ)
    except KeyboardInterrupt:
        interrupt.stop_reraising_interrupt()
        return _leave_running(session, job)
    _tell_or_report(partial(tell_how_to_follow, session, job))
    return 0


def _wants_to_cancel(job: Job) -> bool:
    """Return whether the user wants to cancel the job; without a terminal, and at another Ctrl-C, it continues."""
    if not on_terminal():
        return False
    try:
        sys.stderr.write("\n")
        while True:
            answer = read_answer(f"{job.name}: [d]etach and keep it running, or [c]ancel it? ").lower()
            if answer in ("c", "cancel"):
                return True
            if answer in ("d", "detach"):
                return False
    except (KeyboardInterrupt, InvalidRequest):  # the input ended
        interrupt.stop_reraising_interrupt()
        return False


def tell_how_to_follow(session: Session, job: Job) -> None:
    """Print how to follow a job that continues without this process, and what has to run for it."""
    from cloudgpu.control.jobs.listing import job_document
    from cloudgpu.control.jobs.store import job_by_id

    text = detached_text(job_document(session, job_by_id(session, job.id)))
    sys.stderr.write(f"{colour_for(text, sys.stderr)}\n")


def detached_text(job: JobDocument) -> str:
    """Return how to follow a job that continues without this process, and what happens if nothing watches it."""
    from cloudgpu.cli.render import steps, wrapped

    name, machine = job["name"], job["machine"]
    place = f" on {machine['name']}" if machine is not None else ""
    next_steps = steps([(f"logs -f {name}", "what it writes"), ("jobs", "how far it is"), (f"cancel {name}", "end it")])
    watch_sentence = (
        f"{_watch_texts(job)[0]} while cloudgpu watch, or cloudgpu cron, runs on this computer. {_watch_texts(job)[1]}"
    )
    return f"{wrapped(f'{name} is {state_text(job)}{place}.')}\n{next_steps}\n{wrapped(watch_sentence)}"


def _watch_texts(job: JobDocument) -> tuple[str, str]:
    """Return what happens to a job while `watch` or `cron` runs, and what happens to it otherwise."""
    machine = job["machine"]
    if machine is None:
        return "It gets its machine", "If neither runs, it waits."
    without_watch = "they stay there" if not machine["own"] else "its machine stops by its policy"
    return "Its results come back", f"If neither runs, {without_watch}."


class WriteOnce:
    """A file descriptor to which each byte is written once, though a job is followed from its beginning again.

    One thread at a time writes. Ctrl-C comes between two writes, never between a write and its count; while nobody
    reads, it ends the wait.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._written = 0  # bytes so far
        self._skip = 0  # bytes that are still to come again, and were written before
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def rewound(self) -> Any:
        """Return this file, to be written from the first byte again."""
        self._skip = self._written
        return self

    def write(self, data: bytes) -> int:
        """Write what was not written before."""
        unwritten = memoryview(data)[self._skip :]
        self._skip -= len(data) - len(unwritten)
        while unwritten:
            self._poll.poll()  # from here on, so few bytes do not block
            previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGALRM})
            try:
                count = os.write(self._descriptor, unwritten[: select.PIPE_BUF])
                self._written += count
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
            unwritten = unwritten[count:]
        return len(data)

    def fileno(self) -> int:
        """Return the descriptor, to wait for its reader."""
        return self._descriptor

    def flush(self) -> None:
        """Do nothing: there is no buffer."""
