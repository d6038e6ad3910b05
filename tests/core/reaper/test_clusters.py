"""A cluster is evaluated as one: whatever its nodes do, one decision holds for all of them, and no part is ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.activity.idle import ActivityVerdict
from cloudgpu.core.activity.report import Report
from cloudgpu.core.budgets import enforcement as budget_stops
from cloudgpu.core.clusters.engine import EngineStatus
from cloudgpu.core.clusters.queue import Queue, read_queue
from cloudgpu.core.policies.policy import Idle, Policy, ReaperAction, Rule, RuleAction, Unknown
from cloudgpu.core.reaper.clusters import blocked_by_other_nodes, with_cluster_activity
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.reaper.seen import to_ask, with_report
from cloudgpu.core.values.times import iso
from tests.core import deciding
from tests.core.deciding import DEFAULT, TEN, UNKNOWN, active, idle, minute
from tests.core.lives import seen as observed, settled

NOBODY, BUSY, DEAD = (
    EngineStatus(Queue()),
    EngineStatus(read_queue("12|RUNNING|ann|all|2|None|x")),
    EngineStatus(None, "gone"),
)
WAITS = EngineStatus(read_queue("12|PENDING|ann|all|2|Resources|x"))
HELD = EngineStatus(read_queue("12|PENDING|ann|all|2|JobHeldUser|x"))
END_ALL = replace(DEFAULT, unknown=Unknown.END)


class Node(deciding.Machine):
    def __init__(self, number: int, *, nodes: int = 4, engine: str = "slurm", loss: str = "wait", **more: Any) -> None:
        cluster = {"name": "train", "id": "cg-1", "node": number, "nodes": nodes}
        cluster |= {"engine": engine, "on_node_loss": loss}
        super().__init__(f"cg-1-{number}", cluster=cluster, **more)
        self.lines[-1] = observed(2, "running", billed=True, since=2, launched_at=iso(minute(0)))

    def lose(self, at: float) -> None:
        self.see(at, "terminated", billed=False)


def cluster(nodes: int = 4, **more: Any) -> list[Node]:
    return [Node(number, nodes=nodes, **more) for number in range(nodes)]


def seen_of(
    nodes: list[Node], judged: list[ActivityVerdict | None], engine: EngineStatus | None = NOBODY
) -> list[MachineView]:
    """Return what is known of each node; node 0 has told its engine's queue."""
    said = [engine if one.machine.cluster is not None and one.machine.cluster.node == 0 else None for one in nodes]
    return [one.known(what, engine=queue) for one, what, queue in zip(nodes, judged, said, strict=True)]


def decided(nodes: list[Node], judged: list[ActivityVerdict | None], at: float = 100, **more: Any) -> list[Decision]:
    engine = more.pop("engine", NOBODY)
    rows = [one.machine for one in nodes]
    living = [(one, what) for one, what in zip(nodes, judged, strict=True) if one.machine.terminated_at is None]
    seen = seen_of([one for one, _ in living], [what for _, what in living], engine)
    return decide(seen, more.pop("stops", ()), minute(at), interval=TEN, machines=rows, **more)


def joint(found: list[Decision]) -> tuple[str, str, str]:
    """Return what was decided of all nodes: the same of each."""
    ((do, rule, activity, _, _),) = {(str(one.do), str(one.rule), one.activity, one.why, one.at) for one in found}
    return do, rule, activity


@pytest.mark.parametrize(
    ("judged", "engine", "activity", "why"),
    [
        ([idle()] * 4, BUSY, "ACTIVE", "in its queue job 12 runs"),
        ([idle()] * 4, WAITS, "ACTIVE", "in its queue job 12 waits"),
        ([idle(), active(), idle(), idle()], NOBODY, "ACTIVE", "cg-1-1 is in use: GPU, 0s ago"),
        ([UNKNOWN, active(), UNKNOWN, idle()], DEAD, "ACTIVE", "cg-1-1 is in use: GPU, 0s ago"),
        ([idle()] * 4, DEAD, "UNKNOWN", "its queue is not known: gone"),
        ([idle()] * 4, None, "UNKNOWN", "its queue is not known: it was not asked"),
        (
            [idle(), UNKNOWN, idle(), idle()],
            NOBODY,
            "UNKNOWN",
            "cg-1-1 is not known to be idle: GPU not read: 0% of the window is known",
        ),
        (
            [idle(90), idle(70), idle(80), idle(95)],
            HELD,
            "IDLE",
            "no job runs or waits (job 12 is held: JobHeldUser); the last node in use was cg-1-1: kernel, 1h 10m ago",
        ),
        (
            [idle(90)] * 4,
            replace(NOBODY, ended_ago=timedelta(minutes=59)),
            "ACTIVE",
            "its last job ended 59m ago",
        ),
    ],
)
def test_what_a_cluster_does_follows_from_its_queue_and_all_its_nodes(
    judged: list[ActivityVerdict | None], engine: EngineStatus | None, activity: str, why: str
) -> None:
    nodes = cluster()
    seen = with_cluster_activity(seen_of(nodes, judged, engine), minute(100))
    assert {(one.cluster_evidence.activity, one.cluster_evidence.why) for one in seen if one.cluster_evidence} == {
        (activity, why)
    }
    assert joint(decided(nodes, judged, engine=engine))[2] == activity


