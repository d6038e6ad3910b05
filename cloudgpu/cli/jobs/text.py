"""Jobs as text: the plan of `run`, the table of `jobs`, one job, and what is said when one ends or goes on alone."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.cli.render import ago, dollars, facts, minute, rounded, size, steps, table, when, wrapped
from cloudgpu.core.values.times import duration_text, from_iso

if TYPE_CHECKING:
    from cloudgpu.control.jobs.plan import PlannedRun
    from cloudgpu.core.jobs.snapshot import LeftOut, Snapshot
    from cloudgpu.views.documents.jobs.jobs import CancelDocument, JobDocument, JobsDocument
    from cloudgpu.views.documents.machines.plans import Plan

WIDEST_COMMAND = 40
ASLEEP = (
    "a job goes on while this computer sleeps; its results are fetched when cloudgpu watch or reap runs here, else its "
    "machine stops by its policy"
)
ASLEEP_THERE = "a job goes on while this computer sleeps; its results are fetched when cloudgpu watch or reap runs here"
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)
MOST_SECRETS = 5


def plan_text(planned: PlannedRun, launch: Plan | None, now: datetime, *, verbose: bool) -> str:
    """Return the plan of a job: what, where, price, costs, time, what travels, and what happens without this computer.

    `launch` is the plan of its machine, None for one that is there.
    """
    request = planned.request
    text = facts(
        [
            ("job", f"{request.name}: {shlex.join(request.argv)}"),
            *_machine(planned, launch),
            ("costs", _costs(planned, launch)),
            ("timeout", _timeout(planned, launch)),
            ("upload", _upload(planned.snapshot)),
            ("left out", _left_out(planned.snapshot)),
            ("secrets", _secrets(planned.snapshot)),
            ("results", _results(planned)),
            ("asleep", ASLEEP if launch is not None else ASLEEP_THERE),
            *_notes(planned),
        ]
    )
    if not verbose or launch is None:
        return text
    from cloudgpu.cli.launch.planned import plan

    return f"{text}\n\n{plan(launch, now)}"


def _machine(planned: PlannedRun, launch: Plan | None) -> Iterator[tuple[str, str | None]]:
    if launch is not None:
        from cloudgpu.cli.launch.planned import of_a_job

        yield from of_a_job(launch)
        return
    machine = planned.machine
    if machine is not None:
        yield "machine", f"{machine.name}, which is there ({machine.provider}), and stays"


def _costs(planned: PlannedRun, launch: Plan | None) -> str | None:
    limit = planned.request.max_cost
    if limit is not None and planned.dearest is not None and planned.dearest.nanos == limit.nanos:
        return f"at most {limit.text(2)} (--max-cost)"
    if launch is None:
        return "what the machine costs anyway"
    until = minute(launch["renew_until"])
    if planned.dearest is None:
        return f"no limit is known: its price has none, and --max-cost is not set; its machine ends {until}"
    return f"at most {planned.dearest.text(2)}, if it runs until {until}"


def _timeout(planned: PlannedRun, launch: Plan | None) -> str:
    timeout = planned.request.timeout
    if timeout is not None:
        return f"its command is ended after {duration_text(timeout)}"
    if launch is None:
        return "none: it runs until its command ends"
    return f"none: it runs until its command ends, or its machine does ({minute(launch['renew_until'])})"


def _upload(snapshot: Snapshot) -> str:
    return f"{_files(len(snapshot.files))}, {size(snapshot.total_bytes)}; only what the machine lacks travels"


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


def _left_out(snapshot: Snapshot) -> str | None:
    found = [one for one in snapshot.left_out if one.why not in ("secret", "excluded")]  # the results: said below
    if not found:
        return None
    others = snapshot.left_out_count - len(found) - len(snapshot.secrets)
    more = f", and {others:,} other{'s' * (others > 1)}" if others > 0 else ""
    return f"{', '.join(map(_entry, found))}{more}"


def _entry(one: LeftOut) -> str:
    return f"{one.path} ({'at least ' if one.at_least else ''}{size(one.size)})"


def _secrets(snapshot: Snapshot) -> str | None:
    """Return which files stay here because of their names."""
    if not snapshot.secrets:
        return None
    others = len(snapshot.secrets) - MOST_SECRETS
    more = f" and {others:,} more" if others > 0 else ""
    one = "it" if len(snapshot.secrets) == 1 else "they"
    named = ", ".join(snapshot.secrets[:MOST_SECRETS])
    return f"{named}{more}: by their names, {one} stay{'s' * (one == 'it')} here; --secret or --env-file passes values"


def _results(planned: PlannedRun) -> str:
    request = planned.request
    also = "; so are checkpoints" if request.checkpoint else ""
    return f"come back to {request.results}/{request.name}, copied every {duration_text(request.every)}{also}"


def _notes(planned: PlannedRun) -> Iterator[tuple[str, str]]:
    request = planned.request
    if request.setup is None:
        from cloudgpu.control.jobs.inputs.command import proposed_setup

        found = proposed_setup(request.workdir)
        if found is not None:
            yield "setup", f"{found[0]} is there and nothing installs it: add --setup '{found[1]}'"
    told = [key for key in request.env if _SECRET.search(key)]
    if told:
        yield "note", f"the ledger keeps the value of --env {told[0]}; --secret {told[0]} is kept nowhere"


def table_text(value: JobsDocument, now: datetime, *, ended: bool) -> str:
    """Return the table of `jobs`."""
    if not value["jobs"]:
        more = "" if ended else " Those that are over: cloudgpu jobs --all"
        return f"No job {'is known' if ended else 'is running'}.{more}"
    rows = [_row(one, now) for one in value["jobs"]]
    return table(rows, ["NAME", "STATE", "DONE", "ON", "SPENT", "END", "COMMAND"], [2, 4])


def _row(one: JobDocument, now: datetime) -> list[str]:
    command = shlex.join(one["command"])
    short = command if len(command) <= WIDEST_COMMAND else f"{command[: WIDEST_COMMAND - 2]}.."
    on = "" if one["machine"] is None else one["machine"]["name"]
    return [one["name"], state_text(one), _percent(one), on, _spent(one), _end(one, now), short]


def state_text(one: JobDocument) -> str:
    """Return a job's state in words, with its exit status where it failed."""
    word = one["state"].replace("_", " ")
    code = one["exit"]
    return f"{word} ({code['code']})" if one["state"] == "failed" and code is not None else word


