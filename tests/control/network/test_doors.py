"""Who may connect, seen from control: a door that is closed to us is said, moved, shared and closed again.

The cloud is the fake one, the machine's SSH server and the address service are real ones on loopback.
"""

from __future__ import annotations

import pytest

from cloudgpu.access.ssh.authorized_keys import read_public_key
from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.access.ssh.target import AccessBlocked
from cloudgpu.access.tunnel.tunnel import TunnelChange, TunnelEvent
from cloudgpu.control.access import reach
from cloudgpu.control.access.allowlist import allow, parse_network
from cloudgpu.control.access.jupyter import JupyterTunnel
from cloudgpu.control.access.reach import connected_to, machine_with_address, wait_until_ready
from cloudgpu.control.access.share import check_from, share, unshare
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.restore import plan_restore
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.network.reachability import check_ssh_access
from cloudgpu.control.setup.doctor import examine
from cloudgpu.core.model.checks import Verdict
from cloudgpu.core.model.facts import MachineAddress
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.values.network import parse_cidr
from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, NoCapacity, ProviderUnavailable, Unreachable
from tests.access.sshserver import USER, Server
from tests.address_service import AddressService
from tests.control.conftest import Lab

HOME, CAFE, ADAS = "203.0.113.7", "198.51.100.4", "192.0.2.9"


class Street(Lab):
    """A user who moves about: a service that says their address, and machines behind a door of the cloud's."""

    def __init__(self, tmp_path, monkeypatch):
        self.service = AddressService(HOME.encode())
        self.server = Server(tmp_path / "machine")
        self.server.root.mkdir()
        (self.server.root / "connections").touch()
        self._tmp = tmp_path
        options = (
            f'reachable = true\nhost_key = "{self.server.host_key.public_line.strip()}"\n'
            f'[accounts.plain]\nprovider = "fake"\nstate_file = "{tmp_path / "plain.json"}"\n'
        )
        super().__init__(tmp_path, monkeypatch, options)
        file = self.home / "config.toml"
        file.write_text(f'address_services = ["{self.service.url}"]\naccount = "lab"\n{file.read_text()}')
        self.session = self.opened()
        self.cloud = self.session.provider("lab")
        self.server.start(authorized=client_key(self.session.home.keys).public_line)
        self.cloud.address = Address("127.0.0.1", self.server.port, USER)

    def move(self, address):
        self.service.said = address.encode()

    def machine(self, **more):
        """Launch one and look at it once more, so that its address is known."""
        row = self.up(**more).machine
        self.clock.advance(60)
        return reach.refresh(self.session, row)

    def doors(self, row):
        return dict(self.cloud.allowed(row.provider_id))

    def asked(self):
        return self.cloud.calls["allowed"] + self.cloud.calls["allow"]

    def end(self):
        self.server.kill()
        self.service.end()


@pytest.fixture
def street(tmp_path, monkeypatch):
    made = Street(tmp_path, monkeypatch)
    yield made
    made.end()


@pytest.fixture
def ada(tmp_path):
    """A colleague's public key."""
    return _key(tmp_path / "ada.pub")


def _key(path):
    path.write_text(new_host_key().public_line)
    return read_public_key(path)


def with_agent(server):
    """What `share` needs on the machine: the agent's interpreter."""
    agent = server.home / ".cloudgpu" / "agent"
    agent.parent.mkdir(parents=True)
    agent.write_text('#!/bin/sh\nshift\nexec python3 "$@"\n')
    agent.chmod(0o755)


def test_a_launch_opens_ssh_to_the_callers_address_and_to_nobody_else(street):
    row = street.machine()
    assert street.doors(row) == {"caller": f"{HOME}/32"}


def test_nobody_is_asked_when_ssh_works(street):
    row = street.machine()
    street.service.end()
    with connected_to(street.session, row) as connection:
        assert connection.capture("echo hello", timeout=10).stdout == b"hello\n"
    assert machine_with_address(street.session, row) == row
    assert wait_until_ready(street.session, row).state == "running"
    assert street.asked() == 0


