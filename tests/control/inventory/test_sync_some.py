"""What every verb says of a machine that has ended while the ledger still has it running.

The agent on a machine renews its lease by the tags, so that the ledger's word on that may be old, too.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.cli.app import run
from cloudgpu.control.access.reach import machine_with_address
from cloudgpu.control.api.client import Cloudgpu
from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage import opening as sessions
from cloudgpu.control.reaper.notify import renew_leases
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InstanceNotFound

NOBODY = 'host = "127.0.0.1"\nport = 9\nreachable = true\n'  # no SSH server is there
INSIDE = Setup(network=Network(ssh_from=("203.0.113.7/32",)))

VERBS = {
    "extend": lambda here, _: here.machines.extend("fox", "1h"),
    "hold": lambda here, _: here.machines.hold("fox", "1h"),
    "release": lambda here, _: here.machines.hold("fox", release=True),
    "stop": lambda here, _: here.machines.stop("fox"),
    "start": lambda here, _: here.machines.start("fox"),
    "exec": lambda here, _: here.machines.exec("fox", ["true"]),
    "cp": lambda here, _: here.machines.cp("fox:notes", "."),
    "tunnel": lambda here, _: here.machines.tunnel("fox").__enter__(),
    "share": lambda here, key: here.machines.share("fox", key, from_="198.51.100.4"),
    "unshare": lambda here, _: here.machines.share("fox", remove=True),
    "allow": lambda here, _: here.machines.allow("fox", from_="198.51.100.4"),
    "image save": lambda here, _: here.machines.save_image("fox"),
}


@pytest.fixture(params=[3600, 0], ids=["shown as terminated", "unknown"])
def lab(request, make_lab):
    """A cloud that shows an ended machine for an hour, as AWS does, or not at all."""
    return make_lab(f"{NOBODY}keep_s = {request.param}\n")


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "ada.pub"
    path.write_text(new_host_key().public_line)
    return path


def up(lab, *, spot=False):
    market = Market.SPOT if spot else Market.ON_DEMAND
    wish = UpRequest(Requirements(gpu="v100", market=market), name="fox", setup=INSIDE, spot=spot)
    row = launch(lab.session, prepare(lab.session, wish), wait=False).machine
    lab.later(hours=2)
    return Cloudgpu({"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}, lab.said.append, lab.clock), row


def ended_outside(lab, row):
    """Somebody ends it in the console, two hours after the launch."""
    lab.cloud.terminate(row.provider_id)
    lab.later(minutes=1)


def ledger_row(lab, row):
    return lab.opened().ledger.machine(row.id)


@pytest.mark.parametrize("verb", VERBS)
def test_a_machine_that_is_gone_is_never_said_to_live(lab, key, verb):
    here, row = up(lab)
    ended_outside(lab, row)
    with pytest.raises(InstanceNotFound) as caught:
        VERBS[verb](here, key)
    assert caught.value.exit_code == 7
    assert "fox ended at 2026-" in caught.value.message
    assert "It cost $" in caught.value.message
    after = ledger_row(lab, row)
    assert after.terminated_at is not None
    assert (after.expires, after.hold_until) == (row.expires, row.hold_until)


def test_a_rehearsal_on_a_machine_that_is_gone_says_so(lab):
    here, row = up(lab, spot=True)
    ended_outside(lab, row)
    with pytest.raises(InstanceNotFound, match="It cost"):
        here.machines.rehearse("fox")
    assert "interruption_simulated" not in [line.kind for line in lab.opened().ledger.events(row.id)]


def test_the_systems_ssh_is_not_started_for_a_machine_that_is_gone(lab):
    _, row = up(lab)
    ended_outside(lab, row)
    with pytest.raises(InstanceNotFound, match="It cost"):
        machine_with_address(lab.session, row)


def test_behind_a_jump_host_the_provider_is_asked_before_ssh_is_started(lab):
    row = lab.up(name="fox", setup=Setup(network=Network(public_ip=False, jump="ada@bastion"))).machine
    assert machine_with_address(lab.session, row).id == row.id
    ended_outside(lab, row)
    with pytest.raises(InstanceNotFound, match="It cost"):
        machine_with_address(lab.session, row)


@pytest.mark.parametrize("change", ["extend", "hold"])
def test_a_machine_that_ends_between_the_look_and_the_tag_is_said_to_be_gone(lab, change):
    here, row = up(lab)
    tag = lab.cloud.tag

    def too_late(machine, tags):
        ended_outside(lab, row)
        tag(machine, tags)

    here._session.provider("lab").tag = too_late
    with pytest.raises(InstanceNotFound, match="It cost"):
        VERBS[change](here, None)
    assert ledger_row(lab, row).terminated_at is not None


def test_an_extension_counts_from_the_lease_that_the_machine_has_now(lab):
    here, row = up(lab)
    expires, renew_until = (from_iso(end) + timedelta(hours=3) for end in (row.expires, row.renew_until))
    lab.cloud.tag(row.provider_id, Lease(expires, renew_until).tags())  # its agent has renewed it
    assert from_iso(here.machines.extend("fox", "1h")["expires"]) == expires + timedelta(hours=1)
    assert from_iso(ledger_row(lab, row).renew_until) == renew_until


def test_a_stopped_machine_is_not_said_to_live(lab, capsys, monkeypatch):
    _, row = up(lab)
    lab.cloud.stop(row.provider_id)
    monkeypatch.setattr(sessions, "open_session", lambda *_, **__: lab.opened())
    assert run(["extend", "fox", "1h", "--yes"]) == 0
    assert capsys.readouterr().out.startswith("fox is stopped; its lease ends ")


def test_of_all_machines_those_that_are_gone_are_passed_over(lab):
    here, row = up(lab)
    ended_outside(lab, row)
    (skipped,) = here.machines.allow(from_="198.51.100.4")["skipped"]
    assert skipped["name"] == "fox"
    assert "ended at" in skipped["why"]


def test_down_says_when_a_machine_had_ended_already(lab, capsys, monkeypatch):
    _, row = up(lab)
    ended_outside(lab, row)
    sync_all(lab.session)
    lab.later(hours=5)
    monkeypatch.setattr(sessions, "open_session", lambda *_, **__: lab.opened())
    assert run(["down", "fox", "--yes"]) == 0
    assert "fox is gone since " in capsys.readouterr().out


def test_a_pass_renews_no_lease_of_a_machine_that_has_ended_since_its_look(lab):
    _, row = up(lab)
    decision = Decision(row.id, "fox", ReaperAction.RENEW, Rule.LEASE, "in use", at=lab.clock() + timedelta(hours=30))
    ended_outside(lab, row)
    done, (left,) = renew_leases(lab.session, [MachineView(row, None, "", answered=True)], [decision])
    assert not done
    assert "fox ended at" in left.why
    assert ledger_row(lab, row).expires == row.expires
