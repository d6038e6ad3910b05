"""Machines that end without being asked: at their lease's end, at renew-until, by an interruption, by a kill."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgpu.core.values.times import from_iso
from tests.cli.program import until


def seen(cloudgpu, name):
    cloudgpu("ls", "--refresh")
    return cloudgpu("show", name, "-o", "json").json


@pytest.mark.soak
def test_an_idle_machine_stops_itself_at_its_leases_end_with_nobody_watching(cloudgpu):
    cloudgpu.config('[accounts.local]\nprovider = "local"\n')
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--lease", "3s", "--renew-until", "1h").code == 0
    machine = until(lambda: (now := seen(cloudgpu, "amber-fox"))["state"] == "stopped" and now, within_s=30)
    assert machine, "it was still running half a minute after its lease"
    assert (machine["billed"], machine["reason"]) == (False, "lease")
    refused = cloudgpu("exec", "amber-fox", "--", "true")
    assert refused.code == 255
    assert "cloudgpu start amber-fox" in refused.err
    spent = Decimal(machine["spent_usd"])
    assert Decimal(0) < spent == Decimal(seen(cloudgpu, "amber-fox")["spent_usd"])
    started = cloudgpu("start", "--yes", "--lease", "1h", "-o", "json")
    assert (started.code, started.json["state"]) == (0, "running"), started.err


@pytest.mark.soak  # many seconds
def test_renew_until_ends_a_machine_that_is_held(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--lease", "8s", "--renew-until", "8s").code == 0
    held = cloudgpu("hold", "amber-fox", "1h", "--yes")
    assert "renew-until ends it" in held.err
    machine = until(lambda: (now := seen(cloudgpu, "amber-fox"))["state"] == "stopped" and now, within_s=30)
    assert machine
    assert machine["reason"] == "renew-until"


@pytest.mark.soak
def test_a_hold_keeps_a_machine_over_its_leases_end(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--lease", "4s", "--renew-until", "1h").code == 0
    assert cloudgpu("hold", "amber-fox", "1h", "--yes").code == 0
    expires = from_iso(seen(cloudgpu, "amber-fox")["expires"])
    assert until(lambda: datetime.now(UTC) > expires + timedelta(seconds=6))  # an agent's pass later
    assert seen(cloudgpu, "amber-fox")["state"] == "running"


def test_an_interrupted_spot_machine_is_seen_to_be_gone(cloudgpu):
    cloudgpu.config('[accounts.local]\nprovider = "local"\ninterruption_notice = "1s"\n')
    up = cloudgpu("up", "--yes", "--spot", "--name", "amber-fox", "-o", "json")
    assert up.json["machine"]["market"] == "spot"
    rehearsed = cloudgpu("spot", "rehearse", "amber-fox", "--yes", "-o", "json")
    assert rehearsed.code == 0, rehearsed.err
    machine = until(lambda: (now := seen(cloudgpu, "amber-fox"))["terminated_at"] and now, within_s=20)
    assert machine
    assert (machine["state"], machine["reason"]) == ("terminated", "interrupted")
    assert cloudgpu("down", "amber-fox", "--yes").code == 0
    left = {path.name for path in (cloudgpu.home / "providers").rglob("*") if path.is_file()}
    assert left == {"place.json"}, "by which this home knows its machines"


def test_an_on_demand_machine_cannot_be_interrupted(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    refused = cloudgpu("spot", "rehearse", "amber-fox", "--yes", "-o", "json")
    assert (refused.code, refused.json["error"]["field"]) == (2, "name")


def test_a_machine_that_was_killed_is_shown_stopped_and_can_be_started_or_ended(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    machine = next((cloudgpu.home / "providers").rglob("alive"))
    os.kill(int(machine.read_text()), signal.SIGKILL)
    state = until(lambda: (now := seen(cloudgpu, "amber-fox"))["state"] == "stopped" and now)
    assert state
    assert (state["reason"], state["billed"]) == ("died", False)
    assert cloudgpu("start", "--yes").code == 0
    assert cloudgpu("exec", "amber-fox", "--", "true").code == 0
    assert cloudgpu("down", "--yes").code == 0
    assert not list(Path(cloudgpu.home).rglob("machine.json"))