def test_a_caller_who_has_moved_is_told_where_ssh_is_open_and_what_to_do(street):
    row = street.machine()
    street.move(CAFE)
    street.server.kill()
    for way in (
        lambda: connected_to(street.session, row).__enter__(),
        lambda: machine_with_address(street.session, row),
    ):
        with pytest.raises(AccessBlocked) as caught:
            way()
        fault = caught.value
        assert fault.message == f"Your address is {CAFE} now, and SSH on {row.name} is open to {HOME}."
        assert (fault.next, fault.exit_code) == (f"Run: cloudgpu allow {row.name}", 10)


def test_a_machine_that_is_open_to_us_and_silent_is_not_blamed_on_the_address(street):
    row = street.machine()
    street.server.kill()
    for way in (
        lambda: connected_to(street.session, row).__enter__(),
        lambda: machine_with_address(street.session, row),
    ):
        with pytest.raises(Unreachable, match="does not answer") as caught:
            way()
        assert not isinstance(caught.value, AccessBlocked)


def test_a_wider_network_that_covers_the_address_is_open(street):
    row = street.machine()
    street.cloud.allow(row.provider_id, "caller", "198.51.100.0/24")
    street.move(CAFE)
    street.server.kill()
    with pytest.raises(Unreachable, match="does not answer"):
        connected_to(street.session, row).__enter__()


@pytest.mark.parametrize("silent", ["service", "provider", "somebody else's group"])
def test_where_it_cannot_be_known_the_first_fault_is_the_one_that_is_told(street, silent):
    network = Network(security_group="sg-theirs") if silent == "somebody else's group" else Network()
    row = street.machine(setup=Setup(network=network))
    street.move(CAFE if silent != "service" else "not an address")
    if silent == "provider":
        street.cloud.fail_next("allowed", ProviderUnavailable("no answer"))
    street.server.kill()
    with pytest.raises(Unreachable, match="does not answer"):
        connected_to(street.session, row).__enter__()


def test_a_start_after_a_move_does_not_wait_ten_minutes_before_it_says_so(street, monkeypatch):
    monkeypatch.setattr(reach, "FIREWALL_CHECK_AFTER_S", 0.1)
    row = street.machine()
    street.move(CAFE)
    street.server.kill()
    with pytest.raises(AccessBlocked):
        wait_until_ready(street.session, row)


def test_a_start_that_waits_for_ssh_says_why_after_half_a_minute_and_until_when(street, monkeypatch):
    monkeypatch.setattr(reach, "FIREWALL_CHECK_AFTER_S", 0.1)
    monkeypatch.setattr(reach, "_seconds_left", lambda session, deadline: 0.1)
    row = street.machine()
    street.server.kill()
    street.said.clear()
    with pytest.raises(Unreachable, match="does not answer"):
        wait_until_ready(street.session, row)
    ends = f"{street.clock() + reach.READY_TIMEOUT:%H:%M}"
    assert f"{row.name}: no SSH yet, tried again until {ends} UTC; it is billed meanwhile." in street.said[-1]
    assert "does not answer" in street.said[-1]


def test_a_machine_opened_to_others_is_launched_kept_and_said_to_be_billed(street, monkeypatch):
    monkeypatch.setattr(reach, "FIREWALL_CHECK_AFTER_S", 0.1)
    street.server.kill()
    prepared = street.prepare(setup=Setup(network=Network(ssh_from=(f"{CAFE}/32",))))
    with pytest.raises(AccessBlocked) as caught:
        launch(street.session, prepared)
    (row,) = street.rows()
    assert f"cloudgpu allow {row.name}" in caught.value.next
    assert f"cloudgpu down {row.name}" in caught.value.next
    assert len(street.machines()) == 1


