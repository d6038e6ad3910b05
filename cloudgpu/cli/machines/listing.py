"""The answer of `ls`. It needs no parser: without --refresh and --watch, none is loaded for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cloudgpu.cli.output import tell
from cloudgpu.cli.render import (
    PRICE_MARKS,
    ago,
    console_text,
    credit_text,
    labelled_lines,
    machine_table,
    paragraph,
    price_mark,
    when,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.views.documents.machines.machines import LsDocument, MachineDocument


def list_machines(
    *, refresh: bool = False, ended: bool = False, mine: bool = False, verbose: bool = False, nodes: bool = False
) -> tuple[LsDocument, str]:
    """Return the machines, as one document and as text, from the ledger; `refresh` queries the clouds first.

    The text has a line per cluster; with `nodes`, one per node of it.
    """
    from cloudgpu.control.inventory.listing import list_machines
    from cloudgpu.control.outage.opening import open_session

    session = open_session(os.environ, tell=tell)
    if not refresh:  # with it, the account is among those that did not answer, and why
        from cloudgpu.control.session.base import account_table_errors

        for sentence in account_table_errors(session.settings):
            tell(sentence)
    queues = None
    if refresh and any(machine.cluster_node for machine in session.ledger.present_machines()):
        from cloudgpu.control.clusters.engine import query_queue_texts

        queues = query_queue_texts(session, session.ledger.present_machines())
    document = list_machines(session, refresh=refresh, ended=ended, mine=mine, queues=queues)
    text = _text(
        document,
        session.clock(),
        lambda: bool(session.ledger.machines()),
        verbose=verbose,
        queried=refresh,
        mine=mine,
        me=session.settings.owner,
        nodes=nodes,
    )
    return document, text


def _text(
    document: LsDocument,
    now: Any,
    has_launched: Callable[[], bool],
    *,
    verbose: bool = False,
    queried: bool = False,
    mine: bool = False,
    me: str | None = None,
    nodes: bool = False,
) -> str:
    lines = []
    if document["machines"]:
        if document["clusters"] and not nodes:
            from cloudgpu.cli.clusters.listing import listing_table

            lines.append(listing_table(document, now, me=me))
        else:
            lines.append(machine_table(document["machines"], now, me=me))
        if document["view_as_of"]:
            refresh_hint = "" if queried else "; cloudgpu ls --refresh asks now"
            lines.append("\n" + paragraph(f"As last seen {ago(document['view_as_of'], now)}{refresh_hint}."))
        lines += [
            *_absent_lines(document["machines"]),
            *_rehearsal_lines(document["machines"], now),
            *_mark_lines(document["machines"]),
            *_pending_lines(document["machines"]),
            *_still_billed_lines(document["machines"]),
            *_unknown_activity_lines(document["machines"]),
            *_gpu_user_lines(document["machines"]),
        ]
        if verbose:
            from cloudgpu.cli.machine_text import guard_lines
            from cloudgpu.core.model.machine import is_on_prem

            console_lines = labelled_lines(
                (machine["name"], console_text(machine))
                for machine in document["machines"]
                if not is_on_prem(machine["provider"])
            )
            lines += ["\nAt the cloud", console_lines] if console_lines else []
            lines += guard_lines(document["machines"], document["last_run"], now)
    else:
        none_mine_text = f"No machine of {me} is running, as far as this ledger knows."
        lines.append(none_mine_text if mine else _no_machine_text(has_launched=has_launched(), queried=queried))
    lines += [paragraph(credit_text(credit, now)) for credit in document["credits"]] if document["credits"] else []
    lines += [
        paragraph(
            f"Not ours (ledger {foreign_machine['ledger']}): {foreign_machine['name']} on "
            f"{foreign_machine['provider']}, {foreign_machine['state']}"
        )
        for foreign_machine in document["foreign"]
        if foreign_machine["state"] != "terminated"  # a cloud lists a terminated machine for an hour
    ]
    if queried:
        from cloudgpu.cli.machine_text import account_lines

        lines += account_lines(document)
    return "\n".join(lines)


def _no_machine_text(*, has_launched: bool, queried: bool) -> str:
    """Return that there is no machine, as far as the ledger or the queried clouds know."""
    if queried:
        return "No machine is running."
    none_text = "No machine is running" if has_launched else "No machine yet"
    start_hint = "" if has_launched else "\nStart with: cloudgpu up --dry-run"
    return paragraph(f"{none_text}, as far as this ledger knows; cloudgpu ls --refresh asks now.") + start_hint


def _rehearsal_lines(machines: list[MachineDocument], now: Any) -> list[str]:
    """Return on which machines a spot interruption is rehearsed, and when it ends them."""
    message = "a spot interruption is rehearsed; it is taken"
    return [
        paragraph(f"{machine['name']}: {message} {when(machine['taken_at'], now)}.")
        for machine in machines
        if machine["taken_at"]
    ]


def _absent_lines(machines: list[MachineDocument]) -> list[str]:
    """Return which machines' account or host is no longer in config.toml, and what to do."""
    return [
        paragraph(f"{machine['name']} was last seen {machine['state']}. {machine['absent']}.")
        for machine in machines
        if machine["absent"]
    ]


def _mark_lines(machines: list[MachineDocument]) -> list[str]:
    """Return what the marks behind the shown prices mean."""
    marks = {price_mark(machine) for machine in machines}
    meanings = {"derived": "computed from other prices", "unverified": "from memory, in no source"}
    meanings["assumed"] = "usual figures, or the most it can draw (cloudgpu show NAME -v)"
    return [f"{mark} {basis}: {meanings[basis]}." for basis, mark in PRICE_MARKS.items() if mark in marks]


def _pending_lines(machines: list[MachineDocument]) -> list[str]:
    """Return which machines or clusters are still there after a request to stop or end them, and what finishes it.

    This includes machines that a command is just stopping; a cloud's own state for that is `stopping`.
    """
    lines = {}
    for machine in machines:
        action, name = machine["pending_action"], (machine["cluster"] or machine)["name"]
        if action in ("stop", "terminate") and machine["state"] != "stopping":
            requested, verb = ("end", "down") if action == "terminate" else ("stop", "stop")
            remedy = f"cloudgpu {verb} {name} or the next run of cloudgpu reap finishes it"
            lines[name] = paragraph(f"{name}: its {requested} was requested and is not done; {remedy}.")
    return list(lines.values())


def _still_billed_lines(machines: list[MachineDocument]) -> list[str]:
    """Return which machines or clusters are stopped and still billed as if they ran, and what ends that."""
    names = dict.fromkeys(
        (machine["cluster"] or machine)["name"]
        for machine in machines
        if machine["state"] == "stopped" and machine["billed"]
    )
    why = "it is shut down, and is still billed until cloudgpu stop"
    return [paragraph(f"{name}: {why} {name}.") for name in names]


def _unknown_activity_lines(machines: list[MachineDocument]) -> list[str]:
    """Return for which machines it is not known whether they are idle, and why."""
    reasons_by_name = (
        (machine["name"], machine["activity_unknown_reason"])
        for machine in machines
        if machine["activity_unknown_reason"] is not None
    )
    return [
        paragraph(f"{name}: nobody can tell from outside whether it is idle: {why}.") for name, why in reasons_by_name
    ]


def _gpu_user_lines(machines: list[MachineDocument]) -> list[str]:
    """Return who uses the GPUs of machines that share a computer with others, as just queried."""
    return [paragraph(f"{machine['name']}: {user_text}.") for machine in machines for user_text in machine["gpu_users"]]
