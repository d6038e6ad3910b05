from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.control.activity.agents import MAX_ANSWER_BYTES, probe
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.observe import store_new_samples
from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN, Thresholds
from cloudgpu.core.activity.report import Report
from cloudgpu.core.model.facts import MachineAddress
from cloudgpu.ledger.samples.store import SampleStore
from tests.access.sshserver import USER, Server
from tests.core.machines import machine as a_machine

NOW = 1_800_000_000
MINUTE = 60


def quiet(minutes, now=NOW, **more):
    """Return an agent's answer: a minute a bucket, nothing done in any of them."""
    samples = [{"t": now - MINUTE * n, "s": 60, "cpu": 0.01, "net": 300, "disk": 0} | more for n in range(minutes)]
    return {"now": now, "up_since": now - 86400, "samples": samples[::-1], "scratch": []}


class Machine:
    """A machine behind a real SSH server; its agent is a script that says what the test wants."""

    def __init__(self, root):
        root.mkdir()
        (root / "connections").touch()
        self.server = Server(root).start().pin()
        self.home = self.server.home / ".cloudgpu"
        self.home.mkdir()
        self.says(quiet(90))
        self.session = open_session({"CLOUDGPU_HOME": str(root), "USER": "ada"}, clock=self.clock)
        self.now = NOW

    def clock(self):
        return datetime.fromtimestamp(self.now, UTC)

    def says(self, answer):
        (self.home / "answer").write_text(answer if isinstance(answer, str) else json.dumps(answer))
        self.runs('echo "$*" >> ~/.cloudgpu/asked; cat ~/.cloudgpu/answer')

    def runs(self, script):
        (self.home / "agent").write_text(f"#!/bin/sh\n{script}\n")
        (self.home / "agent").chmod(0o755)

    @property
    def asked(self):
        return (self.home / "asked").read_text().splitlines()

    def machine(self, **more):
        known = {"id": "cg-test", "name": "box", "address": MachineAddress("127.0.0.1", self.server.port, USER)}
        return a_machine(**known | {"state": "running"} | more)

    def probe(self, *rows, **more):
        return probe(self.session, rows or [self.machine()], **more)

    @property
    def report(self) -> Report:
        return self.probe()["cg-test"]


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path / "machine")
    yield made
    made.server.kill()


def test_a_quiet_machine_is_asked_and_judged_idle(machine):
    report = machine.report
    assert (report.fault, len(report.samples), report.machine_now) == ("", 90, NOW)
    assert report.judged(Thresholds()).activity == IDLE
    assert machine.asked == [f"status --since {NOW - 90000}"]


def test_only_as_much_as_is_wanted_is_asked_for_and_what_was_not_asked_for_yet(machine):
    machine.probe(window_s=7200)
    machine.now += 600
    machine.says(quiet(90, NOW + 600))
    machine.probe(window_s=300)
    assert machine.asked == [f"status --since {NOW - 90000}", f"status --since {NOW - MINUTE}"]


def test_what_was_said_is_kept(machine):
    machine.probe()
    machine.says(quiet(30, NOW + 600))
    machine.now += 600
    machine.probe()
    kept = SampleStore(machine.session.home.samples, "cg-test").read(0, NOW + 600)
    assert [one["t"] for one in kept] == [NOW - 89 * MINUTE + MINUTE * n for n in range(99)]


def test_a_rehearsal_keeps_nothing(machine):
    assert machine.probe(store=False)["cg-test"].judged(Thresholds()).activity == IDLE
    assert not machine.session.home.samples.exists()


def test_a_home_that_cannot_be_written_to_keeps_nobody_from_being_judged(machine):
    machine.session.home.samples.write_text("no directory")
    assert machine.report.judged(Thresholds()).activity == IDLE


def test_a_machine_whose_clock_is_an_hour_behind_is_asked_for_all_it_has(machine):
    machine.says(quiet(90, NOW - 3600))
    report = machine.probe(window_s=3600)["cg-test"]
    assert report.judged(Thresholds()).activity == IDLE
    assert len(machine.asked) == 2
    assert int(machine.asked[1].split()[-1]) <= NOW - 7200


def test_a_busy_machine_is_active(machine):
    machine.says(quiet(90, busy=["kernel 1"]))
    assert machine.report.judged(Thresholds()).activity == ACTIVE