def test_allow_moves_the_rule_and_says_from_where(street):
    row = street.machine()
    street.move(CAFE)
    document, fault = allow(street.session, row.name, None)
    assert fault is None
    moved = {"name": row.name, "provider": row.provider, "before": f"{HOME}/32", "changed": True}
    assert document == {"from": f"{CAFE}/32", "machines": [moved], "skipped": [], "failed": []}
    assert street.doors(row) == {"caller": f"{CAFE}/32"}


def test_allowing_twice_changes_once(street):
    row = street.machine()
    street.move(CAFE)
    allow(street.session, None, None)
    document, _ = allow(street.session, None, None)
    (door,) = document["machines"]
    assert (door["before"], door["changed"]) == (f"{CAFE}/32", False)
    assert street.doors(row) == {"caller": f"{CAFE}/32"}


def test_a_named_network_needs_no_service(street):
    row = street.machine()
    street.move("no address")
    allow(street.session, row.name, parse_network("10.1.0.0/16"))
    assert street.doors(row) == {"caller": "10.1.0.0/16"}
    with pytest.raises(InvalidRequest) as caught:
        allow(street.session, row.name, None)
    assert caught.value.field == "--from"


def test_all_means_those_that_have_a_door_and_the_others_are_said(street):
    ours, plain = street.machine(name="ours"), street.machine(name="plain", account="plain")
    theirs = street.machine(name="theirs", setup=Setup(network=Network(security_group="sg-theirs")))
    inside = street.machine(name="inside", setup=Setup(network=Network(public_ip=False, jump="ada@bastion")))
    street.move(CAFE)
    document, fault = allow(street.session, None, None)
    assert fault is None
    assert [one["name"] for one in document["machines"]] == ["ours"]
    assert {one["name"] for one in document["skipped"]} == {"plain", "theirs", "inside"}
    assert street.doors(ours) == {"caller": f"{CAFE}/32"}
    assert street.doors(inside) == {}
    for row, words, field in (
        (plain, "has no firewall for", "name"),
        (theirs, "somebody else's security group", "--security-group"),
        (inside, "reached from inside its network", "--from"),
    ):
        with pytest.raises(InvalidRequest, match=words) as caught:
            allow(street.session, row.name, None)
        assert (caught.value.field, caught.value.exit_code) == (field, 2)
        assert caught.value.next


def test_one_machine_that_fails_keeps_no_other_one_closed(street):
    first, second = street.machine(name="first"), street.machine(name="second")
    street.move(CAFE)
    street.cloud.fail_next("allowed", ProviderUnavailable("no answer"))
    document, fault = allow(street.session, None, None)
    assert isinstance(fault, ProviderUnavailable)
    assert [one["message"] for one in document["failed"]] == ["no answer"]
    assert street.doors(first) == {"caller": f"{HOME}/32"}
    assert street.doors(second) == {"caller": f"{CAFE}/32"}


@pytest.mark.parametrize("name", ["fox", None])
def test_allow_asks_the_cloud_before_it_asks_a_third_party_for_the_address(street, name):
    street.machine(name="fox")
    street.service.asked.clear()
    street.cloud.fail_next("allowed", AuthFailed("no credentials"))
    if name:
        with pytest.raises(AuthFailed):
            allow(street.session, name, None)
    else:
        assert isinstance(allow(street.session, name, None)[1], AuthFailed)
    assert street.service.asked == []


def test_share_asks_the_cloud_before_it_asks_a_third_party_for_the_address(street, ada):
    row = street.machine()
    street.service.asked.clear()
    street.cloud.fail_next("allowed", AuthFailed("no credentials"))
    with pytest.raises(AuthFailed):
        share(street.session, row, ada, from_="same")
    assert (street.service.asked, street.server.connections) == ([], 0)