def test_a_cluster_without_an_engine_is_idle_once_all_nodes_are() -> None:
    nodes = cluster(engine="none")
    assert joint(decided(nodes, [idle()] * 4, engine=None)) == ("warn", "idle", "IDLE")


def test_one_machine_with_an_engine_has_a_queue_that_counts() -> None:
    nodes = cluster(1)
    assert joint(decided(nodes, [idle()], engine=BUSY))[2] == "ACTIVE"
    assert joint(decided(nodes, [idle()]))[:2] == ("warn", "idle")


def test_its_people_are_warned_once_and_all_nodes_end_when_that_is_waited_out() -> None:
    nodes = cluster()
    first = decided(nodes, [idle(62)] * 4)
    assert [len(one.warnings) for one in first] == [1, 0, 0, 0]
    assert {one.cluster for one in first} == {"train"}
    for node, one in zip(nodes, first, strict=True):
        node.take(100, one)
    assert joint(decided(nodes, [idle(72)] * 4, 110)) == ("stop", "idle", "IDLE")
    (taken_back, *_) = back = decided(nodes, [active(), *[idle(72)] * 3], 110)
    assert [len(one.withdrawn) for one in back] == [1, 0, 0, 0]
    assert taken_back.do is ReaperAction.KEEP


def test_people_hear_soon_that_a_queue_was_never_set_up_and_what_to_do() -> None:
    """A `start` or an `up` that was interrupted after its machines ran leaves such a cluster."""
    nodes = cluster()
    made = {at: run(nodes, at, DEAD) for at in range(40, 80, 10)}
    assert [at for at, one in made.items() if one.warnings] == [60]
    (warning,) = made[60].warnings
    assert (warning.rule, warning.due) == (Rule.NONE, None)
    assert warning.why.endswith(
        "its queue is not known: gone; cloudgpu start train sets its queue up, cloudgpu stop train ends it"
    )
    assert [one.rule for one in run(nodes, 80, NOBODY).withdrawn] == [Rule.NONE]


def test_the_warning_of_a_queue_names_what_ends_a_cluster_that_cannot_be_stopped() -> None:
    nodes = cluster(stoppable=False, market="spot")
    made = {at: run(nodes, at, DEAD) for at in range(40, 80, 10)}
    assert made[60].warnings[0].why.endswith("sets its queue up, cloudgpu down train ends it")


def test_a_queue_that_was_not_asked_is_not_said_to_need_a_start() -> None:
    nodes, unasked = cluster(), EngineStatus(None, "not asked", was_queried=False)
    assert [at for at in range(40, 80, 10) if run(nodes, at, unasked).warnings] == []


def run(nodes: list[Node], at: float, engine: EngineStatus) -> Decision:
    """Decide about all of them, write what was decided, and return what their people hear."""
    found = decided(nodes, [idle(0)] * len(nodes), at, engine=engine)
    for node, decision in zip(nodes, found, strict=True):
        node.take(at, decision)
    return found[0]


def test_a_silent_engine_ends_a_lease_only_where_the_policy_says_so() -> None:
    assert joint(decided(cluster(expires=iso(minute(100))), [idle()] * 4, engine=DEAD))[:2] == ("renew", "lease")
    assert joint(decided(cluster(expires=iso(minute(100)), policy=END_ALL), [idle()] * 4, engine=DEAD))[:2] == (
        "stop",
        "lease",
    )


def test_the_latest_hold_and_lease_and_the_earliest_renew_until_count_for_all() -> None:
    nodes = cluster()
    nodes[2].tell(50, "hold_set", until=iso(minute(300)))
    assert joint(decided(nodes, [idle()] * 4))[:2] == ("keep", "hold")
    nodes = cluster()
    nodes[3].tell(50, "lease_set", expires=iso(minute(900)), renew_until=iso(minute(901)))
    assert joint(decided(nodes, [active()] * 4, 479))[0] == "keep"
    assert joint(decided(nodes, [active()] * 4, 901))[:2] == ("stop", "renew-until")


