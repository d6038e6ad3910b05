"""What `ls` answers. It needs no parser: without --refresh and --watch, none is loaded for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cloudgpu.cli.output import tell
from cloudgpu.cli.render import PRICE_MARKS, ago, at_cloud, credit_text, facts, machines, paragraph, price_mark, when

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.views.documents.machines.machines import LsDocument, MachineDocument


def list_machines(
    *, refresh: bool = False, ended: bool = False, mine: bool = False, verbose: bool = False, nodes: bool = False
) -> tuple[LsDocument, str]:
    """Return the machines, as one document and as text, from the ledger; `refresh` asks the clouds first.

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
    if refresh and any(machine.gang for machine in session.ledger.present_machines()):
        from cloudgpu.control.clusters.engine import queues_of

        queues = queues_of(session, session.ledger.present_machines())
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
    any_ever: Callable[[], bool],
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
            from cloudgpu.cli.clusters.listing import table

            lines.append(table(document, now, me=me))
        else:
            lines.append(machines(document["machines"], now, me=me))
        if document["view_as_of"]:
            older = "" if queried else "; cloudgpu ls --refresh asks now"
            lines.append("\n" + paragraph(f"As last seen {ago(document['view_as_of'], now)}{older}."))
        lines += [
            *_absent(document["machines"]),
            *_rehearsed(document["machines"], now),
            *_mark_lines(document["machines"]),
            *_unfinished(document["machines"]),
            *_billed_on(document["machines"]),
            *_unjudged(document["machines"]),
            *_gpus_now(document["machines"]),
        ]
        if verbose:
            from cloudgpu.cli.machine_text import guard_lines
            from cloudgpu.core.model.machine import is_owned

            rented = facts(
                (one["name"], at_cloud(one)) for one in document["machines"] if not is_owned(one["provider"])
            )
            lines += ["\nAt the cloud", rented] if rented else []
            lines += guard_lines(document["machines"], document["last_run"], now)
    else:
        nobodys = f"No machine of {me} is running, as far as this ledger knows."
        lines.append(nobodys if mine else _none(ever=any_ever(), queried=queried))
    lines += [paragraph(credit_text(credit, now)) for credit in document["credits"]] if document["credits"] else []
    lines += [
        paragraph(f"Not ours (ledger {other['ledger']}): {other['name']} on {other['provider']}, {other['state']}")
        for other in document["foreign"]
        if other["state"] != "terminated"  # a cloud shows what has ended for an hour; it is nobody's concern
    ]
    if queried:
        from cloudgpu.cli.machine_text import account_lines

        lines += account_lines(document)
    return "\n".join(lines)


def _none(*, ever: bool, queried: bool) -> str:
    """Return that there is no machine: of the ledger alone, unless the clouds were asked."""
    if queried:
        return "No machine is running."
    known = "No machine is running" if ever else "No machine yet"
    first = "" if ever else "\nStart with: cloudgpu up --dry-run"
    return paragraph(f"{known}, as far as this ledger knows; cloudgpu ls --refresh asks now.") + first


def _rehearsed(machines: list[MachineDocument], now: Any) -> list[str]:
    """Return on which machines a spot interruption is rehearsed, and when it takes them."""
    message = "a spot interruption is rehearsed; it is taken"
    return [paragraph(f"{one['name']}: {message} {when(one['taken_at'], now)}.") for one in machines if one["taken_at"]]


def _absent(machines: list[MachineDocument]) -> list[str]:
    """Return which machines' account or host config.toml names no more, and what to do."""
    return [
        paragraph(f"{one['name']} was last seen {one['state']}. {one['absent']}.") for one in machines if one["absent"]
    ]


def _mark_lines(machines: list[MachineDocument]) -> list[str]:
    """Return what the marks behind prices mean, of those that there are."""
    marks = {price_mark(machine) for machine in machines}
    meanings = {"derived": "computed from other prices", "recalled": "from memory, in no source"}
    meanings["assumed"] = "usual figures, or the most it can draw (cloudgpu show NAME -v)"
    return [f"{mark} {basis}: {meanings[basis]}." for basis, mark in PRICE_MARKS.items() if mark in marks]


def _unfinished(machines: list[MachineDocument]) -> list[str]:
    """Return which machines or clusters are still there after a request to stop or end them, and what finishes it.

    While a command is at it, that is so, too; what the cloud itself is at is `stopping`.
    """
    found = {}
    for one in machines:
        what, name = one["pending_action"], (one["cluster"] or one)["name"]
        if what in ("stop", "terminate") and one["state"] != "stopping":
            noun, verb = ("end", "down") if what == "terminate" else ("stop", "stop")
            reap = " or the next run of cloudgpu reap" if what == "terminate" or one["cluster"] else ""
            message = f"its {noun} was requested and is not done; cloudgpu {verb} {name}{reap} finishes it"
            found[name] = paragraph(f"{name}: {message}.")
    return list(found.values())


def _billed_on(machines: list[MachineDocument]) -> list[str]:
    """Return which machines are stopped and go on costing as if they ran, and what ends that."""
    names = [machine["name"] for machine in machines if machine["state"] == "stopped" and machine["billed"]]
    why = "it was shut down from inside, and is still billed until cloudgpu stop"
    return [paragraph(f"{name}: {why} {name}.") for name in names]


def _unjudged(machines: list[MachineDocument]) -> list[str]:
    """Return which machines nobody can tell from outside to be idle, and why."""
    message = (
        (one["name"], one["activity_unknown_reason"]) for one in machines if one["activity_unknown_reason"] is not None
    )
    return [paragraph(f"{name}: nobody can tell from outside whether it is idle: {why}.") for name, why in message]


def _gpus_now(machines: list[MachineDocument]) -> list[str]:
    """Return who uses the GPUs of machines that share a computer with others, as they were just told."""
    return [paragraph(f"{machine['name']}: {use}.") for machine in machines for use in machine["gpu_users"]]