@pytest.mark.parametrize("fault", [AuthFailed("no credentials"), NoCapacity("sold out")])
def test_up_asks_for_the_address_when_there_is_an_offer(street, fault):
    street.cloud.fail_next("available", fault)
    with pytest.raises(type(fault)):
        street.prepare()
    assert street.service.asked == []
    assert street.prepare().plan.request.setup.network.ssh_from == (f"{HOME}/32",)


def test_a_start_from_an_image_asks_for_the_address_when_there_is_an_offer(street):
    row = stop(street.session, street.machine(name="fox", spot=True), why="test")
    street.clock.advance(1)
    street.service.asked.clear()
    street.move(CAFE)
    street.cloud.fail_next("available", NoCapacity("sold out"))
    with pytest.raises(NoCapacity):
        plan_restore(street.session, row, None)
    assert street.service.asked == []
    plan = plan_restore(street.session, row, None)
    assert plan.plan.request.setup.network.ssh_from == (f"{CAFE}/32",)


def test_without_machines_there_is_nothing_to_allow(street):
    with pytest.raises(InstanceNotFound):
        allow(street.session, None, None)


def test_allow_takes_out_whom_a_machine_that_has_ended_had_let_in(street):
    row, gone = street.machine(name="living"), street.machine(name="gone")
    street.cloud.allow(row.provider_id, f"{gone.id}.0badcafe", f"{ADAS}/32")
    street.cloud.allow(row.provider_id, "cg-of-another-ledger.0badcafe", f"{ADAS}/32")
    street.cloud.terminate(gone.provider_id)
    street.clock.advance(120)
    reach.refresh(street.session, gone)
    allow(street.session, "living", None)
    assert street.doors(row) == {"caller": f"{HOME}/32", "cg-of-another-ledger.0badcafe": f"{ADAS}/32"}


@pytest.mark.soak
def test_a_key_is_shared_with_the_address_that_it_comes_from_and_taken_out_with_it(street, ada):
    with_agent(street.server)
    row = street.machine()
    value = share(street.session, row, ada, from_=ADAS)
    assert (value["changed"], value["from"]) == (True, f"{ADAS}/32")
    assert sorted(street.doors(row).values()) == [f"{ADAS}/32", f"{HOME}/32"]
    assert share(street.session, row, ada, from_=ADAS)["changed"] is False
    assert share(street.session, row, ada, from_=CAFE)["changed"] is True
    assert sorted(street.doors(row).values()) == [f"{CAFE}/32", f"{HOME}/32"]
    assert unshare(street.session, row, ada)["changed"] is True
    assert street.doors(row) == {"caller": f"{HOME}/32"}
    assert unshare(street.session, row, None)["changed"] is False


@pytest.mark.soak
def test_two_colleagues_at_one_address_are_told_apart(street, ada, tmp_path):
    with_agent(street.server)
    row, bob = street.machine(), _key(tmp_path / "bob.pub")
    share(street.session, row, ada, from_="same")
    share(street.session, row, bob, from_="same")
    assert list(street.doors(row).values()) == [f"{HOME}/32"] * 3
    unshare(street.session, row, ada)
    assert list(street.doors(row).values()) == [f"{HOME}/32"] * 2
    unshare(street.session, row, None)
    assert street.doors(row) == {"caller": f"{HOME}/32"}


def test_a_key_without_an_address_is_refused_before_anything_is_done(street, ada):
    row = street.machine()
    with pytest.raises(InvalidRequest, match="this key's owner has none yet") as caught:
        share(street.session, row, ada)
    assert (caught.value.field, caught.value.exit_code) == ("--from", 2)
    assert street.server.connections == 0
    for typed, remove in (("0.0.0.0/0", False), ("home", False), (ADAS, True)):
        with pytest.raises(InvalidRequest) as caught:
            check_from(typed, remove=remove)
        assert caught.value.field == "--from"