def _percent(one: JobDocument) -> str:
    found = one["progress"]
    if found is None:
        return ""
    return f"{found['done']:g}" if found["percent"] is None else f"{found['percent']:.0f} %"


def _spent(one: JobDocument) -> str:
    return dollars(one["spent_usd"]) + "+" * bool(one["unpriced"])


def _end(one: JobDocument, now: datetime) -> str:
    if one["ended_at"] is not None:
        return ago(one["ended_at"], now)
    if one["expected_end"] is None:
        return "?"
    left = max(0.0, (from_iso(one["expected_end"]) - now).total_seconds())
    return f"in {rounded(left)}" if one["expected_by"] == "progress" else f"by {rounded(left)}"


def job_text(one: JobDocument, now: datetime) -> str:
    """Return one job: state, progress, cost, results, and each attempt."""
    return facts(
        [
            ("job", f"{one['name']}: {shlex.join(one['command'])}"),
            ("state", _state(one)),
            ("done", _progress(one, now)),
            ("machine", _where(one)),
            ("spent", _money(one)),
            ("ends", _expected(one, now)),
            ("exit", _exit(one)),
            ("results", _came_back(one)),
            *(("attempt", _attempt(one, number, now)) for number in range(len(one["attempts"]))),
            ("kept", f"its machine, until {when(one['kept_until'], now)}" if one["kept_until"] else None),
            ("asked", when(one["requested_at"], now)),
            ("owner", ", project ".join(filter(None, (one["owner"], one["project"])))),
            ("id", one["id"]),
        ]
    )


def _state(one: JobDocument) -> str:
    why = f": {one['why']}" if one["why"] else ""
    left = " (its results, or its machine, are not settled yet)" if one["living"] and one["exit"] is not None else ""
    return f"{state_text(one)}{why}{left}"


def _progress(one: JobDocument, now: datetime) -> str | None:
    found = one["progress"]
    if found is None:
        return None
    of = "" if found["of"] is None else f" of {found['of']:g} ({found['percent']:.0f} %)"
    return f"{found['done']:g}{of}, {ago(found['at'], now)}"


def _where(one: JobDocument) -> str | None:
    found = one["machine"]
    if found is None:
        return None
    price = "" if found["usd_per_hour"] is None else f", {dollars(found['usd_per_hour'], 4)} an hour"
    stays = "" if found["own"] else "; it was there, and stays"
    return f"{found['name']} ({found['state']}), {found['provider']} {found['region']}{price}{stays}"