@pytest.mark.parametrize("which", range(4))
def test_a_budget_that_stops_one_node_stops_all(which: int) -> None:
    nodes = cluster()
    warn = [budget_stops.PlannedStop(one.id, one.id, "lab", ReaperAction.WARN, "passed") for one in nodes]
    assert joint(decided(nodes, [active()] * 4, stops=warn))[:2] == ("warn", "budget")
    stops = [replace(one, action=ReaperAction.STOP) if one.machine_id == nodes[which].id else one for one in warn]
    assert joint(decided(nodes, [active()] * 4, stops=stops))[:2] == ("stop", "budget")


def test_only_the_first_node_of_what_is_urgent_tells_of_it() -> None:
    nodes = cluster(expires=iso(minute(100)))
    assert [one.urgent for one in decided(nodes, [idle()] * 4)] == [True, False, False, False]


# --- nodes that are lost, or never came ----------------------------------------------------------------------------


def test_a_lost_node_stops_the_others_where_that_was_asked_for_and_they_are_not_held() -> None:
    for loss, expected in (("wait", "none"), ("stop", "node-loss")):
        nodes = cluster(loss=loss)
        nodes[1].lose(50)
        found = decided(nodes, [active()] * 4, engine=BUSY)
        assert len(found) == 3
        assert joint(found)[1] == expected
    nodes[0].tell(60, "hold_set", until=iso(minute(300)))
    assert joint(decided(nodes, [active()] * 4, engine=BUSY))[1] == "hold"


def test_a_lost_node_0_takes_the_queue_with_it() -> None:
    nodes = cluster()
    nodes[0].lose(50)
    assert joint(decided(nodes, [idle()] * 4))[2] == "UNKNOWN"


def test_what_was_never_whole_is_terminated_in_use_and_held_too_and_what_has_run_before_is_stopped() -> None:
    nodes = cluster()
    nodes[3].lines = [*nodes[3].lines[:1], settled(1, "void")]
    nodes[0].tell(3, "hold_set", until=iso(minute(300)))
    assert joint(decided(nodes, [active()] * 4, 9))[0] == "keep"
    assert joint(decided(nodes, [active()] * 4, 11))[:2] == ("terminate", "part-of-cluster")
    assert joint(decide(seen_of(nodes[:3], [active()] * 3), (), minute(11), interval=TEN))[0] == "keep", "no rows"
    for node in nodes[:3]:
        node.see(4, "stopped", billed=False)
        node.see(5, "running", billed=True)
    assert joint(decided(nodes, [active()] * 4, 15))[:2] == ("stop", "part-of-cluster")
    for node in nodes[:3]:
        node.see(16, "stopped", billed=False)
    assert joint(decided(nodes, [active()] * 4, 30))[0] == "keep", "it is stopped already"


def test_nodes_that_were_proved_gone_and_are_there_again_are_ended_after_all() -> None:
    nodes = cluster()
    for node in nodes:
        node.tell(10, "terminate_requested", why="asked", host="h")
        node.tell(11, "instance_vanished", provider_id="i", proof="unknown to get", alive_at=None, ended_at=None)
        node.see(20, "running", billed=True)
    assert joint(decided(nodes, [active()] * 4))[:2] == ("terminate", "part-of-cluster")
    for node in nodes:
        node.tell(30, "start_requested", why="asked", host="h", running=True)
    assert joint(decided(nodes, [active()] * 4))[0] == "keep"


# --- the number of a pass ------------------------------------------------------------------------------------------


def test_a_cluster_counts_whole_in_the_number_of_a_pass_and_passes_it_only_as_the_first() -> None:
    nodes, single = cluster(policy=replace(DEFAULT, idle=Idle(grace=timedelta(0)))), deciding.Machine("cg-9")
    single.policy = nodes[0].policy

    def ended(ages: tuple[float, float], most: int) -> set[str]:
        known = [*seen_of(nodes, [idle(ages[0])] * 4), single.known(idle(ages[1]))]
        found = decide(known, (), minute(200), interval=TEN, max_idle_stops=most)
        for node, one in zip([*nodes, single], found, strict=True):
            if one.warnings:
                node.take(200, one)
        found = decide(known_again(known), (), minute(200), interval=TEN, max_idle_stops=most)
        return {one.machine for one in found if one.ends}

    def known_again(known: list[MachineView]) -> list[MachineView]:
        return [replace(one, machine=node.machine) for one, node in zip(known, [*nodes, single], strict=True)]

    whole = {one.id for one in nodes}
    assert ended((120, 100), 5) == {*whole, "cg-9"}
    assert ended((120, 100), 3) == whole
    assert ended((100, 120), 3) == {"cg-9"}
    assert ended((100, 120), 0) == set()


