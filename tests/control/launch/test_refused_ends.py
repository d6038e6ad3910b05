"""An end that a provider refuses: the machine is stopped where it can be, and nobody is left without a word."""

from __future__ import annotations

import pytest

from cloudgpu.control.inventory.unrecorded_termination import terminate_without_ledger
from cloudgpu.control.launch.launch import _wait_for_all
from cloudgpu.control.lifecycle.failed_launch import terminate_failed_launch
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_with_resources
from cloudgpu.core.alerts.findings import machine_findings
from cloudgpu.core.model.instances import TAG_ID, Address
from cloudgpu.errors import AuthFailed, EndRefused, InvalidRequest, LedgerUnavailable, Unreachable

LIFT = "unlock it"


def refuse(lab, *methods, times=1):
    for method in methods:
        lab.cloud.fail_next(method, EndRefused("It is locked.", lifts=LIFT), times=times)


def named(found):
    return sorted(one.name for one in found)


@pytest.mark.parametrize(("unpausable", "method"), [("terminate", "terminate"), ("park", "terminate_keeping_disk")])
def test_what_can_only_be_ended_and_may_not_be_is_said_by_each_pass_and_ended_when_it_may(fleet, unpausable, method):
    fleet.policy("own", f"lease: 1h\nrenew_until: 72h\nspot:\n  unpausable: {unpausable}\n")
    fleet.up(name="fox", key="fox", spot=True, policy="own")
    refuse(fleet, method, times=2)
    for _ in range(2):
        found = fleet.idle(hours=2)
        assert (named(found.unconfirmed), found.exit_code) == (["fox"], 9)
        assert LIFT in found.unconfirmed[0].why
        assert "It cannot be stopped either, so it runs on and is billed." in found.unconfirmed[0].why
    (told,) = (one for one in machine_findings([fleet.machine()], {}, fleet.clock()) if one.kind == "end refused")
    assert (LIFT in told.text, told.urgent) == (True, True)
    row = fleet.machine()
    assert (row.parked, row.discard, row.pending_action) == (False, False, None), "what was refused was not done"
    assert named(fleet.idle(minutes=10).ended) == ["fox"]
    assert fleet.machine().refused_action is None


def test_a_machine_whose_end_was_refused_is_stopped_and_can_be_started_again(lab):
    row = lab.up(name="fox").machine
    refuse(lab, "terminate")
    with pytest.raises(EndRefused) as refused:
        terminate_with_resources(lab.session, row, why="asked")
    assert refused.value.message.startswith("fox was not ended: It is locked. It was stopped instead")
    row = lab.session.ledger.machine(row.id)
    assert (row.state, row.refused_action.action, row.discard) == ("stopped", "terminate", False)
    (told,) = machine_findings([row], {}, lab.clock())
    assert (told.kind, told.urgent) == ("end refused", False)
    terminate_with_resources(lab.session, row, why="asked")
    assert lab.machines() == []


def test_a_stop_that_is_refused_is_no_invalid_request(lab):
    row = lab.up(name="fox").machine
    refuse(lab, "stop")
    with pytest.raises(EndRefused) as refused:
        stop(lab.session, row, why="asked")
    assert refused.value.message == "fox was not stopped: It is locked. It runs on and is billed."
    stop(lab.session, row, why="asked")
    assert lab.session.ledger.machine(row.id).refused_action is None


def test_a_launch_that_did_not_come_up_and_may_not_be_removed_says_what_lifts_that(lab):
    row = lab.up(name="fox").machine
    refuse(lab, "terminate")
    fault = Unreachable("It did not answer.")
    terminate_failed_launch(lab.session, row, fault)
    assert ("It was stopped instead" in fault.message, LIFT in fault.next) == (True, True)
    assert lab.machines() == []


def up_with_lost_node(lab):
    """Launch a cluster of which node 0 stopped while it was starting; return its nodes."""
    nodes = lab.up(nodes=3, engine="none", name="train").nodes
    lab.cloud.stop(nodes[0].provider_id)
    return nodes


def test_a_node_that_may_not_be_removed_says_what_lifts_that_and_its_end_is_tried_once(lab):
    nodes = up_with_lost_node(lab)
    refuse(lab, "terminate")
    with pytest.raises(Unreachable, match="train-0 ended while it was starting") as raised:
        _wait_for_all(lab.session, nodes, already_existed=False, wait=True)
    assert raised.value.message.count("It is locked.") == 1
    assert [one for one in nodes[1:] if f"{one.name} was ended with it." not in raised.value.message] == []
    assert LIFT in raised.value.next
    assert [one.id for one in lab.session.ledger.machines() if one.terminated_at is None] == [nodes[0].id]


def test_the_ways_out_of_all_nodes_that_could_not_be_ended_are_named_once_each(lab):
    nodes = up_with_lost_node(lab)
    lab.cloud.fail_next("terminate", AuthFailed("not allowed"), times=2)
    refuse(lab, "terminate")
    with pytest.raises(Unreachable) as raised:
        _wait_for_all(lab.session, nodes, already_existed=False, wait=True)
    assert "It could not be ended (train-0 was not ended: it" in raised.value.message
    assert "train-2 could not be ended (train-2 was not ended: it" in raised.value.message
    assert "train-1 could not be ended (train-1 was not ended: It is locked." in raised.value.message
    assert raised.value.next.count("Run: cloudgpu down train") == 1
    assert LIFT in raised.value.next


@pytest.mark.parametrize("refusal", [EndRefused("It is locked.", lifts=LIFT), AuthFailed("Not allowed.")])
def test_a_refused_end_keeps_no_other_machine_of_the_launch_on_while_the_ledger_is_full(lab, refusal):
    row, twin = (lab.up(name=name, key=name).machine for name in ("fox", "owl"))
    lab.cloud.tag(twin.provider_id, {TAG_ID: row.id})
    lab.cloud.fail_next("terminate", refusal)
    with pytest.raises(type(refusal)) as said:
        terminate_without_ledger(lab.session, row._replace(provider_id=None), LedgerUnavailable("The disk is full."))
    assert len(lab.machines()) == (0 if isinstance(refusal, EndRefused) else 1)
    assert ("asked to stop instead" in said.value.message) is isinstance(refusal, EndRefused)


def test_nodes_that_were_ended_for_an_invalid_setting_are_not_said_to_be_billed(lab):
    lab.cloud.address = Address("127.0.0.1", 1, "ubuntu")
    nodes = lab.up(nodes=2, engine="none", name="train").nodes
    lab.session.home.known_hosts.unlink(missing_ok=True)
    lab.session.home.known_hosts.mkdir(parents=True)  # so that no key can be looked up
    with pytest.raises(InvalidRequest) as raised:
        _wait_for_all(lab.session, nodes, already_existed=False, wait=True)
    assert lab.machines() == []
    assert "train-1 was ended with it." in raised.value.message
    assert "billed" not in (raised.value.next or "")
