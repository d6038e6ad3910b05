"""The lease timer's script, run by sh as systemd runs it: metadata on loopback, a `shutdown` that only takes notes."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.providers.machine.machines import HOUR, NOW, OFF, SILENT, Machine
from tests.providers.machine.metadata import metadata


@pytest.fixture
def machine(tmp_path):
    with metadata() as imds:
        imds.tags(expires=NOW + HOUR, renew_until=NOW + 8 * HOUR)
        yield Machine(tmp_path, imds)


def test_nothing_is_done_before_the_lease_is_over(machine):
    assert machine.tick() == []
    machine.now += HOUR - 1
    assert machine.tick() == []


def test_a_lease_that_is_over_powers_the_machine_off(machine):
    machine.now += HOUR
    assert machine.tick() == OFF


def test_a_lease_that_was_extended_outside_is_read_from_the_tags(machine):
    machine.imds.tags(expires=NOW + 3 * HOUR)
    machine.now += 2 * HOUR
    assert machine.tick() == []
    machine.now += HOUR
    assert machine.tick() == OFF


def test_a_lease_that_was_shortened_outside_is_read_from_the_tags(machine):
    machine.imds.tags(expires=NOW - 1)
    assert machine.tick() == OFF


def test_a_hold_keeps_the_machine_past_its_lease(machine):
    machine.imds.tags(hold_until=NOW + 2 * HOUR)
    machine.now += HOUR + 1
    assert machine.tick() == []
    machine.now += HOUR
    assert machine.tick() == OFF


@pytest.mark.soak
def test_a_hold_that_was_taken_back_keeps_nothing(machine):
    machine.imds.tags(hold_until=NOW + 2 * HOUR)
    assert machine.tick() == []
    machine.imds.tags(hold_until=None)
    machine.now += HOUR + 1
    assert machine.tick() == OFF
    machine.imds.tags(hold_until=0)
    assert machine.tick() == OFF


def test_renew_until_ends_what_is_held_and_leased(machine):
    machine.imds.tags(expires=NOW + 20 * HOUR, hold_until=NOW + 20 * HOUR)
    (machine.agent / "heartbeat.json").touch()
    machine.now += 8 * HOUR
    assert machine.tick() == OFF


def test_what_the_agent_has_renewed_counts(machine):
    (machine.agent / "expires").write_text(f"{NOW + 2 * HOUR}\n")
    machine.now += HOUR + 1
    assert machine.tick() == []
    machine.now += HOUR
    assert machine.tick() == OFF


def test_an_agent_that_lives_has_five_minutes_to_renew_or_to_end(machine):
    (machine.agent / "heartbeat.json").touch()
    machine.now += HOUR + 299
    assert machine.tick() == []
    machine.now += 1
    assert machine.tick() == OFF


def test_an_agent_that_died_is_not_waited_for(machine):
    beat = machine.agent / "heartbeat.json"
    beat.touch()
    old = beat.stat().st_mtime - 600
    os.utime(beat, (old, old))
    machine.now += HOUR
    assert machine.tick() == OFF


def test_with_unreadable_metadata_the_lease_of_the_launch_holds(machine):
    machine.now += HOUR - 1
    assert machine.tick(imds=SILENT) == []
    machine.now += 1
    assert machine.tick(imds=SILENT) == OFF


def test_what_was_read_once_holds_while_the_metadata_are_silent(machine):
    machine.imds.tags(expires=NOW + 3 * HOUR, hold_until=NOW + 4 * HOUR)
    assert machine.tick() == []
    machine.now += 3 * HOUR + 1
    assert machine.tick(imds=SILENT) == []
    machine.now += HOUR
    assert machine.tick(imds=SILENT) == OFF


@pytest.mark.parametrize("garbage", ["", "-5", "99999999999999999999", "12 34"])
def test_a_tag_that_is_no_time_is_as_it_was(machine, garbage):
    machine.imds.tags(expires=garbage, renew_until=garbage, hold_until=garbage)
    machine.now += HOUR - 1
    assert machine.tick() == []
    machine.now += 1
    assert machine.tick() == OFF


def test_tags_that_were_taken_away_end_nothing_sooner_and_keep_nothing_longer(machine):
    machine.imds.tags(expires=None, renew_until=None)
    assert machine.tick() == []
    machine.now += HOUR
    assert machine.tick() == OFF


def test_garbage_of_the_agent_keeps_nothing_on(machine):
    (machine.agent / "expires").write_text("never\n")
    machine.now += HOUR
    assert machine.tick() == OFF


def test_a_clock_set_back_prolongs_nothing(machine):
    assert machine.tick() == []
    machine.now -= 24 * HOUR
    machine.up += HOUR
    assert machine.tick() == OFF


def test_a_clock_that_was_never_set_prolongs_nothing(machine):
    with (machine.here / "launch").open("a") as file:
        file.write(f"made={NOW}\n")
    machine.now, machine.up = 120, HOUR - 60
    assert machine.tick() == []
    machine.now, machine.up = 180, HOUR + 60
    assert machine.tick() == OFF


def test_an_image_of_another_machine_brings_no_lease_along(machine):
    machine.imds.tags(expires=NOW + 7 * HOUR, hold_until=NOW + 7 * HOUR)
    assert machine.tick() == []
    machine.launched("second")
    machine.now += HOUR
    assert machine.tick(imds=SILENT) == OFF


@pytest.mark.soak
def test_a_machine_from_an_old_image_is_not_ended_before_its_own_boot_data_are_there(machine):
    (machine.run / "began").unlink()
    machine.up, machine.now = 60, NOW + 30 * 24 * HOUR
    assert machine.tick(imds=SILENT) == []
    machine.imds.tags(expires=machine.now + HOUR, renew_until=machine.now + HOUR)
    assert machine.tick() == []
    machine.up = 900
    machine.now += 840
    (machine.run / "clock").unlink()
    (machine.state / "expires").unlink()
    (machine.state / "renew-until").unlink()
    assert machine.tick(imds=SILENT) == OFF


def test_the_agent_finds_the_lease_beside_it(machine):
    machine.imds.tags(hold_until=NOW + 5)
    machine.tick()
    said = json.loads((machine.run / "tags.json").read_text())
    assert said == {
        "cloudgpu-expires": str(NOW + HOUR),
        "cloudgpu-renew-until": str(NOW + 8 * HOUR),
        "cloudgpu-hold-until": str(NOW + 5),
    }


def test_a_spot_notice_is_looked_out_for_until_it_comes(machine):
    machine.launched(spot="yes")
    notice = {"action": "terminate", "time": "2027-01-15T08:02:00Z"}
    machine.stands_in("sleep", ":")
    machine.imds.said["meta-data/spot/instance-action"] = json.dumps(notice)
    assert machine.tick("watch") == []
    assert json.loads((machine.run / "notice.json").read_text()) == notice


def test_a_spot_notice_is_passed_on_where_there_can_be_one(machine):
    notice = {"action": "terminate", "time": "2027-01-15T08:02:00Z"}
    machine.imds.said["meta-data/spot/instance-action"] = json.dumps(notice)
    machine.tick()
    assert not (machine.run / "notice.json").exists()
    machine.launched(spot="yes")
    machine.tick()
    assert json.loads((machine.run / "notice.json").read_text()) == notice


def test_the_agent_ends_the_machine_through_it(machine):
    assert machine.tick("end", "lease") == OFF


def test_a_shutdown_that_is_refused_is_not_the_end_of_it(machine):
    machine.now += HOUR
    said = machine.tick(REFUSES=1)
    assert said == ["shutdown -h now", "systemctl poweroff --force", "poweroff -f"]


@pytest.mark.soak
def test_a_shutdown_that_hangs_is_forced_after_five_minutes(machine):
    machine.now += HOUR
    assert [machine.tick() for _ in range(5)] == [OFF] * 5
    assert machine.tick() == ["systemctl poweroff --force --force", *OFF]


def test_a_full_disk_keeps_nothing_on(machine, tmp_path):
    machine.state = tmp_path / "a-file"
    machine.state.write_text("in the way")
    machine.now += HOUR
    done = subprocess.run(
        ["/bin/sh", machine.here / "lease"],
        env={
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
            "IMDS": machine.imds.url,
            "NOW": str(machine.now),
            **{name: str(getattr(machine, name.lower())) for name in ("HERE", "STATE", "RUN", "AGENT")},
        },
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0
    assert (tmp_path / "done").read_text() == "shutdown -h now\n"


def test_what_the_cloud_has_planned_is_passed_on_and_taken_back(machine):
    planned = [{"Code": "instance-retirement", "NotBefore": "21 Jan 2027 09:00:43 GMT", "State": "active"}]
    path = "meta-data/events/maintenance/scheduled"
    machine.imds.said[path] = json.dumps(planned, indent=1)
    machine.tick()
    assert json.loads((machine.run / "events.json").read_text()) == {"events": planned}
    del machine.imds.said[path]
    machine.tick()
    assert not (machine.run / "events.json").exists()
