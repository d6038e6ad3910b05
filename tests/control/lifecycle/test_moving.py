"""A stopped machine ends for a move only where nothing known beforehand refuses the launch from its image."""

from __future__ import annotations

import pytest

from cloudgpu.cli.app import run
from cloudgpu.control.launch.restore import plan_move, start_machine, start_stopped
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.control.outage import opening
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.testing.fake.market import MACHINE_TYPES, FakeType

ONLY_REAPER = 'agent = "tells"\nlacks = ["HasTimer"]\n'  # only scheduled runs end its machines
DATA = Setup(volume=Volume("data", 100))
NEW_IMAGE = "container: nvcr.io/nvidia/pytorch:26.06-py3\n"  # no V100 runs it


def stopped(lab, **more):
    """Return a stopped machine whose zone has no capacity left."""
    row = lab.up(name="fox", **more).machine
    lab.later(seconds=1)
    row = stop(lab.session, row, why="test")
    lab.cloud.exhaust(row.zone)
    return row


def assert_untouched(lab, row):
    now = lab.session.ledger.machine(row.id)
    assert (now.state, now.terminated_at, now.parked, now.retained) == ("stopped", None, False, ())
    assert lab.cloud.get(row.provider_id).state == "stopped"
    assert [one for one in lab.cloud.resources().items if one.kind is Kind.IMAGE] == []


def refused(lab, row, error, **more):
    with pytest.raises(error) as caught:
        start_machine(lab.session, row, None, wait=False, move_it=True, **more)
    assert_untouched(lab, row)
    return caught.value


@pytest.fixture
def line(monkeypatch):
    """Run a command line in the home of a lab, at its time."""
    real = opening.open_session

    def run_in(lab, *words):
        monkeypatch.setenv("CLOUDGPU_HOME", str(lab.home))
        monkeypatch.setattr(opening, "open_session", lambda *a, **k: real(*a, **{**k, "clock": lab.clock}))
        return run(list(words))

    return run_in


def test_a_machine_is_not_ended_for_a_move_after_which_nothing_would_guard_it(make_lab):
    lab = make_lab(ONLY_REAPER)
    row = stopped(lab, no_guard=True)
    error = refused(lab, row, InvalidRequest)
    assert (error.field, "none has been heard yet" in error.message) == ("--no-guard", True)
    moved = start_machine(lab.session, row, None, wait=False, move_it=True, no_guard=True)
    assert (moved.state, moved.zone != row.zone, moved.guards.waived) == ("running", True, True)


def test_the_command_line_ends_no_machine_for_a_move_after_which_nothing_would_guard_it(make_lab, line, capsys):
    lab = make_lab(ONLY_REAPER)
    row = stopped(lab, no_guard=True)
    assert line(lab, "start", "fox", "--move", "--yes") == 2
    assert "--no-guard" in capsys.readouterr().err
    assert_untouched(lab, row)
    assert line(lab, "start", "fox", "--move", "--yes", "--no-wait", "--no-guard") == 0
    assert lab.session.ledger.machine(row.id).zone != row.zone


@pytest.mark.parametrize(
    ("text", "named"),
    [(None, "own"), (NEW_IMAGE, "needs CUDA compute capability"), ('cloud_init: "{{ nothing }}"\n', "nothing")],
    ids=["removed", "an image that its GPU does not run", "an error"],
)
def test_a_machine_is_not_ended_for_a_move_that_its_template_no_longer_allows(lab, text, named):
    path = lab.home / "templates" / "own.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("on_start: 'true'\n")
    row = stopped(lab, template="own")
    path.unlink() if text is None else path.write_text(text)
    assert named in refused(lab, row, CloudgpuError).message
    path.write_text("on_start: 'true'\n")
    assert start_machine(lab.session, row, None, wait=False, move_it=True).state == "running"


def test_no_move_is_offered_where_a_volume_keeps_the_machine_in_the_zone_without_capacity(lab, line, capsys):
    row = stopped(lab, setup=DATA)
    with pytest.raises(NoCapacity) as caught:
        start_stopped(lab.session, row, new_lease(lab.session, row, None), wait=False)
    assert "--move" not in caught.value.next
    error = refused(lab, row, NoCapacity)
    assert error.message == (
        f"Nothing else in {row.zone} has what fox has, and it cannot leave that zone: the volume data is in {row.zone}."
    )
    assert line(lab, "start", "fox", "--move", "--yes") == 4
    assert "the volume data is in" in " ".join(capsys.readouterr().err.split())
    assert_untouched(lab, row)
    lab.cloud.refill(row.zone)
    assert start_machine(lab.session, row, None, wait=False).state == "running"


def test_a_machine_with_a_volume_moves_to_another_type_in_the_zone_of_the_volume(lab, monkeypatch):
    like = MACHINE_TYPES["fake.v100.1"]
    other = FakeType("fake.v100.1.large", like.accelerators, 16, 122, "3.50")
    row = stopped(lab, setup=DATA)
    lab.cloud.refill(row.zone)
    monkeypatch.setitem(MACHINE_TYPES, other.name, other)
    (offer,) = plan_move(lab.session, row, new_lease(lab.session, row, None)).offers
    assert (offer.configuration.instance_type, offer.configuration.zone) == (other.name, row.zone)
    moved = start_machine(lab.session, row, None, wait=False, move_it=True)
    assert (moved.state, moved.zone) == ("running", row.zone)
    (volume,) = [one for one in lab.cloud.resources().items if one.kind is Kind.VOLUME]
    assert volume.attached_to == moved.provider_id
