"""A lost node is told at once with what the rest costs, a cluster that ended by itself once, and neither twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cloudgpu.core.alerts.findings import ended_findings, lost_findings
from cloudgpu.core.model.facts import ClusterNode, UnrequestedStop
from cloudgpu.core.model.machine import Machine
from tests.core.lives import START, at
from tests.core.machines import hourly, machine

NOW = START + timedelta(hours=1)
OFF: dict[str, Any] = {"billed": False, "state": "stopped"}


def gone(second: float = 60, **facts: Any) -> dict[str, Any]:
    usual = {"unrequested_stop": UnrequestedStop(at(second), 9), "terminated_at": at(second), "state": "terminated"}
    return usual | {"billed": False, "state_reason": "interrupted"} | facts


def rows(*facts: dict[str, Any], loss: Any = "wait", nodes: int = 4) -> list[Machine]:
    usual: dict[str, Any] = {"billed": True, "state": "running", "owner": "ada", "price": hourly(2_500_000_000)}
    each = [*facts, *[{}] * (nodes - len(facts))]
    cluster = [ClusterNode("train", "cg-1", number, nodes, "slurm", loss) for number in range(nodes)]
    return [
        machine(id=f"cg-1-{one.node}", name=f"train-{one.node}", cluster=one, **usual | said)
        for one, said in zip(cluster, each, strict=True)
    ]


def test_a_lost_node_is_told_with_what_the_others_cost_and_what_becomes_of_them() -> None:
    (one,) = lost_findings(rows(gone()), NOW)
    assert (one.key, one.kind, one.urgent) == (f"lost:cg-1:{at(60)}", "node lost", True)
    assert one.title == "train has lost train-0; the rest costs $7.5000/h"
    assert "Reason: interrupted." in one.text
    assert "The other 3 machines cost $7.5000/h, and a job that needs all 4 cannot continue." in one.text
    assert one.text.endswith("To end them: cloudgpu stop train")
    assert (one.facts["machine"], one.facts["owner"], one.facts["lost"]) == ("train", "ada", "train-0")
    (other,) = lost_findings(rows(gone(), loss="stop"), NOW)
    assert "The next run of reap ends them" in other.text


def test_of_a_cluster_that_cannot_be_stopped_the_end_is_named() -> None:
    (one,) = lost_findings(rows(gone(), *[{"stoppable": False}] * 3), NOW)
    assert one.text.endswith("To end them: cloudgpu down train")


def test_a_second_loss_is_told_anew_and_a_price_that_is_missing_is_said() -> None:
    (one,) = lost_findings(rows(gone(), gone(90), {"price": None}), NOW)
    assert (one.key, one.facts["lost"]) == (f"lost:cg-1:{at(90)}", "train-0, train-1")
    assert "at least $2.5000/h" in one.title


@pytest.mark.parametrize("facts", [[OFF] * 3, [OFF | {"terminated_at": at(99)}] * 3])
def test_once_the_rest_is_ended_on_request_nothing_more_is_told(facts: list[dict[str, Any]]) -> None:
    found = rows(gone(), *facts)
    assert list(lost_findings(found, NOW)) == []
    assert list(ended_findings(found, NOW)) == []


def test_a_cluster_that_ended_whole_by_itself_is_told_once_for_three_days() -> None:
    found = rows(*[gone(second) for second in (60, 70, 80, 65)])
    (one,) = lost_findings(found, NOW)
    assert (one.key, one.title) == (f"ended:cg-1:{at(80)}", "train has ended by itself (interrupted)")
    assert list(lost_findings(found, NOW + timedelta(days=4))) == []


def test_a_machine_of_its_own_is_told_as_before_and_an_ordinary_cluster_not_at_all() -> None:
    alone = machine(id="m", name="fox", **gone())
    assert [one.key for one in ended_findings([alone], NOW)] == [f"ended:m:{at(60)}"]
    assert list(lost_findings([alone, *rows()], NOW)) == []