# --- who is asked --------------------------------------------------------------------------------------------------


def test_all_nodes_are_asked_or_none() -> None:
    nodes = cluster()
    nodes[3].see(95, "running", billed=True)
    known = seen_of(nodes, [None] * 4, None)
    assert [one.id for one in to_ask(known, minute(100))] == [one.id for one in nodes]
    spoken = [replace(known[0], last_active=minute(90)), *known[1:]]
    assert to_ask(spoken, minute(100)) == []
    assert to_ask(known, minute(5)) == []


def test_the_queue_is_read_from_the_answer_of_node_0_alone() -> None:
    nodes = cluster()
    said = Report("x", minute(100), None, "frozen", engine="12|RUNNING|ann|all|2|None|x\n# end 0 100 40\n")
    first, second = (with_report(one.known(), said) for one in nodes[:2])
    assert first.engine == replace(BUSY, ended_ago=timedelta(seconds=60))
    assert second.engine is None
    assert with_report(nodes[0].known(), replace(said, engine="")).engine == EngineStatus(None, "frozen")


# --- properties ----------------------------------------------------------------------------------------------------

JUDGED = st.sampled_from([None, UNKNOWN, active(), idle(61), idle(300)])
STATES = st.sampled_from(["running", "running", "running", "stopped", "stopping", "lost", "void", "unknown"])
ENGINES = st.sampled_from([None, NOBODY, BUSY, DEAD, HELD, replace(NOBODY, ended_ago=timedelta(minutes=5))])
POLICIES = st.sampled_from([DEFAULT, END_ALL, None, replace(DEFAULT, idle=Idle(do=RuleAction.WARN))])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[ActivityVerdict | None]]:
    policy: Policy | None = draw(POLICIES)
    count = draw(st.integers(1, 5))
    loss = draw(st.sampled_from(["wait", "stop"]))
    usual = {
        "nodes": count,
        "policy": policy,
        "loss": loss,
        "expires": iso(minute(draw(st.sampled_from([90, 120, 480])))),
    }
    nodes = [Node(number, **usual) for number in range(count)]
    for node in nodes:
        state = draw(STATES)
        if draw(st.booleans()):
            node.tell(80, "warning_sent", rule="idle", due=iso(minute(90)), why="idle")
        if draw(st.integers(0, 9)) == 0:
            node.tell(81, "hold_set", until=iso(minute(400)))
        if state == "void":
            node.lines = [node.lines[0], settled(1, "void")]
        elif state == "lost":
            node.lose(85)
        elif state != "running":
            node.see(85, state, billed=state != "stopped")
    return nodes, [draw(JUDGED) for _ in nodes]


@settings(max_examples=150, deadline=None)
@given(clusters(), ENGINES, st.integers(0, 4), st.integers(0, 5))
def test_whatever_the_nodes_do_one_decision_holds_for_all_that_run_and_no_part_is_ended(
    drawn: tuple[list[Node], list[ActivityVerdict | None]], engine: EngineStatus | None, most: int, over: int
) -> None:
    nodes, judged = drawn
    stops = (
        [budget_stops.PlannedStop(nodes[over].id, "x", "lab", ReaperAction.STOP, "passed")] if over < len(nodes) else []
    )
    rows = {one.id: one.machine for one in nodes}
    found = decided(nodes, judged, engine=engine, max_idle_stops=most, stops=stops)
    running = [one for one in found if rows[one.machine].state in ("running", "unknown")]
    assert len({(one.do, one.rule, one.why, one.at, one.activity) for one in running}) <= 1
    assert sum(len(one.warnings) for one in running) <= len({warned.rule for one in running for warned in one.warnings})
    ends = {one.machine for one in found if one.ends}
    assert not ends or {one.machine for one in running} <= ends
    assert blocked_by_other_nodes(ends, rows.values()) == frozenset()
    if running and running[0].rule is Rule.IDLE and running[0].ends:
        assert {known for known, row in zip(judged, nodes, strict=True) if rows[row.id].state == "running"} <= {
            idle(61),
            idle(300),
        }


def test_of_nodes_that_are_to_end_none_does_while_another_that_runs_would_go_on() -> None:
    rows = [one.machine for one in cluster()]
    some = [row.id for row in rows[:3]]
    assert blocked_by_other_nodes(some, rows) == frozenset(some)
    assert blocked_by_other_nodes([row.id for row in rows], rows) == frozenset()
    for left in ({"terminated_at": iso(minute(9))}, {"state": "stopped", "billed": False}, {"state": "stopping"}):
        assert blocked_by_other_nodes(some, [*rows[:3], rows[3]._replace(**left)]) == frozenset()
