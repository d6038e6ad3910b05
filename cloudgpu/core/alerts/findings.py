"""Finds what people have to be alerted to in the recorded machines, and which month's report is due.

Findings are: a machine without a lease or price, a stop that is not confirmed, a price that moved, a cluster that has
lost a node, and others. Each follows from the ledger; its text says how old that is. A lost node is reported at once,
with what the other nodes cost: as a rule they do no work until somebody acts. A report is due for each month that is
over; the ledger says who has received it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from fractions import Fraction
from itertools import pairwise

from cloudgpu.core.alerts.alerts import Finding, RaisedAlert
from cloudgpu.core.clusters.completeness import PartlyStarted, lost_nodes, partly_started
from cloudgpu.core.events.log import Event
from cloudgpu.core.model.facts import ClusterNode, RefusedAction
from cloudgpu.core.model.machine import Machine, by_cluster, command_name, not_none, stop_command
from cloudgpu.core.model.offers import Basis
from cloudgpu.core.policies.guards import end_reason_of
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import first_few
from cloudgpu.core.values.times import Period, duration_text, from_iso, iso, minute_text, period

# Topics of findings, the first word of their keys. GUARD: only scheduled runs could end a machine, and none run.
ENDED, LOST, PARTLY_STARTED, JOB, JOB_WAITS, GUARD = "ended", "lost", "part", "job", "job-waits", "guard"
TOPICS = (
    *("lease", "stop", "overdue", "unpriced", "launch", "price", "refused"),
    *(ENDED, LOST, PARTLY_STARTED, JOB, JOB_WAITS, GUARD),
)
REPORT_ENDED_FOR = timedelta(days=3)  # after a weekend without a run, the first one still reports it
STOP_TIMEOUT = timedelta(minutes=15)  # a large machine takes about ten to shut down (AWS, p3 and p4)
MAX_NAMED = 3  # prices or nodes that are named one by one
START_TIME = timedelta(minutes=2)  # after the request to start a cluster, in which its command may still run
_REQUEST_KINDS = ("stop_requested", "terminate_requested", "park_requested")
_CONFIRMING_STATES = {
    "stop_requested": ("stopped", "deallocated", "terminated"),
    "park_requested": ("terminated",),
    "terminate_requested": ("terminated",),
}
_VERB_OF_ACTION = {"stop": "stop", "park": "stop", "terminate": "down"}
SUBJECT, SENT = "reports", "report_sent"
MONTH_END_DELAY = timedelta(hours=6)  # by then the cost of the month's last hours is recorded


def machine_findings(
    machines: Iterable[Machine], requested_since: Mapping[str, datetime], now: datetime
) -> Iterator[Finding]:
    """Yield what is wrong with machines whose end is not confirmed.

    `requested_since` says, by a machine's id, since when a requested stop is not confirmed (`unproved_since`).
    """
    for machine in machines:
        if machine.terminated_at is not None:
            continue
        if machine.launch_status == "open":
            yield from _launch_unknown(machine, now)
            continue
        if machine.billed:
            yield from _without_lease(machine)
            yield from _overdue(machine)
        if machine.refused_action:
            yield _refused(machine, machine.refused_action)
        if machine.pending_action in _VERB_OF_ACTION and machine.id in requested_since:
            yield from _unproved(machine, requested_since[machine.id], now)
        if machine.unpriced:
            yield _unpriced(machine)


def ended_findings(machines: Iterable[Machine], now: datetime) -> Iterator[Finding]:
    """Yield which machines stopped or ended without a request: by the agent, the cloud, or a person on the machine.

    Each is a finding for three days after it was seen, so it is sent once. For a cluster's nodes see `lost_findings`.
    """
    for machine in machines:
        seen = machine.unrequested_stop
        if seen is not None and machine.cluster is None and now - from_iso(seen.at) <= REPORT_ENDED_FOR:
            yield _termination(machine, seen.at)


def _termination(machine: Machine, at: str) -> Finding:
    name, has_done = machine.name, "ended" if machine.terminated_at else "stopped"
    why = end_reason_of(machine)
    costs = " It is still billed: run cloudgpu stop " + name + "." if machine.billed else ""
    return Finding(
        key=f"{ENDED}:{machine.id}:{at}",
        kind="machine ended",
        title=f"{name} has {has_done} by itself" + (f" ({why})" if why else ""),
        text=f"{_unrequested(why, at)}{costs} To see what happened: cloudgpu show {name} --history",
        facts=_facts(machine),
        urgent=bool(machine.billed),
    )


def unguarded_finding(machine: Machine, why: str) -> Finding:
    """Return the finding that only scheduled runs could end a machine and there are none; `why` is a clause."""
    hourly = "" if machine.price is None else f" It costs {_hourly(Money(machine.price.nanos_per_hour))}."
    return Finding(
        key=f"{GUARD}:{machine.id}",
        kind="nothing ends it",
        title=f"Nothing ends {machine.name} by itself now",
        text=f"Only scheduled runs of the reaper can end it, and {why}.{hourly} "
        f"To end it: cloudgpu down {command_name(machine)}",
        facts=_facts(machine),
        urgent=True,
    )


def unproved_since(lines: Iterable[Event]) -> datetime | None:
    """Return since when a requested stop, parking or end of a machine is not confirmed; None if there is none."""
    kind, since = "", None
    for line in sorted(lines, key=lambda line: (line.occurred_at, line.seq)):
        if line.kind in _REQUEST_KINDS:
            since = from_iso(line.occurred_at) if line.kind != kind or since is None else since
            kind = line.kind
        elif line.kind == "instance_observed":
            since = None if kind and line.body["state"] in _CONFIRMING_STATES[kind] else since
        elif line.kind in ("instance_vanished", "start_requested", "launch_intended", "action_refused"):
            since = None
    return since


def last_price_change(machine: Machine) -> tuple[Money, Money] | None:
    """Return the last two prices per hour since the machine was last started, older first; None if it had only one.

    None, too, if one of them is its electricity, measured or assumed: that is no change of a price.
    """
    runs = [use for use in machine.open_usage if use.resource == "instance" and use.end is None]
    segments = runs[-1].segments if runs else ()
    changes = [(was, now) for was, now in pairwise(segments) if was.nanos != now.nanos]
    if not changes or any(one.basis in (Basis.MEASURED, Basis.ASSUMED) for one in changes[-1]):
        return None
    before, after = changes[-1]
    return Money(before.nanos), Money(after.nanos)


def price_leaps(machines: Iterable[Machine], factor_of: Callable[[Machine], Fraction]) -> Iterator[Finding]:
    """Yield the prices of machines that rose to more than a factor times the old one, or fell below 1/factor of it.

    `factor_of` returns a machine's factor: the same in every home (installation), else two of them raise and clear it
    in turn.
    """
    for machine in machines:
        price_change = last_price_change(machine)
        if price_change is None:
            continue
        (before, after), factor = price_change, factor_of(machine)
        if before.nanos * factor < after.nanos or after.nanos * factor < before.nanos:
            yield price_finding(price_key(machine), before, after, machine)


def price_finding(place: str, before: Money, after: Money, machine: Machine | None = None) -> Finding:
    """Return the finding of a changed price; `place` is like `aws/us-east-1b/p3.2xlarge/spot`, `machine` runs there."""
    rose = after.nanos > before.nanos
    times = Fraction(after.nanos, before.nanos) if before else None
    factor_text = f", {float(times):.3g} times what it was" if times is not None else ""
    facts = {"offer": place, "before": _hourly(before), "now": _hourly(after)}
    return Finding(
        key=f"price:{place}",
        kind="price moved",
        title=f"The price of {place} {'rose' if rose else 'fell'} to {_hourly(after)}",
        text=f"It was {_hourly(before)}{factor_text}."
        + (
            f" {machine.name} runs at it: cloudgpu cost says what it has cost, {stop_command(machine)} ends it."
            if machine is not None
            else ""
        ),
        facts=facts | ({} if machine is None else {"machine": machine.name}),
        urgent=rose,
    )


def withheld_prices_finding(provider: str, names: Sequence[str]) -> Finding:
    """Return the finding that prices of a list (`names`) changed too much to be accepted automatically."""
    number = f"{len(names)} prices" if len(names) > 1 else "A price"
    return Finding(
        key=f"price:list:{provider}",
        kind="price moved",
        title=f"{number} of {provider} changed too much at the last refresh",
        text=f"The earlier prices remain in use: {first_few(names, MAX_NAMED)}. Run: cloudgpu catalog diff; to use the "
        "new ones: cloudgpu catalog refresh --accept",
        facts={"provider": provider, "prices": str(len(names))},
    )


def price_key(machine: Machine) -> str:
    """Return provider, zone (or region), type and market of a machine as one text without spaces."""
    return f"{machine.provider}/{machine.zone or machine.region}/{machine.instance_type}/{machine.market}"


def _without_lease(machine: Machine) -> Iterator[Finding]:
    if machine.expires is not None:
        return
    name, target = machine.name, command_name(machine)
    yield Finding(
        key=f"lease:{machine.id}",
        kind="no lease",
        title=f"{name} runs without a lease",
        text=f"It is billed, and nothing ends it by itself. Run: cloudgpu extend {target} 8h, "
        f"or: cloudgpu down {target}",
        facts=_facts(machine),
        urgent=True,
    )


def _overdue(machine: Machine) -> Iterator[Finding]:
    """Yield a finding for a machine that was seen billed after its renew-until, so its safeguards failed."""
    if machine.renew_until is None or machine.seen_at is None:
        return
    late = from_iso(machine.seen_at) - from_iso(machine.renew_until)
    if late < STOP_TIMEOUT:
        return
    name = machine.name
    yield Finding(
        key=f"overdue:{machine.id}",
        kind="not ended",
        title=f"{name} still runs {duration_text(late)} after its renew-until",
        text=f"Its agent and timer should have ended it, and did not. Run: cloudgpu down {command_name(machine)}",
        facts=_facts(machine) | {"renew until": minute_text(machine.renew_until)},
        urgent=True,
    )


def _unproved(machine: Machine, since: datetime, now: datetime) -> Iterator[Finding]:
    if now - since <= STOP_TIMEOUT:
        return
    name, verb = machine.name, _VERB_OF_ACTION[not_none(machine.pending_action)]
    yield Finding(
        key=f"stop:{machine.id}",
        kind="stop not proved",
        title=f"The {'end' if verb == 'down' else 'stop'} of {name} is not proved",
        text=f"It was asked for {duration_text(now - since)} ago and the machine was last seen {machine.state}: "
        f"it may still be billed. Run: cloudgpu {verb} {command_name(machine)}",
        facts=_facts(machine) | {"requested": f"{since:%Y-%m-%d %H:%M} UTC"},
        urgent=True,
    )


def _refused(machine: Machine, refused: RefusedAction) -> Finding:
    """Return the finding that a machine is protected from its end: only a person can lift that."""
    name = machine.name
    verb = "stopped" if refused.action == "stop" else "ended"
    still_billed_text = "It is billed." if machine.billed else "It is stopped; its disk still costs money."
    return Finding(
        key=f"refused:{machine.id}:{refused.action}",
        kind="end refused",
        title=f"{name} cannot be {verb}: something protects it",
        text=f"{refused.why} {still_billed_text} {refused.next or ''}".rstrip(),
        facts=_facts(machine),
        urgent=bool(machine.billed),
    )


def _unpriced(machine: Machine) -> Finding:
    return Finding(
        key=f"unpriced:{machine.id}",
        kind="price missing",
        title=f"There is no price for {machine.name}",
        text="Its cost is missing from every sum; it is not zero.",
        facts=_facts(machine),
    )


def _launch_unknown(machine: Machine, now: datetime) -> Iterator[Finding]:
    age = now - from_iso(machine.intended_at)
    if age <= STOP_TIMEOUT:
        return
    yield Finding(
        key=f"launch:{machine.id}",
        kind="launch not resolved",
        title=f"Whether {machine.name} was launched is not known",
        text=f"The launch began {duration_text(age)} ago, and its outcome is still unknown: a machine may run and be "
        "billed. Run: cloudgpu ls --refresh",
        facts=_facts(machine),
        urgent=True,
    )


def _facts(machine: Machine) -> dict[str, str]:
    facts = {"machine": machine.name, "offer": price_key(machine), "account": machine.account, "owner": machine.owner}
    if machine.price is not None:
        facts["price"] = _hourly(Money(machine.price.nanos_per_hour))
    if machine.seen_at is not None:
        facts["last seen"] = f"{machine.state}, {minute_text(machine.seen_at)}"
    return {name: str(value) for name, value in facts.items() if value is not None}


def _unrequested(why: str | None, at: str) -> str:
    """Return what is known about a stop or an end without a request, in sentences."""
    known = f"Reason: {why}." if why else "The cloud gives no reason."
    return f"Neither a command nor the reaper asked for it. {known} Seen at {minute_text(at)}."


def _hourly(price: Money) -> str:
    return f"{price.text(4)}/h"


def month_before(now: datetime, zone: tzinfo) -> Period:
    """Return the last calendar month of `zone` that is over."""
    return period("month", period("month", now, zone).begin - timedelta(microseconds=1), zone)


def month_due(now: datetime, zone: tzinfo) -> tuple[Period, datetime]:
    """Return the month whose report is due now, and when the next one's is due.

    Never an older month: a report that was not sent during the whole next month is not sent any more.
    """
    recorded_until = now - MONTH_END_DELAY
    return month_before(recorded_until, zone), period("month", recorded_until, zone).end + MONTH_END_DELAY


def month_name(month: Period, zone: tzinfo) -> str:
    """Return the name of a month in the ledger and in texts: 2026-10."""
    return f"{month.begin.astimezone(zone):%Y-%m}"


def whole_month(since: datetime | None, until: datetime | None, zone: tzinfo) -> Period | None:
    """Return [since, until) if it is exactly one calendar month of `zone`, else None."""
    if since is None or until is None:
        return None
    month = period("month", since, zone)
    return month if (month.begin, month.end) == (since, until) else None


def receivers_with_report(lines: Iterable[Event], month: str) -> frozenset[str]:
    """Return the receivers that have accepted the report of a month."""
    return frozenset(line.body["receiver"] for line in lines if line.kind == SENT and line.body["month"] == month)


def is_problem(alert: RaisedAlert) -> bool:
    """Return whether an alert is about something to be put right; a machine's end, or a job's, is only news."""
    return alert.finding.topic != JOB and (alert.finding.topic != ENDED or alert.finding.urgent)


def lost_findings(machines: Iterable[Machine], now: datetime) -> Iterator[Finding]:
    """Yield which clusters have lost nodes while others are billed, and which have ended completely without a request.

    Also clusters that were only partly started START_TIME after the request.
    `machines` are all machines, also those that have ended. A cluster that has lost a node is alerted on for as long as
    that is so, and anew for each further node; an end for three days, as that of a machine.
    """
    for nodes in by_cluster(machines).values():
        cluster = not_none(nodes[0].cluster)
        started = partly_started(nodes)
        if started is not None and now - started.at >= START_TIME:
            yield _partly_started(cluster, started)
        lost = lost_nodes(nodes)
        if lost and cluster.nodes > 1:
            yield _nodes_lost(cluster, lost, [node for node in nodes if node.billed and node not in lost])
        elif not any(node.billed for node in nodes) and all(node.unrequested_stop for node in nodes):
            at = _last_stop_at(nodes)
            if now - from_iso(at) <= REPORT_ENDED_FOR:
                yield _cluster_ended(cluster, nodes, at)


def _nodes_lost(cluster: ClusterNode, lost: Sequence[Machine], other_nodes: Sequence[Machine]) -> Finding:
    names, at = first_few([machine.name for machine in lost], MAX_NAMED), _last_stop_at(lost)
    hourly = _hourly_sum(other_nodes)
    others_cost_text = (
        "The other machine costs" if len(other_nodes) == 1 else f"The other {len(other_nodes)} machines cost"
    )
    next_ = (
        "The next run of reap ends them (--on-node-loss stop)."
        if cluster.on_node_loss == "stop"
        else f"Nothing ends them for that. To end them: {stop_command((other_nodes or lost)[0])}"
    )
    return Finding(
        key=f"{LOST}:{cluster.id}:{at}",
        kind="node lost",
        title=f"{cluster.name} has lost {names}; the rest costs {hourly}",
        text=f"{_unrequested(end_reason_of(lost[-1]), at)} "
        f"{others_cost_text} {hourly}, and a job that needs all {cluster.nodes} cannot continue. {next_}",
        facts=_cluster_facts(cluster, other_nodes or lost) | {"lost": names, "price": hourly},
        urgent=True,
    )


def _partly_started(cluster: ClusterNode, started: PartlyStarted) -> Finding:
    names, hourly = first_few([machine.name for machine in started.missing], MAX_NAMED), _hourly_sum(started.running)
    return Finding(
        key=f"{PARTLY_STARTED}:{cluster.id}:{iso(started.at)}",
        kind="start interrupted",
        title=f"{cluster.name} runs in part; that costs {hourly}",
        text=f"Its start was not completed: {names} did not start. To continue it: cloudgpu start {cluster.name}. "
        f"To end the rest: {stop_command(started.running[0])}",
        facts=_cluster_facts(cluster, started.running) | {"price": hourly},
        urgent=True,
    )


def _cluster_ended(cluster: ClusterNode, nodes: Sequence[Machine], at: str) -> Finding:
    has_done = "ended" if all(machine.terminated_at for machine in nodes) else "stopped"
    why = end_reason_of(nodes[0])
    return Finding(
        key=f"{ENDED}:{cluster.id}:{at}",
        kind="machine ended",
        title=f"{cluster.name} has {has_done} by itself" + (f" ({why})" if why else ""),
        text=f"{_unrequested(why, at)} To see what happened: cloudgpu show {cluster.name} --history",
        facts=_cluster_facts(cluster, nodes),
    )


def _last_stop_at(nodes: Sequence[Machine]) -> str:
    """Return when the last of these nodes was seen to have stopped."""
    return max(not_none(machine.unrequested_stop).at for machine in nodes)


def _hourly_sum(nodes: Sequence[Machine]) -> str:
    known = [machine.price.nanos_per_hour for machine in nodes if machine.price is not None]
    unknown = "" if len(known) == len(nodes) else "at least "
    return f"{unknown}{Money(sum(known)).text(4)}/h"


def _cluster_facts(cluster: ClusterNode, nodes: Sequence[Machine]) -> dict[str, str]:
    first = nodes[0]
    fields = {"machine": cluster.name, "account": first.account, "owner": first.owner}
    return {name: value for name, value in fields.items() if value}
