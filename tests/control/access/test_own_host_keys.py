"""Machines that make their own host keys: read through the provider's API, pinned, and only then connected to."""

from __future__ import annotations

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.control.access.reach import connected_to, machine_with_address, refresh, wait_until_ready
from cloudgpu.control.network.host_keys import pin_launch_key
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.errors import ProviderUnavailable, Unreachable, WrongHostKey
from cloudgpu.ledger import saved_calls as saved
from tests.access.sshserver import USER, Server
from tests.control.conftest import Lab

SETUP = Setup(network=Network(ssh_from=("203.0.113.7/32",)))
RSA = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7"


class Own(Lab):
    """A lab whose one SSH server shows a key that no launch gave it."""

    def __init__(self, tmp_path, monkeypatch):
        super().__init__(tmp_path, monkeypatch, "tells = true\n")
        self.server = Server(tmp_path / "machine")
        self.server.root.mkdir()
        (self.server.root / "connections").touch()
        self.server.start(authorized=client_key(self.session.home.keys).public_line)
        self.cloud.address = Address("127.0.0.1", self.server.port, USER)

    def machine(self):
        row = self.up(setup=SETUP).machine
        self.clock.advance(60)
        return refresh(self.session, row)

    def says(self, row, line=None):
        self.cloud.say_host_key(row.provider_id, line or self.server.host_key.public_line)

    @property
    def key(self):
        return client_files.public_key(self.server.host_key.public_line)

    def pinned(self, row):
        return client_files.pinned(self.session.home.known_hosts, row.id)

    def connected(self, row):
        with connected_to(self.session, row) as connection:
            return connection.capture("echo hello", timeout=10).stdout


@pytest.fixture
def own(tmp_path, monkeypatch):
    made = Own(tmp_path, monkeypatch)
    yield made
    made.server.kill()


@pytest.mark.soak
def test_a_launch_gives_no_key_and_pins_none(own):
    row = own.machine()
    attempt = saved.load(own.session.home.attempts, row.token)
    assert (attempt.boot.host_public_key, attempt.boot.host_private_key) == ("", "")
    assert own.pinned(row) is None


def test_ready_is_who_shows_the_key_that_the_provider_told(own):
    row = own.machine()
    own.says(row)
    assert wait_until_ready(own.session, row).state == "running"
    assert own.pinned(row) == own.key
    assert "reading its host key through the provider's API" in " ".join(own.said)
    asked = own.cloud.calls["host_keys"]
    assert own.connected(row) == b"hello\n"
    assert own.cloud.calls["host_keys"] == asked, "a key that is pinned is not asked for again"


def test_who_shows_another_key_than_was_told_is_not_trusted(own):
    row = own.machine()
    own.says(row, new_host_key().public_line)
    with pytest.raises(WrongHostKey):
        wait_until_ready(own.session, row)


def test_a_key_is_waited_for_and_nobody_is_contacted_before(own):
    row = own.machine()
    pauses = []

    def pause(seconds):
        assert own.server.connections == 0
        pauses.append(seconds)
        own.clock.advance(seconds)
        if len(pauses) == 3:
            own.says(row)

    own.session.pause = pause
    wait_until_ready(own.session, row)
    assert len(pauses) == 3


def test_without_a_key_in_time_nobody_is_contacted(own):
    row = own.machine()
    with pytest.raises(
        Unreachable, match="has not reported its host key yet, so cloudgpu cannot verify it and did not connect"
    ):
        wait_until_ready(own.session, row)
    assert (own.server.connections, own.pinned(row)) == (0, None)


def test_a_provider_that_does_not_answer_is_asked_again(own):
    row = own.machine()
    own.says(row)

    def fall():
        raise ProviderUnavailable("The fake cloud is down.")

    own.cloud.fail_next("host_keys", fall, times=2)
    wait_until_ready(own.session, row)
    assert " ".join(own.said).count("The fake cloud is down.; asking again") == 2


def test_a_key_of_a_lesser_kind_waits_for_a_better_one_for_one_more_look(own):
    row = own.machine()
    own.says(row, "ssh-ed25519 no-key")
    own.says(row, "ssh-dss AAAAB3NzaC1kc3M=")
    own.cloud.say_host_key(row.provider_id, RSA)
    own.session.pause = lambda _seconds: own.says(row)
    wait_until_ready(own.session, row)
    assert own.pinned(row) == own.key


def test_whoever_comes_later_reads_it_too(own):
    row = own.machine()
    with pytest.raises(Unreachable, match="has not reported its host key"):
        own.connected(row)
    with pytest.raises(Unreachable, match="has not reported its host key"):
        machine_with_address(own.session, row)
    own.says(row)
    assert own.connected(row) == b"hello\n"


def test_the_key_of_an_earlier_machine_of_the_same_id_is_forgotten(own):
    row = own.machine()
    attempt = saved.load(own.session.home.attempts, row.token)
    own.says(row)
    wait_until_ready(own.session, row)
    pin_launch_key(own.session, attempt)
    assert own.pinned(row) is None
