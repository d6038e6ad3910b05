"""The ledger takes nothing any more while the one call for all machines is answered: all of them are ended again."""

from __future__ import annotations

import resource

import pytest

from cloudgpu.control.inventory.settle import settle_abandoned_launches
from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded
from cloudgpu.control.launch.launch import _wait_for_all
from cloudgpu.errors import AuthFailed, EndRefused, LedgerUnavailable, QuotaExceeded, StopUnproved, Unreachable
from tests.control.launch.test_together import shared, up

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off

CLOUDS = 40_000  # bytes: the file of the fake cloud is a fifth of that, the ledger's is larger by then


@pytest.fixture
def disk():
    """Two functions: after the first the ledger cannot grow, the second gives the disk its room back."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (CLOUDS, most))

    def empty():
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    yield fill, empty
    empty()


@pytest.fixture
def full(lab, disk):
    """From the call on the ledger cannot grow; what gives the disk its room back."""
    fill, empty = disk
    lab.cloud.fail_next("launch_together", fill)
    return empty


def test_every_machine_of_the_launch_is_ended_and_the_rows_are_settled_later(lab, full):
    try:
        with pytest.raises(
            EndedUnrecorded, match="was ended and nothing of it is left, but the ledger does not know it yet"
        ):
            up(lab)
    finally:
        full()
    assert lab.cloud.calls["launch_together"] == 1
    assert lab.machines() == []
    assert {row.launch_status for row in lab.rows()} == {"open"}
    lab.later(hours=1)
    settle_abandoned_launches(lab.session)
    assert (lab.rows(), shared(lab)) == ([], [])
    assert len(up(lab).nodes) == len(lab.machines()) == 4


def test_one_that_cannot_be_ended_is_what_is_raised_and_the_others_are_ended_all_the_same(lab, full):
    lab.cloud.fail_next("terminate", AuthFailed("not allowed", field="credentials"))
    try:
        with pytest.raises(StopUnproved, match=r"train-0 may still be billed: it could not be ended \(not allowed\)"):
            up(lab)
    finally:
        full()
    assert len(lab.machines()) == 1
    assert [one for one in lab.said if "could not be ended (not allowed)" in one]
    lab.later(hours=1)
    settle_abandoned_launches(lab.session)
    (left,) = lab.rows()
    assert left.launch_status == "made", "it is known again, as a part of a cluster: the next run of the reaper ends it"


def test_machines_that_no_listing_shows_yet_are_ended_by_their_ids(make_lab):
    lab = make_lab("lag_s = 300")
    soft, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    lab.cloud.fail_next("launch_together", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (CLOUDS, most)))
    try:
        with pytest.raises(EndedUnrecorded):
            up(lab)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, most))
    lab.later(seconds=301)
    assert lab.machines() == []


def test_the_nodes_before_the_one_that_cannot_be_recorded_are_ended_too(make_lab):
    lab = make_lab('lacks = ["LaunchesTogether"]')
    soft, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    lab.cloud.fail_next("launch", lambda: None, times=2)
    lab.cloud.fail_next("launch", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (CLOUDS, most)))
    try:
        with pytest.raises(EndedUnrecorded, match="train-1 was ended and nothing of it is left"):
            up(lab)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, most))
    assert lab.cloud.calls["launch"] == 3
    assert lab.machines() == []


def test_the_nodes_before_a_refused_one_are_ended_though_that_cannot_be_recorded(make_lab):
    lab = make_lab('lacks = ["LaunchesTogether"]')
    soft, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (CLOUDS, most))
        return QuotaExceeded("no quota", field="quota")

    lab.cloud.fail_next("launch", lambda: None)
    lab.cloud.fail_next("launch", fill)
    try:
        with pytest.raises(LedgerUnavailable):
            up(lab)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, most))
    assert lab.machines() == []


def test_nodes_that_were_ended_without_a_record_are_said_to_be_ended_and_what_records_that(lab, disk):
    fill, empty = disk
    nodes = up(lab).nodes
    lab.cloud.stop(nodes[0].provider_id)
    lab.cloud.fail_next("terminate", fill)  # from the end of the first node on
    try:
        with pytest.raises(Unreachable, match="train-0 ended while it was starting") as raised:
            _wait_for_all(lab.session, nodes, already_existed=False, wait=True)
    finally:
        empty()
    fault = raised.value
    assert lab.machines() == []
    assert "could not be" not in fault.message
    for node in nodes:
        assert fault.message.count(f"{node.name} was ended and nothing of it is left, but the ledger") == 1
    assert "cloudgpu down" not in fault.next
    assert fault.next.count("The next cloudgpu command after that writes what waits in") == 1


def test_no_node_runs_on_when_the_ledger_goes_away_while_one_comes_up(lab, disk):
    fill, empty = disk
    nodes = up(lab).nodes
    lab.cloud.stop(nodes[1].provider_id)  # that it stopped cannot be recorded
    fill()
    try:
        with pytest.raises(EndedUnrecorded, match="train-1 was ended and nothing of it is left") as raised:
            _wait_for_all(lab.session, nodes[1:], already_existed=False, wait=True)
    finally:
        empty()
    assert [machine.id for machine in lab.machines()] == [nodes[0].provider_id]
    assert "train-2 was ended and nothing of it is left, but the ledger" in raised.value.message


@pytest.mark.parametrize("refusal", [AuthFailed("not allowed"), EndRefused("not allowed")])
def test_the_nodes_before_one_that_can_be_neither_recorded_nor_ended_are_ended(make_lab, disk, refusal):
    lab = make_lab('lacks = ["LaunchesTogether"]')
    fill, empty = disk
    lab.cloud.fail_next("launch", lambda: None, times=2)
    lab.cloud.fail_next("launch", fill)
    lab.cloud.fail_next("terminate", refusal)
    lab.cloud.fail_next("terminate", AuthFailed("of another node"))
    try:
        with pytest.raises(StopUnproved) as raised:
            up(lab)
    finally:
        empty()
    assert raised.value.message.startswith("train-2 may still be billed: it ")
    assert isinstance(raised.value.__cause__, LedgerUnavailable)
    assert "not allowed" in raised.value.message
    stopped = isinstance(refusal, EndRefused)  # then it was asked to stop
    assert lab.cloud.calls["launch"] == 3
    assert len(lab.machines()) == (1 if stopped else 2)
    assert [one for one in lab.said if "train-0 may still be billed" in one and "(of another node)" in one]


def test_no_node_runs_on_when_the_one_that_comes_up_can_be_neither_recorded_nor_ended(lab, disk):
    fill, empty = disk
    nodes = up(lab).nodes
    lab.cloud.stop(nodes[0].provider_id)  # that it stopped cannot be recorded
    fill()
    lab.cloud.fail_next("terminate", AuthFailed("not allowed"))
    try:
        with pytest.raises(StopUnproved, match=r"train-0 may still be billed: .*\(not allowed\)") as raised:
            _wait_for_all(lab.session, nodes, already_existed=False, wait=True)
    finally:
        empty()
    assert lab.machines() == []
    assert "train-3 was ended and nothing of it is left, but the ledger" in raised.value.message
    assert "cloudgpu down train" in raised.value.next