def test_an_agent_that_has_died_is_unknown_and_not_idle(machine):
    answer = quiet(90)
    machine.says(answer | {"now": NOW + 1200})
    machine.now += 1200
    assert machine.report.judged(Thresholds()).activity == UNKNOWN


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('echo \'{"activity": "IDLE"}\'', "its agent is of an earlier version and keeps no samples"),
        ("echo 'agent: error: unrecognized arguments: --since' >&2; exit 2", "of an earlier version"),
        ("exit 127", "its agent does not answer (status 127)"),
        ("yes", f"printed more than {MAX_ANSWER_BYTES} bytes"),
        ("yes >&2 & sleep 0.2; kill $!; echo rubbish", "does not answer in JSON"),
        ('echo \'{"now": 1, "up_since": 0, "samples": [{"t": "x"}]}\'', "cannot be used: sample 0: t is not a number"),
    ],
)
def test_an_agent_that_says_nothing_of_use_is_unknown_and_says_why(machine, script, why):
    machine.runs(script)
    report = machine.report
    judged = report.judged(Thresholds(after=60))
    assert why in report.fault
    assert (judged.activity, judged.why) == (UNKNOWN, report.fault)


def test_an_agent_that_hangs_costs_the_timeout_and_no_more(machine):
    machine.runs("sleep 60")
    began = time.monotonic()
    report = machine.probe(timeout_s=3)["cg-test"]
    assert "not done after" in report.fault
    assert time.monotonic() - began < 30


def test_a_frozen_machine_and_one_that_is_gone_cost_the_others_nothing(machine, tmp_path):
    frozen = Machine(tmp_path / "frozen")
    client_files.pin(machine.session.home.known_hosts, "cg-frozen", frozen.server.host_key.public_line)
    client_files.pin(machine.session.home.known_hosts, "cg-gone", frozen.server.host_key.public_line)
    frozen.server.freeze()
    try:
        rows = [
            frozen.machine(id="cg-frozen", name="frozen"),
            machine.machine(id="cg-gone", name="gone", address=MachineAddress("127.0.0.1", 1, USER)),
            machine.machine(),
            machine.machine(id="cg-off", name="off", address=None),
        ]
        reports = machine.probe(*rows, timeout_s=4)
    finally:
        frozen.server.thaw()
        frozen.server.kill()
    assert list(reports) == ["cg-frozen", "cg-gone", "cg-test", "cg-off"]
    assert "frozen does not answer" in reports["cg-frozen"].fault
    assert "gone does not answer" in reports["cg-gone"].fault
    assert "off has no address" in reports["cg-off"].fault
    assert reports["cg-test"].judged(Thresholds()).activity == IDLE


def test_a_machine_with_another_host_key_is_said_and_told_nothing(machine):
    client_files.pin(machine.session.home.known_hosts, "cg-test", new_host_key().public_line)
    report = machine.report
    assert "another host key" in report.fault
    assert not (machine.home / "asked").exists()


@pytest.mark.soak
def test_many_are_asked_side_by_side(machine):
    wait = "while [ $(ls here.* | wc -l) -lt 6 ]; do sleep 0.05; done"  # one after the other, none would ever answer
    machine.runs(f"cd ~/.cloudgpu; touch here.$$; {wait}; cat answer")
    rows = [machine.machine(id=f"cg-{n}", name=f"box{n}") for n in range(6)]
    for row in rows:
        client_files.pin(machine.session.home.known_hosts, row.id, machine.server.host_key.public_line)
    reports = machine.probe(*rows, parallel=6, timeout_s=60)
    assert [one.fault for one in reports.values()] == [""] * 6


def test_who_runs_is_asked_for_what_is_to_be_kept_and_nobody_else(machine):
    off = machine.machine(id="cg-off", name="off", state="stopped")
    gone = machine.machine(id="cg-gone", name="gone", terminated_at="2026-11-20T10:00:00.000000Z")
    assert (
        store_new_samples(machine.session, [machine.machine(), off, gone, machine.machine(id="cg-new", address=None)])
        == 1
    )
    assert sorted(path.name for path in machine.session.home.samples.iterdir()) == ["cg-test"]


def test_nobody_to_ask_is_no_fault(machine):
    assert probe(machine.session, []) == {}