def _money(one: JobDocument) -> str:
    missing = f", without {' and '.join(one['unpriced'])}: no price is known" if one["unpriced"] else ""
    most = "" if one["dearest_usd"] is None or one["exit"] else f" of at most {dollars(one['dearest_usd'])}"
    return f"{dollars(one['spent_usd'])}{most}{missing}"


def _expected(one: JobDocument, now: datetime) -> str | None:
    if one["expected_end"] is None:
        return None
    by = "at this speed" if one["expected_by"] == "progress" else "at the latest: --timeout"
    return f"{when(one['expected_end'], now)}, {by}"


def _exit(one: JobDocument) -> str | None:
    found = one["exit"]
    if found is None:
        return None
    own = f"signal {found['signal']}" if found["signal"] else f"status {found['status']}"
    known = own if found["status"] is not None or found["signal"] else "its status is not known"
    return known if found["by"] == "command" else f"{known}; ended by cloudgpu"


def _came_back(one: JobDocument) -> str | None:
    found = one["results"]
    if found is None:
        return None
    where = found["directory"] if found["host"] == os.uname().nodename else f"{found['directory']} on {found['host']}"
    partly = "" if found["whole"] else f", not whole{': ' if found['why'] else ''}{found['why']}"
    return f"{_files(found['files'])}, {size(found['bytes'])}, in {where}{partly}"


def _attempt(one: JobDocument, place: int, now: datetime) -> str:
    found = one["attempts"][place]
    on = f" on {found['machine']}" if found["machine"] else ""
    if found["began_at"] is None:
        return f"{found['number']}{on}: not begun"
    setup = "" if found["setup_s"] is None else f" after a setup of {rounded(found['setup_s'])}"
    end = "" if found["ended_at"] is None else f", ended {ago(found['ended_at'], now)}"
    why = f": {found['why']}" if found["why"] else ""
    return f"{found['number']}{on}: began {ago(found['began_at'], now)}{setup}{end}{why}"


def ended_text(one: JobDocument, now: datetime) -> str:
    """Return what `run` says at the end: how it ended, how long it took, its results and what it has cost."""
    took = ""
    if one["began_at"] is not None and one["ended_at"] is not None:
        took = f" after {rounded((from_iso(one['ended_at']) - from_iso(one['began_at'])).total_seconds())}"
    why = f" ({one['why']})" if one["why"] else ""
    results = _came_back(one)
    said = f"{one['name']} {_ENDED.get(one['state'], one['state'])}{took}{why}."
    said += f" Results: {results}." if results and one["results"] and one["results"]["files"] else " No results."
    kept = f" Its machine is kept until {when(one['kept_until'], now)}." if one["kept_until"] else ""
    return f"{said} It cost {_money(one)}.{kept}"


_ENDED = {
    "succeeded": "has succeeded",
    "failed": "has failed",
    "setup_failed": "has not begun, since its setup failed",
    "timed_out": "ran out of time",
    "over_cost": "reached its --max-cost",
    "cancelled": "was cancelled",
    "lost": "was lost with its machine",
    "not_launched": "got no machine",
}


def detached_text(one: JobDocument) -> str:
    """Return how to follow a job that goes on without this process, and what happens if nobody watches."""
    name, machine = one["name"], one["machine"]
    on = f" on {machine['name']}" if machine is not None else ""
    ways = steps([(f"logs -f {name}", "what it writes"), ("jobs", "how far it is"), (f"cancel {name}", "end it")])
    stays = machine is not None and not machine["own"]
    else_ = "If neither runs, they stay there." if stays else "If neither runs, its machine stops by its policy."
    watch = f"Its results come back while cloudgpu watch, or cloudgpu cron, runs on this computer. {else_}"
    return f"{wrapped(f'{name} is {state_text(one)}{on}.')}\n{ways}\n{wrapped(watch)}"


def cancelled_text(value: CancelDocument, now: datetime) -> str:
    """Return what became of the wish to end a job."""
    one = value["job"]
    if value["was_over"]:
        kept = f" Its machine is kept until {when(one['kept_until'], now)}: cloudgpu down {_machine_name(one)} ends it."
        return f"{one['name']} is over already: {state_text(one)}.{kept if one['kept_until'] else ''}"
    if value["waits"] is not None:
        later = "It is ended by the next cloudgpu reap or watch that reaches it."
        return f"{one['name']} is to be cancelled, and is not over yet: {value['waits']}. {later}"
    return ended_text(one, now)


def _machine_name(one: JobDocument) -> str:
    return "NAME" if one["machine"] is None else one["machine"]["name"]
