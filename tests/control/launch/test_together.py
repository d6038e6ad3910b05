"""Launches of several machines where the cloud has one call for all of them: all or none, and once."""

from __future__ import annotations

import pytest

from cloudgpu.control.inventory.settle import settle_abandoned_launches
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.core.model.instances import TAG_ID
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import AuthFailed, NoCapacity, ProviderUnavailable, QuotaExceeded
from cloudgpu.ledger import saved_calls as saved


def up(lab, nodes=4, **more):
    return lab.up(nodes=nodes, engine="none", **{"name": "train", **more})


def shared(lab):
    return [one for one in lab.cloud.orphans().items if one.kind is Kind.PLACEMENT_GROUP]


def test_one_call_launches_all_and_one_transaction_settles_them(lab):
    done = up(lab)
    assert (lab.cloud.calls["launch_together"], lab.cloud.calls["launch"]) == (1, 0)
    assert {row.launch_status for row in lab.rows()} == {"made"}
    assert [one.tags[TAG_ID] for one in lab.machines()] == [row.id for row in done.nodes]


def test_a_lost_reply_is_four_machines_and_not_eight(lab):
    lab.cloud.lose_reply("launch_together")
    with pytest.raises(ProviderUnavailable):
        up(lab)
    assert [row.launch_status for row in lab.rows()] == ["open"] * 4
    done = up(lab)
    assert not done.already_existed
    assert len(lab.machines()) == len(lab.rows()) == len(done.nodes) == 4
    assert lab.cloud.calls["launch_together"] == 2


def test_a_zone_with_room_for_three_gets_none_and_the_next_gets_all_four(lab):
    first = lab.prepare(nodes=4, engine="none", name="train").plan.offer.configuration
    lab.cloud.leave_room(first.zone, 3)
    done = up(lab)
    assert len(lab.machines()) == len(lab.rows()) == 4
    assert first.zone not in {row.zone for row in done.nodes}
    assert [one.tags[TAG_ID] for one in shared(lab)] == [done.nodes[0].id]


@pytest.mark.parametrize("error", [QuotaExceeded("no quota", field="quota"), AuthFailed("no", field="credentials")])
def test_a_refusal_closes_every_attempt_and_leaves_nothing(lab, error):
    lab.cloud.fail_next("launch_together", error, times=99)
    with pytest.raises(type(error)):
        up(lab)
    assert (lab.machines(), lab.rows(), shared(lab)) == ([], [], [])
    assert not lab.session.home.attempts.exists()


def test_an_interrupted_launch_that_finds_no_room_any_more_is_launched_anew_whole(lab):
    lab.cloud.fail_next("launch_together", ProviderUnavailable("silence", field="provider"))
    with pytest.raises(ProviderUnavailable):
        up(lab)
    lab.cloud.fail_next("launch_together", NoCapacity("nothing left here", field="zone"))
    done = up(lab)
    assert len(done.nodes) == len(lab.machines()) == len(lab.rows()) == 4


def test_what_the_nodes_share_goes_with_the_last_of_them(lab):
    nodes = up(lab, nodes=3).nodes
    for row in (nodes[2], nodes[0]):
        terminate_one(lab.session, row, why="a test")
        assert len(shared(lab)) == 1
    terminate_one(lab.session, nodes[1], why="a test")
    assert (shared(lab), lab.machines()) == ([], [])


def test_what_cannot_be_removed_is_said_and_the_end_is_an_end(lab):
    nodes = up(lab, nodes=2).nodes
    lab.cloud.deny("clear_shared")
    for row in reversed(nodes):
        terminate_one(lab.session, row, why="a test")
    assert (lab.rows(), lab.machines(), len(shared(lab))) == ([], [], 1)
    assert [one for one in lab.said if "cloudgpu orphans --clean" in one]
    lab.cloud.permit("clear_shared")
    terminate_one(lab.session, lab.session.ledger.machine(nodes[0].id), why="asked again")
    assert shared(lab) == []


def test_a_saved_call_of_each_node_is_there_before_the_call_for_all(lab):
    lab.cloud.fail_next("launch_together", ProviderUnavailable("silence", field="provider"))
    with pytest.raises(ProviderUnavailable):
        up(lab)
    assert all(saved.load(lab.session.home.attempts, row.token).machine == row.id for row in lab.rows())


def broken_off(lab, method):
    """A launch that made what its nodes share, and then went silent."""
    lab.cloud.fail_next(method, ProviderUnavailable("silence", field="provider"))
    with pytest.raises(ProviderUnavailable):
        up(lab)
    first = min(lab.rows(), key=lambda row: row.name)
    lab.cloud.share(saved.load(lab.session.home.attempts, first.token))
    assert len(shared(lab)) == 1


@pytest.mark.parametrize(
    ("lacks", "method"), [("", "launch_together"), ('lacks = ["LaunchesTogether"]', "launch")], ids=["at once", "each"]
)
def test_what_a_launch_shared_that_a_listing_proves_was_never_made_goes_with_the_last_of_its_rows(
    make_lab, lacks, method
):
    lab = make_lab(lacks)
    broken_off(lab, method)
    for file in lab.session.home.attempts.iterdir():
        file.unlink()
    lab.later(hours=1)
    settle_abandoned_launches(lab.session)
    assert [row.launch_status for row in lab.session.ledger.machines()] == ["void"] * 4
    assert (shared(lab), lab.cloud.calls["clear_shared"]) == ([], 1)


def test_what_a_launch_shared_goes_where_its_first_node_is_refused_and_stays_where_one_was_made(make_lab):
    lab = make_lab('lacks = ["LaunchesTogether"]')
    broken_off(lab, "launch")
    lab.cloud.fail_next("launch", NoCapacity("nothing left here", field="zone"))
    done = up(lab)
    assert [one.tags[TAG_ID] for one in shared(lab)] == [done.nodes[0].id]
    for row in reversed(done.nodes):
        terminate_one(lab.session, row, why="a test")
    assert shared(lab) == []


def test_a_silence_about_what_is_shared_keeps_no_launch_from_being_settled(lab):
    broken_off(lab, "launch_together")
    for file in lab.session.home.attempts.iterdir():
        file.unlink()
    lab.later(hours=1)
    lab.cloud.fail_next("clear_shared", ProviderUnavailable("silence", field="provider"))
    settle_abandoned_launches(lab.session)
    assert [row.launch_status for row in lab.session.ledger.machines()] == ["void"] * 4
    assert len(shared(lab)) == 1