def test_where_nobody_keeps_a_door_an_address_means_nothing(street, ada):
    with_agent(street.server)
    row = street.machine(name="plain", account="plain")
    with pytest.raises(InvalidRequest, match="has no firewall for"):
        share(street.session, row, ada, from_=ADAS)


def test_an_address_is_taken_out_even_where_the_machine_cannot_be_reached(street, ada):
    with_agent(street.server)
    row = street.machine()
    share(street.session, row, ada, from_=ADAS)
    street.server.kill()
    with pytest.raises(Unreachable):
        unshare(street.session, row, ada)
    assert street.doors(row) == {"caller": f"{HOME}/32"}


def test_doctor_says_for_each_running_machine_whether_it_is_open_to_us(street):
    row = street.machine(name="ours")
    street.machine(name="plain", account="plain")
    (check,) = check_ssh_access(street.session, ["lab", "plain"])
    assert (check.verdict, check.message) == (Verdict.OK, f"open to your address, {HOME}")
    street.move(CAFE)
    (check,) = check_ssh_access(street.session, ["lab", "plain"])
    assert (check.verdict, check.exit_code, check.next) == (Verdict.FAIL, 10, f"Run: cloudgpu allow {row.name}")
    assert check in examine({"CLOUDGPU_HOME": str(street.home), "USER": "ada"}, clock=street.clock)
    street.move("no address")
    (check,) = check_ssh_access(street.session, ["lab"])
    assert check.verdict is Verdict.WARN
    assert list(check_ssh_access(street.session, ["plain"])) == []


def test_a_tunnel_that_waits_says_once_why_it_waits_in_vain(street):
    tunnel = JupyterTunnel(street.session, street.machine())
    street.move(CAFE)
    street.said.clear()
    fault = Unreachable("no answer")
    for kind in (TunnelChange.LOST, *[TunnelChange.TRIED] * 4, TunnelChange.RECONNECTED):
        tunnel._on_tunnel_event(TunnelEvent(kind, 8888, fault))
    (sentence,) = [one for one in street.said if "cloudgpu allow" in one]
    assert f"Your address is {CAFE} now" in sentence


def test_a_machine_behind_a_jump_host_is_reached_through_it_and_opened_to_nobody_by_us(street):
    row = street.machine(setup=Setup(network=Network(public_ip=False, jump="ada@bastion:2222")))
    street.session.client_key_file.touch()
    assert str(street.session.target(row).jump) == "ada@bastion:2222"
    assert "ssh -W '[%h]:%p' -p 2222 ada@bastion" in street.session.home.ssh_config.read_text()
    street.move(CAFE)
    assert machine_with_address(street.session, row) == row


def test_what_is_typed_for_allow_is_read_as_for_up():
    assert parse_network(None) is None
    assert parse_network(None, any_source=True) == "0.0.0.0/0"
    assert parse_network("10.0.0.0/16") == parse_cidr("10.0.0.0/16", "--from")
    with pytest.raises(InvalidRequest, match="everybody") as caught:
        parse_network("0.0.0.0/0")
    assert "--from-anywhere" in caught.value.next
    with pytest.raises(InvalidRequest, match="contradict"):
        parse_network("10.0.0.0/16", any_source=True)


def test_another_machine_at_the_old_address_is_not_taken_for_a_wrong_key(street):
    row = street.machine()
    theirs = Server(street._tmp / "theirs")
    theirs.root.mkdir()
    (theirs.root / "connections").touch()
    theirs.start(authorized=client_key(street.session.home.keys).public_line)
    try:
        old = row._replace(address=MachineAddress("127.0.0.1", theirs.port, USER))
        with connected_to(street.session, old) as connection:
            assert connection.capture("echo hello", timeout=10).stdout == b"hello\n"
        street.cloud.terminate(row.provider_id)
        street.later(minutes=1)
        with pytest.raises(InstanceNotFound, match="It cost"):
            connected_to(street.session, old).__enter__()
    finally:
        theirs.kill()
