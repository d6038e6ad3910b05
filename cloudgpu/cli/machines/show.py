"""`cloudgpu show`: one machine, why it counts as in use or idle, and its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, Verbose, emit, open_session
from cloudgpu.cli.render import paragraph, wrapped
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.machines import HistoryLine, ShownClusterDocument, ShownDocument


def command(
    name: MaybeName = None,
    *,
    refresh: Annotated[
        bool, typer.Option("--refresh", "-r", help="Query its provider first; with --why, the machine too.")
    ] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Show signal by signal whether it is in use, and when it would be ended.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="Show every decision, warning, request and observation: who, when, why.")
    ] = False,
    verbose: Verbose = False,
    output: Output = Format.TEXT,
) -> None:
    """Show one machine: state, price, what it has cost, when it ends and by what; then where it is, lease and access.

    Or one job, if no machine that lives has this name; job:NAME is always the job. Or a cluster: how complete it is,
    and each of its nodes.

    Answers from the ledger; --refresh queries the provider first. Ended machines are shown too. -v adds the price's
    source, each safeguard that would end the machine, and its template.

    --why shows which signs make a machine count as in use, idle or unknown. It uses the samples of the reaper's latest
    run or, with --refresh, what the machine reports now. --history shows every ledger entry about it, oldest first.
    """
    from cloudgpu.control.api.show import find_shown_job, show_document

    session = open_session()
    job = find_shown_job(session, name)
    if job is not None:
        from cloudgpu.cli.jobs.text import job_text

        _check_job(name, {"--refresh": refresh, "--why": why, "--history": history})
        emit(output, job, job_text(job, session.clock()))
        return
    document = show_document(session, name, refresh=refresh, history=history, why=why)
    if "machines" in document:
        from cloudgpu.cli.clusters.listing import shown_text

        now, needs_texts = session.clock(), why or history or verbose
        cluster = cast("ShownClusterDocument", document)
        emit(
            output,
            document,
            shown_text(
                cluster, now, (lambda machine: _machine_text(machine, now, verbose=verbose)) if needs_texts else None
            ),
        )
        return
    emit(output, document, _machine_text(document, session.clock(), verbose=verbose))


def _check_job(name: str | None, options: dict[str, bool]) -> None:
    """Raise InvalidRequest for an option that says nothing of a job."""
    option = next((option for option, is_given in options.items() if is_given), None)
    if option is not None:
        raise InvalidRequest(
            f"{option} is about machines, and {name} is a job.",
            field=option,
            value=name,
            next=f"Leave {option} out, or name a machine of cloudgpu ls.",
        )


def _machine_text(machine: ShownDocument, now: Any, *, verbose: bool) -> str:
    from cloudgpu.cli.machine_text import machine_details, machine_summary, state_sentence

    parts = []
    if "why" in machine:
        from cloudgpu.cli.machines.why_text import why_text

        parts.append(why_text(machine["why"], now))
    if not parts:
        details = f"{paragraph(state_sentence(machine, now))}\n{machine_details(machine, now)}"
        parts.append(details if verbose else machine_summary(machine, now))
    if "history" in machine:
        parts.append(_history_text(machine["history"]))
    return "\n\n".join(parts)


def _history_text(entries: list[HistoryLine]) -> str:
    """Return the ledger's lines in words: when, who, from where, what and why."""
    from cloudgpu.views.history import actor_text, history_lines

    wrapped_lines = []
    for entry, text in zip(entries, history_lines(entries), strict=True):
        time_prefix = f"  {entry['occurred_at'][:19].replace('T', ' ')}  "
        wrapped_lines.append(wrapped(f"{actor_text(entry)}: {text}", time_prefix, " " * 23))
    return "\n".join(wrapped_lines)
